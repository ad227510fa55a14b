"""Give runs to submitit, which starts them on Slurm or in background processes of this machine."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import submitit
from submitit import Job, LocalJob
from submitit.core.core import Executor
from submitit.core.utils import FailedJobError

from mgexp.config.load import to_yaml
from mgexp.errors import InputError, collected
from mgexp.launch import hold_signals
from mgexp.launch.resources import Resources, local_problems
from mgexp.launch.run import RunOptions, check_submission, freeze_code, with_cpus
from mgexp.launch.task import Submission, TrainTask
from mgexp.run.environment import REPOSITORY
from mgexp.run.files import atomic_write_text, read_json
from mgexp.run.folder import LaunchDir, RunDir, new_launch_dir
from mgexp.train.result import Outcome

MAX_TIMEOUTS = 1000
"""How often a run may reach its time limit before submitit gives up. Assumption: no run needs more."""
POLL_SECONDS = 0.2
KILLED = "its process ended without a message: see the log"


def to_slurm(submission: Submission, runs: Sequence[RunOptions]) -> list[Job[None]]:
    """Submit runs with the same resources to Slurm. Several runs are one array."""
    resources, folder = submission.resources, submission.launch.root.resolve()
    try:
        executor = submitit.SlurmExecutor(folder, MAX_TIMEOUTS, python=_python(submission))
    except RuntimeError as error:
        raise InputError([f"there is no Slurm on this machine: {error}"]) from error
    executor.update_parameters(
        job_name=submission.name,
        time=resources.minutes,
        nodes=resources.nodes,
        ntasks_per_node=resources.tasks_per_node,
        cpus_per_task=resources.cpus_per_task,
        gpus_per_node=resources.gpus_per_node or None,
        signal_delay_s=resources.warning_seconds,
        array_parallelism=submission.num_parallel,
        # If one process fails, srun must end the others. Since Slurm 22.05, srun no longer takes the number of
        # CPUs from sbatch.
        srun_args=["--kill-on-bad-exit=1", f"--cpus-per-task={resources.cpus_per_task}"],
        # On clusters with JobRequeue=0, Slurm queues a job again only if the job asks for it.
        additional_parameters={"requeue": True, **dict(resources.sbatch)},
    )
    try:
        return _send(submission, executor, runs)
    except (FailedJobError, subprocess.CalledProcessError, OSError) as error:
        raise InputError([f"sbatch refused the job: {' '.join(str(error).split())}"]) from error


@dataclass
class LocalRun:
    """A run in background processes of this machine. The processes continue when this process ends."""

    job: LocalJob[None]
    launch: LaunchDir
    _num_shown: int = 0  # bytes of the log that were printed

    def has_ended(self, shows_log: bool) -> bool:
        """Return whether the run has ended, and print what is new in its log to standard error."""
        # Ask first, and read the log after that. The log of an ended run does not grow, so nothing is missed.
        has_ended = bool(self.job.done())
        log = self.launch.error_log(self.job.job_id)
        if shows_log and log.exists():
            with log.open("rb") as file:
                file.seek(self._num_shown)
                text = file.read()
            self._num_shown += len(text)
            sys.stderr.write(text.decode(errors="replace"))
            sys.stderr.flush()
        return has_ended

    def outcome(self, was_stopped: bool) -> tuple[Outcome, str]:
        """Return how the run ended, and its message. ``was_stopped``: whether it was asked to save and end."""
        outcome, message = outcome_of(self.launch, self.job.job_id)
        if message == KILLED and was_stopped:
            # The signal came before the run could hold it back, so nothing has begun.
            return Outcome.INTERRUPTED, "stopped before it began"
        return outcome, message

    def wait(self) -> Outcome:
        """Print the log until the run ends. A first Ctrl-C saves and stops the run. A second ends this wait."""
        was_interrupted = False
        try:
            self._follow()
        except KeyboardInterrupt:
            was_interrupted = True
            # The processes ignore SIGINT while they start, so `stop` sends SIGTERM.
            stop(self.job.job_id, self.launch)
            self._follow()
        outcome, message = self.outcome(was_interrupted)
        if message == KILLED:
            sys.stderr.write(f"{message}\n")
        return outcome

    def _follow(self) -> None:
        while not self.has_ended(shows_log=True):
            time.sleep(POLL_SECONDS)


def to_this_machine(submission: Submission, run: RunOptions, slot: int = 0) -> LocalRun:
    """Start a run in background processes. Parallel runs have different slots, and so different GPUs."""
    # The new processes inherit this. Below a warning, submitit only says when it starts and ends.
    os.environ.setdefault("SUBMITIT_LOG_LEVEL", "WARNING")
    folder = submission.launch.root.resolve()
    executor = submitit.LocalExecutor(folder, python=_python(submission))
    executor.update_parameters(
        # Ten years: a local job has no limit, but submitit needs a number.
        timeout_min=10 * 365 * 24 * 60,
        tasks_per_node=submission.resources.tasks_per_node,
        gpus_per_node=submission.resources.gpus_per_node,
        visible_gpus=_gpus(submission.resources.gpus_per_node, slot),
    )
    # The terminal sends Ctrl-C to all processes, and SIGHUP when it is closed. The new ones inherit that both are
    # ignored, so submitit's controller survives them. The run itself listens to SIGINT later and saves, and it
    # continues without the terminal. The controller ends with the run.
    with ignoring(signal.SIGINT, signal.SIGHUP):
        (job,) = _send(submission, executor, [run])
    assert isinstance(job, LocalJob)
    return LocalRun(job, submission.launch)


@contextmanager
def ignoring(*signals: signal.Signals) -> Iterator[None]:
    """Ignore ``signals`` in the block, in this process and in those that it starts."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _gpus(num: int, slot: int) -> tuple[int, ...]:
    """Return the numbers of a slot's GPUs. Take them from CUDA_VISIBLE_DEVICES if it is set."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    numbers = map(int, visible.split(",")) if visible and num else range((slot + 1) * num)
    return tuple(numbers)[slot * num : (slot + 1) * num]


def _send(
    submission: Submission, executor: Executor, runs: Sequence[RunOptions]
) -> list[Job[None]]:
    """Freeze the code and the configuration, and submit one task for each run."""
    submission.launch.root.mkdir(parents=True, exist_ok=True)
    freeze_code(submission.code)
    if submission.frozen_yaml:
        atomic_write_text(submission.launch.frozen_yaml, submission.frozen_yaml)
    # A task starts in the folder from which it is submitted, and Python looks for modules there first. So the task
    # imports the frozen copy of mgexp.
    before = Path.cwd()
    os.chdir(submission.code)
    try:
        with executor.batch():
            return [executor.submit(TrainTask(run, submission)) for run in runs]
    finally:
        os.chdir(before)


def _python(submission: Submission) -> str:
    """Write the beginning of the shell command that starts a task."""
    # -I and -S let this first Python start without site-packages and the user's settings. So it runs no other code
    # before it holds the signals. The Python that it then starts is an ordinary one.
    script = submission.code / Path(hold_signals.__file__).resolve().relative_to(REPOSITORY)
    return shlex.join([sys.executable, "-I", "-S", str(script)])


def outcome_of(launch: LaunchDir, job_id: str) -> tuple[Outcome, str]:
    """Return how a job ended, and the message of the first process that failed."""
    records = [read_json(path) for path in launch.outcomes(job_id)]
    if not records:
        return Outcome.FAILED, KILLED
    wrong = (record for record in records if record["outcome"] != Outcome.OK)
    first = next(wrong, records[0])
    return Outcome(first["outcome"]), str(first["message"])


def is_alive(job_id: str, launch: LaunchDir) -> bool:
    """Return whether the controller of a local job still runs. The job's id is its process id."""
    try:
        command = Path("/proc", job_id, "cmdline").read_bytes()
    except OSError:
        return False
    # Linux may since have given this id to another process.
    return os.fsencode(launch.root.resolve()) in command


def stop(job_id: str, launch: LaunchDir) -> None:
    """Ask a local job to save and end. Do nothing if it has ended."""
    if is_alive(job_id, launch):
        with suppress(ProcessLookupError):
            os.kill(int(job_id), signal.SIGTERM)


def to_local(
    run: RunOptions,
    resources: Resources,
    problems: Sequence[str],
    say: Callable[[str], None],
    code: Path | None = None,
) -> Outcome:
    """Run in background processes with the frozen ``code``, and wait. Raises InputError for bad input."""
    problems = [*problems, *local_problems(resources)]
    run_dir = check_submission(run, resources, True, problems)
    submission, frozen = _frozen(run_dir, run, resources, code)
    local = to_this_machine(submission, frozen)
    number = local.job.job_id
    say(f"process {number}, logs in {submission.launch.root}; to stop it: kill {number}")
    return local.wait()


def to_queue(
    run: RunOptions, resources: Resources, problems: Sequence[str], say: Callable[[str], None]
) -> Outcome:
    """Submit a run to Slurm, and do not wait for it. Raises InputError for bad input, or if Slurm refuses."""
    problems = list(problems)
    with collected(problems):
        resources = with_cpus(run, resources)
    run_dir = check_submission(run, resources, False, problems)
    # A complete run can be evaluated again.
    if run.read().TRAIN.ENABLE and run_dir.result_json.exists():
        say(f"{run_dir.root}: this run is complete, nothing was submitted")
        return Outcome.OK
    submission, frozen = _frozen(run_dir, run, resources)
    (job,) = to_slurm(submission, [frozen])
    log = shlex.quote(str(submission.launch.error_log(job.job_id)))
    say(f"job {job.job_id} is submitted; follow: tail -F {log}; run folder: {run_dir.root}")
    return Outcome.OK


def _frozen(
    run_dir: RunDir, run: RunOptions, resources: Resources, code: Path | None = None
) -> tuple[Submission, RunOptions]:
    """Prepare the submission of one run. A YAML that changes while the job waits does not change the run."""
    launch = new_launch_dir(run_dir.launches)
    code = (code or launch.root / "code").absolute()
    yaml = to_yaml(run.read())
    submission = Submission(launch, code, Path.cwd(), resources, run.experiment, frozen_yaml=yaml)
    return submission, run.frozen_as(launch.frozen_yaml)
