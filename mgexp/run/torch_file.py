"""Write files of tensors whole, and check them: they are zip archives with a CRC-32 of each member."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import torch

from mgexp.errors import TrainingError
from mgexp.run.files import atomic_file


class DamagedFileError(TrainingError):
    """A file was cut short, or its bytes have changed since it was written."""


def save_torch(path: Path, value: dict[str, Any]) -> None:
    """Write ``value``. A kill leaves the old file or the new one."""
    with atomic_file(path) as file:
        torch.save(value, file)


def load_torch(path: Path) -> dict[str, Any]:
    """Read tensors and plain values, never code. Raises DamagedFileError, or TrainingError if it is whole."""
    check_whole(path)
    # Without map_location, torch puts tensors on the device that saved them, which may not exist here.
    try:
        loaded: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # torch reads some fields of an archive that zipfile does not, and is then the first to see the damage.
        if "PytorchStreamReader" in str(error):
            raise DamagedFileError(f"{path} cannot be read: {error}") from error
        raise TrainingError(f"{path} cannot be read, though it is whole: {error}") from error
    return loaded


def read_seal(path: Path) -> str:
    """Return a hash of the checksums. Files with other contents have other ones. Raises DamagedFileError."""
    with _opened(path) as archive:
        sums = [(member.filename, member.file_size, member.CRC) for member in archive.infolist()]
    return hashlib.sha256(repr(sums).encode()).hexdigest()


def check_whole(path: Path) -> None:
    """Read the whole file. Raises DamagedFileError if its bytes are not the ones that were written."""
    with _opened(path) as archive:
        if (broken := archive.testzip()) is not None:
            raise BadZipFile(f"the checksum of {broken} is another")
        # torch takes a member with attributes for a folder, and would return whatever is in memory as its tensor.
        if any(member.external_attr for member in archive.infolist()):
            raise BadZipFile("a member has attributes, which torch never writes")


@contextmanager
def _opened(path: Path) -> Iterator[ZipFile]:
    """Open the archive for the block. Raises DamagedFileError for all that is wrong with its bytes."""
    try:
        with ZipFile(path) as archive:
            yield archive
    except OSError as error:
        # EIO: the disk fails. EINVAL: a place before the beginning of the file. Other errors, such as a missing
        # permission, say nothing about the bytes of the file.
        if error.errno not in (errno.EIO, errno.EINVAL):
            raise
        raise DamagedFileError(f"{path} cannot be read: {error.strerror}") from error
    # A damaged archive makes zipfile raise almost any exception.
    except Exception as error:
        raise DamagedFileError(f"{path} cannot be read: {error}") from error
