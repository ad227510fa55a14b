"""Runs in background processes of this machine: followed, waited for, stopped."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from submitit import LocalJob

from mgexp.record.files import read_json
from mgexp.record.sweep_dir import LaunchDir
from mgexp.train.result import Outcome

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
