"""Start Python and hold back the signals that a job may get before it listens to them.

    python -I -S hold_signals.py ARGUMENTS OF PYTHON

A warning from Slurm during the imports would kill the process, and Slurm does not queue a job again that ends by
itself. So the signals are held back until ``release``. This file must not import torch, which takes seconds.
"""

from __future__ import annotations

import os
import signal
import sys

HELD = (signal.SIGTERM, signal.SIGUSR2)


def release() -> None:
    """Deliver the signals that came since the start, and all later ones."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)


if __name__ == "__main__":
    # exec keeps the mask of blocked signals. A handler would be lost: exec resets handlers to the default.
    signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])  # noqa: S606
