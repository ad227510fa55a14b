"""Faults of the machine become messages, such as for lack of memory, and bugs keep their traceback."""

import errno
import os

import pytest
import torch

from mgexp.data.loader import EXIT_NOT_HANDED_ON
from mgexp.data.time_limit import EXIT_HUNG, VideoFailure, write_failure
from mgexp.errors import TrainingError
from mgexp.run.folder import RunDir
from mgexp.train.faults import explaining_faults, explanation, is_out_of_memory


def error_of(number, name="x.pt"):
    return OSError(number, os.strerror(number), name)


def worker_error(what, who="(pid 12)"):
    """What torch says of a worker that ended."""
    return RuntimeError(f"DataLoader worker {who} {what}")


EXITED = "exited unexpectedly"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        *(
            (error_of(number), "x.pt")
            for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
        ),
        (worker_error("is killed by signal: Killed. "), "memory"),
        (worker_error("is killed by signal: Bus error. It is possible"), "shared memory"),
        (worker_error("is killed by signal: Segmentation fault. "), "tools/check_data.py"),
        (worker_error(f"{EXITED} with exit code {EXIT_NOT_HANDED_ON}."), "shared memory"),
        (worker_error(f"{EXITED} with exit code 1. Details"), "worker 12 ended with exit code 1"),
        (worker_error(EXITED, "(pid(s) 12, 13)"), "worker 12 ended unexpectedly"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), "AUG.DEVICE"),
        (
            # So torch hands on the error of a worker: its errno is None.
            OSError(
                "Caught OSError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
                "OSError: [Errno 28] No space left on device: '/runs/a/failures.jsonl'\n"
            ),
            "/runs/a/failures.jsonl",
        ),
        (MemoryError(), "TEST.BATCH_SIZE"),
    ],
)
def test_faults_are_explained(error, words, tmp_path):
    assert words in explanation(error, RunDir(tmp_path))


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        error_of(errno.ENOENT),
        OSError("no number"),
    ],
)
def test_bugs_are_not(error, tmp_path):
    assert explanation(error, RunDir(tmp_path)) is None
    with pytest.raises(type(error)) as caught, explaining_faults(RunDir(tmp_path)):
        raise error
    assert caught.value is error


def test_the_innermost_cause_is_reported(tmp_path):
    """torch raises the first error from the second."""
    try:
        raise worker_error(EXITED, "(pid(s) 12)") from worker_error("is killed by signal: Killed. ")
    except RuntimeError as error:
        assert "memory ran out" in explanation(error, RunDir(tmp_path))


def test_a_video_that_ended_a_worker_is_named(tmp_path):
    run = RunDir(tmp_path)
    write_failure(run.failures_jsonl, VideoFailure("b.mp4", None))
    write_failure(run.failures_jsonl, VideoFailure("c.mp4", (0, 3)))
    error = worker_error(f"{EXITED} with exit code {EXIT_HUNG}. Details")
    assert explanation(error, run).startswith("b.mp4 gave no frames")


def test_the_message_says_where_the_run_goes_on(tmp_path):
    run = RunDir(tmp_path)
    with pytest.raises(TrainingError, match="begins at step 0"), explaining_faults(run):
        raise error_of(errno.ENOSPC)
    run.checkpoints.mkdir()
    run.checkpoint(40).touch()
    with pytest.raises(TrainingError, match="continues after step 40"), explaining_faults(run):
        raise error_of(errno.ENOSPC)


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("could not execute a primitive"), True),
        (MemoryError(), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_errors_of_memory_are_recognised(error, wanted):
    assert is_out_of_memory(error) is wanted


def test_memory_that_torch_does_not_get_is_recognised():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**55)
    assert is_out_of_memory(caught.value)
