"""Everything that a run needs to know before it writes its first file; all problems in one message."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mgexp.data.clips import Batch
from mgexp.data.records import Record, VideoList
from mgexp.errors import InputError, listed
from mgexp.multigrid.schedule import Schedule


@dataclass(frozen=True)
class Inputs:
    """The videos of a run, and its schedule.

    ``missing``: paths in the training list, of ``num_listed`` videos, where there is no file or that are
    quarantined.
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

    def identity(self) -> str:
        """What tells two lists of videos apart, in a line."""
        shas = (_sha256(records)[:12] for records in (self.train, self.val))
        return f"{len(self.train)} for training, {len(self.val)} for validation (sha256 {' and '.join(shas)})"

    def summary(self) -> str:
        """How many videos there are."""
        missing = f"{len(self.missing)} missing or quarantined"
        return f"{len(self.train)} training videos ({missing}), {len(self.val)} validation videos"

    def check_unusable(self, broken: Sequence[str], max_share: float) -> None:
        """Raises InputError where more videos fail than ``max_share``; ``broken``: why, for each that did."""
        found = unusable_problem(self.missing, self.num_listed, broken, len(self.train), max_share)
        raise_problems([found] if found else [])


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
    """The message where more training videos are missing, quarantined or broken than DATA.MAX_UNUSABLE_SHARE.

    Of ``num_listed`` videos some are ``missing``; of ``num_used`` (DATA.MAX_TRAIN_VIDEOS) some are ``broken``.
    """
    share = len(missing) / max(1, num_listed) + len(broken) / max(1, num_used)
    if share <= max_share + 1e-9:
        return None
    return (
        f"{len(missing)} of {num_listed} training videos are missing or quarantined and "
        f"{len(broken)} of {num_used} cannot be decoded, more than "
        f"DATA.MAX_UNUSABLE_SHARE = {max_share:g}; mend the list or raise that key: {listed([*missing, *broken])}"
    )


def check_clips(batch: Batch) -> None:
    """Raises InputError where a clip found no video that decodes."""
    if not len(batch.clips):
        reasons = [reason for _, reason in batch.unusable]
        raise InputError([f"many videos in a row cannot be decoded: {listed(reasons)}"])


def list_problems(train: VideoList, val: VideoList, max_share: float) -> Iterator[str]:
    """What is wrong with the two lists."""
    yield from dict.fromkeys((*train.problems, *val.problems))
    problem = unusable_problem(train.missing, train.num_listed, (), 0, max_share)
    if problem:
        yield problem
    if val.missing:
        yield (
            f"{len(val.missing)} validation videos are missing or quarantined, and evaluation replaces nothing: "
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


def clip_bytes(frames: int, crop: int) -> int:
    """Bytes of a clip as a worker hands it on: uint8, three channels."""
    return 3 * frames * crop**2


def largest_batch_bytes(schedule: Schedule) -> int:
    """Bytes of the largest mini-batch of the schedule, of all processes together."""
    shapes = {shape for phase in schedule.phases for shape in phase.cycle.shapes}
    clips = schedule.recipe.clips
    return max(clips * shape.ratio * clip_bytes(shape.frames, shape.crop) for shape in shapes)


def shared_memory_problems(
    batch_bytes: int, num_workers: int, prefetch_factor: int, num_local: int, free_bytes: int
) -> Iterator[str]:
    """Shared memory that cannot hold what the loader workers keep ready.

    Each of ``num_local`` processes on this machine has ``num_workers`` workers with ``prefetch_factor``
    batches of ``batch_bytes`` each, and one batch in use; without workers there is none. A worker that
    finds no room there dies of a bus error, hours into a run.
    Source: torch.utils.data keeps prefetch_factor × num_workers batches under way; measured: see the test.
    """
    num_batches = num_workers * prefetch_factor + 1
    needed = num_local * num_batches * batch_bytes if num_workers else 0
    if needed > free_bytes:
        yield (
            f"the loader workers need {_megabytes(needed)} of shared memory ({num_local} processes × "
            f"({num_workers} workers × {prefetch_factor} batches + 1) × {_megabytes(batch_bytes)}), but "
            f"/dev/shm has {_megabytes(free_bytes)} free: start docker with --shm-size="
            f"{math.ceil(needed / 1e9) + 1}g, or set DATA_LOADER.NUM_WORKERS (now {num_workers}) or "
            f"DATA_LOADER.PREFETCH_FACTOR (now {prefetch_factor}) lower"
        )


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.1f} MB"


def _frame_counts(schedule: Schedule) -> list[int]:
    return sorted({shape.frames for phase in schedule.phases for shape in phase.cycle.shapes})


def raise_problems(problems: Sequence[str]) -> None:
    """Stops with one message that lists every problem, each once."""
    if problems:
        raise InputError(list(dict.fromkeys(problems)))
