"""Copies that earlier versions packed into tar files, each of which is read from its place in the file.

<store>/<short side>/000000.tar     its members are copies: <path of the video>.mp4
"""

from __future__ import annotations

import os
import tarfile
from dataclasses import dataclass

from mgexp.video.reader import VideoError

_BLOCK = tarfile.BLOCKSIZE
"""Headers and contents of a tar file begin at multiples of 512 bytes."""
_URL_START = "subfile,,start,"


@dataclass(frozen=True)
class Part:
    """The place of a copy: the number of its shard, the byte at which it begins, and the CRC-32 of its bytes."""

    shard: int
    offset: int
    crc32: int


def part_path(shard_file: str, name: str, part: Part, size_bytes: int) -> str:
    """Return the path by which decoders open a copy in a shard: an address of FFmpeg's protocol "subfile".

    Read the header of the copy and the last byte of its content. So a shard that was cut short or replaced by
    another is noticed, and its bytes are never taken for another video. Raises VideoError.
    """
    try:
        with open(shard_file, "rb") as shard:  # noqa: PTH123 (called for each clip)
            header = os.pread(shard.fileno(), _BLOCK, part.offset - _BLOCK)
            last = os.pread(shard.fileno(), 1, part.offset + size_bytes - 1)
        # This checks the sum of the header.
        size = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape").size
    except OSError as error:
        raise VideoError(shard_file, f"cannot be opened: {error.strerror}") from error
    except tarfile.HeaderError as error:
        raise VideoError(shard_file, f"the header of {name} is damaged ({error})") from error
    # The field of the name has 100 bytes. The header of a longer name holds its beginning.
    if size != size_bytes or header[:100].rstrip(b"\0") != name.encode()[:100]:
        raise VideoError(shard_file, f"another file is in the place of {name}")
    if not last:
        raise VideoError(shard_file, f"ends before the end of {name}")
    return f"{_URL_START}{part.offset},end,{part.offset + size_bytes},,:{shard_file}"


def is_part(path: str) -> bool:
    """Tell whether a path is one of ``part_path``. Then it is an mp4 file, whatever the end of the path."""
    return path.startswith(_URL_START)
