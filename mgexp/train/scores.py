"""Score the views of each video, and save the scores on disk while a long evaluation runs."""

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
    """Result of an evaluation: ``metrics`` in percent, and the mean ``loss`` per view.

    ``scores`` (videos, classes) and ``labels`` (videos, ...) are on the CPU. A score covers all views of a video.
    """

    metrics: Mapping[str, float]
    loss: float
    scores: Tensor
    labels: Tensor


class Scores:
    """Scores over the views of each video, combined as the task's ensemble says."""

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
        """Return the sums of what this process has added so far."""
        return {"sums": self.sums, "labels": self.labels, "loss": self.loss}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue from the sums of an earlier ``state_dict``."""
        for name, values in self.state_dict().items():
            values.copy_(state[name])

    def reduce(self, processes: Processes) -> Evaluation:
        """Compute the evaluation over the views of all processes."""
        self.task.ensemble.reduce(processes, self.sums)
        dist.sum_(processes, self.loss)
        dist.max_(processes, self.labels)  # a process that saw no view of a video has label 0
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

    Returns the reason for each video that cannot be decoded. After the first such video no more views are scored,
    but the remaining batches are still read, so that one message can list all broken videos.
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
    """Raise InputError with the errors of all processes, by the index of the video."""
    if errors:
        names = [errors[video] for video in sorted(errors)]
        raise InputError([f"{len(names)} validation videos cannot be decoded: {listed(names)}"])


@dataclass
class PartialScores:
    """File with the scores of this process so far, from which a killed evaluation continues.

    The scores are saved every ``save_seconds``, after a batch, and at the end. Short evaluations have ``path``
    None and save nothing. A file is valid only for the same ``identity``, such as a hash of the videos.
    ``num_batches`` and ``seconds`` include earlier starts.
    """

    path: Path | None
    identity: str = ""
    save_seconds: float = 0.0
    num_batches: int = 0
    seconds: float = 0.0
    _since: float = field(default_factory=time.perf_counter)
    _last_save: float = field(default_factory=time.perf_counter)

    def read(self) -> dict[str, Any] | None:
        """Read the file; return None if it is missing, damaged, or of another evaluation."""
        if self.path is None or not self.path.exists():
            return None
        try:
            saved = load_torch(self.path)
        except DamagedFileError as error:
            LOGGER.warning("%s; this part of the evaluation is done again", error)
            return None
        return saved if saved["identity"] == self.identity else None

    def go_on(self, scores: Scores) -> float:
        """Load the file into ``scores`` if there is one; return the seconds that it cost."""
        saved = self.read()
        if saved is not None:
            scores.load_state_dict(saved["scores"])
            self.num_batches, self.seconds = saved["num_batches"], saved["seconds"]
        self._since = self._last_save = time.perf_counter()
        return self.seconds

    def count_batch(self, scores: Scores) -> None:
        """Count one more batch in ``scores``, and save them if ``save_seconds`` have passed."""
        self.num_batches += 1
        if time.perf_counter() - self._last_save >= self.save_seconds:
            self.save(scores)

    def save(self, scores: Scores) -> None:
        """Write the file atomically, over an earlier one."""
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
