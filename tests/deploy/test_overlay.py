"""The panel: all of its text is inside, large enough and of known letters; and the video that is written."""

from __future__ import annotations

import av
import numpy as np
import pytest
from PIL import Image

from mgexp.deploy import overlay
from mgexp.deploy.overlay import Panel, default_font, font_problems, open_video, overlay_problems

LONG = "Pretending to put something underneath something but failing so the thing falls down onto the floor"
NAMES = (
    "waving",
    LONG,
    "Donaudampfschifffahrtsgesellschaftskapitänsmützenabzeichenherstellung",
    "ÄÉjgqy",
)
SIZES = [(64, 80), (90, 120), (240, 320), (360, 640), (640, 360), (1080, 1920)]


def panel(size, num_rows=4):
    return Panel(overlay.written_size(size), NAMES, num_rows, default_font())


@pytest.mark.parametrize("size", SIZES)
def test_every_line_of_every_name_fits(size):
    shown = panel(size)
    for lines in shown.wrapped:
        assert 1 <= len(lines) <= overlay.MAX_LINES
        assert max(map(shown.font.getlength, lines)) <= shown.name_width


def test_a_name_is_whole_where_it_fits():
    assert " ".join(panel((360, 640)).wrapped[1]) == LONG
    assert "".join(panel((360, 640)).wrapped[2]) == NAMES[2]


def test_what_does_not_fit_ends_with_an_ellipsis():
    shown = Panel((240, 240), (LONG * 3,), 1, default_font())
    assert shown.wrapped[0][-1].endswith("…")


@pytest.mark.parametrize("size", SIZES)
def test_letters_are_large_enough_and_stay_in_their_line(size):
    shown = panel(size)
    left, top, _, bottom = shown.font.getbbox("ÄÉjgqy", anchor="lm")
    assert bottom - top <= shown.line + 1
    _, top, _, bottom = shown.font.getbbox("x", anchor="ls")
    # Small letters of 5 pixels are those of a usual terminal; see also the frames in docs/predict.md.
    assert bottom - top >= 5
    assert left >= 0


@pytest.mark.parametrize("size", SIZES)
def test_no_letter_touches_the_border_of_the_picture(size):
    shown = panel(size)
    picture = np.zeros((*size, 3), np.uint8)
    drawn = shown.draw(picture, [(3, 0.6), (1, 0.3), (2, 0.1), (0, 0.0)])
    assert drawn.shape == (shown.size[0] + shown.panel_height, shown.size[1], 3)
    white = (drawn > 200).all(-1)
    assert white.any()
    assert not white[:, 0].any()
    assert not white[:, -2:].any()
    assert not white[-1].any()


def test_the_bar_is_as_long_as_the_probability():
    shown = panel((360, 640))
    drawn = shown.draw(np.zeros((360, 640, 3), np.uint8), [(0, 0.5)])
    blue = (drawn[..., 2].astype(int) - drawn[..., 0] > 60)[360 + shown.gap + 2]
    assert blue.sum() == pytest.approx(0.5 * (640 - shown.margin), abs=2)


def test_the_panel_is_lower_than_the_picture_and_the_first_class_stays():
    best = [(0, 0.4), (1, 0.3), (2, 0.2), (3, 0.1)]
    shown = Panel((240, 320), (LONG,) * 4, 4, default_font())
    assert shown.panel_height == 0.6 * 240
    # Three rows of three lines; a fourth has no room.
    assert shown.rows(best) == tuple(best[:3])
    low = Panel((40, 320), (LONG,) * 4, 4, default_font())
    assert low.panel_height == low.gap + low.height(0)
    assert low.rows(best) == ((0, 0.4),)


def test_the_panel_has_room_for_the_longest_names_and_no_more():
    shown = panel((360, 640), num_rows=2)
    assert [shown.height(label) for label in range(4)] == [21, 39, 21, 21]
    assert shown.panel_height == 3 + 39 + 21


def test_small_videos_are_enlarged_by_a_whole_number():
    sizes = [overlay.written_size(size) for size in ((64, 80), (120, 90), (240, 320))]
    assert sizes == [(256, 320), (360, 270), (240, 320)]


def test_the_panel_covers_nothing_of_the_picture():
    picture = np.random.default_rng(0).integers(0, 256, (360, 640, 3), np.uint8)
    shown = panel((360, 640))
    for drawn in (shown.draw(picture, [(0, 1.0)]), shown.draw_text(picture, "waiting")):
        assert (drawn[:360] == picture).all()
        assert (drawn[360:] == 255).any()


def test_letters_that_the_font_lacks_are_named_with_the_remedy():
    assert font_problems(default_font(), ["Größe", "нога"]) == []
    (problem,) = font_problems(default_font(), ["run", "走る"])
    assert "has no letter '走" in problem
    assert "--font FILE.ttf" in problem


def test_a_file_that_is_no_font_is_a_problem(tmp_path):
    (tmp_path / "a.ttf").write_text("no font")
    (problem,) = font_problems(tmp_path / "a.ttf", ["run"])
    assert "cannot be read" in problem


@pytest.mark.parametrize(
    ("name", "sources", "words"),
    [
        ("out.avi", ["a.mp4"], "ends in .mp4"),
        ("lost/out.mp4", ["a.mp4"], "there is no folder"),
        ("out.mp4", ["a.mp4", "b.mp4"], "there are 2 videos"),
        ("here.mp4", ["here.mp4"], "is the video itself"),
    ],
)
def test_names_that_cannot_be_written_are_refused(name, sources, words, tmp_path):
    (tmp_path / "here.mp4").write_bytes(b"")
    (problem,) = overlay_problems(tmp_path / name, [str(tmp_path / one) for one in sources])
    assert words in problem


def test_a_written_video_has_the_pictures_at_their_times(tmp_path):
    times = [0.0, 0.04, 0.5, 1.7]
    with open_video(tmp_path / "a.mp4", (33, 41)) as write:
        for place, seconds in enumerate(times):
            write(np.full((33, 41, 3), 60 * place, np.uint8), seconds)
    with av.open(str(tmp_path / "a.mp4")) as container:
        frames = list(container.decode(video=0))
        assert container.streams.video[0].codec_context.name == "h264"
    assert [frame.time for frame in frames] == pytest.approx(times, abs=1e-4)
    assert [(frame.height, frame.width) for frame in frames] == [(32, 40)] * 4
    greys = [frame.to_ndarray(format="rgb24").mean() for frame in frames]
    assert greys == pytest.approx([0, 60, 120, 180], abs=4)


def test_an_error_leaves_neither_a_video_nor_a_part_of_it(tmp_path):
    with pytest.raises(RuntimeError), open_video(tmp_path / "a.mp4", (32, 32)) as write:
        write(np.zeros((32, 32, 3), np.uint8), 0.0)
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_text_stands_on_pictures_without_classes():
    blank = np.zeros((240, 320, 3), np.uint8)
    drawn = panel((240, 320)).draw_text(blank, "waiting for 2.1 s of video")
    assert (drawn > 200).all(-1).any()
    Image.fromarray(drawn).verify()
