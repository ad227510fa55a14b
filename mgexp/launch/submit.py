"""Hand runs to submitit: to Slurm, or to background processes of this machine that are followed here."""

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
"""How often a run may reach its time limit before submitit gives up. Assumption: no run needs more."""
SIGNAL_VARIABLE = "SUBMITIT_PREEMPT_SIGNAL"
"""The environment variable that makes submitit use another signal than SIGUSR2."""
LOCAL_MINUTES = 10 * 365 * 24 * 60
"""The time limit of a local job. It has none, but submitit wants a number."""
POLL_SECONDS = 0.2
KILLED = "its process ended without a message: see the log"


@dataclass(frozen=True)
class Submission:
    """What is submitted together. ``code`` is the folder that holds the frozen code, or will hold it."""

    launch: LaunchDir
    code: Path
    working_directory: Path
    resources: Resources
    name: str
    num_parallel: int = 1

    def send(self, executor: Executor, runs: Sequence[RunOptions]) -> list[Job[None]]:
        """Freeze the code, and submit one task for each run."""
        self.launch.root.mkdir(parents=True, exist_ok=True)
        freeze_code(self.code)
        # A task starts in the folder that it is submitted from, and Python looks for modules there first.
        before = Path.cwd()
        os.chdir(self.code)
        try:
            with executor.batch():
                return [
                    executor.submit(
                        TrainTask(
                            run, self.launch, self.code, self.working_directory, self.resources
                        )
                    )
                    for run in runs
                ]
        finally:
            os.chdir(before)

    def python(self) -> str:
        """Return the beginning of the command that starts a task, quoted for a shell."""
        script = self.code / Path(hold_signals.__file__).relative_to(REPOSITORY)
        return shlex.join([sys.executable, "-I", "-S", str(script)])

    def log_folder(self) -> Path:
        """Return the folder of the logs.

        Raises InputError if submitit would misread its name, or would send another signal than a run expects.
        """
        folder = self.launch.root.absolute()
        signal_name = os.environ.get(SIGNAL_VARIABLE, WARNING)
        problems = []
        if "%" in str(folder):
            problems.append(
                f"{folder}: Slurm and submitit read a % in a path as the number of a job; choose another folder"
            )
        if signal_name.removeprefix("SIG") != WARNING.removeprefix("SIG"):
            problems.append(
                f"{SIGNAL_VARIABLE} = {signal_name}: runs listen to {WARNING}; unset it"
            )
        if problems:
            raise InputError(problems)
        return folder


def to_slurm(submission: Submission, runs: Sequence[RunOptions]) -> list[Job[None]]:
    """Submit runs with the same resources to Slurm, several as one array. Return submitit's jobs.

    Raises InputError with Slurm's message if it refuses.
    """
    resources, folder = submission.resources, submission.log_folder()
    try:
        executor = submitit.SlurmExecutor(folder, MAX_TIMEOUTS, python=submission.python())
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
            "--kill-on-bad-exit=1",  # if one process fails, all end
            f"--cpus-per-task={resources.cpus_per_task}",  # since Slurm 22.05 srun does not take it from sbatch
        ],
        additional_parameters={
            "requeue": True,  # for clusters with JobRequeue=0
            **dict(resources.sbatch),
        },
    )
    try:
        return submission.send(executor, runs)
    except (FailedJobError, FailedSubmissionError, subprocess.CalledProcessError, OSError) as error:
        text = " ".join(str(error).split())
        raise InputError([f"sbatch refused the job, nothing is queued: {text}"]) from error


def to_this_machine(submission: Submission, run: RunOptions, slot: int = 0) -> LocalJob[None]:
    """Start a run in background processes that survive this one. Return submitit's job.

    ``slot`` numbers the runs that train at the same time. It selects the GPUs.
    """
    executor = submitit.LocalExecutor(submission.log_folder(), python=submission.python())
    executor.update_parameters(
        timeout_min=LOCAL_MINUTES,
        tasks_per_node=submission.resources.tasks_per_node,
        gpus_per_node=submission.resources.gpus_per_node,
        visible_gpus=_gpus(submission.resources.gpus_per_node, slot),
    )
    with _ignoring_interrupts():
        (job,) = submission.send(executor, [run])
    assert isinstance(job, LocalJob)
    return job


def _gpus(num: int, slot: int) -> tuple[int, ...]:
    """Return the numbers of the GPUs of a slot, out of CUDA_VISIBLE_DEVICES if that is set."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(k) for k in range((slot + 1) * num)]
    mine = names[slot * num : (slot + 1) * num]
    if not all(name.strip().isdigit() for name in mine):
        problem = f"CUDA_VISIBLE_DEVICES = {visible}: background processes need the numbers of GPUs"
        raise InputError([f"{problem}, not their names; or use --launcher here"])
    return tuple(map(int, mine))


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Start processes that leave Ctrl-C to the run: it saves first, and then they end with it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@dataclass
class Follower:
    """Print what is new in the logs of a job."""

    launch: LaunchDir
    job_id: str
    _read: dict[Path, int] = field(default_factory=dict)

    def show(self) -> None:
        """Print it to standard error, as the run itself would."""
        for path in (self.launch.output_log(self.job_id), self.launch.error_log(self.job_id)):
            if path.exists():
                with path.open("rb") as file:
                    file.seek(self._read.get(path, 0))
                    text = file.read()
                self._read[path] = self._read.get(path, 0) + len(text)
                sys.stderr.write(text.decode(errors="replace"))
        sys.stderr.flush()


def wait(job: LocalJob[None], launch: LaunchDir) -> Outcome:
    """Show the log until the job ends. The first Ctrl-C stops the run, saved; a second one ends this wait."""
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
            stop(job.job_id, launch)  # a run that is still starting does not listen to Ctrl-C
    follower.show()
    return outcome_of(launch, job.job_id)[0]


def outcome_of(launch: LaunchDir, job_id: str) -> tuple[Outcome, str]:
    """Return how a job ended, and its message: that of the first process that went wrong."""
    records = [read_json(path) for path in launch.outcomes(job_id)]
    wrong = [record for record in records if record["outcome"] != Outcome.OK]
    if not records:
        return Outcome.FAILED, KILLED
    first = (wrong or records)[0]
    return Outcome(first["outcome"]), str(first["message"])


def is_alive(job_id: str, launch: LaunchDir) -> bool:
    """Return whether the controller of a local job still runs. The job's id is its process number.

    Another process may have got the number since, so the command line must name the folder of the job.
    """
    try:
        command = Path("/proc", job_id, "cmdline").read_bytes()
    except OSError:
        return False
    return os.fsencode(launch.root.absolute()) in command


def stop(job_id: str, launch: LaunchDir) -> bool:
    """Ask a local job to save and end. Return False if it has ended."""
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
    """Run in background processes of this machine, show the log and wait. Raises InputError.

    The run survives the end of this process. Ctrl-C stops the run after it has saved.
    """
    problems = [*problems, *local_problems(resources)]
    run_dir = check_submission(run, resources, True, problems)
    submission = _submission(run_dir, run, resources)
    job = to_this_machine(submission, replace(run, config=run.config.absolute()))
    say(
        f"process {job.job_id}, logs in {submission.launch.root}; to stop it, saved: kill {job.job_id}"
    )
    return wait(job, submission.launch)


def to_queue(
    run: RunOptions, resources: Resources, problems: Sequence[str], say: Callable[[str], None]
) -> Outcome:
    """Submit to Slurm and return. Raises InputError."""
    problems = list(problems)
    try:
        resources = with_cpus(run, resources)
    except InputError as error:
        problems += error.problems
    run_dir = check_submission(run, resources, False, problems)
    if run_dir.result_json.exists():
        say(f"{run_dir.root}: this run is complete, nothing was submitted")
        return Outcome.OK
    submission = _submission(run_dir, run, resources)
    (job,) = to_slurm(submission, [replace(run, config=run.config.absolute())])
    say(
        f"job {job.job_id} is submitted\n"
        f"  queue:  squeue --jobs {job.job_id}\n"
        f"  follow: tail -F {submission.launch.error_log(job.job_id)}\n"
        f"  cancel: scancel {job.job_id}\n"
        f"The run folder will be {run_dir.root}."
    )
    return Outcome.OK


def _submission(run_dir: RunDir, run: RunOptions, resources: Resources) -> Submission:
    """Prepare the submission of one run, with its own copy of the code as it is now."""
    launch = new_launch_dir(run_dir.launches)
    code = (launch.root / "code").absolute()
    return Submission(launch, code, Path.cwd(), resources, run.experiment)
