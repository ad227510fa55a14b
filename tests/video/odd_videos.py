"""Files that are wrong in one known way each."""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from videos import INTRA, write_video

TICKS_AT_10_FPS = [number * 1536 for number in range(40)]
"""Of videos.TIME_BASE: 4 seconds."""
EMPTY_GIF = b"GIF89a" + bytes((1, 0, 1, 0, 0, 0, 0)) + b";"
"""Header, screen of 1 × 1 pixels without a palette, trailer: no picture between them."""


def write_four_seconds(path: Path) -> Path:
    """40 frames at 10 per second, each a keyframe, the header before them."""
    options = {"movflags": "+faststart"}
    return write_video(path, options=INTRA, ticks=TICKS_AT_10_FPS, container_options=options)


def damage_frames(path: Path, numbers: Iterable[int]) -> Path:
    """Overwrites the content of these frames with zeros."""
    with av.open(str(path)) as container:
        places = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    data = bytearray(path.read_bytes())
    for number in numbers:
        position, size = places[number]
        data[position : position + size] = bytes(size)
    path.write_bytes(data)
    return path


def cut(path: Path, share: float) -> Path:
    """Leaves the first part of the file."""
    data = path.read_bytes()
    path.write_bytes(data[: round(share * len(data))])
    return path


def write_pictures(path: Path, sizes: Sequence[tuple[int, int]], times: Sequence[int]) -> Path:
    """A Matroska file of JPEG pictures of these (width, height), at these times in tenths of a second."""
    with av.open(str(path), "w", format="matroska") as container:
        stream = container.add_stream("mjpeg", rate=10)
        stream.width, stream.height, stream.pix_fmt = (*sizes[0], "yuvj420p")
        for number, (size, time) in enumerate(zip(sizes, times, strict=True)):
            packet = jpeg(size)
            packet.stream, packet.time_base = stream, Fraction(1, 10)
            packet.pts, packet.dts, packet.duration = time, number - len(times), 1
            container.mux(packet)
    return path


def jpeg(size: tuple[int, int]) -> av.Packet:
    """One grey picture."""
    encoder = av.CodecContext.create("mjpeg", "w")
    encoder.width, encoder.height, encoder.pix_fmt = (*size, "yuvj420p")
    encoder.time_base = Fraction(1, 10)
    grey = np.full((size[1], size[0], 3), 128, np.uint8)
    frame = av.VideoFrame.from_ndarray(grey, format="rgb24").reformat(format="yuvj420p")
    frame.pts = 0
    (packet,) = [*encoder.encode(frame), *encoder.encode(None)]
    return packet
