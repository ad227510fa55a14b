"""One run handed to a launcher: checked here, run elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from mgexp.dist import Processes
from mgexp.errors import InputError
from mgexp.launch.build import RunOptions, check_submission, with_cpus
from mgexp.launch.executors import Submission, to_slurm, to_this_machine
from mgexp.launch.local import wait
from mgexp.launch.resources import Resources, local_problems
from mgexp.record.run_dir import RunDir
from mgexp.record.sweep_dir import launches_of
from mgexp.train.result import Outcome


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
    launch = launches_of(run_dir).new()
    return Submission(
        launch=launch,
        code=(launch.root / "code").absolute(),
        working_directory=Path.cwd(),
        resources=resources,
        name=run.experiment,
    )


def _absolute(run: RunOptions) -> RunOptions:
    return replace(run, config=run.config.absolute())
