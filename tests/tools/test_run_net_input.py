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
    (data / "val.txt").write_text("val0.mp4 7\n")
    cfg = write_config(tmp_path / "tiny.yaml", {**data_keys(data), "SOLVER.MOMENTUN": 0.5})
    message = refused(main, capsys, command(cfg, output, "TRAIN.BATCH_SIZE", 0))
    assert "nearest: SOLVER.MOMENTUM" in message and "TRAIN.BATCH_SIZE" in message
    cfg = write_config(tmp_path / "tiny.yaml", data_keys(data))
    message = refused(main, capsys, command(cfg, output, "DATA.NUM_FRAMES", 10))
    wanted = ("train.txt:2", "train.txt:3", "val.txt:1", "lost.mp4")
    assert [word for word in wanted if word not in message] == []
    assert not output.exists()


@pytest.mark.parametrize("pair", [("BAD.KEY", 1), ("DATA.VAL_LIST", "nowhere.csv")])
def test_a_wrong_key_and_a_missing_list_are_refused_without_torch(pair, cfg, output):
    code = (
        "import runpy, sys; sys.argv = sys.argv[1:]\n"
        "try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "finally: print('torch' in sys.modules)"
    )
    words = [sys.executable, "-c", code, str(TOOL), *command(cfg, output, *pair)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "False\n")
    assert pair[0] in done.stderr


def test_tolerated_videos_are_replaced_and_counted(data, tmp_path, output, main, capsys):
    """In the folder of a start that did not tolerate them, as no step of it was kept. Classes have names."""
    (data / "train5.mp4").write_bytes(b"no video" * 50)
    (data / "train7.mp4").unlink()
    (tmp_path / "names.txt").write_text("right\nleft\n")
    changes = {"DATA.CLASSES": str(tmp_path / "names.txt")}
    changes |= {**data_keys(data), "DATA.MAX_UNUSABLE_SHARE": 0.042}  # 1 of 24
    arguments = command(write_config(tmp_path / "tiny.yaml", changes), output)
    assert "train5.mp4" in refused(main, capsys, arguments)
    assert not (output / "result.json").exists()
    assert main([*arguments, "DATA.MAX_UNUSABLE_SHARE", "0.5"]) == 0
    assert (output / "classes.txt").read_text() == "right\nleft\n"
    result = json.loads((output / "result.json").read_text())
    assert result["num_unusable_videos"] == 2
    assert result["num_train_videos"] == NUM_TRAIN - 1
