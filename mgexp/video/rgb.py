"""Convert decoded frames of any pixel format to RGB pixels (PyAV, one thread)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import av
import numpy as np
from av.filter import Graph
from av.video.reformatter import VideoReformatter

from mgexp.video.reader import FramesArray, Region, Size

PLANAR_420 = ("yuv420p", "yuvj420p")
"""Formats of 8-bit 4:2:0: a sample is a byte, and four pixels share a sample of each of the two colours."""
LEAST_CUT = 32_768
"""A frame is cut only if so many of its pixels need not become RGB. Measured on one core of an EPYC: a cut takes
as long as the whole frame where 36,864 of 340 x 256 pixels are left out."""


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
    """A converter of regions of frames, as stored, to RGB (h, w, 3), which is valid until the next call."""

    def __init__(self) -> None:
        self._scaler = VideoReformatter()
        self._cut: Any = None
        self._cut_planes: list[FramesArray] = []
        self._graph: Graph | None = None
        self._graph_input: tuple[object, ...] = ()

    def __call__(self, frame: Any, region: Region) -> FramesArray:
        # For these frames the scaler gives the pixels that ffmpeg gives; see ``_filtered`` for the others.
        if frame.format.name in PLANAR_420 and frame.height % 2 == 0:
            left_out = frame.height * frame.width - region.height * region.width
            # An interlaced frame is not cut, because a sample of colour belongs to lines of one field only.
            is_cut = left_out >= LEAST_CUT and not frame.interlaced_frame
            cut, part = self._cut_out(frame, region) if is_cut else (frame, region)
            rgb = self._scaler.reformat(cut, format="rgb24", threads=1)
        else:
            rgb, part = self._filtered(frame), region
        picture = _plane_array(rgb, 0, (rgb.height, rgb.width, 3))
        return picture[part.rows, part.columns]

    def _cut_out(self, frame: Any, region: Region) -> tuple[Any, Region]:
        """Cut the region out of a frame of 8-bit 4:2:0, so that the rest need not become RGB.

        The cut starts and ends at even pixels, because two lines and two columns share a sample of colour. So its
        RGB is that of the whole frame. Returns the cut, valid until the next one, and the region inside the cut.
        """
        top, left = region.top // 2 * 2, region.left // 2 * 2
        height = min(frame.height, region.top + region.height + 1) // 2 * 2 - top
        width = min(frame.width, (region.left + region.width + 1) // 2 * 2) - left
        if self._cut is None or (self._cut.height, self._cut.width) != (height, width):
            self._cut = av.VideoFrame(width, height, frame.format.name)
            self._cut_planes = _planes(self._cut)
        # The scaler reads from a frame how its colours are coded, so the cut needs the values of its frame.
        self._cut.colorspace, self._cut.color_range = frame.colorspace, frame.color_range
        for target, source in zip(self._cut_planes, _planes(frame), strict=True):
            step = frame.height // source.shape[0]
            rows, columns = target.shape
            target[:] = source[top // step :, left // step :][:rows, :columns]
        return self._cut, Region(region.top - top, region.left - left, region.height, region.width)

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


def _planes(frame: Any) -> list[FramesArray]:
    """Return the planes of a 4:2:0 frame of even height: brightness, and two colours half as high and wide."""
    half = (frame.height // 2, (frame.width + 1) // 2)
    sizes = ((frame.height, frame.width), half, half)
    return [_plane_array(frame, index, size) for index, size in enumerate(sizes)]


def _plane_array(frame: Any, index: int, shape: tuple[int, ...]) -> FramesArray:
    """Return a view of the bytes of a plane, without the padding at the end of each line."""
    plane: Any = frame.planes[index]
    strides = (plane.line_size, *shape[2:], 1)
    return np.ndarray(shape, np.uint8, plane, strides=strides)
