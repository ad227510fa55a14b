"""Show the validation videos that a network got wrong with the most confidence: a table, and pictures in HTML."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
from PIL import Image

from mgexp.config.load import from_yaml
from mgexp.results.html import Block
from mgexp.results.load import Predictions, read_predictions
from mgexp.results.model import Comparison, Row
from mgexp.results.report import MISTAKES
from mgexp.results.tables import plain_cell, table
from mgexp.run.confusion import name_of
from mgexp.run.folder import RunDir, RunsDir
from mgexp.video.frame_folder import FilesAndFolders
from mgexp.video.reader import DEFAULT_FRAMES_FPS, VideoError

NUM_PICTURES = 12
"""The pictures of a row. Assumption: two rows of 12 are worth a look, and they add some 150 KB to the page."""
NUM_LINES = 5
"""The mistakes of a row in the table."""
WIDTH_PIXELS, HEIGHT_PIXELS = 240, 180
"""The largest size of a picture: twice that on the page, for screens with fine pixels."""


@dataclass(frozen=True)
class Guess:
    """What a network said about a validation video. ``confidence`` is its score for ``predicted``, in percent."""

    row: str
    seed: int
    video: str
    truth: int
    predicted: int
    confidence: float

    @property
    def is_right(self) -> bool:
        """Whether the network named the class of the video."""
        return self.predicted == self.truth

    @property
    def name(self) -> str:
        """The folder and the file of the video. The rest of the path concerns only the machine."""
        return "/".join(Path(self.video).parts[-2:])


def guesses_of(row: str, seed: int, found: Predictions) -> tuple[Guess, ...]:
    """List guesses: mistakes, the most confident first, then right ones, the least confident first."""
    confidence = 100 * found.scores.max(axis=1) / np.maximum(found.scores.sum(axis=1), 1e-12)
    every = [
        Guess(row, seed, video, int(truth), int(predicted), float(percent))
        for video, truth, predicted, percent in zip(
            found.videos, found.labels, found.predicted, confidence, strict=True
        )
    ]
    wrong = sorted((one for one in every if not one.is_right), key=lambda one: -one.confidence)
    right = sorted((one for one in every if one.is_right), key=lambda one: one.confidence)
    return (*wrong, *right)


class Gallery:
    """The guesses of the baseline and of the fastest other row, each of its first seed with scores."""

    def __init__(self, folder: Path, comparison: Comparison) -> None:
        self.names = comparison.class_names
        rest = sorted(comparison.compared, key=lambda row: row.mean(lambda run: run.train_seconds))
        self.guesses: list[tuple[Guess, ...]] = []
        self.frames_fps = DEFAULT_FRAMES_FPS
        dirs = {(row, seed): run_dir for row, seed, run_dir in RunsDir(folder).runs()}
        for row in (comparison.baseline, *rest[:1]):
            if found := self._first(row, dirs):
                self.guesses.append(found)

    def _first(self, row: Row, dirs: dict[tuple[str, int], RunDir]) -> tuple[Guess, ...]:
        """Return the guesses of the first run of a row that has scores. runs.jsonl has none."""
        for seed, run in row.runs.items():
            run_dir = dirs.get((row.name, seed))
            if run_dir and (found := read_predictions(run_dir, run.top1)):
                fps = from_yaml(run_dir.config_yaml).get("DATA.FRAMES_FPS", self.frames_fps)
                self.frames_fps = float(fps)
                return guesses_of(row.name, seed, found)
        return ()

    def _class(self, label: int) -> str:
        return name_of(label, self.names)

    def lines(self) -> list[str]:
        """Write the most confident mistakes of each row as a Markdown table."""
        wrong = [one for found in self.guesses for one in found[:NUM_LINES] if not one.is_right]
        if not self.guesses:
            return []
        lines = table(
            wrong,
            [
                ("row", lambda one: one.row),
                ("video", lambda one: plain_cell(one.name)),
                ("truth", lambda one: plain_cell(self._class(one.truth))),
                ("prediction", lambda one: plain_cell(self._class(one.predicted))),
                ("confidence", lambda one: f"{one.confidence:.1f} %"),
            ],
            ("video", "truth", "prediction"),
        )
        return lines or ["Every video was classified correctly."]

    def block(self) -> Block | None:
        """Show a frame of each video with truth and prediction. Without any video there is one line instead."""
        if not self.guesses:
            return None
        parts = []
        for found in self.guesses:
            cards = [card for one in found[:NUM_PICTURES] if (card := self._card(one))]
            if cards:
                which = "no mistakes, so right answers" if found[0].is_right else "mistakes first"
                parts += [f"<h3>{escape(found[0].row)}, seed {found[0].seed}: {which}</h3>"]
                parts += ['<div class="gallery">', *cards, "</div>"]
        gone = "<p>The videos are no longer where they were at the evaluation, so there are no pictures.</p>"
        words = (
            "<p>The frame in the middle of each video. The most confident mistakes come first. Where there are "
            "few mistakes, the right answers with the least confidence follow.</p>"
        )
        return Block(MISTAKES, "\n".join([words, *parts]) if parts else gone)

    def _card(self, one: Guess) -> str:
        """Write the HTML of a video; "" if no frame can be read."""
        picture = thumbnail(one.video, self.frames_fps)
        if picture is None:
            return ""
        source = f"data:image/jpeg;base64,{base64.b64encode(picture).decode()}"
        said, truth = (escape(self._class(label)) for label in (one.predicted, one.truth))
        kind = "right" if one.is_right else "wrong"
        words = f"is {truth}" if one.is_right else f"is {truth}, taken for <b>{said}</b>"
        return (
            f'<figure><img alt="{escape(one.name)}" src="{source}" loading="lazy"><figcaption>'
            f'<span class="{kind}">{kind}, {one.confidence:.0f} %</span><br>{words}<br>{escape(one.name)}'
            "</figcaption></figure>"
        )


def thumbnail(video: str, frames_fps: float) -> bytes | None:
    """Return the frame in the middle of a video as a small JPEG. Return None if the video cannot be read."""
    if not Path(video).exists():
        return None
    try:
        with FilesAndFolders(frames_fps)(video) as opened:
            middle = np.array([opened.duration_seconds / 2])
            frame = opened.frames_at(middle).rgb()[0]
    except (VideoError, OSError):
        return None
    image = Image.fromarray(frame)
    image.thumbnail((WIDTH_PIXELS, HEIGHT_PIXELS))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=75, optimize=True)
    return file.getvalue()
