"""Bad input of run_net.py: exit code 2, one message, nothing written."""

import json
import subprocess
import sys

import pytest
from run_files import refused
from tiny import NUM_TRAIN, TOOL, command, data_keys, write_config


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        (("DATA.VAL_LIST", ""), ("DATA.VAL_LIST",)),
        (("DATA.TRAIN_CROP_SIZE", 36), ("DATA.TRAIN_JITTER_SCALES", "36")),
        (("TEST.FRAME_ORDER", "shuffled"), ("TEST.FRAME_ORDER", "TRAIN.ENABLE False")),
        (("DATA.STORE", "nowhere"), ("DATA.STORE", "nowhere")),
        (("--seed", 1, "RNG_SEED", 5), ("RNG_SEED",)),
    ],
)
def test_bad_keys_are_refused(pairs, words, cfg, output, main, capsys):
    message = refused(main, capsys, command(cfg, output, *pairs))
    assert [word for word in words if word not in message] == []
    assert not output.exists()


def test_all_problems_are_in_one_message(data, tmp_path, output, main, capsys):
    """Those of the keys come first, because they need no torch."""
    (data / "train.txt").write_text("train0.mp4 0\ntrain1.mp4\ntrain2.mp4 7\nlost.mp4 1\n")
    (data / "val.txt").unlink()
    cfg = write_config(tmp_path / "tiny.yaml", {**data_keys(data), "SOLVER.MOMENTUN": 0.5})
    message = refused(main, capsys, command(cfg, output, "TRAIN.BATCH_SIZE", 0))
    assert "nearest: SOLVER.MOMENTUM" in message and "TRAIN.BATCH_SIZE" in message
    cfg = write_config(tmp_path / "tiny.yaml", data_keys(data))
    message = refused(main, capsys, command(cfg, output, "DATA.NUM_FRAMES", 10))
    wanted = ("train.txt:2", "train.txt:3", "val.txt", "lost.mp4")
    assert [word for word in wanted if word not in message] == []
    assert not output.exists()


def test_a_wrong_key_is_refused_without_torch(cfg, output):
    code = (
        "import runpy, sys; sys.argv = sys.argv[1:]\n"
        "try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "finally: print('torch' in sys.modules)"
    )
    words = [sys.executable, "-c", code, str(TOOL), *command(cfg, output, "BAD.KEY", 1)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "False\n")
    assert "BAD.KEY" in done.stderr


def break_video(path):
    path.write_bytes(b"no video" * 50)


def test_a_broken_training_video_stops_the_run(data, tmp_path, output, main, capsys):
    """Only decoding finds it: the folder exists by then, but no result."""
    break_video(data / "train5.mp4")
    cfg = write_config(tmp_path / "tiny.yaml", data_keys(data))
    assert "train5.mp4" in refused(main, capsys, command(cfg, output))
    assert not (output / "result.json").exists()


@pytest.mark.parametrize("workers", [0, 2])
def test_where_no_video_decodes_all_that_failed_are_named(
    workers, data, tmp_path, output, main, capsys
):
    for path in data.glob("train*.mp4"):
        break_video(path)
    changes = {**data_keys(data), "DATA.MAX_UNUSABLE_SHARE": 1.0}
    cfg = write_config(tmp_path / "tiny.yaml", changes)
    message = refused(main, capsys, command(cfg, output, "DATA_LOADER.NUM_WORKERS", workers))
    assert message.count(".mp4") >= 10


def test_tolerated_videos_are_replaced_and_counted(data, tmp_path, output, main, capsys):
    """In the folder of a start that did not tolerate them, as no step of it was kept. Classes have names."""
    break_video(data / "train5.mp4")
    (data / "train7.mp4").unlink()
    (tmp_path / "names.txt").write_text("right\nleft\n")
    changes = {"DATA.CLASSES": str(tmp_path / "names.txt")}
    changes |= {**data_keys(data), "DATA.MAX_UNUSABLE_SHARE": 0.042}  # 1 of 24
    arguments = command(write_config(tmp_path / "tiny.yaml", changes), output)
    refused(main, capsys, arguments)
    assert main([*arguments, "DATA.MAX_UNUSABLE_SHARE", "0.5"]) == 0
    assert (output / "classes.txt").read_text() == "right\nleft\n"
    result = json.loads((output / "result.json").read_text())
    assert result["num_unusable_videos"] == 2
    assert result["num_train_videos"] == NUM_TRAIN - 1
