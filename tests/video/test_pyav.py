"""The short cuts of the PyAV decoder: that they are taken, and give what decoding from the start gives."""

import av
import numpy as np
import pytest
from decode_files import FILES, NUM_FRAMES, numbers_on_display, random_times, starts_of, write_files
from odd_videos import write_pictures
from videos import LONG_GOP, decode_all, frames_at, numbers_of, write_video

from mgexp.video.pyav import PyavReader, plan_runs
from mgexp.video.reader import VideoError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("videos"))


def forbid(monkeypatch, method):
    def fail(*_):
        raise AssertionError(f"{method} was called")

    monkeypatch.setattr(PyavReader, method, fail)


def no_frames():
    """A short cut that is not certain of anything."""
    return False
    yield


@pytest.mark.parametrize("name", FILES)
def test_the_short_cut_gives_the_pixels_of_a_plain_decoder(folder, name, monkeypatch):
    forbid(monkeypatch, "_decode_from_start")
    every_frame = decode_all(folder / name)
    rng = np.random.default_rng(0)
    with PyavReader(str(folder / name)) as reader:
        for _ in range(20):
            times = random_times(name, rng)
            expected = every_frame[numbers_on_display(name, times)]
            np.testing.assert_array_equal(reader.frames_at(times).pixels, expected)


@pytest.mark.parametrize("name", FILES)
def test_every_frame_alone(folder, name, monkeypatch):
    forbid(monkeypatch, "_decode_from_start")
    starts = starts_of(name)
    with PyavReader(str(folder / name)) as reader:
        frames = np.concatenate([reader.frames_at([start + 0.002]).pixels for start in starts])
    assert numbers_of(frames) == list(range(NUM_FRAMES))


@pytest.mark.parametrize("name", FILES)
def test_decoding_from_the_start_gives_the_same(folder, name, monkeypatch):
    monkeypatch.setattr(PyavReader, "_decode_wanted", lambda *_: no_frames())
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
        monkeypatch.setattr(PyavReader, "_decode_wanted", lambda *_: no_frames())
    # A sum of thirtieths: some of the times are a rounding error early.
    times = np.cumsum([0] + [1 / 30] * (NUM_FRAMES - 1))
    assert numbers_of(frames_at(folder / name, times)) == list(range(NUM_FRAMES))


def test_frames_that_come_out_of_order_are_not_trusted(folder, monkeypatch):
    in_order = PyavReader._decode_run
    monkeypatch.setattr(PyavReader, "_decode_run", lambda *run: reversed([*in_order(*run)]))
    from_start, starts = PyavReader._decode_from_start, []

    def spy(reader, times):
        starts.append(times)
        return from_start(reader, times)

    monkeypatch.setattr(PyavReader, "_decode_from_start", spy)
    assert numbers_of(frames_at(folder / "long_gop.mp4", [0.0, 0.5])) == [0, 15]
    assert starts == [[0.0, 0.5]]


def test_a_change_of_size_is_an_error_wherever_the_first_frame_is(tmp_path):
    """The size is that of the frames on display at the times, not what the header says."""
    sizes = [(64, 48)] * 10 + [(48, 48)] * 10
    path = write_pictures(tmp_path / "a.mkv", sizes, range(20))
    with PyavReader(str(path)) as reader:
        for times, size in (([0.1, 0.5], (48, 64)), ([1.2, 1.8], (48, 48))):
            found = reader.frames_at(times)
            assert (found.size, found.pixels.shape) == (size, (2, *size, 3))
        with pytest.raises(VideoError, match=r"changes shape: \(48, 64\), then \(48, 48\)"):
            reader.frames_at([1.5, 0.5])


def test_a_file_without_certain_times_is_decoded_from_its_start(tmp_path):
    path = write_video(tmp_path / "video.ts", NUM_FRAMES, options=LONG_GOP)
    assert numbers_of(frames_at(path, [0.55, 0.01, 9.0])) == [16, 0, NUM_FRAMES - 1]
    assert numbers_of(frames_at(path, [0.35])) == [10]


def test_an_avi_with_b_frames_has_no_times_of_display(tmp_path):
    """Its packets have those of decoding, as recorders write them."""
    options = {"bf": "3", "g": "10", "x264-params": "b-adapt=0"}
    path = write_video(tmp_path / "video.avi", NUM_FRAMES, options=options)
    times = (np.arange(NUM_FRAMES) + 0.5) / 30
    assert numbers_of(frames_at(path, times)) == list(range(NUM_FRAMES))
    assert numbers_of(frames_at(path, [0.55, 0.01, 0.35])) == [16, 0, 10]


def test_the_open_gop_file_is_one(folder):
    """Otherwise the tests above would say nothing about open groups of pictures."""
    with av.open(str(folder / "open_gop.mp4")) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
    keys = [index for index, packet in enumerate(packets) if packet.is_keyframe]
    assert any(packets[key + 1].pts < packets[key].pts for key in keys[:-1])


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
