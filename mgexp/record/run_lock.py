"""The lock of a folder: one process alone writes into it."""

from __future__ import annotations

import fcntl
import os
import socket
from datetime import datetime, timezone
from pathlib import Path

from mgexp.errors import InputError


class RunLock:
    """Context manager: this process alone writes into a run folder, or another that `busy` tells of.

    `busy` is the message where another process does; by default one about a run folder.

    The file holds "pid host since". The lock is of the POSIX kind (`fcntl.lockf`), not `flock`:
    it dies with the process that took it, where forked loader workers would keep an `flock`
    for seconds after their parent was killed, and the same command started again would be refused.
    """

    def __init__(self, path: Path, busy: str = "") -> None:
        self._path = path
        self._message = busy

    def __enter__(self) -> RunLock:
        self._file = self._path.open("a+")
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.seek(0)
            holder = self._file.read().strip()
            self._file.close()
            raise InputError([self._message or self._busy(holder)]) from error
        self._file.truncate(0)
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self._file.write(f"{os.getpid()} {socket.gethostname()} {now}\n")
        self._file.flush()
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.truncate(0)
        self._file.close()

    def _busy(self, holder: str) -> str:
        pid, host, since = (holder.split() + ["unknown"] * 3)[:3]
        return (
            f"run folder {self._path.parent} is in use by process {pid} on {host} since {since}: "
            "wait for it, stop it, or choose another folder with --output"
        )
