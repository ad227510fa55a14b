"""Draw the most probable classes below the pictures of a video, and write the video.

A panel below the picture has a row for each class: its name, its probability in percent, and a bar. Names that
are too long for a line are broken, and all text fits whatever the size of the video is. Videos of few pixels are
enlarged, because no letter is readable in them otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import av
import matplotlib as mpl
import numpy as np
from matplotlib.ft2font import FT2Font
from PIL import Image, ImageDraw, ImageFont

from mgexp.run.files import atomic_file
from mgexp.video.reader import FramesArray, Size

MIN_SHORT_SIDE = 240
"""Pixels of the short side below which a video is enlarged, so that names fit into few lines of text."""
LINES_PER_SHORT_SIDE = 20
"""A line of text has this part of the short side, but at least MIN_LINE pixels. Chosen by looking at frames."""
MIN_LINE = 14
MAX_LINES = 3
"""A name has no more lines. What is left of a longer name becomes an ellipsis."""
MAX_PANEL_SHARE = 0.6
"""The panel is no higher than this part of the picture. Rows that do not fit are left out, but the first stays."""
PANEL, BAR, TEXT = (0, 0, 0), (21, 101, 192), (255, 255, 255)
"""Colours of the panel, its bars, and the letters. White on either has a contrast of more than 4.5 to 1, as the
guidelines for the web ask (WCAG 2.2, 1.4.3)."""
ENDINGS = {".mp4": "mp4", ".m4v": "mp4", ".mov": "mov", ".mkv": "matroska"}
"""The endings of the videos that are written, and FFmpeg's names of their formats."""
TICKS_PER_SECOND = 90_000
"""The clock of a written video: that of MPEG, which counts the usual frame rates exactly."""
QUALITY = "20"
"""Constant rate factor of x264. Lower is better and larger; 23 is its default, and 18 looks like the source."""

Write = Callable[[FramesArray, float], None]
"""Writes a picture, uint8 RGB (H, W, 3), that is on display from a moment in seconds."""


def overlay_problems(path: Path | None, sources: Sequence[str]) -> list[str]:
    """Say why a video cannot be written to ``path``, from ``sources``."""
    if path is None:
        return []
    problems = []
    if path.suffix.lower() not in ENDINGS:
        problems.append(f"--overlay {path}: give a name that ends in {', '.join(ENDINGS)}")
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        problems.append(
            f"--overlay {path}: {what}; give the name of a file in a folder that exists"
        )
    if len(sources) != 1:
        problems.append(
            f"--overlay {path}: there are {len(sources)} videos; give one video, and run once for each"
        )
    if len(sources) == 1 and Path(sources[0]).is_dir():
        problems.append(f"--overlay: {sources[0]} is a folder of images; give a video file")
    if any(Path(one).exists() and path.exists() and path.samefile(one) for one in sources):
        problems.append(f"--overlay {path} is the video itself: give another name")
    return problems


def default_font() -> Path:
    """Return DejaVu Sans, which comes with matplotlib and has Latin, Greek, Cyrillic and Arabic letters."""
    return Path(mpl.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")


def font_problems(font: Path, names: Sequence[str]) -> list[str]:
    """Say why the ``names`` cannot be drawn with a font."""
    try:
        ImageFont.truetype(str(font), MIN_LINE)
        known = FT2Font(str(font)).get_charmap()
    except (OSError, RuntimeError) as error:
        return [f"--font {font} cannot be read ({error}): give a file such as NotoSans-Regular.ttf"]
    for name in names:
        missing = "".join(dict.fromkeys(one for one in name if ord(one) not in known))
        if missing:
            problem = f"the font {font.name} has no letter {missing[:5]!r}, which is in {name!r}"
            return [f"{problem}: give a font that has it with --font FILE.ttf"]
    return []


@dataclass(frozen=True)
class Panel:
    """The panel below pictures of height and width ``size``: at most ``num_rows`` of the classes ``names``."""

    size: Size
    names: tuple[str, ...]
    num_rows: int
    font_file: Path

    @cached_property
    def line(self) -> int:
        """Pixels from a line of text to the next."""
        return max(MIN_LINE, min(self.size) // LINES_PER_SHORT_SIDE)

    @cached_property
    def font(self) -> ImageFont.FreeTypeFont:
        """The font, so large that accents and descenders stay in their line."""
        return ImageFont.truetype(str(self.font_file), round(self.line * 0.78))

    @property
    def margin(self) -> int:
        """Pixels between the panel's border and its text."""
        return self.line // 2

    @cached_property
    def name_width(self) -> float:
        """Pixels that a line of a name may have. The rest is for the percents."""
        return self.size[1] - 3 * self.margin - self.font.getlength("100 %")

    @cached_property
    def wrapped(self) -> tuple[tuple[str, ...], ...]:
        """The lines of each name."""
        return tuple(self.wrap(name) for name in self.names)

    @property
    def gap(self) -> int:
        """Pixels between two rows."""
        return max(2, self.line // 6)

    def height(self, label: int) -> int:
        """Pixels of the row of a class, with the gap above it."""
        return self.gap + self.line * len(self.wrapped[label])

    @cached_property
    def panel_height(self) -> int:
        """Pixels of the panel, enough for any choice of classes: all pictures of a video have one size."""
        highest = sorted(map(self.height, range(len(self.names))), reverse=True)[: self.num_rows]
        most = max(int(MAX_PANEL_SHARE * self.size[0]), self.gap + highest[0])
        return min(self.gap + sum(highest), most)

    def rows(self, best: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
        """Return the first of ``best`` for which there is room."""
        room = self.panel_height - self.gap
        heights = accumulate(self.height(label) for label, _ in best[: self.num_rows])
        return tuple(best[: sum(height <= room for height in heights)])

    def wrap(self, name: str) -> tuple[str, ...]:
        """Break a name into lines that fit: between words, or inside a word that is wider than a line."""
        lines = [""]
        for word in name.split():
            joined = f"{lines[-1]} {word}".strip()
            if self.fits(joined):
                lines[-1] = joined
                continue
            lines += [""] * bool(lines[-1])
            for letter in word:
                if not self.fits(lines[-1] + letter) and lines[-1]:
                    lines.append("")
                lines[-1] += letter
        if len(lines) <= MAX_LINES:
            return tuple(lines)
        last = lines[MAX_LINES - 1]
        while last and not self.fits(f"{last}…"):
            last = last[:-1]
        return (*lines[: MAX_LINES - 1], f"{last}…")

    def fits(self, text: str) -> bool:
        """Whether a text is no wider than the line of a name."""
        return self.font.getlength(text) <= self.name_width

    def draw(self, picture: FramesArray, best: Sequence[tuple[int, float]]) -> FramesArray:
        """Return the picture above the ``best`` (class, probability), the most probable first."""
        image = self._above_panel(picture)
        pen, right, top = ImageDraw.Draw(image), self.size[1] - self.margin, self.size[0] + self.gap
        for label, share in self.rows(best):
            bottom = top + self.height(label) - self.gap
            length = round(share * (self.size[1] - self.margin))
            pen.rectangle((self.margin // 2, top, self.margin // 2 + length, bottom - 1), fill=BAR)
            for number, text in enumerate(self.wrapped[label]):
                place = (self.margin, top + (number + 0.5) * self.line)
                pen.text(place, text, TEXT, self.font, anchor="lm")
            percent = f"{100 * share:.0f} %"
            pen.text((right, top + 0.5 * self.line), percent, TEXT, self.font, anchor="rm")
            top = bottom + self.gap
        return np.asarray(image)

    def draw_text(self, picture: FramesArray, text: str) -> FramesArray:
        """Return the picture above one line of text, before there are classes."""
        image = self._above_panel(picture)
        place = (self.margin, self.size[0] + self.gap + self.line / 2)
        ImageDraw.Draw(image).text(place, text, TEXT, self.font, anchor="lm")
        return np.asarray(image)

    def _above_panel(self, picture: FramesArray) -> Image.Image:
        image = Image.fromarray(picture)
        if image.size != self.size[::-1]:
            image = image.resize(self.size[::-1], Image.Resampling.BICUBIC)
        whole = Image.new("RGB", (self.size[1], self.size[0] + self.panel_height), PANEL)
        whole.paste(image)
        return whole


@contextmanager
def open_video(path: Path, size: Size) -> Iterator[Write]:
    """Write an H.264 video without sound, whose pictures have height and width ``size``.

    It appears when the block ends without an error. An odd last row or column is left out, since H.264 needs even
    sizes.
    """
    form = ENDINGS[path.suffix.lower()]
    with atomic_file(path) as file, av.open(file, "w", format=form) as container:
        stream: Any = container.add_stream("libx264", rate=Fraction(30), options={"crf": QUALITY})
        stream.height, stream.width = (side // 2 * 2 for side in size)
        stream.pix_fmt = "yuv420p"
        stream.codec_context.time_base = Fraction(1, TICKS_PER_SECOND)

        def write(picture: FramesArray, seconds: float) -> None:
            cut = np.ascontiguousarray(picture[: stream.height, : stream.width])
            frame = av.VideoFrame.from_ndarray(cut, format="rgb24")
            frame.pts = round(seconds * TICKS_PER_SECOND)
            frame.time_base = Fraction(1, TICKS_PER_SECOND)
            container.mux(stream.encode(frame))

        yield write
        # None brings out the packets that the encoder holds back.
        container.mux(stream.encode(None))


def written_size(size: Size) -> Size:
    """Return height and width of the written pictures of a video of ``size``: a whole number of times as large."""
    times = max(1, math.ceil(MIN_SHORT_SIDE / min(size)))
    return size[0] * times, size[1] * times
