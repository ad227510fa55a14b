"""Frames at given times, against the numbers that the frames show and against a plain decoder."""

import pickle
import wave

import av
import numpy as np
import pytest
from videos import (
    GOP_8,
    INTRA,
    LONG_GOP,
    OPEN_GOP,
    TALL,
    TICKS_PER_FRAME,
    TIME_BASE,
    WIDE,
    decode_all,
    numbers_of,
    picture,
    write_video,
)

from mgexp.data.decode import VideoError, VideoReader, open_video, plan_runs

NUM_FRAMES = 40
REGULAR = [number * TICKS_PER_FRAME for number in range(NUM_FRAMES)]
LATE = [3 * 15360 + tick for tick in REGULAR]
IRREGULAR = np.cumsum(np.random.default_rng(1).integers(60, 2000, NUM_FRAMES)).tolist()
FILES = {
    "intra.mp4": {"options": INTRA},
    "gop_8.mp4": {"options": GOP_8},
    "long_gop.mp4": {"options": LONG_GOP},
    "closed_gop_with_b_frames.mp4": {"options": LONG_GOP | {"g": "12"}},
    "open_gop.mp4": {"options": OPEN_GOP},
    "irregular.mp4": {"options": LONG_GOP | {"g": "12"}, "ticks": IRREGULAR},
    "irregular_intra.mp4": {"options": INTRA, "ticks": IRREGULAR},
    "late.mp4": {"options": GOP_8, "ticks": LATE},
    "late.mkv": {"options": OPEN_GOP, "ticks": LATE},
    "no_edit_list.mp4": {"options": LONG_GOP, "container_options": {"use_editlist": "0"}},
    "mpeg4.mp4": {"codec": "mpeg4", "options": {"g": "12", "sc_threshold": "1000000000"}},
    "mpeg4.avi": {"codec": "mpeg4", "options": {"g": "12", "sc_threshold": "1000000000"}},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("videos")
    for name, how in FILES.items():
        write_video(path / name, **{"ticks": REGULAR, **how})
    return path


def seconds(ticks):
    return (np.array(ticks) - ticks[0]) * float(TIME_BASE)


def numbers_on_display(name, times):
    """The rule, frame by frame: the last one that is not later than the time, else the first."""
    starts = seconds(FILES[name].get("ticks", REGULAR))
    return [max((number for number, s in enumerate(starts) if s <= t), default=0) for t in times]


def random_times(name, rng):
    """Unsorted, some repeated, from before the video to past its end.

    They are 2 ms away from any change of frames, since Matroska rounds times to milliseconds.
    """
    starts = seconds(FILES[name].get("ticks", REGULAR))
    times = rng.uniform(-0.1, starts[-1] + 0.5, rng.integers(1, 9))
    times = np.concatenate([times, rng.choice(times, 4)])
    return [t for t in times if np.abs(starts - t).min() > 0.002] or [0.01]


def frames_at(path, times):
    with open_video(str(path)) as reader:
        return reader.frames_at(times)


def forbid(monkeypatch, method):
    def fail(*_):
        raise AssertionError(f"{method} was called")

    monkeypatch.setattr(VideoReader, method, fail)


@pytest.mark.parametrize("name", FILES)
def test_frames_are_those_on_display(folder, name):
    rng = np.random.default_rng(0)
    for _ in range(10):
        times = random_times(name, rng)
        assert numbers_of(frames_at(folder / name, times)) == numbers_on_display(name, times)


@pytest.mark.parametrize("name", FILES)
def test_the_short_cut_gives_the_pixels_of_a_plain_decoder(folder, name, monkeypatch):
    forbid(monkeypatch, "_decode_from_start")
    every_frame = decode_all(folder / name)
    rng = np.random.default_rng(0)
    with open_video(str(folder / name)) as reader:
        for _ in range(20):
            times = random_times(name, rng)
            expected = every_frame[numbers_on_display(name, times)]
            np.testing.assert_array_equal(reader.frames_at(times), expected)


@pytest.mark.parametrize("name", FILES)
def test_every_frame_alone(folder, name, monkeypatch):
    forbid(monkeypatch, "_decode_from_start")
    starts = seconds(FILES[name].get("ticks", REGULAR))
    with open_video(str(folder / name)) as reader:
        frames = np.concatenate([reader.frames_at([start + 0.002]) for start in starts])
    assert numbers_of(frames) == list(range(NUM_FRAMES))


@pytest.mark.parametrize("name", FILES)
def test_decoding_from_the_start_gives_the_same(folder, name, monkeypatch):
    monkeypatch.setattr(VideoReader, "_decode_wanted", lambda *_: None)
    rng = np.random.default_rng(0)
    for _ in range(5):
        times = random_times(name, rng)
        assert numbers_of(frames_at(folder / name, times)) == numbers_on_display(name, times)


@pytest.mark.parametrize("short_cut", [True, False])
@pytest.mark.parametrize("name", ["intra.mp4", "open_gop.mp4", "late.mp4"])
def test_a_frame_is_on_display_from_its_own_time_on(folder, name, short_cut, monkeypatch):
    if short_cut:
        forbid(monkeypatch, "_decode_from_start")
    else:
        monkeypatch.setattr(VideoReader, "_decode_wanted", lambda *_: None)
    # A sum of thirtieths: some of the times are a rounding error early.
    times = np.cumsum([0] + [1 / 30] * (NUM_FRAMES - 1))
    assert numbers_of(frames_at(folder / name, times)) == list(range(NUM_FRAMES))


def test_frames_that_come_out_of_order_are_not_trusted(folder, monkeypatch):
    in_order = VideoReader._decode_run
    monkeypatch.setattr(VideoReader, "_decode_run", lambda *run: reversed([*in_order(*run)]))
    monkeypatch.setattr(VideoReader, "_decode_from_start", lambda *_: "from the start")
    assert frames_at(folder / "long_gop.mp4", [0.0, 0.5]) == "from the start"


def test_the_open_gop_file_is_one(folder):
    """Otherwise the tests above would say nothing about open groups of pictures."""
    with av.open(str(folder / "open_gop.mp4")) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
    keys = [index for index, packet in enumerate(packets) if packet.is_keyframe]
    assert any(packets[key + 1].pts < packets[key].pts for key in keys[:-1])


def test_a_file_without_certain_times_is_decoded_from_its_start(tmp_path):
    path = write_video(tmp_path / "video.ts", NUM_FRAMES, options=LONG_GOP)
    assert numbers_of(frames_at(path, [0.55, 0.01, 9.0])) == [16, 0, NUM_FRAMES - 1]
    assert numbers_of(frames_at(path, [0.35])) == [10]


def test_frames_are_rgb_in_the_order_of_the_times(folder):
    frames = frames_at(folder / "intra.mp4", [0.5, 0.0])
    assert (frames.shape, frames.dtype) == ((2, TALL, WIDE, 3), np.uint8)
    np.testing.assert_array_equal(frames, decode_all(folder / "intra.mp4")[[15, 0]])


@pytest.mark.parametrize("name", ["gop_8.mp4", "late.mp4", "late.mkv"])
def test_a_file_says_how_long_it_is(folder, name):
    with open_video(str(folder / name)) as reader:
        assert reader.duration_seconds == pytest.approx(NUM_FRAMES / 30, abs=0.002)


def test_a_duration_that_the_header_lacks_is_measured(tmp_path):
    options = {"live": "1"}  # as browsers record
    path = write_video(tmp_path / "live.mkv", NUM_FRAMES, container_options=options)
    with open_video(str(path)) as reader:
        assert reader.duration_seconds == pytest.approx(NUM_FRAMES / 30, abs=0.002)


def test_a_file_with_the_wrong_suffix_opens(tmp_path):
    path = write_video(tmp_path / "video.mkv", NUM_FRAMES)
    assert numbers_of(frames_at(path.rename(tmp_path / "video.mp4"), [0.55])) == [16]


def write_sound(path):
    with wave.open(str(path), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(bytes(8000))


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (lambda path: None, "cannot be opened: No such file or directory"),
        (lambda path: path.write_bytes(b""), "cannot be opened: Invalid data"),
        (lambda path: path.write_text("not a video"), "cannot be opened: Invalid data"),
        (write_sound, "has no video stream"),
    ],
)
def test_a_file_that_is_no_video_is_a_video_error(tmp_path, write, reason):
    path = tmp_path / "file.mp4"
    write(path)
    with pytest.raises(VideoError) as caught:
        frames_at(path, [0.0])
    assert caught.value.path == str(path)
    assert caught.value.reason.startswith(reason)


@pytest.fixture(params=[INTRA, LONG_GOP], ids=["intra", "long_gop"])
def cut_short(tmp_path, request):
    """A file whose header, at its start, promises 40 frames, of which about half are there."""
    how = {"options": request.param, "container_options": {"movflags": "faststart"}}
    path = write_video(tmp_path / "cut.mp4", NUM_FRAMES, **how)
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 6 // 10])
    return path


@pytest.mark.parametrize("times", [[0.1, 1.2], [9.0]])
def test_a_file_that_is_cut_short_is_a_video_error(cut_short, times):
    with pytest.raises(VideoError, match="cut short"):
        frames_at(cut_short, times)


def test_of_a_file_that_is_cut_short_the_frames_before_can_be_read(cut_short):
    assert numbers_of(frames_at(cut_short, [0.01, 0.11])) == [0, 3]


def test_damaged_frames_are_a_video_error(tmp_path):
    path = write_video(tmp_path / "damaged.mp4", NUM_FRAMES, options=GOP_8)
    content = bytearray(path.read_bytes())
    start = content.index(b"mdat") + 3000
    content[start : start + 2000] = bytes(2000)
    path.write_bytes(content)
    with pytest.raises(VideoError, match=r"damaged\.mp4: cannot be decoded"):
        frames_at(path, np.arange(NUM_FRAMES) / 30)


def write_two_sizes(path):
    """One stream of 20 frames of WIDE x TALL pixels and 20 of TALL x TALL."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=30)
        wide, square = stream.codec_context, av.CodecContext.create("libx264", "w")
        for encoder, width, numbers in ((wide, WIDE, range(20)), (square, TALL, range(20, 40))):
            encoder.width, encoder.height, encoder.pix_fmt = width, TALL, "yuv420p"
            encoder.time_base = TIME_BASE
            frames = [av.VideoFrame.from_ndarray(picture(n)[:, :width].copy()) for n in numbers]
            for number, frame in zip(numbers, frames, strict=True):
                frame.pts, frame.time_base = REGULAR[number], TIME_BASE
            for packet in [packet for frame in [*frames, None] for packet in encoder.encode(frame)]:
                packet.stream = stream
                container.mux(packet)


def test_frames_of_two_sizes_are_a_video_error(tmp_path):
    write_two_sizes(tmp_path / "two.ts")
    with pytest.raises(VideoError, match=r"changes shape: \(48, 64, 3\), then \(48, 48, 3\)"):
        frames_at(tmp_path / "two.ts", [0.1, 1.0])


def test_an_error_of_the_caller_stays_its_own(folder):
    with pytest.raises(ValueError, match="mine"), open_video(str(folder / "intra.mp4")):
        raise ValueError("mine")


def test_a_video_error_travels_between_processes():
    error = pickle.loads(pickle.dumps(VideoError("a.mp4", "is broken")))
    assert (error.path, error.reason, str(error)) == ("a.mp4", "is broken", "a.mp4: is broken")


CLOSED = [0, 1, 2, 3, 4, 5, 6, 7, 8]
OPEN = [0, 2, 1, 5, 3, 4, 8, 6, 7]


@pytest.mark.parametrize(
    ("pts", "keys", "targets", "runs"),
    [
        (CLOSED, [0, 3, 6], [1], [(0, 2)]),  # from the keyframe to the target, no further
        (CLOSED, [0, 3, 6], [3], [(3, 4)]),
        (CLOSED, [0, 3, 6], [1, 8], [(0, 2), (6, 9)]),  # the group between is left out
        (CLOSED, [0, 3, 6], [2, 4], [(0, 5)]),  # nothing is left out: one run
        (CLOSED, CLOSED, [1, 4, 5, 7], [(1, 2), (4, 6), (7, 8)]),  # intra-coded
        (OPEN, [0, 3, 6], [4], [(0, 5)]),  # displayed before keyframe 3: needs the group before
        (OPEN, [0, 3, 6], [6], [(6, 7)]),
        (OPEN, [0, 3, 6], [6, 7], [(3, 8)]),  # a keyframe and a frame displayed before it
        (OPEN, [0, 3, 6], [1, 6, 7], [(0, 2), (3, 8)]),
        (OPEN, [0, 3, 6], [1, 3, 4], [(0, 5)]),
    ],
)
def test_runs_hold_what_the_targets_need(pts, keys, targets, runs):
    assert [(run.start, run.stop) for run in plan_runs(pts, keys, targets)] == runs
