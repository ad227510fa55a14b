"""Convert decoded frames of any pixel format to RGB pixels (PyAV, one thread)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import av
import numpy as np
from av.filter import Graph
from av.video.reformatter import VideoReformatter

from mgexp.video.reader import FramesArray, Size

PLANAR_420 = ("yuv420p", "yuvj420p")
"""Formats of 8-bit 4:2:0: a sample is a byte, and four pixels share a sample of each of the two colours."""


def quarter_turns(degrees: float) -> int:
    """Return the counterclockwise quarter turns nearest to an angle; 0 for no rotation (FFmpeg: far outside)."""
    if not abs(degrees) <= 180:
        return 0
    turns = int((abs(degrees) + 45) // 90)
    return turns if degrees > 0 else -turns


def displayed_size(frame: Any) -> Size:
    """Return height and width of a decoded frame after it is turned as the file asks."""
    is_on_its_side = quarter_turns(frame.rotation) % 2
    return (frame.width, frame.height) if is_on_its_side else (frame.height, frame.width)


class RgbConverter:
    """A converter of frames, as stored, to RGB (h, w, 3), which is valid until the next call."""

    def __init__(self) -> None:
        self._scaler = VideoReformatter()
        self._graph: Graph | None = None
        self._graph_input: tuple[object, ...] = ()

    def __call__(self, frame: Any) -> FramesArray:
        # For these frames the scaler gives the pixels that ffmpeg gives; see ``_filtered`` for the others.
        if frame.format.name in PLANAR_420 and frame.height % 2 == 0:
            rgb: Any = self._scaler.reformat(frame, format="rgb24", threads=1)
        else:
            rgb = self._filtered(frame)
        # A view of the bytes, without the padding at the end of each line.
        plane, shape = rgb.planes[0], (rgb.height, rgb.width, 3)
        return np.ndarray(shape, np.uint8, plane, strides=(plane.line_size, 3, 1))

    def _filtered(self, frame: Any) -> Any:
        """Convert a whole frame by ffmpeg's filters, if the scaler would give other pixels than ffmpeg.

        Measured with 10-bit 4:2:0 (PyAV 18): the scaler was up to 90 grey levels off at edges of colour.
        """
        # A graph accepts frames of one format and size, so it is kept only as long as these stay the same.
        graph_input = (frame.format.name, frame.width, frame.height)
        if self._graph is None or self._graph_input != graph_input:
            graph = Graph()
            graph.threads = 1
            time_base = frame.time_base or Fraction(1, av.time_base)
            source = graph.add_buffer(
                width=frame.width, height=frame.height, format=frame.format, time_base=time_base
            )
            to_rgb, sink = graph.add("format", "rgb24"), graph.add("buffersink")
            source.link_to(to_rgb)
            to_rgb.link_to(sink)
            graph.configure()
            self._graph, self._graph_input = graph, graph_input
        self._graph.push(frame)
        return self._graph.pull()
