"""Faults of the machine under a run: a full disk, a loader's worker that died. One message, not a traceback."""

from __future__ import annotations

import errno
import gc
import re
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from mgexp.data.clips import Batch
from mgexp.data.time_limit import EXIT_HUNG, EXIT_NOT_HANDED_ON, read_timeouts
from mgexp.errors import TrainingError
from mgexp.models.layers import Draws
from mgexp.multigrid.steps import StepShape
from mgexp.run.folder import RunDir
from mgexp.train.step import TrainStep, least_clips, split

SIGNS = (
    "can't allocate memory",  # of torch on a CPU
    "could not create a memory object",  # of oneDNN, as the next
    "could not create a primitive",
    "out of memory",  # of CUDA and its libraries
    "STATUS_ALLOC_FAILED",  # of cuDNN and cuBLAS
    "std::bad_alloc",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether it says that memory ran out, of a GPU or of the machine."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in SIGNS)


def shape_message(
    reason: str,
    shape: StepShape,
    shapes: Iterable[StepShape],
    step: TrainStep,
    batch: Batch,
    may_try: bool,
) -> str:
    """One sentence. ``shape`` did not fit, ``shapes`` are all of the schedule, ``batch`` is what was trained.

    ``may_try``: fewer clips of ``batch`` are trained here until some fit; else half of them are a guess. They
    cannot be tried where other processes take part in a step, nor on a CPU, where libraries crash once memory is
    short. The weights stay as they are; gradients do not.
    """
    at_once = max(part.clips for part in split(shape.clips, shape.num_bn_groups, step.max_clips))
    size = least_clips(shape)
    choices = list(_halves(at_once // size)) if shape.num_bn_groups > 0 else []
    needed = max(least_clips(one) for one in shapes)  # of clips, for every shape
    fits = next((n for n in choices if _fits(step, batch, n, size)), 0) if may_try else 0
    clips = size * fits
    remedies = "TRAIN.ACTIVATION_CHECKPOINTING True, or a smaller TRAIN.BATCH_SIZE"
    if clips >= needed:
        remedies = (
            f"TRAIN.MAX_CLIPS_PER_GPU {clips} (so many fit, in whole BN groups), or {remedies}"
        )
    elif not may_try and choices and size * choices[0] >= needed:
        guess = f"TRAIN.MAX_CLIPS_PER_GPU {size * choices[0]} (half as many, in whole BN groups)"
        remedies = f"{guess}, or {remedies}"
    return (
        f"out of memory at a mini-batch of {shape}, of which {at_once} clips went through the network at once: "
        f"set {remedies}, with --override where the run has a checkpoint ({reason})"
    )


def first_line(error: BaseException) -> str:
    """What it says, without where in C++ it was raised."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _halves(num: int) -> Iterator[int]:
    """num/2, num/4, …, 1."""
    while num > 1:
        num //= 2
        yield num


def _fits(step: TrainStep, batch: Batch, num_groups: int, group_clips: int) -> bool:
    """Whether so many groups of the batch go forward and back."""
    rows = slice(0, num_groups * group_clips)
    try:
        gc.collect()
        torch.cuda.empty_cache()
        step.backward(batch.map(lambda tensor: tensor[rows]), num_groups, Draws(seed=0, step=0))
    except (RuntimeError, MemoryError):
        return False
    finally:
        step.optimizer.zero_grad(set_to_none=True)
    return True


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
