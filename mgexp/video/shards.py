"""Tar shards of a clip store: many copies in one file, in the layout of WebDataset, each read from its place.

    <store>/<short side>/000000.tar     its members are copies: <path of the video>.mp4

Millions of small files are slow on many file systems, and often forbidden. A shard is one file of gigabytes, and
the manifest says at which byte each copy begins. FFmpeg reads a copy from there without the rest of the shard.
"""

from __future__ import annotations

import os
import tarfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mgexp.run.files import atomic_file
from mgexp.video.reader import VideoError

_BLOCK = tarfile.BLOCKSIZE
"""Headers and contents of a tar file begin at multiples of 512 bytes."""
_CHUNK_BYTES = 2**20
_REMEDY = (
    "run tools/prepare_data.py with --verify, which makes damaged copies again; of a store at an address that was "
    "filled again, delete the older copies of its files"
)
_URL_START = "subfile,,start,"


@dataclass(frozen=True)
class Part:
    """The place of a copy: the number of its shard, the byte at which it begins, and the CRC-32 of its bytes."""

    shard: int
    offset: int
    crc32: int


def write_shard(path: Path, shard: int, members: Sequence[tuple[str, Path]]) -> list[Part]:
    """Write a tar file of ``members`` (name, file), whole or not at all, and return their places.

    The same files always give the same bytes: times and owners are left out. Raises OSError.
    """
    parts = []
    path.parent.mkdir(parents=True, exist_ok=True)
    # GNU's format stores long names and names that are not ASCII as they are, in UTF-8.
    with (
        atomic_file(path) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        for name, source in members:
            member = tarfile.TarInfo(name)
            member.size = source.stat().st_size
            with source.open("rb") as content:
                tar.addfile(member, content)
            offset = tar.offset - -(-member.size // _BLOCK) * _BLOCK
            parts.append(Part(shard, offset, crc32_of(source, 0, member.size)))
    return parts


def crc32_of(path: Path, offset: int, size_bytes: int) -> int:
    """Return the CRC-32 of the bytes [offset, offset + size_bytes) of a file. Raises OSError."""
    found = 0
    with path.open("rb") as file:
        file.seek(offset)
        while size_bytes and (chunk := file.read(min(size_bytes, _CHUNK_BYTES))):
            found = zlib.crc32(chunk, found)
            size_bytes -= len(chunk)
    return found


def part_path(shard_file: str, name: str, part: Part, size_bytes: int) -> str:
    """Return the path by which decoders open a copy in a shard: an address of FFmpeg's protocol "subfile".

    Read the header of the copy and the last byte of its content. So a shard that was cut short or replaced by
    another is noticed at the copy, and its bytes are never taken for another video. Raises VideoError.
    """
    try:
        descriptor = os.open(shard_file, os.O_RDONLY)
        try:
            header = os.pread(descriptor, _BLOCK, part.offset - _BLOCK)
            last = os.pread(descriptor, 1, part.offset + size_bytes - 1)
        finally:
            os.close(descriptor)
        # This checks the sum of the header.
        size = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape").size
    except OSError as error:
        raise VideoError(shard_file, f"cannot be opened: {error.strerror}") from error
    except tarfile.HeaderError as error:
        reason = f"the header of {name} at byte {part.offset - _BLOCK} is damaged ({error})"
        raise VideoError(shard_file, f"{reason}: {_REMEDY}") from error
    # The field of the name has 100 bytes. The header of a longer name holds its beginning.
    if size != size_bytes or header[:100].rstrip(b"\0") != name.encode()[:100]:
        raise VideoError(shard_file, f"another file is in the place of {name}: {_REMEDY}")
    if not last:
        raise VideoError(shard_file, f"ends before the end of {name}: {_REMEDY}")
    return f"{_URL_START}{part.offset},end,{part.offset + size_bytes},,:{shard_file}"


def is_part(path: str) -> bool:
    """Tell whether a path is one of ``part_path``. Then it is an mp4 file, whatever the end of the path."""
    return path.startswith(_URL_START)
