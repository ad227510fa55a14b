"""Checks that misbehave, for processes: a path says how."""

import os
import signal
import time

from mgexp.video.check import VideoCheck


def check(path: str, quick: bool) -> VideoCheck:
    """Hangs, dies of a signal, leaves, raises, or is ok after a moment; the reason shows ``quick``."""
    if "hang" in path:
        time.sleep(1000)
    if "segfault" in path:
        os.kill(os.getpid(), signal.SIGSEGV)
    if "leave" in path:
        os._exit(7)
    if "raise" in path:
        raise MemoryError("too large")
    return VideoCheck(path, "ok", f"quick={quick}", frames=os.getpid())


def die(niceness: int) -> None:
    """Ends a process before it gets an item, as the system does where memory is full."""
    os.kill(os.getpid(), signal.SIGKILL)


def name(path: str) -> str:
    """Misbehaves as ``check`` does, or gives the path back."""
    return check(path, quick=True).path
