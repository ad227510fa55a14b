"""Runs of run_net.py in a process of their own, to which something is done."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from tiny import TOOL

PATIENCE_SECONDS = 200  # on a machine that is busy


def wait_for(condition, what, seconds=PATIENCE_SECONDS):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"no {what} within {seconds} s"
        time.sleep(0.01)


class Run:
    """A started command; its messages are in ``said``."""

    def __init__(self, arguments, folder, before=(), code=None, environment=None):
        """``before``: a command that starts it; ``code``: Python that does, in place of the tool."""
        self._said = folder / f"said_{time.monotonic_ns()}.txt"
        program = [str(TOOL)] if code is None else ["-c", code]
        with self._said.open("w") as file:
            self.process = subprocess.Popen(
                [*before, sys.executable, *program, *map(str, arguments)],
                env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
                stderr=file,
                stdout=file,
                start_new_session=True,
            )

    @property
    def said(self):
        return self._said.read_text()

    @property
    def messages(self):
        """What it says at its end, without the log."""
        return [line for line in self.said.splitlines() if line.startswith("run_net.py: ")]

    def until(self, condition):
        """Waits; fails where the process ends before."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert self.process.poll() is None, self.said
            assert time.monotonic() < end, self.said
            time.sleep(0.005)

    def ends(self, seconds=PATIENCE_SECONDS):
        """Its exit code."""
        return self.process.wait(seconds)

    def signal(self, number):
        self.process.send_signal(number)

    def signal_group(self, number):
        """To it and its workers, as a terminal does."""
        os.killpg(self.process.pid, number)

    def children(self):
        """Process ids of its workers."""
        text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(word) for word in text.split()]

    def catches_signals(self):
        """Whether it has a handler of SIGUSR2."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        mask = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt"))
        return bool(mask >> (signal.SIGUSR2 - 1) & 1)

    def end(self):
        """Kills what is left of it."""
        if self.process.poll() is None:
            self.signal_group(signal.SIGKILL)
            self.process.wait()


@contextmanager
def started(*arguments, **options):
    run = Run(*arguments, **options)
    try:
        yield run
    finally:
        run.end()


def num_lines(path):
    return path.read_text().count("\n") if path.exists() else 0


def temporary_files(folder):
    return [path for path in folder.rglob("*") if path.name.endswith(".tmp")]


@contextmanager
def small_disk(folder, kilobytes):
    """A file system of that size at ``folder``, as the process that holds it sees it; skips where that may not be.

    It is gone with that process, and no other sees it: a mount needs no clearing up.
    """
    folder.mkdir()
    mount = f"mount -t tmpfs -o size={kilobytes}k tmpfs '{folder}' && echo ready && exec sleep 1000"
    flags = "-m" if os.getuid() == 0 else "-rm"
    holder = subprocess.Popen(
        ["unshare", flags, "sh", "-c", mount], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        if holder.stdout.readline() != b"ready\n":
            pytest.skip("this machine does not let a test mount a file system (unshare, mount)")
        yield Path(f"/proc/{holder.pid}/root{folder}")
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


def fill(folder, left_kilobytes=0):
    """A file that takes all the room in ``folder`` but so much."""
    ballast = folder / "ballast"
    status = os.statvfs(folder)
    with ballast.open("wb") as file:
        file.write(bytes(status.f_bavail * status.f_frsize - 1024 * left_kilobytes))
    return ballast
