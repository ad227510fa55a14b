"""That torchcodec decodes what it can, and that what it gets wrong is noticed."""

import numpy as np
import pytest
from decode_files import FILES, NEEDS_TORCHCODEC, numbers_on_display, random_times, write_files
from videos import LONG_GOP, decode_all, numbers_of, write_video

from mgexp.video import torchcodec_reader as decode_torchcodec
from mgexp.video.pyav import PyavReader
from mgexp.video.reader import VideoError
from mgexp.video.torchcodec_reader import TorchcodecReader

pytestmark = NEEDS_TORCHCODEC
BY_TORCHCODEC = [name for name in FILES if not name.endswith(".avi")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("videos"))


def forbid_pyav(monkeypatch):
    def fail(*_):
        raise AssertionError("PyAV decoded")

    monkeypatch.setattr(PyavReader, "_decode_from_start", fail)
    monkeypatch.setattr(PyavReader, "_decode_run", fail)


@pytest.mark.parametrize("name", BY_TORCHCODEC)
def test_torchcodec_gives_the_pixels_of_a_plain_decoder_by_itself(folder, name, monkeypatch):
    forbid_pyav(monkeypatch)
    every_frame = decode_all(folder / name)
    rng = np.random.default_rng(0)
    with TorchcodecReader(str(folder / name)) as reader:
        for _ in range(10):
            times = random_times(name, rng)
            expected = every_frame[numbers_on_display(name, times)]
            np.testing.assert_array_equal(reader.frames_at(times).rgb(), expected)


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "ts"])
def test_both_decoders_say_the_same_duration(tmp_path, suffix):
    path = str(write_video(tmp_path / f"a.{suffix}", options=LONG_GOP))
    with PyavReader(path) as pyav, TorchcodecReader(path) as torchcodec:
        assert pyav.duration_seconds == torchcodec.duration_seconds > 1


class Shifted:
    """A decoder that gives the frame before the wanted one, with its own timestamp."""

    def __init__(self, decoder):
        self.decoder = decoder

    def get_frames_at(self, indices):
        return self.decoder.get_frames_at([index - 1 for index in indices])


class Failing:
    """A decoder that cannot read the file."""

    def __init__(self, decoder):
        pass

    def get_frames_at(self, indices):
        raise RuntimeError("Could not push packet to decoder")


@pytest.mark.parametrize("wrong", [Shifted, Failing])
def test_what_torchcodec_gets_wrong_is_decoded_by_pyav(folder, wrong, monkeypatch):
    right = decode_torchcodec._decoder
    monkeypatch.setattr(decode_torchcodec, "_decoder", lambda *a, **k: wrong(right(*a, **k)))
    with TorchcodecReader(str(folder / "gop_8.mp4")) as reader:
        assert numbers_of(reader.frames_at([0.11, 0.55]).rgb()) == [3, 16]


def test_avi_files_are_left_to_pyav(folder, monkeypatch):
    monkeypatch.setattr(decode_torchcodec, "_decoder", None)
    with TorchcodecReader(str(folder / "mpeg4.avi")) as reader:
        assert numbers_of(reader.frames_at([0.11]).rgb()) == [3]


def outcome(opener, path):
    """The shape of the clip of a file, or why there is none."""
    try:
        with opener(str(path)) as reader:
            return reader.frames_at([0.0, 0.55, reader.duration_seconds]).rgb().shape
    except VideoError as error:
        return error.reason


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "ts", "avi", "webm"])
def test_what_pyav_reads_of_a_damaged_file_torchcodec_reads_too(suffix, tmp_path):
    """Bytes overwritten at random anywhere: each file ends, by both, as a clip or one VideoError."""
    codec = {"avi": "mpeg4", "webm": "libvpx-vp9"}.get(suffix, "libx264")
    whole = write_video(tmp_path / f"a.{suffix}", codec=codec, options={"g": "8"}).read_bytes()
    rng = np.random.default_rng(0)
    for number in range(20):
        content = bytearray(whole)
        for place in rng.integers(0, len(content) - 8, 3):
            content[place : place + 8] = rng.bytes(8)
        path = tmp_path / f"damaged{number}.{suffix}"
        path.write_bytes(content)
        pyav, torchcodec = outcome(PyavReader, path), outcome(TorchcodecReader, path)
        assert torchcodec == pyav or isinstance(pyav, str)
