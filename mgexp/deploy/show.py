"""Show what a network sees while a video runs: in a written video, or at a camera."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from mgexp.deploy.overlay import Panel, Write, open_video, written_size
from mgexp.deploy.stream import (
    Scores,
    SlidingClips,
    Source,
    Window,
    open_frames,
    timeline,
)
from mgexp.run.log import with_progress
from mgexp.train.predict import Prediction, best_of
from mgexp.video.reader import FramesArray, VideoError

Draw = Callable[[FramesArray, float, Tensor | None], None]
"""Draws the classes below the picture of a moment, and writes it. The scores are None before the first clip."""


@dataclass(frozen=True)
class Style:
    """What the panel shows: ``num_rows`` of the classes called ``names``, in the letters of ``font_file``."""

    names: tuple[str, ...]
    num_rows: int
    font_file: Path


@contextmanager
def open_overlay(path: Path, style: Style, waiting: str = "") -> Iterator[Draw]:
    """Write a video of pictures with their classes. It appears when the block ends without an error.

    ``waiting``: the text before there are classes.
    """
    with ExitStack() as stack:
        opened: list[tuple[Panel, Write]] = []

        def draw(picture: FramesArray, seconds: float, scores: Tensor | None) -> None:
            # Only the first picture tells the size.
            if not opened:
                size = written_size((picture.shape[0], picture.shape[1]))
                panel = Panel(size, style.names, style.num_rows, style.font_file)
                whole = (size[0] + panel.panel_height, size[1])
                opened.append((panel, stack.enter_context(open_video(path, whole))))
            panel, write = opened[0]
            if scores is None:
                write(panel.draw_text(picture, waiting), seconds)
            else:
                write(panel.draw(picture, best_of(scores, style.num_rows)), seconds)

        yield draw


def overlay_file(video: str, path: Path, window: Window, scores: Scores, style: Style) -> None:
    """Write ``video`` to ``path`` with the classes of the clip around each frame.

    The video is read twice, so that a frame can show what follows it, and memory does not grow with the pictures.
    Raises VideoError if it cannot be read.
    """
    with open_frames(Source(video)) as frames:
        line = timeline(with_progress(frames, None, "", "frames seen"), window, scores)
    with open_overlay(path, style) as draw, open_frames(Source(video)) as frames:
        for seconds, picture in with_progress(frames, None, "", "frames drawn"):
            draw(picture, seconds, line.at(seconds))


def watch(
    source: Source,
    window: Window,
    scores: Scores,
    num_best: int,
    overlay: tuple[Path, Style] | None,
    is_over: Callable[[float], bool],
) -> Iterator[Prediction]:
    """Yield the classes of the last clip of a camera, again and again, until ``is_over`` says so at a moment.

    A stream that ends before its first clip is complete has one prediction. With ``overlay``, the video with its
    classes is written at the same time. If the camera fails later than at its
    first frame, the last prediction is an error, and the video is kept. Raises VideoError if it fails before.
    """
    clips, latest, has_begun = SlidingClips(window), None, False
    waiting = f"waiting for {window.last_seconds:.1f} s of video"
    writer = open_overlay(*overlay, waiting) if overlay else nullcontext()
    with writer as draw:
        try:
            with open_frames(source) as frames:
                for seconds, picture in frames:
                    has_begun = True
                    found = clips.add(seconds, picture)
                    if found:
                        latest = scores(found[1])
                    if draw:
                        draw(picture, seconds, latest)
                    if found and latest is not None:
                        yield Prediction(source.name, best_of(latest, num_best), seconds=found[0])
                    if is_over(seconds):
                        break
            if rest := clips.rest():
                middle, clip = rest
                yield Prediction(source.name, best_of(scores(clip), num_best), seconds=middle)
        except VideoError as error:
            if not has_begun:
                raise
            yield Prediction(source.name, error=str(error))
