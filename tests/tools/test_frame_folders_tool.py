"""Folders of images from a list to a run: the same clips as of lossless videos, check, quarantine and store."""

import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from tiny import NUM_TRAIN, NUM_VAL, command, data_keys, load_tool, tiny_config, write_config

from mgexp.data.lists import build_list
from mgexp.data.loader import build_opener, build_training_clips
from mgexp.multigrid.sampler import ClipRequest
from mgexp.video.pyav import PyavReader
from mgexp.video.store import StoreDir

SHORT = {"SOLVER.STEPS": [0, 0.5], "SOLVER.MAX_EPOCH": 1, "TRAIN.NUM_EVALUATIONS": 1}


@pytest.fixture(scope="module")
def frames(tiny_data, tmp_path_factory):
    """The tiny data set as folders of images, with lists of MMAction2; read only."""
    root = tmp_path_factory.mktemp("tiny_frames")
    for split in ("train", "val"):
        lines = []
        for line in (tiny_data / f"{split}.txt").read_text().splitlines():
            name, label = line.replace(".mp4", "").split()
            (root / name).mkdir()
            with PyavReader(f"{tiny_data}/{name}.mp4") as video:
                times = np.arange(round(video.duration_seconds * 30)) / 30
                pictures = video.frames_at(times).pixels
            for number, picture in enumerate(pictures):
                Image.fromarray(picture).save(f"{root}/{name}/frame_{number:06d}.png")
            lines.append(f"{name} {len(pictures)} {label}\n")
        (root / f"{split}.txt").write_text("".join(lines))
    return root


def keys(root):
    return {**data_keys(root), "DATA.FORMAT": "rawframes"}


def test_the_clips_are_those_of_the_videos(frames, tiny_data, tmp_path):
    """The tiny videos are not lossless, but the images are what their decoder gave."""
    found = []
    for changes in (keys(frames), data_keys(tiny_data)):
        cfg = tiny_config(tmp_path, {**changes, "AUG.COLOR_JITTER": 0.4})
        records = build_list(cfg, "TRAIN_LIST").records
        clips = build_training_clips(cfg, records, build_opener(cfg))
        found.append([clips[ClipRequest(index, 4, 23, (1, 2), (0, index))] for index in range(6)])
    for ours, wanted in zip(*found, strict=True):
        assert torch.equal(ours.frames, wanted.frames)
        assert (ours.label, ours.flipped, ours.unusable) == (wanted.label, wanted.flipped, ())


def test_a_run_of_checked_folders_reads_their_store(frames, tmp_path, output, main, capsys):
    data = shutil.copytree(frames, tmp_path / "data")
    (data / "train5" / "frame_000002.png").unlink()
    cfg = write_config(
        tmp_path / "tiny.yaml", {**keys(data), "DATA.MAX_UNUSABLE_SHARE": 0.05, **SHORT}
    )
    check = ["--cfg", str(cfg), "--output", str(tmp_path / "check"), "--processes", "1", "--json"]
    assert load_tool("check_data").main(check) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["kinds"] == {"ok": NUM_TRAIN + NUM_VAL - 1, "no_sequence": 1}
    quarantine = ("DATA.QUARANTINE", found["quarantine"])
    store = f"--store {tmp_path}/store --short-sides 32 24 --processes 1 --time-limit 0".split()
    assert load_tool("prepare_data").main(["--cfg", str(cfg), *store, *quarantine]) == 0
    assert len(StoreDir(tmp_path / "store").read()) == NUM_TRAIN + NUM_VAL - 1
    shutil.rmtree(data / "train0")  # its copies are enough
    pairs = (*quarantine, "DATA.STORE", tmp_path / "store")
    assert main(command(cfg, output, *pairs)) == 0
    result = json.loads((output / "result.json").read_text())
    assert (result["num_unusable_videos"], result["num_train_videos"]) == (1, NUM_TRAIN - 1)
    assert "unusable video, replaced" not in (output / "log.txt").read_text()
