"""Every codec that PyAV encodes, pixel formats, odd sizes and turned pictures"""

from fractions import Fraction

import av
import numpy as np
import pytest
from videos import (
    LONG_GOP,
    TALL,
    WIDE,
    decode_all,
    frames_at,
    numbers_of,
    set_display_matrix,
    write_video,
)

from mgexp.video import rgb
from mgexp.video.pyav import PyavReader
from mgexp.video.reader import Region

FRAME_TIME = {"time_base": Fraction(1, 30)}  # MPEG-1 and 2 know no finer one
FILES = {
    "h264.mp4": {},
    "h264_10_bit.mp4": {"pix_fmt": "yuv420p10le"},
    "h264_422.mkv": {"pix_fmt": "yuv422p10le"},
    "h264_444_odd.mp4": {"pix_fmt": "yuv444p", "size": (63, 47)},
    "h264_bt709.mp4": {"options": {"colorspace": "bt709"}},
    "hevc.mp4": {"codec": "libx265"},
    "hevc_12_bit.mp4": {"codec": "libx265", "pix_fmt": "yuv420p12le"},
    "vp8.webm": {"codec": "libvpx"},
    "vp9_odd.webm": {"codec": "libvpx-vp9", "size": (63, 47)},
    "vp9_odd_height.mp4": {"codec": "libvpx-vp9", "size": (64, 47)},
    "av1.mp4": {"codec": "libsvtav1"},
    "mpeg1.mpg": {"codec": "mpeg1video", **FRAME_TIME},
    "mpeg2.ts": {"codec": "mpeg2video", **FRAME_TIME},
    "mpeg2_odd.mp4": {
        "codec": "mpeg2video",
        "options": {"bf": "2"},
        "size": (63, 47),
        **FRAME_TIME,
    },
    "mpeg4.mp4": {"codec": "mpeg4", "options": {"bf": "2"}, **FRAME_TIME},
    "mjpeg.avi": {"codec": "mjpeg", "pix_fmt": "yuvj420p"},
    "mjpeg_422.mov": {"codec": "mjpeg", "pix_fmt": "yuvj422p"},
    "ffv1.mkv": {"codec": "ffv1"},
    "prores.mov": {"codec": "prores_ks", "pix_fmt": "yuv422p10le"},
    "gif.gif": {"codec": "gif", "pix_fmt": "rgb8", "time_base": Fraction(1, 100)},
}
ONLY_IN_PARTS = {
    "h264_full_range.mp4": {"options": {"color_range": "pc"}},
    "h264_interlaced.mp4": {"options": {"x264-params": "tff=1:bframes=0"}},
}
"""Here the numbers are tagged otherwise than they are meant, or each FFmpeg has colours of its own."""
TIMES = np.arange(-2, 45) / 30 + 0.012
NUMBERS = [min(max(number, 0), 39) for number in range(-2, 45)]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Writes a file of FILES, once."""
    folder = tmp_path_factory.mktemp("formats")

    def write(name):
        form = (FILES | ONLY_IN_PARTS)[name]
        codec = form.get("codec", "libx264")
        if codec not in av.codec.codecs_available:
            pytest.skip(f"this PyAV has no encoder {codec}")
        path = folder / name
        return path if path.exists() else write_video(path, **form)

    return write


@pytest.mark.parametrize("name", FILES)
def test_frames_of_every_format_are_those_on_display(name, written):
    frames = frames_at(written(name), TIMES)
    width, height = FILES[name].get("size", (WIDE, TALL))
    assert frames.shape[1:] == (height, width, 3)
    assert numbers_of(frames) == NUMBERS


# Odd edges, both corners, one pixel, and all but one.
PARTS = {
    "odd": Region(5, 7, 21, 17),
    "top_left": Region(0, 0, 11, 13),
    "bottom_right": Region(30, 40, 17, 23),
    "pixel": Region(9, 11, 1, 1),
    "most": Region(1, 0, 46, 63),
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("name", FILES | ONLY_IN_PARTS)
def test_a_region_is_that_part_of_the_whole_frames(name, part, written):
    with PyavReader(str(written(name))) as reader:
        frames = reader.frames_at(TIMES[:6]).pixels
        cut = reader.frames_at(TIMES[:6], cut=lambda size: part).pixels
    np.testing.assert_array_equal(cut, frames[:, part.rows, part.columns])


def test_frames_have_the_size_as_displayed(tmp_path):
    path = write_video(tmp_path / "turned.mp4", options=LONG_GOP)
    set_display_matrix(path, MATRICES["clockwise"])
    part = Region(3, 5, 20, 10)
    with PyavReader(str(path)) as reader:
        found = reader.frames_at([0.55], cut=lambda size: part)
        frames = reader.frames_at([0.55]).pixels
    assert found.size == (WIDE, TALL)
    np.testing.assert_array_equal(found.pixels, frames[:, part.rows, part.columns])


# Where columns and rows go: (a, b, c, d, x, y) of set_display_matrix.
MATRICES = {
    "none": (1, 0, 0, 1, 0, 0),
    "clockwise": (0, 1, -1, 0, TALL, 0),
    "upside_down": (-1, 0, 0, -1, WIDE, TALL),
    "counterclockwise": (0, -1, 1, 0, 0, WIDE),
}


def shown(picture, matrix):
    """The picture as a player shows it: each pixel moved to where the matrix sends its centre."""
    a, b, c, d, x, y = matrix
    rows, columns = np.mgrid[: picture.shape[0], : picture.shape[1]] + 0.5
    to_columns = (a * columns + c * rows + x).astype(int)
    to_rows = (b * columns + d * rows + y).astype(int)
    out = np.empty((to_rows.max() + 1, to_columns.max() + 1, 3), np.uint8)
    out[to_rows, to_columns] = picture
    return out


@pytest.mark.parametrize("suffix", ["mp4", "mov"])
@pytest.mark.parametrize("name", MATRICES)
def test_pictures_are_turned_as_a_player_turns_them(name, suffix, tmp_path):
    path = write_video(tmp_path / f"turned.{suffix}", options=LONG_GOP)
    set_display_matrix(path, MATRICES[name])
    expected = [shown(frame, MATRICES[name]) for frame in decode_all(path)[[0, 16]]]
    np.testing.assert_array_equal(frames_at(path, [0.0, 0.55]), expected)


def test_a_matrix_that_is_no_rotation_is_left_alone(tmp_path):
    path = write_video(tmp_path / "a.mp4")
    set_display_matrix(path, (0, 0, 0, 0, 0, 0))
    assert numbers_of(frames_at(path, [0.55])) == [16]


@pytest.mark.parametrize(
    ("degrees", "turns"),
    [(0, 0), (90, 1), (-90, -1), (180, 2), (-180, -2), (44, 0), (46, 1), (-46, -1), (-(2**31), 0)],
)
def test_angles_are_taken_to_the_nearest_quarter_turn(degrees, turns):
    assert rgb.quarter_turns(degrees) == turns
