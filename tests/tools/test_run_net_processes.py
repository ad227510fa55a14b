"""run_net.py in several processes: the same run, and one end for all."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from run_files import losses, read_lines, started_apart, torchrun, torchrun_script
from tiny import NUM_VAL, TOOL, command, data_keys, run_net, write_config

GENTLE = ("SOLVER.BASE_LR", 1e-5)
"""A learning rate at which the rounding of a step is not blown up by the steps after it. Dropout is on."""


@pytest.fixture(scope="module")
def odd_cfg(tiny_data, tmp_path_factory):
    """The tiny row with 7 validation videos: they divide over no number of processes."""
    folder = tmp_path_factory.mktemp("odd")
    lines = (tiny_data / "val.txt").read_text().splitlines()[: NUM_VAL - 1]
    (folder / "val.txt").write_text("\n".join(lines))
    keys = {**data_keys(tiny_data), "DATA.VAL_LIST": str(folder / "val.txt")}
    return write_config(folder / "tiny.yaml", keys)


@pytest.fixture(scope="module")
def alone(odd_cfg, tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone") / "run"
    assert run_net().main(command(odd_cfg, folder, *GENTLE)) == 0
    return folder


@pytest.fixture(scope="module", params=[2, 4])
def shared(request, odd_cfg, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared") / "run"
    torchrun(command(odd_cfg, folder, *GENTLE), request.param)
    return folder


@pytest.mark.slow
def test_every_video_is_scored_once(alone, shared):
    one, many = (np.load(folder / "scores_2x1_forward.npz") for folder in (alone, shared))
    assert list(many["videos"]) == list(one["videos"])
    assert (many["labels"] == one["labels"]).all()
    np.testing.assert_allclose(many["scores"], one["scores"], rtol=1e-3)
    np.testing.assert_allclose(many["scores"].sum(1), 2, rtol=1e-5)  # a probability for each view
    for found, wanted in zip(
        *(read_lines(folder / "evaluations.jsonl") for folder in (shared, alone)), strict=True
    ):
        assert found["num_videos"] == NUM_VAL - 1
        assert found["loss"] == pytest.approx(wanted["loss"], rel=1e-3)
        assert [found[key] for key in ("step", "top1", "top5")] == [
            wanted[key] for key in ("step", "top1", "top5")
        ]
    one, many = (json.loads((folder / "result.json").read_text()) for folder in (alone, shared))
    for key in ("clips_seen", "steps", "epochs", "train_flops", "metrics"):
        assert many[key] == one[key], key
    # Only the first process writes.
    names = [{path.name for path in folder.rglob("*")} for folder in (alone, shared)]
    assert names[0] == names[1]


FAILING = """
import os, signal, sys
sys.path[:0] = {paths!r}
from tiny import run_net
from mgexp.errors import InputError
from mgexp.train import job, loop

calls = []
original = loop.check_clips

def fails(batch):
    calls.append(batch)
    if os.environ["RANK"] == "1" and len(calls) == 4:
        {action}
    return original(batch)

loop.check_clips = fails
sys.exit(run_net().main(sys.argv[1:]))
"""


@pytest.fixture
def failing(tmp_path):
    """A run_net.py whose process 1 does something in its fourth step."""

    def write(action):
        root = Path(TOOL).parents[1]
        paths = [str(root / "tests"), str(root)]
        (tmp_path / "failing.py").write_text(FAILING.format(paths=paths, action=action))
        return tmp_path / "failing.py"

    return write


@pytest.mark.slow
@pytest.mark.parametrize(
    ("action", "said", "in_log"),
    [
        ("raise InputError(['v.mp4 is no video'])", "v.mp4 is no video", True),
        ("1 // 0", "ZeroDivisionError", True),
        ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL", False),
    ],
)
def test_under_torchrun_one_failure_ends_all_with_its_message(
    action, said, in_log, failing, cfg, output
):
    done = torchrun_script(failing(action), command(cfg, output))
    assert done.returncode == 1
    assert said in done.stderr
    assert not in_log or said in (output / "log.txt").read_text()
    assert not (output / "result.json").exists()
    assert len(losses(output)) == 3


@pytest.mark.slow
def test_what_all_processes_find_is_told(cfg, output):
    done = torchrun_script(TOOL, command(cfg, output, "SOLVER.BASE_LR", 1e30))
    assert done.returncode == 1
    assert "the loss is" in done.stderr


@pytest.mark.slow
def test_replaced_videos_are_the_same_and_logged_once(data, tmp_path):
    (data / "train5.mp4").write_bytes(b"no video" * 50)
    keys = {**data_keys(data), "DATA.MAX_UNUSABLE_SHARE": 0.5}
    cfg = write_config(tmp_path / "tiny.yaml", keys)
    one, two = tmp_path / "one", tmp_path / "two"
    assert run_net().main(command(cfg, one, *GENTLE)) == 0
    torchrun(command(cfg, two, *GENTLE))
    assert [loss for _, loss in losses(two)] == pytest.approx(
        [loss for _, loss in losses(one)], rel=1e-4
    )
    for folder in (one, two):
        assert (folder / "log.txt").read_text().count("unusable video, replaced:") == 1
        assert json.loads((folder / "result.json").read_text())["num_unusable_videos"] == 1


@pytest.mark.slow
def test_processes_that_see_other_videos_are_refused(data, tmp_path, output):
    """As where a network disk shows one machine an old list."""
    other = Path(shutil.copytree(data, tmp_path / "other"))
    (other / "train.txt").write_text("train0.mp4 0\ntrain1.mp4 1\n" * 12)
    cfgs = [
        write_config(tmp_path / f"{name}.yaml", data_keys(root))
        for name, root in (("a", data), ("b", other))
    ]
    script = tmp_path / "run.py"
    script.write_text(
        "import os, sys\n"
        f"sys.path[:0] = [{str(Path(TOOL).parents[1] / 'tests')!r}]\n"
        "from tiny import run_net\n"
        f"cfg = {[str(cfg) for cfg in cfgs]!r}[int(os.environ['RANK'])]\n"
        "sys.exit(run_net().main(['--cfg', cfg, *sys.argv[1:]]))\n"
    )
    processes = started_apart(script, ["--output", str(output)])
    errors = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [2, 2]
    assert "the list of videos of process 0 is" in errors[0]
