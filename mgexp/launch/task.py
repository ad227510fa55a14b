"""Define the task that submitit runs in a job: one process of a run. An interrupted job saves and is queued again.

This is what each signal does. We observed it on Slurm 22.05:

- SIGUSR2 is the warning before the time limit. It also announces preemption if SlurmctldParameters has
  preempt_send_user_signal. All processes save at the same step. Rank 0 then passes the signal to submitit, which
  queues the job again.
- SIGTERM comes from scancel, from `scontrol requeue`, and from preemption without that parameter. Slurm ends the
  job in any case, and decides itself whether to queue it again. It does not do so for a job that ends by itself.
  So the run saves and continues until it is killed.
- If no step ends for a long time after SIGUSR2, as during a compilation, the job is queued again before its limit.
  It then continues from the files on disk. This also covers a process that waits for another in a collective.
- A signal that comes before the task listens is held back until then: see `hold_signals.py`.

Under submitit's local executor no scheduler ends a job, so SIGTERM stops the run.
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

import submitit
from submitit.helpers import TorchDistributedEnvironment

from mgexp import dist
from mgexp.dist import Processes
from mgexp.errors import InputError
from mgexp.launch.hold_signals import release
from mgexp.launch.resources import Resources
from mgexp.launch.run import RunOptions, require_frozen, run_in_process
from mgexp.run.files import write_json
from mgexp.run.folder import LaunchDir
from mgexp.stop import StopRequest
from mgexp.train.result import Outcome

ENDS_IT = ("SIGTERM", "SIGINT")
"""Signals after which a run is not queued again."""


@dataclass(frozen=True)
class Submission:
    """Runs with the same resources that are submitted together."""

    launch: LaunchDir
    code: Path  # of the frozen code
    working_directory: Path  # where relative paths lie
    resources: Resources
    name: str
    num_parallel: int = 1  # the most runs at a time
    frozen_yaml: str = ""  # of a run alone


@dataclass(frozen=True)
class TrainTask(submitit.helpers.Checkpointable):
    """One run of a submission. submitit calls this object in each process of the run, and can queue it again."""

    options: RunOptions
    submission: Submission

    def __call__(self) -> None:
        """Run to the end. Exit with the code of run_net.py if it is not 0."""
        job = submitit.JobEnvironment()
        is_slurm = job.cluster == "slurm"
        stop = StopRequest(only_save=(signal.SIGTERM,) if is_slurm else ())
        # A job that is queued again keeps its id. So delete the outcome of its last start.
        outcome_json = self.submission.launch.outcome_json(job.job_id, job.global_rank)
        outcome_json.unlink(missing_ok=True)
        deadline: AbstractContextManager[object] = nullcontext()
        if is_slurm and job.global_rank == 0:
            # The other half of the warning is for Slurm, which needs time to queue the job again.
            deadline = _Deadline(self.submission.resources.warning_seconds / 2, job.job_id)
        # Listen first. `release` delivers the signals that came during the start.
        with stop.listening(), deadline:
            release()
            outcome = self._run(job, stop, outcome_json)
        if outcome is Outcome.INTERRUPTED and stop.signal_name not in ENDS_IT:
            # Everything is saved. The handler of submitit is now active again. On rank 0 it queues the job again
            # and exits.
            if job.global_rank == 0:
                signal.raise_signal(signal.SIGUSR2)
            raise SystemExit(0)
        if outcome:
            raise SystemExit(int(outcome))

    def _run(self, job: submitit.JobEnvironment, stop: StopRequest, outcome_json: Path) -> Outcome:
        """Run, and write how the run ended into ``outcome_json``."""
        messages: list[str] = []

        def say(message: str) -> None:
            messages.append(message)
            print(f"run_net.py: {message}", file=sys.stderr)

        def record(outcome: Outcome, message: str) -> None:
            write_json(outcome_json, {"outcome": int(outcome), "message": message})

        os.chdir(self.submission.working_directory)
        try:
            require_frozen(self.submission.code)
            outcome = run_in_process(self.options, _processes(job), say, stop)
        except InputError as error:
            say(str(error))
            outcome = Outcome.BAD_INPUT
        except Exception as error:
            if not stop.requested or job.num_tasks == 1:
                record(Outcome.FAILED, f"{type(error).__name__}: {error}")
                raise
            # After the signal all processes leave. The first one that leaves breaks the connection of the others,
            # so this error of theirs is no failure.
            say(f"after {stop.signal_name}: {error}")
            outcome = Outcome.INTERRUPTED
        if outcome is not Outcome.INTERRUPTED or stop.signal_name in ENDS_IT:
            saved = f"{stop.signal_name}: saved" if outcome is Outcome.INTERRUPTED else ""
            record(outcome, "\n".join(messages) or saved)
        return outcome


class _Deadline(threading.Thread):
    """A thread that queues a Slurm job again if no step ends within ``seconds`` after a warning.

    Python's handlers run only between two instructions of the main thread, which may be busy or wait. So the
    interpreter writes the number of each signal into a socket that this thread reads.
    """

    def __init__(self, seconds: float, job_id: str) -> None:
        super().__init__(daemon=True)
        self._seconds = seconds
        self._job_id = job_id
        self._run_ended = threading.Event()
        self._reader, self._writer = socket.socketpair()

    def __enter__(self) -> _Deadline:
        self._writer.setblocking(False)
        signal.set_wakeup_fd(self._writer.fileno())
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(-1)
        self._run_ended.set()
        self._writer.close()

    def run(self) -> None:
        """Wait for the warning, and then for the end of the run. Queue the job again if the run does not end."""
        # The socket gives no byte after it is closed.
        while (byte := self._reader.recv(1)) != bytes([signal.SIGUSR2]):
            if not byte:
                return
        if self._run_ended.wait(self._seconds):
            return
        warning = f"run_net.py: SIGUSR2 came {self._seconds:.0f} s ago, and no step has ended since"
        print(f"{warning}: the job is queued again", file=sys.stderr)
        subprocess.run(["scontrol", "requeue", self._job_id], check=True)


def _processes(job: submitit.JobEnvironment) -> Processes:
    """Return which process of the job this is, and tell torch the address of the first process."""
    if job.num_tasks == 1:
        return Processes()
    environment = TorchDistributedEnvironment()
    # A node may not know an address for its own name. Processes of one node do not need it.
    if job.num_nodes == 1:
        environment.master_addr = "127.0.0.1"
    # Processes select their GPUs by LOCAL_RANK, so each must see all GPUs of its node.
    environment.export(set_cuda_visible_devices=False, overwrite=True)
    return dist.from_environment()
