"""Write and read files so that a kill leaves the old content or the new one, or tears a last line."""

from __future__ import annotations

import csv
import errno
import fcntl
import hashlib
import io
import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from glob import glob
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import BadZipFile

import simplejson

from mgexp.errors import InputError

LOGGER = logging.getLogger("mgexp")
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)  # a full disk or quota
# These return False for a name that is too long or unreadable. The methods of Path raise OSError for it.
is_file, is_folder, is_there = os.path.isfile, os.path.isdir, os.path.exists


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Open a binary file to write and read. It replaces `path` when the block ends without an error.

    If a write fails, raise its OSError with the name of `path`, even if a library raised another error after it.
    """
    # The temporary file is in the same folder, because a rename is atomic only within one file system.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w+b") as file:
            yield file
            # Without fsync, a power cut after the rename could leave an empty file.
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        # After a failed write, torch raises another error: "unexpected pos" in place of "disk full".
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, OSError):
            cause = cause.__context__
        if cause is None or cause.filename is not None:
            raise
        raise named(cause, path) from error
    # A rename survives a kill. It survives a power cut only after the folder itself is written to the disk.
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems have no fsync for folders, such as the shared folders of virtual machines.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def named(error: OSError, path: Path) -> OSError:
    """Return the same error with the name of the file, which the error of a failed write lacks."""
    return OSError(error.errno, error.strerror, str(path))


def atomic_write_text(path: Path, text: str) -> None:
    """Write `text` in UTF-8. No reader ever sees a part of it."""
    with atomic_file(path) as file:
        file.write(text.encode())


def write_rows(path: Path, rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file atomically. The first row has the names of the columns; None is an empty cell."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    atomic_write_text(path, text.getvalue())


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write one JSON object atomically, readable by eye. NaN or infinity is a ValueError."""
    text = simplejson.dumps(record, indent=2, ignore_nan=False, allow_nan=False)
    atomic_write_text(path, text + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file. Raises InputError if there is none."""
    try:
        record = simplejson.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError([f"{path}: not a JSON file: {error}"]) from error
    if not isinstance(record, dict):
        raise InputError([f"{path}: is not a JSON object"])
    return record


# JSON that is nested too deeply raises RecursionError.
NOT_UNDERSTOOD = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    EOFError,
    BadZipFile,
    RecursionError,
)


@contextmanager
def understanding(path: Path, wanted: str = "those that mgexp writes") -> Iterator[None]:
    """Raise InputError if the block cannot use what it read from ``path``. Its contents should be ``wanted``."""
    try:
        yield
    except NOT_UNDERSTOOD as error:
        what = f"{type(error).__name__}: {error}"
        raise InputError([f"{path}: its contents are not {wanted} ({what})"]) from error


def text_of(path: Path, otherwise: str = "") -> str:
    """Read a text that people write, in UTF-8; without the file, return ``otherwise``. Raises InputError."""
    with understanding(path, "a text"):
        return path.read_text(encoding="utf-8") if path.exists() else otherwise


def short_path(path: Path) -> str:
    """Write a path for a command: relative to the working folder if it is inside, and else absolute."""
    here, whole = Path.cwd(), Path(os.path.abspath(path))  # noqa: PTH100 (keeps links)
    return str(whole.relative_to(here) if whole.is_relative_to(here) else whole)


def is_listed(text: str) -> bool:
    """Tell whether a key names a list: a file or folder that exists, or a pattern of files."""
    return bool(text and (is_there(text) or glob(text)))  # noqa: PTH207 (long names)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        # A checkpoint may have gigabytes, which are not read into memory at once.
        while chunk := file.read(2**20):
            digest.update(chunk)
    return digest.hexdigest()


def json_line(record: Mapping[str, Any]) -> str:
    """Write a record as one line of JSON. NaN or infinity is a ValueError."""
    return simplejson.dumps(record, ignore_nan=False, allow_nan=False) + "\n"


def append_jsonl(path: Path, record: Mapping[str, Any]) -> None:
    """Append one line. After a kill, call `cut_jsonl` first: a line after a torn one would be lost with it."""
    line = json_line(record)
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(line)
    except OSError as error:
        raise named(error, path) from error


def sync_file(path: Path) -> None:
    """Make the lines of a file survive a power cut, and not only a kill. Do nothing if there is no file."""
    if path.exists():
        with path.open("rb") as file:
            os.fsync(file.fileno())


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    return list(iter_jsonl(path))


def iter_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records, without a torn last line. Raises InputError if another line is not JSON."""
    if not path.exists():
        return
    # The part after the last newline is "" in a whole file. After a kill it is the torn line.
    whole_lines = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
    for number, line in enumerate(whole_lines, start=1):
        try:
            record = simplejson.loads(line)
        except ValueError as error:
            raise InputError([f"{path}, line {number}: not JSON: {line[:80]!r}"]) from error
        if not isinstance(record, dict):
            raise InputError([f"{path}, line {number}: is not a JSON object"])
        yield record


def cut_jsonl(path: Path, keep: Callable[[dict[str, Any]], bool] = bool) -> None:
    """Remove a torn last line, and every record for which `keep` returns False. Replace the file atomically."""
    kept = (json_line(record) for record in read_jsonl(path) if keep(record))
    atomic_write_text(path, "".join(kept))


@contextmanager
def lock_file(path: Path, busy: str = "", waits: bool = False) -> Iterator[None]:
    """Hold the lock ``path`` in the block, so that only this process writes into the folder.

    Raises InputError, perhaps with the message ``busy``, if another process holds the lock or may hold it. With
    ``waits``, wait for that process. The file contains "pid host since" while the lock is held, and after a kill.
    """
    # The lock is of the POSIX kind (lockf), not flock: it dies with the process that took it. Forked loader
    # workers keep an flock for seconds after their parent is killed, and the same command started again would be
    # refused. NFS shares both kinds between hosts (flock since Linux 2.6.12), except on mounts with nolock or
    # local_lock. On such a mount two hosts may both get the lock. So a process that finds the name of another host
    # in the file warns.
    # The mode "a+" creates the file but does not empty it: its text names the process that holds the lock.
    with path.open("a+") as file:
        file.seek(0)
        text = file.read().strip()
        pid, host, since = (text.split() + ["unknown"] * 3)[:3]
        holder = f"process {pid} on {host} since {since}"
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise InputError([busy or f"{path.parent} is in use by {holder}"]) from error
            if text and _may_live(pid, host):
                problem = f"{path} names {holder}, and cannot be locked ({error.strerror})"
                raise InputError([f"{problem}: remove it if that process has ended"]) from error
            LOGGER.warning("%s: cannot be locked (%s): do not run twice", path, error.strerror)
        else:
            # While this process waited, the holder may have released the lock, and emptied the file.
            file.seek(0)
            if file.read() and host != socket.gethostname():
                warning = "%s was not released by %s: stop that process if it still runs"
                LOGGER.warning(warning, path, holder)
        file.truncate(0)
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        file.write(f"{os.getpid()} {socket.gethostname()} {now}\n")
        file.flush()
        try:
            yield
        finally:
            # Do not delete the file. A second process may have it open, and would lock a file that has no name
            # any more, while a third process creates and locks a new one.
            file.truncate(0)


def _may_live(pid: str, host: str) -> bool:
    """Return False if a process of this host has ended. Those of other hosts are unknown."""
    if host != socket.gethostname() or not pid.isdigit():
        return True
    # Signal 0 is never delivered. It only asks the system whether the process exists.
    try:
        os.kill(int(pid), 0)
    except OSError as error:
        # The other possible error is that the process exists and belongs to another user.
        return error.errno != errno.ESRCH
    return True
