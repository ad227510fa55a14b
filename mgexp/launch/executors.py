"""Submits runs through submitit: to Slurm, or to background processes of this machine."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import submitit
from submitit import Job, LocalJob
from submitit.core.core import Executor
from submitit.core.utils import FailedJobError, FailedSubmissionError

from mgexp.errors import InputError
from mgexp.launch import hold_signals
from mgexp.launch.build import RunOptions
from mgexp.launch.freeze import freeze_code
from mgexp.launch.resources import Resources
from mgexp.launch.task import WARNING, TrainTask
from mgexp.record.environment import REPOSITORY
from mgexp.record.sweep_dir import LaunchDir

MAX_TIMEOUTS = 1000
"""Time limits that a run may reach before submitit gives it up. Assumption: no run that ends needs more."""

SIGNAL_VARIABLE = "SUBMITIT_PREEMPT_SIGNAL"
"""The environment variable by which submitit takes another signal than SIGUSR2."""

LOCAL_MINUTES = 10 * 365 * 24 * 60
"""A local job has no time limit, and submitit wants one."""


@dataclass(frozen=True)
class Submission:
    """What is submitted together. ``code``: where the code is, or is frozen."""

    launch: LaunchDir
    code: Path
    working_directory: Path
    resources: Resources
    name: str
    num_parallel: int = 1

    def task(self, options: RunOptions) -> TrainTask:
        """The callable of one run."""
        return TrainTask(options, self.launch, self.code, self.working_directory, self.resources)


def to_slurm(submission: Submission, runs: Sequence[RunOptions]) -> list[Job[None]]:
    """Submits runs of the same resources, several as one array; returns submitit's jobs.

    Raises InputError with Slurm's message where it refuses.
    """
    resources, folder = submission.resources, _log_folder(submission)
    try:
        executor = submitit.SlurmExecutor(folder, MAX_TIMEOUTS, python=_python(submission))
    except RuntimeError as error:
        raise InputError(
            [f"--launcher slurm: there is no Slurm on this machine: {error}"]
        ) from error
    executor.update_parameters(
        job_name=submission.name,
        time=resources.minutes,
        nodes=resources.nodes,
        ntasks_per_node=resources.tasks_per_node,
        cpus_per_task=resources.cpus_per_task,
        gpus_per_node=resources.gpus_per_node or None,
        signal_delay_s=resources.warning_seconds,
        array_parallelism=submission.num_parallel,
        srun_args=[
            "--kill-on-bad-exit=1",  # one process failing ends all
            f"--cpus-per-task={resources.cpus_per_task}",  # since Slurm 22.05 srun does not take it from sbatch
        ],
        additional_parameters={
            "requeue": True,  # where the cluster has JobRequeue=0
            **dict(resources.sbatch),
        },
    )
    try:
        return _submit(submission, executor, runs)
    except (FailedJobError, FailedSubmissionError, subprocess.CalledProcessError, OSError) as error:
        text = " ".join(str(error).split())
        raise InputError([f"sbatch refused the job, nothing is queued: {text}"]) from error


def to_this_machine(submission: Submission, run: RunOptions, slot: int = 0) -> LocalJob[None]:
    """Starts a run in background processes, that survive this one; returns submitit's job.

    ``slot``: of the runs at a time, which decides the GPUs.
    """
    executor = submitit.LocalExecutor(_log_folder(submission), python=_python(submission))
    executor.update_parameters(
        timeout_min=LOCAL_MINUTES,
        tasks_per_node=submission.resources.tasks_per_node,
        gpus_per_node=submission.resources.gpus_per_node,
        visible_gpus=_gpus(submission.resources.gpus_per_node, slot),
    )
    with _ignoring_interrupts():
        (job,) = _submit(submission, executor, [run])
    assert isinstance(job, LocalJob)
    return job


def _log_folder(submission: Submission) -> Path:
    """Raises InputError where submitit would misread it, or send another signal than a run listens to."""
    folder = submission.launch.root.absolute()
    signal_name = os.environ.get(SIGNAL_VARIABLE, WARNING)
    problems = []
    if "%" in str(folder):
        text = f"{folder}: Slurm and submitit read a % in a path as the number of a job"
        problems.append(f"{text}; choose another folder")
    if signal_name.removeprefix("SIG") != WARNING.removeprefix("SIG"):
        problems.append(f"{SIGNAL_VARIABLE} = {signal_name}: runs listen to {WARNING}; unset it")
    if problems:
        raise InputError(problems)
    return folder


def _python(submission: Submission) -> str:
    """The beginning of the command that starts a task, for a shell."""
    script = submission.code / Path(hold_signals.__file__).relative_to(REPOSITORY)
    return shlex.join([sys.executable, "-I", "-S", str(script)])


def _gpus(num: int, slot: int) -> tuple[int, ...]:
    """Numbers of the GPUs of a slot, among those that CUDA_VISIBLE_DEVICES leaves where it is set."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(k) for k in range((slot + 1) * num)]
    mine = names[slot * num : (slot + 1) * num]
    if not all(name.strip().isdigit() for name in mine):
        problem = f"CUDA_VISIBLE_DEVICES = {visible}: background processes need the numbers of GPUs"
        raise InputError([f"{problem}, not their names; or use --launcher here"])
    return tuple(map(int, mine))


def _submit(
    submission: Submission, executor: Executor, runs: Sequence[RunOptions]
) -> list[Job[None]]:
    """From inside the frozen code: Python looks for modules there first, before any installed copy."""
    submission.launch.root.mkdir(parents=True, exist_ok=True)
    freeze_code(submission.code)
    with _inside(submission.code), executor.batch():
        return [executor.submit(submission.task(run)) for run in runs]


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Processes started inside leave Ctrl-C to the run, which saves, and end when it has."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
