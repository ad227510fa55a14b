"""Files that are not on this machine: read through copies in a cache, never written.

An address begins with http:// or https://, or with the prefix of a handler of iopath that a file of one's own
registers:

    # my_handlers.py
    from iopath.common.s3 import S3PathHandler
    from mgexp.run.remote import PATHS
    PATHS.register_handler(S3PathHandler())

    python tools/run_net.py --import my_handlers.py --cfg … DATA.STORE s3://bucket/store

Run folders and new stores stay on this machine: they need locks, atomic renames and appended lines, and handlers
have none of these.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from iopath.common.download import download
from iopath.common.file_io import PathHandler, PathManager, file_lock

from mgexp.errors import InputError
from mgexp.run.files import NO_SPACE, is_file, is_there, sha256_of

TIMEOUT_SECONDS = 60
"""A server that sends nothing for so long has failed. Assumption: a slow server answers sooner."""
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_NAMED_SUM = re.compile(r"#sha256=([0-9a-fA-F]{64})$")
_PUBLISHED_SUM = re.compile(r"https://download\.pytorch\.org/[^?#]*-([0-9a-f]{8,64})\.\w+$")
"""The files of torchvision have the first digits of their SHA-256 in their names."""


def cache_folder() -> Path:
    """Return the folder of the copies of remote files: in $XDG_CACHE_HOME, else in ~/.cache.

    Source: XDG Base Directory Specification.
    """
    root = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return root / "mgexp" / "files"


class WebFiles(PathHandler):  # type: ignore[misc]
    """Files of web servers. iopath's own handler also takes ftp://, and takes files of one path for one file."""

    def _get_supported_prefixes(self) -> list[str]:
        return ["http://", "https://"]

    def _get_local_path(self, path: str, force: bool = False, **options: Any) -> str:  # noqa: ANN401
        # The server chooses no name in the cache: a path such as /../../x would leave it.
        name = re.sub(r"[^\w.-]", "_", PurePosixPath(urlsplit(path).path).name)[-100:].lstrip(".")
        file = _folder_of(path) / (name or "file")
        if force or not file.is_file():
            # Its error is raised too, and one message is enough.
            logging.getLogger(download.__module__).setLevel(logging.CRITICAL)
            with _time_limit():
                download(path, str(file.parent), filename=file.name, progress=os.isatty(2))
        return str(file)


PATHS = PathManager()
"""What reads files that are not on this machine. Register handlers here, in a file that --import names."""
PATHS.register_handler(WebFiles())
PATHS.set_logging(False)
FETCHING = threading.Event()
"""Set while this process copies a remote file, or waits for the copy of another process."""
_KNOWN: dict[str, Path] = {}
"""The copies that this process has already asked for, by address."""


def is_remote(text: str) -> bool:
    """Tell whether a path is an address, such as https://… or s3://…."""
    return _ADDRESS.match(text) is not None


def is_listed(text: str) -> bool:
    """Tell whether a key names a list: an address, a file or folder that exists, or a pattern of files."""
    if is_remote(text) or (text and is_there(Path(text))):
        return True
    return bool(glob(text))  # noqa: PTH207 (Path.glob raises OSError for a name that is too long)


def local_file(text: str) -> Path:
    """Return the file of this machine that holds what ``text`` names: that path, or the copy of an address.

    An address may end in #sha256= and 64 digits. The copy must then have this sum; a wrong one is deleted.
    Raises InputError if there is no such file, no handler, or another sum.
    """
    if not is_remote(text):
        return Path(text)
    if text in _KNOWN and _KNOWN[text].exists():
        return _KNOWN[text]
    expected, address = expected_sum(text), _NAMED_SUM.sub("", text)
    if "#" in address and address.lower().startswith("http"):
        raise InputError([f"{text}: after # there is no sha256= with 64 digits: correct it"])
    # PathManager would take an unknown prefix for a path of this machine.
    if not any(address.startswith(prefix) for prefix in PATHS._path_handlers):
        prefix = address.split("://")[0]
        remedy = f"give --import FILE.py with a file that registers one for {prefix}://"
        raise InputError([f"{text}: no handler reads it: {remedy} (docs/weights.md)"])
    file = _fetch(address)
    if expected and not (found := sha256_of(file)).startswith(expected):
        # A copy of the web is ours. A handler may give a file that is not.
        is_ours = file.is_relative_to(cache_folder())
        if is_ours:
            # Another process may have found the same.
            file.unlink(missing_ok=True)
        what = "the copy was deleted" if is_ours else f"the copy is {file}"
        problem = f"its SHA-256 is {found}, not {expected}; {what}"
        raise InputError([f"{text}: {problem}: ask who published it, or correct the sum"])
    _KNOWN[text] = file
    return file


def expected_sum(text: str) -> str:
    """Return the first digits of the SHA-256 that the file of an address must have, or "" if nobody says any."""
    said = _NAMED_SUM.search(text) or _PUBLISHED_SUM.match(text)
    return said[1].lower() if said else ""


def _folder_of(address: str) -> Path:
    return cache_folder() / hashlib.sha256(address.encode()).hexdigest()[:32]


def _fetch(address: str) -> Path:
    FETCHING.set()
    try:
        # Other processes wait here for the copy.
        with file_lock(str(_folder_of(address) / "copy")):
            file = Path(PATHS.get_local_path(address))
    # A handler may raise anything.
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        is_full = isinstance(error, OSError) and error.errno in NO_SPACE
        remedy = f"make room in {cache_folder()}" if is_full else "check the address"
        raise InputError([f"{address}: cannot be read ({reason}): {remedy}"]) from error
    finally:
        FETCHING.clear()
    if not is_file(file):
        raise InputError([f"{address}: its handler gave {file}, which is no file"])
    return file


@contextmanager
def _time_limit() -> Iterator[None]:
    """Limit the time that a connection waits. Python has no other way for the function that iopath calls."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
