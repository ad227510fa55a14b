"""Starts Python with the signals held back that a job may get before anybody listens.

    python -I -S hold_signals.py ARGUMENTS OF PYTHON

Imports take seconds. A warning of Slurm that comes meanwhile would kill the process, and a job that ends by itself
is not queued again. Held back, it waits for ``release``. Run as a script, without torch, and soon after the start.
"""

from __future__ import annotations

import os
import signal
import sys

HELD = (signal.SIGTERM, signal.SIGUSR2)


def release() -> None:
    """Now somebody listens: what came meanwhile comes now."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, HELD)  # outlives exec
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
