"""From decoded frames of any pixel format to the RGB frames of a clip, turned upright (PyAV, one thread)."""

# ruff: noqa: ANN401 (the objects of PyAV are untyped here)
from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import av
import numpy as np
from av.filter import Graph
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray

from mgexp.data.decode import VideoError

ONE_THREAD: Any = {"threads": 1} if "threads" in str(VideoReformatter.reformat.__doc__) else {}
"""PyAV before 17 scales in one thread and has no such argument."""


class ClipFrames:
    """The frames of one call, filled in any order; ``frames`` (T, H, W, 3) once the first one is in."""

    def __init__(self, path: str, num_frames: int) -> None:
        self.path = path
        self.num_frames = num_frames
        self.frames: NDArray[np.uint8] = np.empty((0, 0, 0, 3), np.uint8)
        self._to_rgb = _RgbConverter()

    def put(self, frame: Any, rows: Sequence[int]) -> None:
        """Writes ``frame`` as RGB to ``rows``; raises VideoError if its size is not that of the others."""
        if not rows:
            return
        turns = quarter_turns(frame.rotation)
        size = (frame.width, frame.height, 3) if turns % 2 else (frame.height, frame.width, 3)
        if len(self.frames) == 0:
            self.frames = np.empty((self.num_frames, *size), np.uint8)
        elif self.frames.shape[1:] != size:
            raise VideoError(self.path, f"changes shape: {self.frames.shape[1:]}, then {size}")
        first, *others = rows
        plane: Any = self._to_rgb(frame).planes[0]
        shape = (frame.height, frame.width, 3)
        # The strides leave out the padding at the end of each line.
        picture = np.ndarray(shape, np.uint8, plane, strides=(plane.line_size, 3, 1))
        self.frames[first] = np.rot90(picture, turns) if turns else picture
        for row in others:
            self.frames[row] = self.frames[first]


class _RgbConverter:
    """Converts frames to rgb24 with the pixels that ffmpeg gives, in one thread."""

    def __init__(self) -> None:
        self._scaler = VideoReformatter()
        self._graph: Graph | None = None
        self._graph_input: tuple[object, ...] = ()

    def __call__(self, frame: Any) -> Any:
        if frame.format.name in {"yuv420p", "yuvj420p"} and frame.height % 2 == 0:
            return self._scaler.reformat(frame, format="rgb24", **ONE_THREAD)
        return self._filtered(frame)

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
    if hasattr(graph, "threads"):  # PyAV 14 has no such attribute
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
