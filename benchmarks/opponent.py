"""Load the clips of training with pytorchvideo's dataset, for comparison in tools/bench_loader.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mgexp.data.clips import TrainingClips, finish, random_region
from mgexp.multigrid.sampler import ClipRequest


@dataclass(frozen=True)
class LabeledVideos:
    """A way to load the clips of ``clips`` with ``pytorchvideo.data.LabeledVideoDataset``.

    The dataset has the fast settings of its documentation: PyAV, no audio, one clip of the wanted span from each
    opened file. It decodes all frames of the span, and this class keeps evenly spaced ones. The transforms of
    pytorchvideo cannot be imported with a recent torchvision, so this class uses ours. Ours are also faster,
    because they crop before they resize, as uint8. Source: pytorchvideo 0.1.5, data/labeled_video_dataset.py,
    and its tutorial for Kinetics.
    """

    clips: TrainingClips

    def __call__(self, request: ClipRequest) -> Tensor:
        """Return a clip uint8 (T, S, S, 3) with the same draws as ours. Its frames are at most one frame off.

        Raises RuntimeError if the video fails.
        """
        from pytorchvideo.data import LabeledVideoDataset

        draw = _Draw(self.clips, request, np.random.default_rng(request.seed))
        path = self.clips.records[request.index].path
        # False means that audio is not decoded.
        dataset = LabeledVideoDataset(
            [(path, {})], draw, torch.utils.data.SequentialSampler, draw.transform, False, "pyav"
        )
        clip: Tensor = next(iter(dataset))["video"]
        return clip


@dataclass(frozen=True)
class _Draw:
    """The draws of one clip, as a clip sampler and a transform that pytorchvideo calls."""

    clips: TrainingClips
    request: ClipRequest
    rng: np.random.Generator

    def __call__(
        self, last_clip_time: float, video_duration: float, annotation: object
    ) -> tuple[float, float, int, int, bool]:
        """Return start and end in seconds, the numbers of the clip and of its augmentation, and "is the last"."""
        from pytorchvideo.data.clip_sampling import ClipInfo

        duration, request = float(video_duration), self.request
        # A clip with one frame from each segment takes the whole video.
        start, end = 0.0, duration
        if request.stride_range is not None:
            times = self.clips.draw_times(duration, request, self.rng)
            start, end = float(times[0]), float(times[-1]) + 1 / self.clips.target_fps
        info: tuple[float, float, int, int, bool] = ClipInfo(start, end, 0, 0, True)
        return info

    def reset(self) -> None:
        """Do nothing, because this sampler keeps no state from clip to clip."""

    def transform(self, sample: Mapping[str, Any]) -> dict[str, Tensor]:
        """Cut the clip out of the decoded frames, float32 (3, t, H, W)."""
        video, crop = sample["video"], self.request.crop
        _, num_decoded, height, width = video.shape
        kept = torch.linspace(0, num_decoded - 1, self.request.frames).long()
        short_side = self.clips.draw_short_side(crop, self.rng)
        region = random_region(height, width, crop, short_side, self.rng)
        cut = video[:, kept][..., region.rows, region.columns]
        augment = self.clips.augment
        if self.clips.flip:
            # Our clips draw this here too. The device mirrors the clip.
            self.rng.random()
        seed = int(self.rng.integers(2**63)) if augment else 0
        return {"video": finish(cut.permute(1, 2, 3, 0).to(torch.uint8), crop, augment, seed)}
