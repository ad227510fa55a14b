"""Odd and broken files: each ends as frames or as one VideoError."""

from fractions import Fraction

import av
import numpy as np
import pytest
from videos import (
    GOP_8,
    LONG_GOP,
    TALL,
    TICKS_PER_FRAME,
    WIDE,
    numbers_of,
    picture,
    write_video,
    write_wav,
)

from mgexp.video.check import check_video
from mgexp.video.pyav import PyavReader
from mgexp.video.reader import VideoError


def read(path, times=(0.0, 0.55, 9.0)):
    with PyavReader(str(path)) as reader:
        assert reader.duration_seconds > 0
        return reader.frames_at(times).pixels


def mux_silence(container, stream, seconds):
    """Encodes the sound stream of a file at once."""
    frame = av.AudioFrame.from_ndarray(np.zeros((1, seconds * 44100), np.float32), "fltp", "mono")
    frame.sample_rate, frame.pts, frame.time_base = 44100, 0, Fraction(1, 44100)
    container.mux([*stream.encode(frame), *stream.encode()])


def add_video(container, codec, rate):
    stream = container.add_stream(codec, rate=rate)
    stream.width, stream.height, stream.pix_fmt = WIDE, TALL, "yuv420p"
    return stream


def mux_numbers(container, stream, rate, num_frames):
    """Encodes the video stream of a file at once."""
    for number in range(num_frames):
        frame = av.VideoFrame.from_ndarray(picture(number), format="rgb24")
        frame.pts, frame.time_base = number, Fraction(1, rate)
        container.mux(stream.encode(frame))
    container.mux(stream.encode())


def write_sound_mp4(path):
    with av.open(str(path), "w") as container:
        mux_silence(container, container.add_stream("aac", rate=44100), seconds=1)


def write_header_alone(path):
    """An mp4 in fragments, cut before the first of them."""
    write_video(path, container_options={"movflags": "frag_keyframe+empty_moov"})
    content = path.read_bytes()
    path.write_bytes(content[: content.index(b"moof") - 4])


def write_without_index(path):
    """An mp4 that was never finished: its index, at the end, is missing."""
    content = write_video(path).read_bytes()
    path.write_bytes(content[: content.index(b"moov") - 4])


NO_VIDEO = {
    "nothing.mp4": (lambda path: None, "cannot be opened: No such file"),
    "folder.mp4": (lambda path: path.mkdir(), "cannot be opened: Is a directory"),
    "empty.mp4": (lambda path: path.write_bytes(b""), "cannot be opened: Invalid data"),
    "empty.webm": (lambda path: path.write_bytes(b""), "cannot be opened: Invalid data"),
    "empty.ts": (lambda path: path.write_bytes(b""), "cannot be opened: Invalid data"),
    "text.mp4": (lambda path: path.write_text("not a video"), "cannot be opened: Invalid data"),
    "sound.wav": (write_wav, "has no video stream"),
    "sound.mp4": (write_sound_mp4, "has no video stream"),
    "no_frames.gif": (lambda path: path.write_bytes(b"GIF89a\1\0\1\0\0\0\0;"), "has no frame"),
    "no_frames.mp4": (write_header_alone, "has no frame"),
    "no_index.mp4": (write_without_index, "cannot be opened: Invalid data"),
}


@pytest.mark.parametrize("name", NO_VIDEO)
def test_a_file_without_frames_is_a_video_error_that_says_why(name, tmp_path):
    write, reason = NO_VIDEO[name]
    write(tmp_path / name)
    with pytest.raises(VideoError) as caught:
        read(tmp_path / name)
    assert caught.value.path == str(tmp_path / name)
    assert caught.value.reason.startswith(reason)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "ts"])
def test_one_frame_is_a_video(suffix, tmp_path):
    path = write_video(tmp_path / f"one.{suffix}", num_frames=1)
    assert numbers_of(read(path)) == [0, 0, 0]


def test_frames_cut_off_by_an_edit_list_are_not_shown(tmp_path):
    """The header counts 40 frames; a player begins with the eleventh, which needs the ten before."""
    ticks = [(number - 10) * TICKS_PER_FRAME for number in range(40)]
    path = write_video(tmp_path / "a.mp4", ticks=ticks, options=LONG_GOP)
    times = [-1.0, 0.002, 0.35, 0.95, 9.0]
    assert numbers_of(read(path, times)) == [10, 10, 20, 38, 39]


def test_frames_are_found_by_their_own_times_where_the_rate_varies(tmp_path):
    """One second at 30 frames per second, then a frame each second: the mean rate tells nothing."""
    ticks = [n * TICKS_PER_FRAME for n in range(30)] + [15360 * n for n in range(1, 11)]
    path = write_video(tmp_path / "a.mp4", ticks=ticks, options=LONG_GOP)
    times = [0.01, 0.55, 0.99, 1.5, 4.99, 5.01, 10.5]
    assert numbers_of(read(path, times)) == [0, 16, 29, 30, 33, 34, 39]


@pytest.mark.parametrize("share", [0.2, 0.6, 0.95])
@pytest.mark.parametrize("suffix", ["mp4", "mkv", "ts", "avi"])
def test_a_file_that_is_cut_ends_as_frames_or_as_one_error(share, suffix, tmp_path):
    """Formats that are read as they come show what is there; an mp4 says that it promised more."""
    how = {
        "options": GOP_8,
        "container_options": {"movflags": "faststart"} if suffix == "mp4" else {},
    }
    path = write_video(tmp_path / f"a.{suffix}", **how)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    try:
        first, _, last = numbers_of(read(path))
    except VideoError as error:
        assert error.reason.startswith(("is cut short", "cannot be opened", "has no frame"))
    else:
        assert suffix != "mp4"
        assert (first, last) < (1, 39)


def test_the_duration_of_a_program_stream_is_not_the_estimate_of_its_decoder(tmp_path):
    """FFmpeg says 1.6 s, so the end of the video would never be shown."""
    path = write_video(tmp_path / "a.mpg", 60, codec="mpeg2video", time_base=Fraction(1, 30))
    with PyavReader(str(path)) as reader:
        assert reader.duration_seconds == pytest.approx(2.0, abs=0.01)


def test_timestamps_that_do_not_grow_are_frames_all_the_same(tmp_path):
    """B-frames in AVI, which holds no display times: FFmpeg makes some up, in the wrong order."""
    options = {"bf": "2", "g": "12"}
    path = write_video(
        tmp_path / "a.avi", codec="mpeg4", options=options, time_base=Fraction(1, 30)
    )
    numbers = numbers_of(read(path, np.arange(40) / 30 + 0.002))
    assert numbers == sorted(numbers)
    assert (numbers[0], numbers[-1] > 36) == (0, True)


def test_a_fragmented_file_that_begins_with_sound_has_the_clock_of_its_video(tmp_path):
    """Its header counts no frames, and its first packet tells nothing of the delay of the B-frames."""
    path = tmp_path / "a.mp4"
    options = {"movflags": "frag_keyframe+empty_moov+default_base_moof"}
    with av.open(str(path), "w", options=options) as container:
        heard = container.add_stream("aac", rate=44100)
        stream = add_video(container, "libx264", 10)
        stream.codec_context.options = {"bf": "2", "g": "10", "sc_threshold": "0"}
        mux_silence(container, heard, seconds=3)
        mux_numbers(container, stream, 10, 30)
    for times in ([0.52], [0.82, 1.07], [1.52, 1.97], [0.0, 0.52]):
        assert numbers_of(read(path, times)) == [int(10 * time) for time in times]
    with PyavReader(str(path)) as reader:
        assert reader.duration_seconds == pytest.approx(3.0, abs=0.05)


@pytest.mark.parametrize(
    ("suffix", "codec"),
    [("mkv", "libx264"), ("mkv without tags", "libx264"), ("wmv", "msmpeg4v3"), ("flv", "flv")],
)
def test_a_video_ends_with_its_last_frame_however_long_its_sound_is(suffix, codec, tmp_path):
    path = tmp_path / f"a.{suffix[:3]}"
    with av.open(str(path), "w") as container:
        stream, heard = add_video(container, codec, 30), container.add_stream("aac", rate=44100)
        mux_numbers(container, stream, 30, 60)
        mux_silence(container, heard, seconds=5)
    if "without" in suffix:
        path.write_bytes(path.read_bytes().replace(b"DURATION", b"LENGTH__"))
    with PyavReader(str(path)) as reader:
        # A .wmv file and an .flv file do not say how long the last frame is on display.
        assert reader.duration_seconds == pytest.approx(2.0, abs=0.05)
    assert check_video(str(path), quick=False).duration_seconds == pytest.approx(2.0, abs=0.05)
