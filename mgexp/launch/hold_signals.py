"""Start Python and hold back the signals that a job may get before it listens to them.

    python -I -S hold_signals.py ARGUMENTS OF PYTHON

Imports take seconds. A warning from Slurm during that time would kill the process, and Slurm does not queue a job
again that ends by itself. So the signal is held back until ``release``. This file runs as a script before anything
else is imported, so it must not import torch.
"""

from __future__ import annotations

import os
import signal
import sys

HELD = (signal.SIGTERM, signal.SIGUSR2)


def release() -> None:
    """Deliver the signals that came in the meantime, and all later ones."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, HELD)  # outlives exec
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
