"""Show the validation videos that a network got wrong with the most confidence: a table, and pictures in HTML."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
from PIL import Image

from mgexp.config.load import from_yaml
from mgexp.results.load import Predictions, read_predictions
from mgexp.results.model import Comparison
from mgexp.results.tables import plain_cell, table
from mgexp.run.confusion import name_of
from mgexp.run.folder import RunsDir
from mgexp.video.frame_folder import FilesAndFolders
from mgexp.video.reader import DEFAULT_FRAMES_FPS, VideoError

NUM_PICTURES = 12
"""The pictures of a row. Assumption: two rows of 12 are worth a look, and they add some 150 KB to the page."""
NUM_LINES = 5
"""The mistakes of a row in the table."""
MAX_PIXELS = (240, 180)
"""The largest width and height of a picture: twice that on the page, for screens with fine pixels."""


@dataclass(frozen=True)
class Guess:
    """What a network predicted for a validation video. ``confidence`` is its score in percent."""

    row: str
    video: str
    truth: str
    predicted: str
    confidence: float
    frames_fps: float

    @property
    def name(self) -> str:
        """The folder and the file of the video. The rest of the path concerns only the machine."""
        return "/".join(Path(self.video).parts[-2:])


def read_mistakes(folder: Path, comparison: Comparison) -> list[Guess]:
    """List the most confident mistakes of the baseline and of the fastest row, of the first seed with scores.

    runs.jsonl has no scores, so the folders of the runs must be there.
    """
    rest = sorted(comparison.compared, key=lambda row: row.mean(lambda run: run.train_seconds))
    dirs = {(row, seed): run_dir for row, seed, run_dir in RunsDir(folder).runs()}
    mistakes = []
    for row in (comparison.baseline, *rest[:1]):
        for seed, run in row.runs.items():
            run_dir = dirs.get((row.name, seed))
            scores = run_dir and read_predictions(run_dir, run.top1)
            if run_dir and scores:
                fps = from_yaml(run_dir.config_yaml).get("DATA.FRAMES_FPS", DEFAULT_FRAMES_FPS)
                title = f"{row.name}, seed {seed}"
                mistakes += _mistakes_of(title, scores, comparison.class_names, float(fps))
                break
    return mistakes


def _mistakes_of(
    row: str, scores: Predictions, names: Sequence[str], frames_fps: float
) -> list[Guess]:
    confidence = 100 * scores.scores.max(axis=1) / np.maximum(scores.scores.sum(axis=1), 1e-12)
    wrong = np.flatnonzero(scores.predicted != scores.labels)
    order = wrong[np.argsort(-confidence[wrong], kind="stable")][:NUM_PICTURES]
    return [
        Guess(
            row,
            scores.videos[index],
            name_of(int(scores.labels[index]), names),
            name_of(int(scores.predicted[index]), names),
            float(confidence[index]),
            frames_fps,
        )
        for index in order
    ]


def mistakes_table(mistakes: Sequence[Guess]) -> list[str]:
    """Write the first mistakes of each row as a Markdown table."""
    rows = dict.fromkeys(one.row for one in mistakes)
    first = [one for row in rows for one in [m for m in mistakes if m.row == row][:NUM_LINES]]
    return table(
        first,
        [
            ("row", lambda one: one.row),
            ("video", lambda one: plain_cell(one.name)),
            ("truth", lambda one: plain_cell(one.truth)),
            ("prediction", lambda one: plain_cell(one.predicted)),
            ("confidence", lambda one: f"{one.confidence:.1f} %"),
        ],
        ("video", "truth", "prediction"),
    )


def gallery_html(mistakes: Sequence[Guess]) -> str:
    """Show the middle frame of each video with truth and prediction. A video that is gone has no picture."""
    cards = []
    for one in mistakes:
        if picture := thumbnail(one.video, one.frames_fps):
            source = f"data:image/jpeg;base64,{base64.b64encode(picture).decode()}"
            words = f"{one.row}, {one.confidence:.0f} %: is {one.truth}, taken for {one.predicted}"
            cards.append(
                f'<figure><img alt="{escape(one.name)}" src="{source}">'
                f"<figcaption>{escape(words)}<br>{escape(one.name)}</figcaption></figure>"
            )
    return "\n".join(['<div class="gallery">', *cards, "</div>"]) if cards else ""


def thumbnail(video: str, frames_fps: float) -> bytes | None:
    """Return the frame in the middle of a video as a small JPEG. Return None if the video cannot be read."""
    if not Path(video).exists():
        return None
    try:
        with FilesAndFolders(frames_fps)(video) as opened:
            middle = np.array([opened.duration_seconds / 2])
            frame = opened.frames_at(middle).pixels[0]
    except (VideoError, OSError):
        return None
    image = Image.fromarray(frame)
    image.thumbnail(MAX_PIXELS)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=75, optimize=True)
    return file.getvalue()
