"""From decoded frames of any pixel format to the RGB frames of a clip, turned upright (PyAV, one thread)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import av
import numpy as np
from av.filter import Graph
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray

from mgexp.video.reader import VideoError
from mgexp.video.region import Region, RegionOf, Size, whole

# ruff: noqa: ANN401 (the objects of PyAV are untyped here)


PLANAR_420 = ("yuv420p", "yuvj420p")
"""Formats of one byte per sample, with a sample of each colour for a square of four pixels."""


class ClipFrames:
    """The frames of one call, filled in any order: ``frames`` (T, h, w, 3) once the first one is in.

    Of each frame only the part that ``region_of`` its size, for which see ``VideoReader.frames_at``.
    """

    def __init__(self, path: str, num_frames: int, region_of: RegionOf) -> None:
        self.path = path
        self.num_frames = num_frames
        self.frames: NDArray[np.uint8] = np.empty((0, 0, 0, 3), np.uint8)
        self._region_of = region_of
        self._size: Size | None = None
        self._to_rgb = _RgbConverter()

    def put(self, frame: Any, rows: Sequence[int]) -> None:
        """Writes ``frame`` as RGB to ``rows``; raises VideoError if its size is not that of the others."""
        if not rows:
            return
        turns = quarter_turns(frame.rotation)
        self._check_size((frame.width, frame.height) if turns % 2 else (frame.height, frame.width))
        first, *others = rows
        self.frames[first] = self._turned(frame, turns) if turns else self._upright(frame)
        for row in others:
            self.frames[row] = self.frames[first]

    def _check_size(self, size: Size) -> None:
        if self._size is None:
            self._size, self._region = size, self._region_of(size)
            shape = (self.num_frames, self._region.height, self._region.width, 3)
            self.frames = np.empty(shape, np.uint8)
        elif self._size != size:
            raise VideoError(self.path, f"changes shape: {self._size}, then {size}")

    def _upright(self, frame: Any) -> NDArray[np.uint8]:
        return self._to_rgb(frame, self._region)

    def _turned(self, frame: Any, turns: int) -> NDArray[np.uint8]:
        picture = np.rot90(self._to_rgb(frame, whole((frame.height, frame.width))), turns)
        return picture[self._region.rows, self._region.columns]


class _RgbConverter:
    """Converts a region of frames to RGB (h, w, 3), with the pixels that ffmpeg gives, in one thread."""

    def __init__(self) -> None:
        self._scaler = VideoReformatter()
        self._cutter = _Cutter()
        self._graph: Graph | None = None
        self._graph_input: tuple[object, ...] = ()

    def __call__(self, frame: Any, region: Region) -> NDArray[np.uint8]:
        if frame.format.name in PLANAR_420 and frame.height % 2 == 0:
            # Of an interlaced frame, colours are spread over lines of their own field: it is not cut.
            is_whole = frame.interlaced_frame
            cut, part = (frame, region) if is_whole else self._cutter(frame, region)
            rgb = self._scaler.reformat(cut, format="rgb24", threads=1)
        else:
            rgb, part = self._filtered(frame), region
        picture = _plane_array(rgb, 0, (rgb.height, rgb.width, 3))
        return picture[part.rows, part.columns]

    def _filtered(self, frame: Any) -> Any:
        """By ffmpeg's filters. The scaler alone places chroma samples elsewhere in what it has no fast path for.

        Measured against ffmpeg, 10-bit 4:2:0 (PyAV 18): up to 90 grey levels off at edges of colour, on the
        mean 2 in a test card; by the filters 0.
        """
        graph_input = (frame.format.name, frame.width, frame.height)
        if self._graph is None or self._graph_input != graph_input:
            self._graph, self._graph_input = _rgb_graph(frame), graph_input
        self._graph.push(frame)
        return self._graph.pull()


class _Cutter:
    """Cuts a region out of frames of 8-bit 4:2:0, so that the rest need not become RGB.

    The cut starts and ends at even pixels, between which colours are stored: the RGB is that of the whole frame.
    """

    def __init__(self) -> None:
        self._cut: Any = None
        self._planes: list[NDArray[np.uint8]] = []

    def __call__(self, frame: Any, region: Region) -> tuple[Any, Region]:
        """The cut, valid until the next one, and where the region is in it."""
        top, left = region.top // 2 * 2, region.left // 2 * 2
        height = min(frame.height, region.top + region.height + 1) // 2 * 2 - top
        width = min(frame.width, (region.left + region.width + 1) // 2 * 2) - left
        if (height, width) == (frame.height, frame.width):
            return frame, region
        self._prepare(frame, height, width)
        for target, source in zip(self._planes, _planes(frame), strict=True):
            step = frame.height // source.shape[0]
            rows, columns = target.shape
            target[:] = source[top // step :, left // step :][:rows, :columns]
        return self._cut, Region(region.top - top, region.left - left, region.height, region.width)

    def _prepare(self, frame: Any, height: int, width: int) -> None:
        name = frame.format.name
        if self._cut is None or (self._cut.height, self._cut.width) != (height, width):
            self._cut = av.VideoFrame(width, height, name)
            self._planes = _planes(self._cut)
        self._cut.colorspace, self._cut.color_range = frame.colorspace, frame.color_range


def _planes(frame: Any) -> list[NDArray[np.uint8]]:
    """Brightness, and the two colours, half as high and wide, of a frame of 4:2:0 and even height."""
    half = (frame.height // 2, (frame.width + 1) // 2)
    sizes = ((frame.height, frame.width), half, half)
    return [_plane_array(frame, index, size) for index, size in enumerate(sizes)]


def _plane_array(frame: Any, index: int, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """The bytes of a plane, without the padding at the end of each line; not a copy."""
    plane: Any = frame.planes[index]
    strides = (plane.line_size, *shape[2:], 1)
    return np.ndarray(shape, np.uint8, plane, strides=strides)


def quarter_turns(degrees: float) -> int:
    """Quarter turns, counterclockwise, nearest to an angle in [-180, 180]; 0 for any other, which is no angle.

    FFmpeg gives a number far outside for a display matrix that is no rotation.
    """
    if not abs(degrees) <= 180:
        return 0
    turns = int((abs(degrees) + 45) // 90)
    return turns if degrees > 0 else -turns


def _rgb_graph(frame: Any) -> Graph:
    graph = Graph()
    graph.threads = 1
    source = graph.add_buffer(
        width=frame.width,
        height=frame.height,
        format=frame.format,
        time_base=frame.time_base or Fraction(1, av.time_base),
    )
    to_rgb, sink = graph.add("format", "rgb24"), graph.add("buffersink")
    source.link_to(to_rgb)
    to_rgb.link_to(sink)
    graph.configure()
    return graph
