"""Clips of a user's videos in a custom training loop: a data set whose items are asked for by ``ClipRequest``.

    videos, classes = videos_in("my_videos/train")      a folder of videos for each class
    clips = Videos(videos, recipe)
    loader = DataLoader(clips, batch_sampler=StepSampler(schedule, seed=0), num_workers=4)

docs/library.md has the whole program. Runs of tools/run_net.py read clips in the same way, but as uint8 batches.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

from mgexp.data.clips import SquareCrop, TrainingClips
from mgexp.data.formats import class_folders, read_folders
from mgexp.data.records import VideoRecord
from mgexp.data.views import EvaluationViews
from mgexp.errors import InputError, listed, raise_problems
from mgexp.multigrid.recipe import Recipe
from mgexp.multigrid.sampler import ClipRequest
from mgexp.video.frame_folder import FilesAndFolders
from mgexp.video.reader import VideoError

MEAN, STD = (0.45, 0.45, 0.45), (0.225, 0.225, 0.225)
"""Mean and standard deviation of R, G and B, as in the released code."""


def videos_in(
    folder: str | Path, classes: Sequence[str] | None = None
) -> tuple[list[tuple[str, int]], list[str]]:
    """Return the (path, label) of all videos of ``folder``, which has a folder for each class, and the names.

    Labels follow the sorted names. For a validation folder, ``classes`` are the names of the training folder.
    Raises InputError with every problem of the folder, for a video that is an empty file, and if the folder has
    other classes than these.
    """
    folder = Path(folder)
    names = class_folders(folder)
    if classes is not None and list(classes) != list(names):
        problem = f"has the classes {listed(names)}, not {listed(classes)} in this order"
        raise InputError([f"{folder} {problem}"])
    listing = read_folders(folder, {name: label for label, name in enumerate(names)}).existing()
    empty = [f"{path} is missing or an empty file: remove it" for path in listing.missing]
    raise_problems([*listing.problems, *empty])
    videos = [
        (record.path, record.label) for record in listing.records if isinstance(record, VideoRecord)
    ]
    return videos, list(names)


class Videos(Dataset[tuple[Tensor, int]]):
    """Clips of videos: float32 (3, T, S, S), normalised, and their labels.

    ``videos``: (path, label) of each; a path is a file or a folder of numbered images. ``recipe``: that of the
    schedule. Its ``jitter``, ``stride``, ``frames`` and ``crop`` say how clips are cut.

    An index of the type ClipRequest draws a random clip of the requested shape. The same request always gives the
    same clip. If a video fails, another one takes its place, with a warning of Python's. An index that is a number
    gives the clip in the centre of that video at the full shape, for validation; it raises VideoError if the video
    fails. Raises InputError for files that do not exist, with all of them.
    """

    def __init__(
        self,
        videos: Sequence[tuple[str | Path, int]],
        recipe: Recipe,
        *,
        flip: bool = True,
        target_fps: float = 30.0,
        mean: tuple[float, float, float] = MEAN,
        std: tuple[float, float, float] = STD,
    ) -> None:
        # A request may be answered in a worker that has another working folder.
        records = [VideoRecord(os.path.abspath(path), label) for path, label in videos]  # noqa: PTH100
        lost = [
            f"{record.path} does not exist" for record in records if not Path(record.path).exists()
        ]
        raise_problems(lost)
        if not records:
            raise InputError(["Videos got no videos: give at least one (path, label)"])
        if recipe.jitter is None:
            problem = "recipe.jitter is None: give the range of the short side, such as (256, 320)"
            raise InputError([problem])
        opener = FilesAndFolders()
        self.records = records
        self._random = TrainingClips(
            records,
            target_fps=target_fps,
            crops=SquareCrop(recipe.jitter, recipe.crop),
            flip=flip,
            opener=opener,
        )
        self._centre = EvaluationViews(
            records,
            frames=recipe.frames,
            stride=recipe.stride,
            crop=recipe.crop,
            target_fps=target_fps,
            num_views=1,
            num_crops=1,
            opener=opener,
        )
        self._mean, self._std = (
            255 * torch.tensor(values).view(3, 1, 1, 1) for values in (mean, std)
        )

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, wanted: ClipRequest | int) -> tuple[Tensor, int]:
        """Return a clip and its label: a random clip for a request, and the centre clip for a number."""
        if isinstance(wanted, ClipRequest):
            return self._draw(wanted)
        view = self._centre[range(len(self))[wanted]]
        if view.error is not None:
            path = self.records[view.video].path
            raise VideoError(path, view.error.removeprefix(f"{path}: "))
        return self._normalized(view.frames[0], is_flipped=False), self.records[view.video].label

    def _draw(self, request: ClipRequest) -> tuple[Tensor, int]:
        clip = self._random[request]
        for _, reason in clip.unusable:
            warnings.warn(f"unusable video, replaced: {reason}", stacklevel=3)
        if not len(clip.frames):
            problem = f"{len(clip.unusable)} videos in a row cannot be used, and this is the first"
            raise VideoError(self.records[request.index].path, problem)
        return self._normalized(clip.frames, clip.flipped), self.records[clip.index].label

    def _normalized(self, frames: Tensor, is_flipped: bool) -> Tensor:
        """Normalise uint8 (T, S, S, 3) frames to float32 (3, T, S, S)."""
        shown = frames.permute(3, 0, 1, 2)
        if is_flipped:
            shown = shown.flip(-1)
        return shown.float().sub_(self._mean).div_(self._std)
