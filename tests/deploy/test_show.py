"""Overlays of files, whose label changes with time, and cameras that end, fail or are stopped."""

from __future__ import annotations

from dataclasses import replace

import av
import numpy as np
import pytest
import torch

from mgexp.deploy import show
from mgexp.deploy.overlay import default_font
from mgexp.deploy.show import Style, overlay_file, watch
from mgexp.deploy.stream import Source, Window
from mgexp.video.reader import VideoError

STYLE = Style(("dark", "bright"), 2, default_font())
WINDOW = Window(np.arange(4) / 30, 16, False, 0.2)


def brightness(clip):
    """A network that knows two classes."""
    share = clip.float().mean() / 255
    return torch.stack([1 - share, share])


@pytest.fixture
def video(tmp_path):
    """Two seconds, the first of them black and the second white."""
    path = tmp_path / "video.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=30)
        stream.height, stream.width, stream.pix_fmt = 240, 320, "yuv420p"
        for number in range(60):
            picture = np.full((240, 320, 3), 255 * (number >= 30), np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return path


def pictures(path):
    with av.open(str(path)) as container:
        return [(one.time, one.to_ndarray(format="rgb24")) for one in container.decode(video=0)]


def test_the_written_label_changes_when_the_video_does(video, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        show.Panel, "draw", lambda panel, picture, best: drawn.append(best) or picture
    )
    overlay_file(str(video), tmp_path / "out.mp4", WINDOW, brightness, STYLE)
    labels = [best[0][0] for best in drawn]
    assert len(labels) == 60
    # A clip has a middle each 0.2 s, so the label may change 0.1 s too early or too late.
    assert (set(labels[:27]), set(labels[33:])) == ({0}, {1})


def test_the_written_video_has_the_frames_and_times_of_the_file(video, tmp_path):
    overlay_file(str(video), tmp_path / "out.mp4", WINDOW, brightness, STYLE)
    found, wanted = pictures(tmp_path / "out.mp4"), pictures(video)
    assert [time for time, _ in found] == pytest.approx([time for time, _ in wanted], abs=1e-4)
    # The picture is the video's, and letters are below it.
    assert found[45][1][:240].mean() > 250
    assert (found[5][1][:240] < 50).all()
    assert (found[5][1][240:] > 200).any()
    # Two rows of a line of 14 pixels, with gaps of 2 around them.
    assert found[0][1].shape == (240 + 34, 320, 3)


def test_a_file_that_cannot_be_read_leaves_nothing(tmp_path):
    (tmp_path / "a.mp4").write_bytes(b"no video")
    with pytest.raises(VideoError):
        overlay_file(str(tmp_path / "a.mp4"), tmp_path / "out.mp4", WINDOW, brightness, STYLE)
    assert not (tmp_path / "out.mp4").exists()


def test_a_camera_is_watched_until_it_is_over_and_its_video_is_kept(video, tmp_path):
    seen = list(
        watch(
            Source(str(video)),
            WINDOW,
            brightness,
            1,
            (tmp_path / "out.mp4", STYLE),
            lambda t: t >= 1,
        )
    )
    assert [one.seconds for one in seen] == pytest.approx([0.05, 0.25, 0.45, 0.65, 0.85], abs=1e-3)
    assert {one.classes[0][0] for one in seen} == {0}
    assert len(pictures(tmp_path / "out.mp4")) == 31


def test_a_stream_may_be_watched_without_a_video(video):
    seen = list(watch(Source(str(video)), WINDOW, brightness, 2, None, lambda t: False))
    assert [one.classes[0][0] for one in seen][-3:] == [1, 1, 1]


@pytest.mark.parametrize("has_segments", [False, True])
def test_a_stream_that_ends_before_its_first_clip_is_complete_has_one_prediction(
    video, has_segments
):
    window = replace(WINDOW, steps=np.arange(2) * 5.0, has_segments=has_segments)
    (seen,) = watch(Source(str(video)), window, brightness, 1, None, lambda t: False)
    # The middle of the clip that was wanted, or of the two segments of the video.
    assert seen.seconds == pytest.approx(1.0 if has_segments else 2.5, abs=0.05)
    # The last frame is repeated, and half of the video is white.
    assert seen.classes[0][1] == pytest.approx(0.5, abs=0.01)


def test_a_camera_that_fails_later_gives_an_error_and_its_video_is_kept(
    video, tmp_path, monkeypatch
):
    original = show.SlidingClips.add

    def unplugged(clips, seconds, picture):
        if seconds > 0.5:
            raise VideoError("camera", "is gone")
        return original(clips, seconds, picture)

    monkeypatch.setattr(show.SlidingClips, "add", unplugged)
    arguments = (Source(str(video)), WINDOW, brightness, 1, (tmp_path / "out.mp4", STYLE))
    *seen, last = watch(*arguments, lambda t: False)
    assert len(seen) == 3
    assert last.error == "camera: is gone"
    assert len(pictures(tmp_path / "out.mp4")) == 16


def test_a_camera_that_does_not_begin_is_an_error(tmp_path):
    source = Source(str(tmp_path / "lost"), "v4l2")
    with pytest.raises(VideoError, match="No such file"):
        list(watch(source, WINDOW, brightness, 1, (tmp_path / "out.mp4", STYLE), lambda t: False))
    assert list(tmp_path.iterdir()) == []
