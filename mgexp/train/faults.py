"""Explain faults of the machine: memory runs out, a disk is full, a worker of the loader dies."""

from __future__ import annotations

import errno
import os
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from mgexp.data.loader import EXIT_NOT_HANDED_ON
from mgexp.data.time_limit import EXIT_HUNG, read_failures, too_slow
from mgexp.errors import TrainingError, first_line
from mgexp.run.folder import RunDir

# torch raises OutOfMemoryError for its own allocations on a GPU. Libraries, and torch on a CPU,
# raise a plain RuntimeError. Only the text of that error distinguishes it from a bug.
TEXTS_OF_NO_MEMORY = (
    "Cannot allocate memory",  # the system, for a new process
    "can't allocate memory",  # torch on a CPU
    "could not create a memory object",  # oneDNN
    "could not create a primitive",  # oneDNN
    "could not execute a primitive",  # oneDNN
    "out of memory",  # CUDA and its libraries
    "STATUS_ALLOC_FAILED",  # cuDNN and cuBLAS
    "std::bad_alloc",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether ``error`` says that the memory of a GPU or of the machine ran out."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError | OSError) and any(
        sign in str(error) for sign in TEXTS_OF_NO_MEMORY
    )


@contextmanager
def explaining_memory(where: str) -> Iterator[None]:
    """Raise TrainingError, which begins with ``where``, if memory runs out in the training steps of the block."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        keys = "TRAIN.MAX_CLIPS_PER_GPU, TRAIN.ACTIVATION_CHECKPOINTING True, or a smaller TRAIN.BATCH_SIZE"
        override = "with --override where the run has a checkpoint"
        message = f"{where}: out of memory: set {keys}, {override} ({first_line(error)})"
        raise TrainingError(message) from error


FAULTS_OF_FILES = frozenset(
    (
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES),
        *(errno.EPERM, errno.EIO, errno.ESTALE, errno.ENOLCK),
    )
)
"""Errors of the disk or the file server. Any other errno is a bug, and the traceback is shown."""

# torch has no exception class for a dead worker, so we search for the texts of its messages.
# Sources: torch/utils/data/dataloader.py and torch/csrc/DataLoader.cpp.
DEAD_WORKER = re.compile(
    r"DataLoader worker \(pid(?:\(s\))? (?P<pid>\d+)[^)]*\) "
    r"(?:is killed by signal: (?P<signal>[^.]+)"
    r"|exited unexpectedly(?: with exit code (?P<code>\d+))?)"
)

ERROR_IN_WORKER = re.compile(r"\[Errno (?P<number>\d+)\] [^:\n]*(?:: '(?P<name>[^'\n]*)')?")
"""The text of a system's error, in the traceback of a worker that torch hands on."""

FEWER_BATCHES = "set DATA_LOADER.NUM_WORKERS or DATA_LOADER.PREFETCH_FACTOR lower"


@contextmanager
def explaining_faults(run_dir: RunDir) -> Iterator[None]:
    """Turn a fault of the machine in the block into a TrainingError.

    The message gives the cause, a remedy and the last checkpoint. Other errors pass unchanged.
    """
    try:
        yield
    except (OSError, EOFError, RuntimeError, MemoryError) as error:
        text = explanation(error, run_dir)
        if text is None:
            raise
        steps = run_dir.checkpoint_steps()
        goes_on = "The next start begins at step 0: there is no checkpoint yet"
        if steps:
            goes_on = f"The next start continues after step {steps[-1]}, the last checkpoint"
        raise TrainingError(f"{text}. {goes_on}") from error


def explanation(error: BaseException, run_dir: RunDir) -> str | None:
    """Explain a fault of the machine in a sentence; return None for a bug."""
    # The loop explains a training step that does not fit. So this happened between two steps.
    if is_out_of_memory(error):
        return (
            "out of memory outside a training step: in an evaluation set a smaller TEST.BATCH_SIZE, elsewhere "
            f"AUG.DEVICE workers or a smaller TRAIN.BATCH_SIZE, with --override ({first_line(error)})"
        )
    if isinstance(error, OSError | EOFError):
        files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
        # If the traceback passes through both packages, torch's loader was receiving a batch when
        # the worker at the other end of the connection ended. The error's own text names no worker.
        if all(
            any(part in name for name in files)
            for part in ("/multiprocessing/", "/torch/utils/data/")
        ):
            how = "ended while it handed on a batch, most likely killed (see `dmesg`)"
            return f"a loader's worker {how}: {FEWER_BATCHES}"
    if isinstance(error, OSError):
        number, name = error.errno, error.filename
        # torch makes the error of a loader's worker again from its text alone.
        if number is None and (match := ERROR_IN_WORKER.search(str(error))):
            number, name = int(match["number"]), match["name"]
        if number not in FAULTS_OF_FILES:
            return None
        return f"{name or 'a file'} cannot be written or read: {os.strerror(number)}"
    # torch raises two errors. The outer one says that a worker is gone, and the inner one says what
    # killed it.
    cause = error.__cause__ or error.__context__
    fault = _worker_fault(str(cause), run_dir) if cause else None
    return fault or _worker_fault(str(error), run_dir)


def _worker_fault(text: str, run_dir: RunDir) -> str | None:
    """Explain torch's message about a worker of the loader; return None if ``text`` is no such message."""
    match = DEAD_WORKER.search(text)
    if match is None:
        return None
    worker, killed_by, code = f"the loader's worker {match['pid']}", match["signal"], match["code"]
    if code == str(EXIT_HUNG):
        slow = [fault.path for fault in read_failures(run_dir.failures_jsonl) if fault.seed is None]
        return too_slow(slow[-1])
    # Workers have no other reason for much memory. A bus error comes from a process that writes to shared memory
    # for which there is no more room.
    if code == str(EXIT_NOT_HANDED_ON) or killed_by == "Bus error":
        larger = "start docker with a larger --shm-size, or"
        return f"{worker} ran out of shared memory (/dev/shm): {larger} {FEWER_BATCHES}"
    if killed_by == "Killed":
        return f"{worker} was killed, most likely because memory ran out (see `dmesg`): {FEWER_BATCHES}"
    if killed_by:
        return (
            f"{worker} was killed by a signal ({killed_by}): a video may crash the decoder; tools/check_data.py "
            "finds it, DATA.QUARANTINE leaves it out"
        )
    return f"{worker} ended {f'with exit code {code}' if code else 'unexpectedly'}: see what it wrote above"
