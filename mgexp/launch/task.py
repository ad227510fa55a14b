"""What submitit runs in a job: one process of a run, saved and queued again where the job is interrupted.

What a signal does, as it was found on Slurm 22.05:

- SIGUSR2 (a warning before the time limit; preemption where SlurmctldParameters has preempt_send_user_signal):
  all processes save at the same step, and rank 0 hands the signal to submitit, which queues the job again.
- SIGTERM (scancel; `scontrol requeue`; preemption without the former): Slurm ends the job whatever it does, and
  queues it again itself or not. A job that ends by itself is not queued again. So the run saves and goes on.
- SIGUSR2 where no step ends for long, as in a compilation: the job is queued again before the limit, to go on
  after what is on disk.
- Either of them before anybody listens: it is held back until the task does, see `hold_signals.py`.

The pickle of a job never changes: what a run has done is in its run folder, so that a start from the original
pickle goes on as well. Under submitit's local executor, where nobody else ends a job, SIGTERM stops it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import submitit
from submitit.helpers import TorchDistributedEnvironment

from mgexp import dist
from mgexp.dist import Processes
from mgexp.errors import InputError
from mgexp.launch.hold_signals import release
from mgexp.launch.resources import Resources
from mgexp.launch.run import RunOptions, require_frozen, run_in_process
from mgexp.run.clock import seconds_since_process_start
from mgexp.run.files import write_json
from mgexp.run.folder import LaunchDir
from mgexp.stop import StopRequest
from mgexp.train.result import Outcome

EARLY_SECONDS = 60
"""So much before its time the warning may come. Source: man sbatch, --signal."""
LOOPBACK = "127.0.0.1"
WARNING = "SIGUSR2"
ENDS_IT = ("SIGTERM", "SIGINT")
"""Signals after which a run is not queued again."""


@dataclass(frozen=True)
class TrainTask:
    """One run as submitit's callable, called in each of its processes.

    ``code``: the frozen copy that must be running. Relative paths of the options are relative to
    ``working_directory``. ``resources``: those of the job.
    """

    options: RunOptions
    launch: LaunchDir
    code: Path
    working_directory: Path
    resources: Resources

    def __call__(self) -> None:
        """Runs to the end; exits with the code of run_net.py where that is not 0."""
        job = submitit.JobEnvironment()
        is_slurm = job.cluster == "slurm"
        stop = StopRequest(only_save=(signal.SIGTERM,) if is_slurm else ())
        self.launch.outcome_json(job.job_id, job.global_rank).unlink(missing_ok=True)
        deadline: AbstractContextManager[object] = nullcontext()
        if is_slurm and job.global_rank == 0:
            deadline = _Deadline(stop, self.resources, job.job_id)
        with stop.listening():
            release()
            with deadline:
                outcome = self._run(job, stop)
        if outcome is Outcome.INTERRUPTED and stop.signal_name not in ENDS_IT:
            self._queue_again(job)
        if outcome:
            raise SystemExit(int(outcome))

    def checkpoint(self) -> submitit.helpers.DelayedSubmission:
        """What submitit queues again: the same task, since its state is in the run folder."""
        return submitit.helpers.DelayedSubmission(self)

    def __submitit_checkpoint__(self) -> submitit.helpers.DelayedSubmission:
        """As ``checkpoint``, under the name that submitit looks for first."""
        return self.checkpoint()

    def _run(self, job: submitit.JobEnvironment, stop: StopRequest) -> Outcome:
        """Runs, and leaves how it ended beside the logs."""
        messages: list[str] = []

        def say(message: str) -> None:
            messages.append(message)
            print(f"run_net.py: {message}", file=sys.stderr)

        os.chdir(self.working_directory)
        try:
            require_frozen(self.code)
            outcome = run_in_process(self.options, _processes(job), say, stop)
        except InputError as error:
            say(str(error))
            outcome = Outcome.BAD_INPUT
        except Exception as error:
            if not stop.requested:
                self._record(job, Outcome.FAILED, f"{type(error).__name__}: {error}")
                raise
            say(f"after {stop.signal_name}: {error}")  # others may have left before this process
            outcome = Outcome.INTERRUPTED
        if outcome is not Outcome.INTERRUPTED or stop.signal_name in ENDS_IT:
            saved = f"{stop.signal_name}: saved" if outcome is Outcome.INTERRUPTED else ""
            self._record(job, outcome, "\n".join(messages) or saved)
        return outcome

    def _record(self, job: submitit.JobEnvironment, outcome: Outcome, message: str) -> None:
        record = {"outcome": int(outcome), "message": message}
        write_json(self.launch.outcome_json(job.job_id, job.global_rank), record)

    def _queue_again(self, job: submitit.JobEnvironment) -> None:
        """Everything is saved: rank 0 gives the signal to submitit's handler, which exits; the others end."""
        if job.global_rank == 0:
            signal.raise_signal(signal.SIGUSR2)
        raise SystemExit(0)


def seconds_to_wait(resources: Resources, since_start: float) -> float:
    """How long a job that is warned ``since_start`` seconds after its start may wait for a step to end.

    Before the time limit, until half of the warning is left; where the limit is far, Slurm preempts the job,
    and may end it before that.
    """
    margin, left = resources.warning_seconds / 2, 60 * resources.minutes - since_start
    is_time_limit = left < resources.warning_seconds + EARLY_SECONDS
    return max(0.0, left - margin) if is_time_limit else margin


class _Deadline(threading.Thread):
    """Queues a Slurm job again that was warned, and has not ended a step in ``seconds_to_wait``.

    A thread, since the main one may be anywhere. It waits within its context.
    """

    def __init__(self, stop: StopRequest, resources: Resources, job_id: str) -> None:
        super().__init__(daemon=True)
        self._request = stop
        self._resources = resources
        self._job_id = job_id
        self._run_ended = threading.Event()

    def __enter__(self) -> _Deadline:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._run_ended.set()

    def run(self) -> None:
        """Waits for the warning, then for the run to end."""
        while self._request.signal_name != WARNING:
            if self._run_ended.wait(0.2):
                return
        seconds = seconds_to_wait(self._resources, seconds_since_process_start())
        if self._run_ended.wait(seconds):
            return
        print(
            f"run_net.py: {WARNING} came {seconds:.0f} s ago, and no step has ended since: "
            "queued again, to go on after what is saved",
            file=sys.stderr,
        )
        subprocess.run(["scontrol", "requeue", self._job_id], check=True)


def _processes(job: submitit.JobEnvironment) -> Processes:
    """This process among those of the job, and where torch finds the first of them."""
    if job.num_tasks == 1:
        return Processes()
    found: Any = TorchDistributedEnvironment()
    if job.num_nodes == 1:
        found.master_addr = LOOPBACK  # the name of a node need not be known to itself
    _require_address(found.master_addr)
    found.export(set_cuda_visible_devices=False, overwrite=True)
    return dist.from_environment()


def _require_address(host: str) -> None:
    try:
        socket.getaddrinfo(host, None)
    except OSError as error:
        problem = f"the first node of the job, {host}, has no address here ({error}): its processes cannot meet"
        raise InputError(
            [f"{problem}; name nodes in slurm.conf as hosts are named, or use --nodes 1"]
        ) from error
