"""Which decoder DATA.DECODING_BACKEND gives, and what it says where that one does not work."""

import pickle

import pytest
from decode_files import NEEDS_TORCHCODEC
from videos import numbers_of, write_video

from mgexp.config.load import load_config
from mgexp.data.loader import build_opener
from mgexp.errors import InputError
from mgexp.video import torchcodec_reader as decode_torchcodec
from mgexp.video.frame_folder import FilesAndFolders
from mgexp.video.pyav import PyavReader
from mgexp.video.reader import VideoError, choose_decoder
from mgexp.video.torchcodec_reader import TorchcodecReader

ROW = "experiments/quickstart/baseline.yaml"


def assume(monkeypatch, fault):
    monkeypatch.setattr(decode_torchcodec, "fault", lambda: fault)
    monkeypatch.setattr(decode_torchcodec, "version", lambda: "torchcodec 0.17 with FFmpeg 7")


@pytest.mark.parametrize(
    ("backend", "fault", "name", "opener"),
    [
        ("auto", "", "torchcodec 0.17 with FFmpeg 7", TorchcodecReader),
        ("auto", "no FFmpeg", "PyAV ", PyavReader),
        ("torchcodec", "", "torchcodec 0.17 with FFmpeg 7", TorchcodecReader),
        ("pyav", "", "PyAV ", PyavReader),
    ],
)
def test_the_decoder_is_the_one_asked_for(backend, fault, name, opener, monkeypatch):
    assume(monkeypatch, fault)
    decoder = choose_decoder(backend)
    assert decoder.name.startswith(name)
    assert decoder.opener == FilesAndFolders(opener, 30.0)


def test_a_decoder_that_does_not_work_is_refused_with_what_to_install(monkeypatch):
    assume(monkeypatch, "Could not load libtorchcodec")
    with pytest.raises(InputError) as caught:
        choose_decoder("torchcodec")
    (problem,) = caught.value.problems
    for words in (
        "DATA.DECODING_BACKEND",
        "Could not load libtorchcodec",
        "apt-get install ffmpeg",
    ):
        assert words in problem


@pytest.mark.parametrize(("fault", "opener"), [("", TorchcodecReader), ("none", PyavReader)])
def test_loaders_decode_as_the_configuration_says(fault, opener, monkeypatch):
    assume(monkeypatch, fault)
    cfg = load_config(ROW, ["DATA.DECODING_BACKEND", "auto", "DATA.FRAMES_FPS", "12"])
    assert build_opener(cfg) == FilesAndFolders(opener, 12.0)


@NEEDS_TORCHCODEC
def test_auto_decodes_by_torchcodec_where_it_works(tmp_path):
    decoder = choose_decoder("auto")
    assert decoder.name.startswith("torchcodec 0.")
    with decoder.opener(str(write_video(tmp_path / "a.mp4"))) as reader:
        assert numbers_of(reader.frames_at([0.55]).rgb()) == [16]


@pytest.mark.parametrize("opener", [PyavReader, TorchcodecReader])
def test_openers_travel_to_workers(opener):
    assert pickle.loads(pickle.dumps(opener)) is opener


def test_a_video_error_travels_between_processes():
    error = pickle.loads(pickle.dumps(VideoError("a.mp4", "is broken")))
    assert (error.path, error.reason, str(error)) == ("a.mp4", "is broken", "a.mp4: is broken")


def without_package(name):
    raise decode_torchcodec.metadata.PackageNotFoundError(name)


@pytest.mark.parametrize(
    ("version", "reason"),
    [(without_package, "not installed"), (lambda _: "0.10.1", "0.10.1 is older than 0.12")],
)
def test_the_fault_says_why_torchcodec_cannot_be_used(version, reason, monkeypatch):
    monkeypatch.setattr(decode_torchcodec.metadata, "version", version)
    assert reason in decode_torchcodec.fault.__wrapped__()


@pytest.mark.parametrize("error", [ImportError, OSError, RuntimeError])
def test_a_torchcodec_that_fails_on_the_sample_is_a_fault(error, monkeypatch):
    def fail(*_, **__):
        raise error("Could not load\n   libtorchcodec")

    monkeypatch.setattr(decode_torchcodec.metadata, "version", lambda _: "0.12.0")
    monkeypatch.setattr(decode_torchcodec, "_decoder", fail)
    assert decode_torchcodec.fault.__wrapped__() == "Could not load libtorchcodec"
