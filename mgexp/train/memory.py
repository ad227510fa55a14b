"""How the memory of a CPU is asked for: once, and not again in each step."""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Parameters of mallopt. Source: malloc.h of the GNU C library."""


def keep_memory() -> bool:
    """Freed memory stays with this process, and with those forked from it; whether the C library can do that.

    glibc gives large blocks back to the system at once, and gets them anew, page by page and zeroed, a moment
    later. Measured on 2 cores: a step of SlowFast R50 at 8x16x158² of 2.7 to 4.3 instead of 3.7 to 5.4 s, one of
    the quickstart's baseline of 127 and 139 instead of 165 and 209 ms; the losses and the peak of memory are the
    same. Only glibc has it: elsewhere nothing is done.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    return bool(mallopt(M_TRIM_THRESHOLD, -1)) and bool(mallopt(M_MMAP_MAX, 0))
