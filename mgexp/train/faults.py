"""Faults of the machine under a run: a full disk, a loader's worker that died. One message, not a traceback."""

from __future__ import annotations

import errno
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from mgexp.data.time_limit import read_timeouts
from mgexp.data.worker_exit import EXIT_HUNG, EXIT_NOT_HANDED_ON
from mgexp.errors import TrainingError
from mgexp.record.run_dir import RunDir

OF_FILES = {
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
"""What to do about an error of a file, by its number; others are bugs, and keep their traceback."""

# Source of these texts: torch/utils/data/dataloader.py, torch/csrc/DataLoader.cpp
KILLED = re.compile(r"DataLoader worker \(pid (?P<pid>\d+)\) is killed by signal: (?P<name>[^.]+)")
EXITED = re.compile(
    r"DataLoader worker \(pid (?P<pid>\d+)\) exited unexpectedly with exit code (?P<code>\d+)"
)
GONE = re.compile(r"DataLoader worker \(pid\(s\) (?P<pid>\d+).*\) exited unexpectedly")

FEWER = "set DATA_LOADER.NUM_WORKERS or DATA_LOADER.PREFETCH_FACTOR lower"


@contextmanager
def faults_told(run_dir: RunDir) -> Iterator[None]:
    """Inside, such a fault is a TrainingError: what happened, what to do, and where the run goes on."""
    try:
        yield
    except (OSError, EOFError, RuntimeError) as error:
        text = explanation(error, run_dir)
        if text is None:
            raise
        raise TrainingError(f"{text}. {_how_to_go_on(run_dir)}") from error


def explanation(error: BaseException, run_dir: RunDir) -> str | None:
    """A sentence for a fault of the machine, None for a bug."""
    if isinstance(error, OSError | EOFError) and _is_of_loader(error):
        return f"a loader's worker ended while it handed on a batch, most likely killed (see `dmesg`): {FEWER}"
    if isinstance(error, OSError):
        return _file_fault(error)
    texts = [str(one) for one in _chain(error)]
    found = (_worker_fault(text, run_dir) for text in (*texts[::-1], *texts))
    return next((text for text in found if text), None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and those it came from: torch says in one that a worker is gone, in another of what it died."""
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__ or one.__context__


def _is_of_loader(error: BaseException) -> bool:
    """Whether it was raised where the loader takes a batch from another process."""
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    from_other = any("/multiprocessing/" in name for name in files)
    return from_other and any("/torch/utils/data/" in name for name in files)


def _file_fault(error: OSError) -> str | None:
    remedy = OF_FILES.get(error.errno or 0)
    if remedy is None:
        return None
    return f"{error.filename or 'a file'} cannot be written or read: {error.strerror}; {remedy}"


def _worker_fault(text: str, run_dir: RunDir) -> str | None:
    if found := KILLED.search(text):
        return _killed_text(found["pid"], found["name"])
    if found := EXITED.search(text):
        return _exit_text(found["pid"], int(found["code"]), run_dir)
    if found := GONE.search(text):
        return f"the loader's worker {found['pid']} ended unexpectedly: see what it said above"
    return None


def _exit_text(pid: str, code: int, run_dir: RunDir) -> str:
    if code == EXIT_HUNG:
        return _hung_text(run_dir)
    if code == EXIT_NOT_HANDED_ON:
        return f"the loader's worker {pid} ran out of shared memory (/dev/shm), as it says above: {FEWER}"
    return f"the loader's worker {pid} ended with exit code {code}: see what it said above"


def _killed_text(pid: str, name: str) -> str:
    worker = f"the loader's worker {pid} was killed by a signal ({name})"
    if name == "Killed":
        return f"{worker}, most likely since memory ran out, of the machine or of the job (see `dmesg`): {FEWER}"
    if name == "Bus error":
        return f"{worker}, most likely since shared memory (/dev/shm) ran out: {FEWER}"
    return f"{worker}: a video may crash the decoder; tools/check_data.py finds it, DATA.QUARANTINE leaves it out"


def _hung_text(run_dir: RunDir) -> str:
    path = read_timeouts(run_dir.timeouts_jsonl)[-1].path
    return (
        f"{path} gave no frames, and nothing could interrupt that, so that the loader's worker was ended. From "
        "now on this run trains without it; a validation video is never left out: list that in DATA.QUARANTINE"
    )


def _how_to_go_on(run_dir: RunDir) -> str:
    steps = run_dir.checkpoint_steps()
    if not steps:
        return "Started again, the run begins anew: there is no checkpoint yet"
    return f"Started again, the run goes on after step {steps[-1]}, its last checkpoint"
