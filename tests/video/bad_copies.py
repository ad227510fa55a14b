"""Copies that misbehave, for processes: a path says how."""

import errno
import os

import bad_checks

from mgexp.video.store import StoreDir, StoredVideo
from mgexp.video.store_fill import Lacking, Order, copy_video


def copy(store: StoreDir, order: Order, lacking: Lacking) -> StoredVideo:
    """Misbehaves as ``bad_checks.check`` does, finds the disk full, or copies the video."""
    if "full" in lacking[0]:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    bad_checks.check(lacking[0], quick=True)
    return copy_video(store, order, lacking)
