"""The gallery: which videos come first, and what is shown where the videos are gone."""

from __future__ import annotations

import base64
import io
import re

import av
import numpy as np
import pytest
from fake_runs import fake_run
from markdown_tables import tables
from PIL import Image

from mgexp.results.gallery import gallery_html, mistakes_table, read_mistakes
from mgexp.results.load import load_runs

NAMES = ("open", "close<b>")


def write_video(path):
    """Ten grey frames of 320 × 180 pixels."""
    with av.open(str(path), "w") as file:
        stream = file.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 320, 180, "yuv420p"
        for number in range(10):
            pixels = np.full((180, 320, 3), 20 * number, np.uint8)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        file.mux(stream.encode(None))


@pytest.fixture
def gallery(tmp_path):
    """A run on four videos, of which the last does not exist; the first two are mistakes."""
    paths = [tmp_path / "videos" / f"{name}.mp4" for name in ("sure", "unsure", "right", "gone")]
    paths[0].parent.mkdir()
    for path in paths[:3]:
        write_video(path)
    scores = np.array([[0.1, 0.9], [0.4, 0.6], [0.7, 0.3], [0.8, 0.2]], np.float32)

    def make(order=(1, 0, 2, 3), top1=50.0):
        run = fake_run(tmp_path / "runs", "baseline", 0, top1=top1)
        videos = np.array([str(paths[n]) for n in order])
        labels = np.zeros(len(order), int)
        np.savez(run.scores("1x1_forward"), videos=videos, labels=labels, scores=scores[[*order]])
        comparison = load_runs(tmp_path / "runs").with_class_names(NAMES, tmp_path)
        return read_mistakes(tmp_path / "runs", comparison)

    return make


def test_the_most_confident_mistake_comes_first(gallery):
    text = "\n".join(["## x", *mistakes_table(gallery())])
    (table,) = tables(text, "## x")
    assert [(line["video"], line["prediction"], line["confidence"]) for line in table] == [
        ("videos/sure.mp4", "close&lt;b>", "90.0 %"),
        ("videos/unsure.mp4", "close&lt;b>", "60.0 %"),
    ]


def test_a_picture_is_small_and_names_are_escaped(gallery):
    html = gallery_html(gallery())
    assert re.findall(r'alt="videos/(\w+)', html) == ["sure", "unsure"]
    assert "is open, taken for close&lt;b&gt;" in html
    (first, *_) = re.findall(r"data:image/jpeg;base64,([^\"]*)", html)
    with Image.open(io.BytesIO(base64.b64decode(first))) as image:
        assert max(image.size) <= 240


def test_a_video_that_is_gone_has_no_picture(gallery, tmp_path):
    mistakes = gallery()
    (tmp_path / "videos" / "sure.mp4").unlink()
    assert re.findall(r'alt="videos/(\w+)', gallery_html(mistakes)) == ["unsure"]


def test_without_mistakes_or_scores_there_is_nothing(gallery, tmp_path):
    assert gallery((3, 2), top1=100.0) == []
    fake_run(tmp_path / "others", "baseline")
    assert read_mistakes(tmp_path / "others", load_runs(tmp_path / "others")) == []
    assert mistakes_table([]) == [] and gallery_html([]) == ""
