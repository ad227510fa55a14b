"""Copies of videos: the same pictures at the same times, every frame a keyframe."""

from pathlib import Path

import av
import numpy as np
import pytest
from stores import IRREGULAR, REGULAR, TALL, TIME_BASE, WIDE, order, psnr, store_in, write_smooth
from videos import GOP_8, LONG_GOP, OPEN_GOP, frames_at, numbers_of, write_video

from mgexp.video.pyav import PyavReader
from mgexp.video.reader import VideoError
from mgexp.video.store import distinct_levels, level_size, stamp_of
from mgexp.video.store_encode import encode_video

TICKS = {"regular": REGULAR, "irregular": IRREGULAR, "late": [30_000 + tick for tick in REGULAR]}
NUMBERED = {
    "gop_8.mp4": {"options": GOP_8},
    "open_gop.mp4": {"options": OPEN_GOP},
    "irregular.mp4": {"options": LONG_GOP, "ticks": IRREGULAR},
    "late.mkv": {"options": OPEN_GOP, "ticks": [46_080 + tick for tick in REGULAR]},
    "no_edit_list.mp4": {"options": LONG_GOP, "container_options": {"use_editlist": "0"}},
    "mpeg4.avi": {"codec": "mpeg4", "options": {"g": "12"}},
}


def encode(path: Path, *levels: int):
    """(what the manifest says, the copy at each level)."""
    store, asked = store_in(path.parent), order(path.parent, *levels)
    stamp = stamp_of(str(path))
    video = encode_video(path, path.name, stamp, store, asked.levels, asked.quantizer)
    return video, {level: store.copy(level, path.name) for level in video.levels}


@pytest.mark.parametrize("ticks", TICKS.values(), ids=TICKS)
def test_a_copy_shows_the_same_pictures_at_the_same_times(tmp_path, ticks):
    source = write_smooth(tmp_path / "a.mp4", ticks=ticks)
    _, copies = encode(source, TALL)
    starts = (np.array(ticks) - ticks[0]) * float(TIME_BASE)
    # 1 ms from every change of frames: at the start of each, and just before its end.
    times = np.concatenate([starts + 0.001, starts[1:] - 0.001, [starts[-1] + 9]])
    shown, copied = frames_at(source, times), frames_at(copies[TALL], times)
    worst = min(psnr(one, other) for one, other in zip(shown, copied, strict=True))
    assert worst > 38  # neighbours differ by the spot's three pixels: about 25 dB


@pytest.mark.parametrize("name", NUMBERED)
def test_copies_of_other_files_show_the_right_frame_for_as_long(tmp_path, name):
    source = write_video(tmp_path / name, **NUMBERED[name])
    _, copies = encode(source, 48)
    with PyavReader(str(source)) as one, PyavReader(str(copies[48])) as other:
        assert other.duration_seconds == one.duration_seconds
        times = np.random.default_rng(0).uniform(-0.1, one.duration_seconds + 0.3, 100)
        assert numbers_of(other.frames_at(times).pixels) == numbers_of(one.frames_at(times).pixels)


def test_times_survive_to_the_tick(tmp_path):
    _, copies = encode(write_smooth(tmp_path / "a.mp4", ticks=IRREGULAR), 32)
    with av.open(str(copies[32])) as container:
        stream = container.streams.video[0]
        assert stream.time_base == TIME_BASE
        pts = [packet.pts for packet in container.demux(stream) if packet.size]
    assert pts == [tick - IRREGULAR[0] for tick in IRREGULAR]


def test_every_frame_of_a_copy_is_a_keyframe(tmp_path):
    source = write_smooth(tmp_path / "a.mp4")
    _, copies = encode(source, 64, 32)
    for copy in copies.values():
        with av.open(str(copy)) as container:
            keys = [packet.is_keyframe for packet in container.demux(video=0) if packet.size]
        assert keys == [True] * len(REGULAR)


def test_a_smaller_level_is_the_picture_made_smaller(tmp_path):
    source = write_smooth(tmp_path / "a.mp4")
    video, copies = encode(source, 48)
    assert (video.levels[48].height, video.levels[48].width) == (48, 64)
    shown = frames_at(source, [0.5]).astype(float)
    averaged = shown.reshape(1, 48, 2, 64, 2, 3).mean(axis=(2, 4))
    assert psnr(averaged, frames_at(copies[48], [0.5])) > 36


def test_the_record_says_what_the_file_is(tmp_path):
    source = write_smooth(tmp_path / "a.mp4")
    video, copies = encode(source, 48)
    assert (video.path, video.num_frames, video.height, video.width) == ("a.mp4", 30, TALL, WIDE)
    assert video.duration_seconds == pytest.approx(1.0)
    assert video.stamp.size_bytes == source.stat().st_size
    assert video.levels[48].size_bytes == copies[48].stat().st_size


@pytest.mark.parametrize(
    "colours",
    [
        {"pix_fmt": "yuvj420p"},
        {"pix_fmt": "yuv444p"},
        {"pix_fmt": "yuv420p10le"},
        {"colorspace": "bt709"},
    ],
)
def test_other_pixel_formats_keep_their_colours(tmp_path, colours):
    source = write_smooth(tmp_path / "a.mp4", **colours)
    _, copies = encode(source, TALL)
    assert psnr(frames_at(source, [0.5]), frames_at(copies[TALL], [0.5])) > 36


def test_a_larger_quantizer_makes_smaller_files(tmp_path):
    source, sizes = write_smooth(tmp_path / "a.mp4"), []
    for quantizer in (2, 8, 30):
        store = store_in(tmp_path / str(quantizer))
        stamp = stamp_of(str(source))
        video = encode_video(source, "a.mp4", stamp, store, (TALL,), quantizer)
        sizes.append(video.levels[TALL].size_bytes)
    assert sizes[0] > 1.5 * sizes[1] > 1.5 * sizes[2]


def test_a_video_that_is_cut_short_has_no_copy(tmp_path):
    source = write_video(
        tmp_path / "a.mp4", options=LONG_GOP, container_options={"movflags": "faststart"}
    )
    source.write_bytes(source.read_bytes()[: source.stat().st_size // 2])
    with pytest.raises(VideoError):
        encode(source, 48)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [source]


# By hand: the factor is level / short side, at most 1; sides are rounded to even pixels, never above the source.
@pytest.mark.parametrize(
    ("source", "level", "size"),
    [
        ((256, 340), 320, (256, 340)),
        ((256, 340), 160, (160, 212)),
        ((340, 256), 160, (212, 160)),
        ((720, 1280), 320, (320, 568)),
        ((255, 341), 320, (254, 340)),
        ((255, 341), 160, (160, 214)),
    ],
)
def test_size_of_a_level(source, level, size):
    assert level_size(*source, level) == size


@pytest.mark.parametrize(
    ("source", "levels", "needed"),
    [
        ((256, 340), (320, 160), (160, 320)),
        ((128, 170), (320, 160), (160,)),
        ((160, 212), (160, 320, 80), (80, 160)),
    ],
)
def test_a_small_video_is_stored_once(source, levels, needed):
    assert distinct_levels(*source, levels) == needed
