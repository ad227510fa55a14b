"""Everything that a run needs to know before it writes its first file; all problems in one message."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from mgexp.data.clips import Batch
from mgexp.data.records import Record, VideoList
from mgexp.errors import InputError
from mgexp.multigrid.schedule import Schedule

MAX_LISTED = 20


@dataclass(frozen=True)
class Inputs:
    """The videos of a run, and its schedule.

    ``missing``: paths in the training list, of ``num_listed`` videos, where there is no file.
    """

    train: tuple[Record, ...]
    val: tuple[Record, ...]
    missing: tuple[str, ...]
    num_listed: int
    schedule: Schedule

    def fingerprint(self) -> dict[str, object]:
        """What identifies the videos: a resumed run must have the same. ``missing`` are training videos."""
        return {
            "num_train_videos": len(self.train),
            "train_sha256": _sha256(self.train),
            "val_sha256": _sha256(self.val),
            "missing": list(self.missing),
        }


def _sha256(records: Sequence[Record]) -> str:
    lines = "\n".join(record.line() for record in records)
    return hashlib.sha256(lines.encode()).hexdigest()


def device_problems(device: str, has_cuda: bool) -> Iterator[str]:
    """A GPU that was asked for and is not there."""
    if device == "cuda" and not has_cuda:
        yield "DEVICE = cuda, but torch finds no GPU: see nvidia-smi, or set DEVICE auto or cpu"


def unusable_problem(
    missing: Sequence[str], num_listed: int, broken: Sequence[str], num_used: int, max_share: float
) -> str | None:
    """The message where more training videos are missing or broken than DATA.MAX_UNUSABLE_SHARE.

    Of ``num_listed`` videos some are ``missing``; of ``num_used`` (DATA.MAX_TRAIN_VIDEOS) some are ``broken``.
    """
    share = len(missing) / max(1, num_listed) + len(broken) / max(1, num_used)
    if share <= max_share + 1e-9:
        return None
    return (
        f"{len(missing)} of {num_listed} training videos are missing and {len(broken)} of {num_used} "
        f"cannot be decoded, more than DATA.MAX_UNUSABLE_SHARE = {max_share:g}; mend the list or raise "
        f"that key: {listed([*missing, *broken])}"
    )


def clips_of(batch: Batch) -> torch.Tensor:
    """The batch's clips; raises InputError where a clip found no video that decodes."""
    if not len(batch.clips):
        reasons = [reason for _, reason in batch.unusable]
        raise InputError([f"many videos in a row cannot be decoded: {listed(reasons)}"])
    return batch.clips


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more."""
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more


def list_problems(train: VideoList, val: VideoList, max_share: float) -> Iterator[str]:
    """What is wrong with the two lists."""
    yield from dict.fromkeys((*train.problems, *val.problems))
    problem = unusable_problem(train.missing, train.num_listed, (), 0, max_share)
    if problem:
        yield problem
    if val.missing:
        yield (
            f"{len(val.missing)} validation videos are missing, and evaluation replaces nothing: "
            f"{listed(val.missing)}"
        )


def slowfast_problems(schedule: Schedule, alpha: int) -> Iterator[str]:
    """Frame counts that the slow pathway cannot have: every ``alpha``-th frame of a clip."""
    for count in _frame_counts(schedule):
        if count % alpha:
            yield (
                f"a shape of {count} frames does not divide by SLOWFAST.ALPHA = {alpha}: choose "
                "DATA.NUM_FRAMES, MULTIGRID.LONG_CYCLE_FACTORS or SLOWFAST.ALPHA so that all do"
            )


def pool_problems(schedule: Schedule, model_name: str) -> Iterator[str]:
    """A single frame, that a pool after the first stage cannot halve."""
    if 1 in _frame_counts(schedule):
        yield (
            f"{model_name} cannot take a shape of 1 frame: raise DATA.NUM_FRAMES or the least of "
            "MULTIGRID.LONG_CYCLE_FACTORS"
        )


def _frame_counts(schedule: Schedule) -> list[int]:
    return sorted({shape.frames for phase in schedule.phases for shape in phase.cycle.shapes})


def raise_problems(problems: Sequence[str]) -> None:
    """Stops with one message that lists every problem, each once."""
    if problems:
        raise InputError(list(dict.fromkeys(problems)))
