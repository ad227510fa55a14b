"""Scores of the views of each video, and the part of them that is on disk while a long evaluation runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mgexp import dist
from mgexp.dist import Processes
from mgexp.errors import InputError, listed
from mgexp.run.log import LOGGER
from mgexp.run.torch_file import DamagedFileError, load_torch, save_torch
from mgexp.train.step import Normalizer
from mgexp.train.task import Task


@dataclass(frozen=True)
class Evaluation:
    """``metrics`` in percent, the mean ``loss`` per view, and what they come from: a row for each video.

    ``scores`` (videos, classes) cover all views of a video. They and ``labels`` are on the CPU.
    """

    metrics: Mapping[str, float]
    loss: float
    scores: Tensor
    labels: Tensor


class Scores:
    """Scores over the views of each video; the task's ensemble puts views together."""

    def __init__(self, num_videos: int, task: Task, device: torch.device) -> None:
        self.task = task
        self.sums = task.no_scores(num_videos, device)
        self.labels = task.no_labels(num_videos, device)
        self.loss = torch.zeros(2, dtype=torch.float64, device=device)  # sum over views, views

    def add(self, logits: Tensor, videos: Tensor, labels: Tensor) -> None:
        """Add the logits (N, classes) and labels (N, ...) of N views of ``videos`` (N,)."""
        self.task.ensemble.add(self.sums, videos, self.task.scores(logits.float()))
        self.labels[videos] = labels
        views = logits.new_tensor(len(labels))
        self.loss += torch.stack([self.task.loss(logits, labels) * views, views])

    def state_dict(self) -> dict[str, Tensor]:
        """What this process has added so far."""
        return {"sums": self.sums, "labels": self.labels, "loss": self.loss}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what was added before."""
        for name, values in self.state_dict().items():
            values.copy_(state[name])

    def reduce(self, processes: Processes) -> Evaluation:
        """Compute the evaluation over the views of all processes."""
        self.task.ensemble.reduce(processes, self.sums)
        dist.sum_(processes, self.loss)
        dist.max_(processes, self.labels)  # views of one video may be in several processes
        return Evaluation(
            metrics=self.task.metrics(self.sums, self.labels),
            loss=(self.loss[0] / self.loss[1]).item(),
            scores=self.sums.cpu(),
            labels=self.labels.cpu(),
        )


@torch.inference_mode()
def score_views(
    model: nn.Module,
    batches: Iterable[Any],
    scores: Scores,
    normalizer: Normalizer,
    after_batch: Callable[[], None] = lambda: None,
) -> dict[int, str]:
    """Add the views of ``batches`` to ``scores``, and call ``after_batch`` after each batch.

    Returns the videos that cannot be decoded, and why. After the first of them no more views are scored: the
    other batches are only searched for further broken videos.
    """
    model.eval()
    device = normalizer.device
    errors: dict[int, str] = {}
    for batch in batches:
        errors.update(batch.errors)
        if errors:
            continue
        logits = model(normalizer(batch.clips))
        scores.add(logits, batch.videos.to(device), batch.labels.to(device))
        after_batch()
    return errors


def check_decoded(errors: Mapping[int, str]) -> None:
    """Raise InputError that lists every video of ``errors``, those of all processes, by its index."""
    if errors:
        names = [errors[video] for video in sorted(errors)]
        raise InputError([f"{len(names)} validation videos cannot be decoded: {listed(names)}"])


@dataclass
class PartialScores:
    """Scores of this process after some of its batches, in the file ``path``, so that a killed evaluation goes on.

    They are saved after a batch where ``save_seconds`` have passed since the last time, and when all is done;
    never where ``path`` is None, for an evaluation that is short. A file counts only for the same ``identity``,
    such as a hash of the videos. ``num_batches`` and ``seconds`` include those of earlier starts.
    """

    path: Path | None
    identity: str = ""
    save_seconds: float = 0.0
    num_batches: int = 0
    seconds: float = 0.0
    _since: float = field(default_factory=time.perf_counter)
    _last_save: float = field(default_factory=time.perf_counter)

    def read(self) -> dict[str, Any] | None:
        """Read the file, where there is one of the same evaluation; a damaged one is done again."""
        if self.path is None or not self.path.exists():
            return None
        try:
            saved = load_torch(self.path)
        except DamagedFileError as error:
            LOGGER.warning("%s; this part of the evaluation is done again", error)
            return None
        return saved if saved["identity"] == self.identity else None

    def go_on(self, scores: Scores) -> float:
        """Load the file into ``scores``, where there is one; return the seconds that went into it."""
        saved = self.read()
        if saved is not None:
            scores.load_state_dict(saved["scores"])
            self.num_batches, self.seconds = saved["num_batches"], saved["seconds"]
        self._since = self._last_save = time.perf_counter()
        return self.seconds

    def count_batch(self, scores: Scores) -> None:
        """Take note that one more batch is in ``scores``; save them where it is time."""
        self.num_batches += 1
        if time.perf_counter() - self._last_save >= self.save_seconds:
            self.save(scores)

    def save(self, scores: Scores) -> None:
        """Write the file, in place of an earlier one."""
        if self.path is None:
            return
        now = time.perf_counter()
        self.path.parent.mkdir(exist_ok=True)
        state = {
            "identity": self.identity,
            "num_batches": self.num_batches,
            "seconds": self.seconds + now - self._since,
            "scores": scores.state_dict(),
        }
        save_torch(self.path, state)
        self._last_save = now

    def drop(self) -> None:
        """Remove the file."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
