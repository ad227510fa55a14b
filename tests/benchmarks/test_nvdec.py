"""benchmarks/nvdec.py: which clips it decodes on which device, and its exit codes. torchcodec is made up."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import nvdec

DECODED = []


class FakeDecoder:
    def __init__(self, path, device, num_ffmpeg_threads):
        self.path, self.device = path, device
        assert num_ffmpeg_threads == 1

    def get_frames_at(self, indices):
        DECODED.append((self.path, self.device, tuple(indices)))


def test_the_devices_decode_the_same_clips_in_turn():
    DECODED.clear()
    found = nvdec.measure(FakeDecoder, [Path("a.mp4")], ["cpu", "meta"], repeats=2)
    assert {device: [*by_frames] for device, by_frames in found.items()} == {
        "cpu": [8, 16, 32],
        "meta": [8, 16, 32],
    }
    on_cpu, on_other = (
        [(path, indices) for path, device, indices in DECODED if device == name]
        for name in ("cpu", "meta")
    )
    # Three lengths, two repeats and a round that is not timed.
    assert on_cpu == on_other and len(on_cpu) == 9
    for _, indices in on_cpu:
        assert indices[0] >= 0 and indices[-1] < 300
        assert {after - before for before, after in pairwise(indices)} == {2}


def test_a_machine_without_torchcodec_is_a_finding(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(nvdec, "write_videos", lambda root, progress: ["0.mp4"])
    monkeypatch.setitem(sys.modules, "torchcodec.decoders", None)
    assert nvdec.main(["--make-videos", str(tmp_path)]) == 3
    assert "Nothing was measured: torchcodec cannot decode here" in capsys.readouterr().out


def test_bad_input_ends_with_2(tmp_path, capsys):
    assert nvdec.main(["--make-videos", str(tmp_path), "--repeats", "0"]) == 2
    assert "--repeats 0: give 1 or more" in capsys.readouterr().err
    lost = str(tmp_path / "lost" / "found.json")
    assert nvdec.main(["--make-videos", str(tmp_path), "--output", lost]) == 2
    assert "there is no folder" in capsys.readouterr().err
