"""Write files of tensors whole, and check that they are whole when they are read.

A torch file is a zip archive. Ours end with a seal, which is the comment of the archive: the size and the SHA-256
of all bytes before it. One rename puts tensors and seal in place, so a kill cannot separate them. Every copy of
the file has the seal, and ``torch.load`` reads the file like any other. A file
without a seal counts as damaged.
"""

from __future__ import annotations

import errno
import os
import re
import struct
from pathlib import Path
from typing import Any

import torch

from mgexp.errors import TrainingError
from mgexp.run.files import atomic_file, sha256_of_next

# The size has a fixed number of digits, so that every seal has the same length and can be found from the end.
SEAL = "mgexp sha256 {digest} of {size:015d} bytes"
SEAL_BYTES = len(SEAL.format(digest="0" * 64, size=0))
SEAL_PATTERN = re.compile(rb"mgexp sha256 (?P<digest>[0-9a-f]{64}) of (?P<size>\d{15}) bytes")


class DamagedFileError(TrainingError):
    """A file was cut short, or its bytes have changed since it was written."""


def save_torch(path: Path, value: dict[str, Any]) -> None:
    """Write ``value`` with a seal. A kill leaves the old file or the new one."""
    with atomic_file(path) as file:
        torch.save(value, file)
        # The seal is the comment of the zip archive. The archive ends with two bytes, the length of its comment.
        # Source: PKWARE's APPNOTE.TXT, section 4.3.16.
        file.seek(-2, os.SEEK_END)
        file.write(struct.pack("<H", SEAL_BYTES))
        size = file.tell()
        file.seek(0)
        digest = sha256_of_next(file, size)
        file.write(SEAL.format(digest=digest, size=size).encode())


def load_torch(path: Path) -> dict[str, Any]:
    """Read tensors and plain values. Never run code from the file.

    Raises DamagedFileError if the file is damaged, and TrainingError if it is whole but contains something else.
    """
    check_whole(path)
    # Without map_location, torch puts tensors on the device that saved them, which may not exist here.
    try:
        loaded: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise TrainingError(f"{path} cannot be read, though it is whole: {error}") from error
    return loaded


def read_seal(path: Path) -> str:
    """Return the seal. Files with other contents have other seals. Raises DamagedFileError if there is none."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - SEAL_BYTES))
        seal = file.read()
    if not SEAL_PATTERN.fullmatch(seal):
        raise DamagedFileError(f"{path} cannot be read: its end is missing or damaged")
    return seal.decode()


def check_whole(path: Path) -> None:
    """Read the whole file. Raises DamagedFileError if its bytes are not the ones that were written."""
    try:
        fault = _seal_fault(path, read_seal(path))
    except OSError as error:
        # EIO: the disk fails. Other errors, such as a missing permission, say nothing about the bytes of the file.
        if error.errno != errno.EIO:
            raise
        fault = str(error.strerror)
    if fault:
        raise DamagedFileError(f"{path} cannot be read: {fault}")


def _seal_fault(path: Path, seal: str) -> str | None:
    """Say what differs between the file and its seal. Return None if nothing does."""
    found = SEAL_PATTERN.fullmatch(seal.encode())
    assert found is not None
    size = path.stat().st_size - SEAL_BYTES
    if size != int(found["size"]):
        return f"it has {size} bytes, but {int(found['size'])} were written"
    with path.open("rb") as file:
        digest = sha256_of_next(file, size)
    if digest != found["digest"].decode():
        return "its bytes are not those that were written (their SHA-256 is another)"
    return None
