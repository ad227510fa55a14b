"""The lock of a folder: one process alone writes into it."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

from mgexp.errors import InputError

LOGGER = logging.getLogger("mgexp")


@contextmanager
def lock_file(path: Path, busy: str = "") -> Iterator[None]:
    """Hold the lock ``path`` in the block, so that this process alone writes into the folder.

    Raises InputError where another process holds the lock or may hold it, with the message ``busy`` or one about
    a run folder. The file holds "pid host since", which a process that is killed cannot take back.
    """
    # The lock is of the POSIX kind (lockf), not flock: it dies with the process that took it. Forked loader
    # workers keep an flock for seconds after their parent is killed, and the same command started again would be
    # refused. NFS shares both kinds between hosts (flock since Linux 2.6.12), except on mounts with nolock or
    # local_lock. There two hosts may both get it, so whoever takes over from another host warns.
    with path.open("a+") as file:
        file.seek(0)
        text = file.read().strip()
        pid, host, since = (text.split() + ["unknown"] * 3)[:3]
        holder = f"process {pid} on {host} since {since}"
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                here = f"run folder {path.parent} is in use by {holder}"
                otherwise = f"{here}: wait for it, stop it, or choose another folder with --output"
                raise InputError([busy or otherwise]) from error
            if text and _may_live(pid, host):
                problem = (
                    f"{path} names {holder}, and the file system cannot lock it ({error.strerror}), so it is "
                    "unknown whether that process still runs: stop it if it does, then remove the file"
                )
                raise InputError([problem]) from error
            LOGGER.warning("%s: cannot be locked (%s): do not run twice", path, error.strerror)
        else:
            if text and host != socket.gethostname():
                LOGGER.warning(
                    "%s was not released by %s: if that process still runs, stop it; hosts may not see each "
                    "other's locks",
                    *(path, holder),
                )
        file.truncate(0)
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        file.write(f"{os.getpid()} {socket.gethostname()} {now}\n")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def _may_live(pid: str, host: str) -> bool:
    """Whether a process may still be there. About another host nobody can know."""
    if host != socket.gethostname() or not pid.isdigit():
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's process
        return True
    return True
