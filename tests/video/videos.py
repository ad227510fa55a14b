"""Small video files in which every frame shows its own number, so that a test can tell which one it got."""

import struct
import wave
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from mgexp.video.pyav import PyavReader

BASE = 8
"""Digits of a frame number: two of them, as grey levels 28 apart, far more than any codec is off."""
TIME_BASE = Fraction(1, 15360)
TICKS_PER_FRAME = 512
"""At 30 frames per second."""
TALL, WIDE = 48, 64
DIGITS = (slice(0, 16), slice(0, 32)), (slice(0, 16), slice(32, 64))
"""Rows and columns that show a digit. The rest is a moving texture, so that frames refer to each other."""
TEXTURE = np.random.default_rng(0).integers(0, 256, (TALL // 4, WIDE // 4, 3), np.uint8)

# Options of libx264; without scene cuts, keyframes come at the given distance and nowhere else.
INTRA = {"g": "1"}
GOP_8 = {"g": "8", "bf": "0", "sc_threshold": "0"}
LONG_GOP = {"g": "250", "bf": "3", "sc_threshold": "0"}
OPEN_GOP = {"x264-params": "open-gop=1:keyint=10:min-keyint=10:bframes=3:scenecut=0"}


def picture(number: int) -> np.ndarray:
    """The frame of this number below 64."""
    frame = np.roll(TEXTURE.repeat(4, 0).repeat(4, 1), number, axis=1)
    for place, digit in zip(DIGITS, divmod(number, BASE), strict=True):
        frame[place] = 28 * digit + 20
    return frame


def numbers_of(frames: np.ndarray) -> list[int]:
    """The numbers that decoded frames (T, H, W, 3) show."""
    means = [frames[:, rows, columns].mean(axis=(1, 2, 3)) for rows, columns in DIGITS]
    digits = [np.round((mean - 20) / 28).astype(int) for mean in means]
    return (digits[0] * BASE + digits[1]).tolist()


def write_video(
    path: Path,
    num_frames: int = 40,
    *,
    codec: str = "libx264",
    options: Mapping[str, str] | None = None,
    ticks: Sequence[int] | None = None,
    container_options: Mapping[str, str] | None = None,
    pix_fmt: str = "yuv420p",
    size: tuple[int, int] = (WIDE, TALL),
    time_base: Fraction = TIME_BASE,
) -> Path:
    """Writes frames 0, 1, ... at 30 frames per second, or at ``ticks`` of TIME_BASE, cut to ``size``."""
    if ticks is None:
        ticks = [number * TICKS_PER_FRAME for number in range(num_frames)]
    with av.open(str(path), "w", options=dict(container_options or {})) as container:
        stream = container.add_stream(codec, rate=30)
        (stream.width, stream.height), stream.pix_fmt = size, pix_fmt
        stream.time_base = stream.codec_context.time_base = time_base
        stream.codec_context.options = dict(options or {})
        for number, tick in enumerate(ticks):
            shown = picture(number)[: size[1], : size[0]].copy()
            frame = av.VideoFrame.from_ndarray(shown, format="rgb24")
            frame.pts, frame.time_base = int(tick * TIME_BASE / time_base), time_base
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def set_display_matrix(path: Path, matrix: Sequence[int]) -> None:
    """Writes (a, b, c, d, x, y) into the track header of an mp4: a player shows column x0, row y0 of each picture

    at column a * x0 + c * y0 + x and row b * x0 + d * y0 + y (ISO/IEC 14496-12, 8.3.2).
    """
    a, b, c, d, x, y = (number * 65536 for number in matrix)
    content = bytearray(path.read_bytes())
    start = content.index(b"tkhd") + 4 + 40
    content[start : start + 36] = struct.pack(">9i", a, b, 0, c, d, 0, x, y, 1 << 30)
    path.write_bytes(content)


def frames_at(path: Path, times: Sequence[float]) -> np.ndarray:
    """What the reader of training gives."""
    with PyavReader(str(path)) as reader:
        return reader.frames_at(times).pixels


def decode_all(path: Path) -> np.ndarray:
    """All frames of a file, in the order in which a plain decoder gives them: the witness of the reader."""
    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def write_wav(path: Path) -> Path:
    """Write half a second of silence, which has no picture."""
    with wave.open(str(path), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(bytes(8000))
    return path
