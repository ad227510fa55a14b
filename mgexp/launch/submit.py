"""One run handed to a launcher: checked here, run elsewhere."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import submitit
from submitit import Job, LocalJob
from submitit.core.core import Executor
from submitit.core.utils import FailedJobError, FailedSubmissionError

from mgexp.dist import Processes
from mgexp.errors import InputError
from mgexp.launch import hold_signals
from mgexp.launch.resources import Resources, local_problems
from mgexp.launch.run import RunOptions, check_submission, freeze_code, with_cpus
from mgexp.launch.task import WARNING, TrainTask
from mgexp.run.environment import REPOSITORY
from mgexp.run.files import read_json
from mgexp.run.folder import LaunchDir, RunDir, new_launch_dir
from mgexp.train.result import Outcome

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


POLL_SECONDS = 0.2
KILLED = "its process ended without a word: see the log"


@dataclass
class Follower:
    """Prints what is new in the log of a job."""

    launch: LaunchDir
    job_id: str
    _read: dict[Path, int] = field(default_factory=dict)

    def show(self) -> None:
        """To standard error, as the run itself would."""
        for path in (self.launch.output_log(self.job_id), self.launch.error_log(self.job_id)):
            if path.exists():
                with path.open("rb") as file:
                    file.seek(self._read.get(path, 0))
                    text = file.read()
                self._read[path] = self._read.get(path, 0) + len(text)
                sys.stderr.write(text.decode(errors="replace"))
        sys.stderr.flush()


def wait(job: LocalJob[None], launch: LaunchDir) -> Outcome:
    """Shows the log until the job ends; Ctrl-C reaches the run, which saves first, a second one ends this."""
    follower = Follower(launch, job.job_id)
    was_interrupted = False
    while not job.done():
        try:
            follower.show()
            time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            if was_interrupted:
                raise
            was_interrupted = True
            stop(job.job_id, launch)  # a start-up does not listen to Ctrl-C
    follower.show()
    return outcome_of(launch, job.job_id)[0]


def outcome_of(launch: LaunchDir, job_id: str) -> tuple[Outcome, str]:
    """How an ended job ended, and its message: what went wrong first, in any process."""
    records = [read_json(path) for path in launch.outcomes(job_id)]
    wrong = [record for record in records if record["outcome"] != Outcome.OK]
    if not records:
        return Outcome.FAILED, KILLED
    first = (wrong or records)[0]
    return Outcome(first["outcome"]), str(first["message"])


def is_alive(job_id: str, launch: LaunchDir) -> bool:
    """Whether the job's controller, whose process number is the job's, is still there.

    Another process may have got its number since: the command line says whose it is.
    """
    try:
        command = Path("/proc", job_id, "cmdline").read_bytes()
    except OSError:
        return False
    return os.fsencode(launch.root.absolute()) in command


def stop(job_id: str, launch: LaunchDir) -> bool:
    """Asks a job to save and end; False where it has ended."""
    if not is_alive(job_id, launch):
        return False
    try:
        os.kill(int(job_id), signal.SIGTERM)
    except ProcessLookupError:
        return False
    return True


def to_local(
    run: RunOptions, resources: Resources, problems: Sequence[str], say: Callable[[str], None]
) -> Outcome:
    """Runs in background processes of this machine, shows the log and waits. Raises InputError.

    The run survives the end of this process; Ctrl-C stops it, saved.
    """
    problems = [*problems, *local_problems(resources)]
    run_dir = check_submission(run, _processes(resources), True, problems)
    submission = _submission(run_dir, run, resources)
    job = to_this_machine(submission, _absolute(run))
    say(
        f"process {job.job_id}, logs in {submission.launch.root}; to stop it, saved: kill {job.job_id}"
    )
    return wait(job, submission.launch)


def to_queue(
    run: RunOptions, resources: Resources, problems: Sequence[str], say: Callable[[str], None]
) -> Outcome:
    """Submits to Slurm and returns. Raises InputError."""
    problems = list(problems)
    try:
        resources = with_cpus(run, resources)
    except InputError as error:
        problems += error.problems
    run_dir = check_submission(run, _processes(resources), False, problems)
    if run_dir.result_json.exists():
        say(f"{run_dir.root}: this run is complete, nothing was submitted")
        return Outcome.OK
    submission = _submission(run_dir, run, resources)
    (job,) = to_slurm(submission, [_absolute(run)])
    launch = submission.launch
    say(
        f"job {job.job_id} is submitted\n"
        f"  queue:  squeue --jobs {job.job_id}\n"
        f"  follow: tail -F {launch.error_log(job.job_id)}\n"
        f"  cancel: scancel {job.job_id}\n"
        f"The run folder will be {run_dir.root}."
    )
    return Outcome.OK


def _processes(resources: Resources) -> Processes:
    return Processes(count=resources.num_processes, local_count=resources.tasks_per_node)


def _submission(run_dir: RunDir, run: RunOptions, resources: Resources) -> Submission:
    """Each has a copy of the code as it is now, so that a queued run does not see later changes."""
    launch = new_launch_dir(run_dir.launches)
    return Submission(
        launch=launch,
        code=(launch.root / "code").absolute(),
        working_directory=Path.cwd(),
        resources=resources,
        name=run.experiment,
    )


def _absolute(run: RunOptions) -> RunOptions:
    return replace(run, config=run.config.absolute())
