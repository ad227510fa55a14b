"""Weights at an address of the web, or of a handler of iopath (docs/weights.md): copied once, and checked."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from iopath.common.download import download
from iopath.common.file_io import PathManager, file_lock

from mgexp.errors import InputError
from mgexp.run.files import sha256_of

PATHS = PathManager()
"""What reads addresses that are not of the web. Register handlers here, in a file that --import names."""
PATHS.set_logging(False)

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_NAMED_SUM = re.compile(r"#sha256=([0-9a-fA-F]{64})$")
_PUBLISHED_SUM = re.compile(r"https://download\.pytorch\.org/[^?#]*-([0-9a-f]{8,64})\.\w+$")
"""The files of torchvision have the first digits of their SHA-256 in their names."""


def is_remote(text: str) -> bool:
    return _ADDRESS.match(text) is not None


def cache_folder() -> Path:
    """Return the folder of the copies, as the XDG Base Directory Specification says."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return root / "mgexp" / "files"


def expected_sum(text: str) -> str:
    """Return the first digits of the SHA-256 that the file of an address must have, or "" if they are unknown."""
    match = _NAMED_SUM.search(text) or _PUBLISHED_SUM.match(text)
    return match[1].lower() if match else ""


def local_file(text: str) -> Path:
    """Return the file of this machine that holds what ``text`` names: that path, or the copy of an address.

    Raises InputError if there is no such file, or if its sum is not that after #sha256=; the copy is then deleted.
    """
    if not is_remote(text):
        return Path(text)
    address = _NAMED_SUM.sub("", text)
    if "#" in address and address.startswith("http"):
        raise InputError([f"{text}: after # there is no sha256= with 64 digits"])
    try:
        file = _web_copy(address) if address.startswith("http") else _of_handler(address)
    # A handler may raise anything.
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InputError([f"{address}: cannot be read ({reason})"]) from error
    expected, actual = expected_sum(text), sha256_of(file)
    if not actual.startswith(expected):
        # A handler may give a file that is not ours.
        if file.is_relative_to(cache_folder()):
            file.unlink(missing_ok=True)
        raise InputError([f"{text}: the SHA-256 of {file} is {actual}, not {expected}"])
    return file


def _web_copy(address: str) -> Path:
    # iopath's own handler of the web would take files of one path on two servers for one file.
    folder = cache_folder() / hashlib.sha256(address.encode()).hexdigest()[:32]
    file = folder / (PurePosixPath(urlsplit(address).path).name.lstrip(".") or "file")
    # Other processes wait here for the copy.
    with file_lock(str(folder / "copy")):
        if not file.is_file():
            download(address, str(folder), filename=file.name, progress=os.isatty(2))
    return file


def _of_handler(address: str) -> Path:
    file = Path(PATHS.get_local_path(address))
    # Without a handler, PathManager returns the address.
    if not file.is_file():
        raise FileNotFoundError("no handler gives a file for it, see docs/weights.md")
    return file
