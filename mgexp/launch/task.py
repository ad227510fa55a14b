"""What submitit runs in a job: one process of a run, saved and queued again where the job is interrupted.

What a signal does, as it was found on Slurm 22.05:

- SIGUSR2 (a warning before the time limit; preemption where SlurmctldParameters has preempt_send_user_signal):
  all processes save at the same step, and rank 0 hands the signal to submitit, which queues the job again.
- SIGTERM (scancel; `scontrol requeue`; preemption without the former): Slurm ends the job whatever it does, and
  queues it again itself or not. A job that ends by itself is not queued again. So the run saves and goes on.
- SIGUSR2 in anything long that is no step (an evaluation, a compilation): what is on disk is all there is, and the
  job is queued again before the limit. An evaluation goes on where it was.

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
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import submitit
from submitit.helpers import TorchDistributedEnvironment

from mgexp import dist
from mgexp.dist import Processes
from mgexp.errors import InputError
from mgexp.launch.build import RunOptions, run_in_process
from mgexp.launch.freeze import require_frozen
from mgexp.record.files import write_json
from mgexp.record.sweep_dir import LaunchDir
from mgexp.stop import StopRequest
from mgexp.train.result import Outcome

LOOPBACK = "127.0.0.1"
WARNING = "SIGUSR2"
ENDS_IT = ("SIGTERM", "SIGINT")
"""Signals after which a run is not queued again."""


@dataclass(frozen=True)
class TrainTask:
    """One run as submitit's callable, called in each of its processes.

    ``code``: the frozen copy that must be running. Relative paths of the options are relative to
    ``working_directory``. ``late_seconds`` after Slurm's warning the job is queued again, a step ended or not.
    """

    options: RunOptions
    launch: LaunchDir
    code: Path
    working_directory: Path
    late_seconds: float

    def __call__(self) -> None:
        """Runs to the end; exits with the code of run_net.py where that is not 0."""
        job = submitit.JobEnvironment()
        is_slurm = job.cluster == "slurm"
        stop = StopRequest(only_save=(signal.SIGTERM,) if is_slurm else ())
        self.launch.outcome_json(job.job_id, job.global_rank).unlink(missing_ok=True)
        with stop.listening():
            if is_slurm and job.global_rank == 0:
                _Deadline(stop, self.late_seconds, job.job_id).start()
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
        except BaseException as error:
            if isinstance(error, Exception):
                self._record(job, Outcome.FAILED, f"{type(error).__name__}: {error}")
            raise
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


class _Deadline(threading.Thread):
    """Queues a Slurm job again that was warned and has not stopped ``seconds`` later.

    A thread, since the main one may be anywhere. It ends with the process.
    """

    def __init__(self, stop: StopRequest, seconds: float, job_id: str) -> None:
        super().__init__(daemon=True)
        self._request = stop
        self._seconds = seconds
        self._job_id = job_id

    def run(self) -> None:
        """Waits for the warning, then for the run to end."""
        while self._request.signal_name != WARNING:
            time.sleep(0.5)
        time.sleep(self._seconds)
        print(
            f"run_net.py: {WARNING} came {self._seconds:.0f} s ago, and no step has ended since: "
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
