"""The lock of a folder: one process alone writes into it."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from mgexp.errors import InputError

LOGGER = logging.getLogger("mgexp")
HELD = (errno.EACCES, errno.EAGAIN)


@dataclass(frozen=True)
class Holder:
    """Who says in the file that it holds the lock. A process that was killed could not take that back."""

    pid: str
    host: str
    since: str

    @classmethod
    def parse(cls, text: str) -> Holder:
        """From "pid host since"; "unknown" for what is missing."""
        pid, host, since = (text.split() + ["unknown"] * 3)[:3]
        return cls(pid, host, since)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"

    @property
    def may_live(self) -> bool:
        """Whether it may be there still: of another host that cannot be known."""
        if self.host != socket.gethostname() or not self.pid.isdigit():
            return True
        try:
            os.kill(int(self.pid), 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # it is another user's
            return True
        return True


class RunLock:
    """Context manager: this process alone writes into a run folder, or another that `busy` tells of.

    `busy` is the message where another process does; by default one about a run folder.

    The file holds "pid host since". The lock is of the POSIX kind (`fcntl.lockf`), not `flock`:
    it dies with the process that took it, where forked loader workers would keep an `flock`
    for seconds after their parent was killed, and the same command started again would be refused. NFS shares it
    between hosts (`flock` too, since Linux 2.6.12), but for mounts with `nolock` or `local_lock`. There two
    hosts may both get it: whoever takes over from another host that did not release it says so. A file system
    that has no locks is refused while the file names a holder that may live.
    """

    def __init__(self, path: Path, busy: str = "") -> None:
        self._path = path
        self._message = busy

    def __enter__(self) -> RunLock:
        self._file = self._path.open("a+")
        self._file.seek(0)
        text = self._file.read().strip()
        try:
            self._take(Holder.parse(text) if text else None)
        except BaseException:
            self._file.close()
            raise
        self._file.truncate(0)
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self._file.write(f"{os.getpid()} {socket.gethostname()} {now}\n")
        self._file.flush()
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.truncate(0)
        self._file.close()

    def _take(self, holder: Holder | None) -> None:
        """Raises InputError where another has the lock, or may have it. ``holder``: whom the file names."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in HELD:
                raise InputError([self._message or self._busy(holder)]) from error
            if holder and holder.may_live:
                raise InputError([self._unknown(holder, error)]) from error
            LOGGER.warning(
                "%s: cannot be locked (%s): do not run twice", self._path, error.strerror
            )
            return
        if holder and holder.host != socket.gethostname():
            LOGGER.warning(
                "%s was not released by %s: if that still runs, stop it; hosts may not see each other's locks",
                *(self._path, holder),
            )

    def _busy(self, holder: Holder | None) -> str:
        return (
            f"run folder {self._path.parent} is in use by {holder or Holder.parse('')}: "
            "wait for it, stop it, or choose another folder with --output"
        )

    def _unknown(self, holder: Holder, error: OSError) -> str:
        return (
            f"{self._path} names {holder}, and the file system cannot lock it ({error.strerror}), so that nobody "
            "knows whether that still runs: stop it if it does, then remove the file"
        )
