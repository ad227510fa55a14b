"""Explain faults of the machine in one message.

The faults are: memory runs out, a disk is full, a worker process of the loader dies.
"""

from __future__ import annotations

import errno
import os
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from mgexp.data.time_limit import EXIT_HUNG, EXIT_NOT_HANDED_ON, read_failures
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


REMEDIES_OF_FILES = {
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there, or ask for a larger quota",
    errno.EFBIG: "see `ulimit -f`",
    errno.EROFS: "see why it is read-only now",
    errno.EACCES: "see who may write there",
    errno.EPERM: "see who may write there",
    errno.EIO: "see `dmesg`: the disk may fail",
    errno.ESTALE: "see whether the file server was restarted",
    errno.ENOLCK: "see whether the file server locks files",
}
"""Remedies for errors of files, by errno. Any other errno is a bug, and the traceback is shown."""

# torch has no exception class for a dead worker, so we search for the texts of its messages.
# Sources: torch/utils/data/dataloader.py and torch/csrc/DataLoader.cpp.
KILLED = re.compile(r"DataLoader worker \(pid (?P<pid>\d+)\) is killed by signal: (?P<name>[^.]+)")
EXITED = re.compile(
    r"DataLoader worker \(pid (?P<pid>\d+)\) exited unexpectedly with exit code (?P<code>\d+)"
)
GONE = re.compile(r"DataLoader worker \(pid\(s\) (?P<pid>\d+).*\) exited unexpectedly")

OF_WORKER = re.compile(r"\[Errno (?P<number>\d+)\] [^:\n]*(?:: '(?P<name>[^'\n]*)')?")
"""The text of a system's error, in the traceback of a worker that torch hands on."""

FEWER = "set DATA_LOADER.NUM_WORKERS or DATA_LOADER.PREFETCH_FACTOR lower"


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
        goes_on = "If you start the run again, it begins at step 0: there is no checkpoint yet"
        if steps:
            goes_on = f"If you start the run again, it continues after step {steps[-1]}, its last checkpoint"
        raise TrainingError(f"{text}. {goes_on}") from error


def explanation(error: BaseException, run_dir: RunDir) -> str | None:
    """Explain a fault of the machine in a sentence; return None for a bug."""
    # The loop explains a training step that does not fit. So this happened between two steps.
    if is_out_of_memory(error):
        return (
            "out of memory outside a training step: if clips were copied or augmented, set AUG.DEVICE workers or "
            "a smaller TRAIN.BATCH_SIZE; if it was an evaluation, set a smaller TEST.BATCH_SIZE; both need "
            f"--override ({first_line(error)})"
        )
    if isinstance(error, OSError | EOFError):
        files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
        # If the traceback passes through both packages, torch's loader was receiving a batch when
        # the worker at the other end of the connection ended. The error's own text names no worker.
        if all(
            any(part in name for name in files)
            for part in ("/multiprocessing/", "/torch/utils/data/")
        ):
            return f"a loader's worker ended while it handed on a batch, most likely killed (see `dmesg`): {FEWER}"
    if isinstance(error, OSError):
        number, name = error.errno, error.filename
        # torch makes the error of a loader's worker again from its text alone.
        if number is None and (said := OF_WORKER.search(str(error))):
            number, name = int(said["number"]), said["name"]
        remedy = REMEDIES_OF_FILES.get(number or 0)
        text = f"{name or 'a file'} cannot be written or read: {os.strerror(number or 0)}; {remedy}"
        return text if remedy else None
    # torch raises two errors. The outer one says that a worker is gone, and the inner one says what
    # killed it. So we search the innermost text first.
    texts: list[str] = []
    one: BaseException | None = error
    while one is not None:
        texts.append(str(one))
        one = one.__cause__ or one.__context__
    found = (_worker_fault(text, run_dir) for text in reversed(texts))
    return next((text for text in found if text), None)


def _worker_fault(text: str, run_dir: RunDir) -> str | None:
    """Explain torch's message about a worker of the loader; return None if ``text`` is no such message."""
    found = KILLED.search(text) or EXITED.search(text) or GONE.search(text)
    if not found:
        return None
    worker, groups = f"the loader's worker {found['pid']}", found.groupdict()
    if name := groups.get("name"):
        # Linux ends a process with SIGKILL when memory runs out. It sends SIGBUS to a process that
        # writes to shared memory for which there is no more room.
        why = {
            "Killed": f"memory ran out, of the machine or of the job (see `dmesg`): {FEWER}",
            "Bus error": f"shared memory (/dev/shm) ran out: {FEWER}",
        }
        crash = "a video may crash the decoder; tools/check_data.py finds it, DATA.QUARANTINE leaves it out"
        end = f", most likely since {why[name]}" if name in why else f": {crash}"
        return f"{worker} was killed by a signal ({name}){end}"
    code = int(groups.get("code") or 0)
    if code == EXIT_HUNG:
        # Other workers may have written failures that ended no worker, which have a seed.
        hung = [one.path for one in read_failures(run_dir.failures_jsonl) if one.seed is None]
        return (
            f"{hung[-1]} gave no frames and could not be interrupted, so that the loader's worker was ended. If "
            "you start the run again, it leaves this video out of training, which DATA.MAX_UNUSABLE_SHARE must "
            "allow. A validation video is never left out: take it out of DATA.VAL_LIST"
        )
    if code == EXIT_NOT_HANDED_ON:
        return f"{worker} ran out of shared memory (/dev/shm), as it says above: {FEWER}"
    how = f"with exit code {code}" if "code" in groups else "unexpectedly"
    return f"{worker} ended {how}: see what it said above"
