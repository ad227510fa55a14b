"""Clips of a window that slides over a stream: the pixels of evaluation, the moments, and what is kept."""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from tiny import tiny_config

from mgexp.data.records import VideoRecord
from mgexp.data.views import EvaluationViews
from mgexp.deploy import stream
from mgexp.deploy.stream import (
    SlidingClips,
    Source,
    Timeline,
    Window,
    build_window,
    camera,
    open_frames,
    timeline,
)
from mgexp.errors import InputError
from mgexp.video.pyav import PyavReader
from mgexp.video.reader import VideoError

FRAMES, CROP = 8, 24


def window(stride=1, every=0.1):
    return Window(np.arange(FRAMES) * (stride / 30), CROP, False, every)


def evaluated(path, stride, num_views):
    """The first view of evaluation: it begins with the video."""
    views = EvaluationViews(
        [VideoRecord(str(path), 0)], frames=FRAMES, stride=stride, crop=CROP, target_fps=30.0,
        num_views=num_views, num_crops=1, opener=PyavReader,
    )  # fmt: skip
    return views[0].frames.permute(0, 4, 1, 2, 3)


def clips_of(path, shown):
    """The clips of a file, and those at its end."""
    clips = SlidingClips(shown)
    with open_frames(Source(str(path))) as frames:
        found = [made for one in frames if (made := clips.add(*one))]
    return found, clips.rest()


def test_the_first_clip_has_the_pixels_of_the_first_view_of_evaluation(tiny_data):
    found, _ = clips_of(tiny_data / "val0.mp4", window())
    assert torch.equal(found[0][1], evaluated(tiny_data / "val0.mp4", 1, 2))


def test_a_video_shorter_than_the_window_gives_the_view_of_evaluation(tiny_data):
    found, rest = clips_of(tiny_data / "val0.mp4", window(stride=6))
    assert found == []
    assert torch.equal(rest[1], evaluated(tiny_data / "val0.mp4", 6, 1))


def test_a_short_video_on_a_grid_of_segments_is_cut_into_as_many_segments(tiny_data):
    shown = Window(np.arange(FRAMES) / 2, CROP, True, 0.5)
    _, rest = clips_of(tiny_data / "val0.mp4", shown)
    assert torch.equal(rest[1], evaluated(tiny_data / "val0.mp4", None, 1))


def test_the_window_moves_by_every_seconds(tiny_data):
    found, rest = clips_of(tiny_data / "val0.mp4", window(every=0.2))
    # 24 frames at 30 per second: the windows of 7/30 s that begin at 0, 0.2 and 0.4 s are complete.
    middles = [0.2 * number + 7 / 60 for number in range(3)]
    assert [middle for middle, _ in found] == pytest.approx(middles, abs=1e-6)
    assert rest is None


def test_after_a_gap_of_the_camera_the_window_is_where_the_camera_is():
    clips, picture = SlidingClips(window()), np.zeros((32, 40, 3), np.uint8)
    times = [number / 30 for number in range(30)] + [10 + number / 30 for number in range(30)]
    middles = [made[0] for one in times if (made := clips.add(one, picture))]
    # The clip that ended at the gap is late, and the clips inside the gap are left out.
    assert [middle for middle in middles if 1 < middle < 9.6] == []
    assert all(after > before for before, after in pairwise(middles))
    assert middles[-1] > 10.5


def test_no_more_frames_are_kept_than_a_window_needs():
    clips, picture = SlidingClips(window()), np.zeros((32, 40, 3), np.uint8)
    for number in range(300):
        clips.add(number / 30, picture)
    assert (
        len(clips._squares) <= FRAMES + 3 + 1
    )  # the window, a step of 0.1 s, and the frame before


def test_no_frames_are_kept_between_clips_that_are_far_apart():
    clips, picture = (
        SlidingClips(replace(window(), every_seconds=9.0)),
        np.zeros((32, 40, 3), np.uint8),
    )
    most = 0
    for number in range(600):
        clips.add(number / 30, picture)
        most = max(most, len(clips._squares))
    assert most <= FRAMES + 2
    assert clips._num_clips == 3


def test_a_frame_shows_the_clip_whose_middle_is_nearest():
    line = Timeline((1.0, 2.0), (torch.tensor([1.0]), torch.tensor([2.0])))
    assert [line.at(second).item() for second in (0.0, 1.4, 1.6, 9.0)] == [1, 1, 2, 2]


def test_the_timeline_of_a_short_video_has_one_clip(tiny_data):
    with open_frames(Source(str(tiny_data / "val0.mp4"))) as frames:
        line = timeline(frames, window(stride=6), lambda clip: clip.float().mean()[None])
    assert len(line.middles) == 1


def test_the_window_is_that_of_the_full_shape(tmp_path):
    shown = build_window(tiny_config(tmp_path, {"DATA.SAMPLING_RATE": 3}), 0.5)
    assert list(shown.steps) == pytest.approx([number / 10 for number in range(8)])
    assert (shown.crop, shown.has_segments) == (32, False)


def test_a_run_that_sees_frames_in_another_order_is_refused(tmp_path):
    with pytest.raises(InputError, match="sees frames reversed"):
        build_window(tiny_config(tmp_path, {"TEST.FRAME_ORDER": "reversed"}), 0.5)


def test_a_clip_of_segments_spans_what_is_asked_for(tmp_path):
    keys = {"DATA.TEMPORAL_GRID": "segments", "TEST.NUM_ENSEMBLE_VIEWS": 1}
    cfg = tiny_config(tmp_path, keys)
    # The middles of eight equal parts of 0.8 s, and of 4 s.
    assert build_window(cfg, 0.5, 0.8).steps.tolist() == pytest.approx(
        [0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75]
    )
    assert build_window(cfg, 0.5).last_seconds == pytest.approx(3.75)
    with pytest.raises(InputError, match=r"--span 0\.8: the stride of this run decides"):
        build_window(tiny_config(tmp_path, {}), 0.5, 0.8)


def test_a_camera_that_does_not_exist_is_named_with_those_that_do(monkeypatch, tmp_path):
    (tmp_path / "video3").write_text("")
    monkeypatch.setattr(stream, "_devices", lambda: tmp_path.glob("video*"))
    with pytest.raises(
        InputError, match=r"--webcam 77: there is no device /dev/video77; give one of 3"
    ):
        camera("77")


def test_a_machine_without_cameras_says_so(monkeypatch):
    monkeypatch.setattr(stream, "_devices", lambda: iter(()))
    with pytest.raises(InputError, match="this machine has no camera"):
        camera("77")


def test_an_index_is_a_v4l2_device_and_anything_else_a_name(monkeypatch):
    monkeypatch.setattr(stream.Path, "exists", lambda path: True)
    assert camera("0") == Source("/dev/video0", "v4l2")
    assert camera("rtsp://a/b") == Source("rtsp://a/b")


def test_pyav_has_the_format_of_cameras(tmp_path):
    """The error is that of the device, not of an unknown format."""
    lost = str(tmp_path / "video0")
    with pytest.raises(VideoError, match="No such file"), open_frames(Source(lost, "v4l2")):
        pass


def test_a_file_without_pictures_is_an_error(tmp_path):
    (tmp_path / "a.mp4").write_bytes(b"no video")
    with (
        pytest.raises(VideoError, match=r"a.mp4: cannot be opened"),
        open_frames(Source(str(tmp_path / "a.mp4"))),
    ):
        pass


def test_an_error_of_the_network_is_not_taken_for_one_of_the_file(tiny_data):
    def fail(clip):
        raise RuntimeError("out of memory")

    with open_frames(Source(str(tiny_data / "val0.mp4"))) as frames:  # noqa: SIM117
        with pytest.raises(RuntimeError, match="out of memory"):
            timeline(frames, window(), fail)


def test_a_picture_that_is_stored_on_its_side_is_upright(tiny_data, tmp_path):
    content = bytearray((tiny_data / "val0.mp4").read_bytes())
    # The matrix in the track header (ISO/IEC 14496-12, 8.3.2): a quarter turn clockwise of 32 rows.
    start, one = content.index(b"tkhd") + 44, 1 << 16
    content[start : start + 36] = struct.pack(">9i", 0, one, 0, -one, 0, 0, 32 * one, 0, 1 << 30)
    (tmp_path / "turned.mp4").write_bytes(content)
    with open_frames(Source(str(tmp_path / "turned.mp4"))) as frames:
        _, turned = next(frames)
    with PyavReader(str(tiny_data / "val0.mp4")) as video:
        assert np.array_equal(turned, np.rot90(video.frames_at([0.0]).rgb()[0], -1))
