"""W&B without a network: what is on the disk for `wandb sync`."""

import json

import pytest
from tracked import RESULT, evaluation_line, step_line
from wandb_files import history, runs, summary

from mgexp.run.files import append_jsonl
from mgexp.run.folder import RunDir
from mgexp.run.trackers import WandbRun

wandb = pytest.importorskip("wandb")
CONFIG = {"SOLVER.BASE_LR": 0.1, "SOLVER.STEPS": (0, 3), "environment": {"torch": "2.15"}}


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """No account, and no settings, of who runs the tests."""
    for name in ("HOME", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    yield
    wandb.teardown()


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "run"
    root.mkdir()
    return root


def start(folder, first_step):
    """The tracker of a start in the folder."""
    told = WandbRun(RunDir(folder), "tiny/seed0", "mgexp", "", "offline", CONFIG)
    told.start(first_step)
    return told


def step(told, folder, number, loss):
    line = step_line(number, loss)
    append_jsonl(RunDir(folder).metrics_jsonl, line)
    told.step(line)


def evaluate(told, folder, number, top1, full_protocol=False):
    line = evaluation_line(number, top1, full_protocol)
    append_jsonl(RunDir(folder).evaluations_jsonl, line)
    told.evaluation(line)


def close(told, failed=False):
    """And wait until all is on the disk."""
    told.close(failed)
    wandb.teardown()


def first_start(folder):
    """Four steps and an evaluation after the third, of a run that is killed then."""
    told = start(folder, 0)
    for number in range(4):
        if number == 3:
            evaluate(told, folder, 3, 50.0)
        step(told, folder, number, 0.5 * number)
    close(told, failed=True)


def test_lines_configuration_and_result_are_there(folder):
    told = start(folder, 0)
    step(told, folder, 0, 2.5)
    evaluate(told, folder, 1, 50.0)
    told.result(RESULT)
    close(told)
    first, second = history(folder)
    names = ("step", "train/loss", "train/clips", "_step")
    assert [first[name] for name in names] == [0, 2.5, 4, 1]
    assert (second["step"], second["evaluation/top1"], second["_step"]) == (1, 50.0, 2)
    ((run_id, project, name, host, config),) = {run[0]: run for run in runs(folder)}.values()
    assert (project, name, host) == ("mgexp", "tiny/seed0", "")
    assert run_id == json.loads((folder / "wandb.json").read_text())["id"]
    assert config["SOLVER.BASE_LR"] == 0.1
    assert config["SOLVER.STEPS"] == [0, 3]
    assert config["environment"] == {"torch": "2.15"}
    found = summary(folder)
    assert (found["final/top1"], found["final/train_seconds"]) == (75.0, 12.5)


def test_a_resumed_run_goes_on_under_its_id(folder):
    first_start(folder)
    told = start(folder, 2)  # the files are cut after that
    for number in (2, 3, 4):
        if number == 3:
            evaluate(told, folder, 3, 50.0)
        step(told, folder, number, 0.5 * number)
    close(told)
    lines = list(history(folder))
    # W&B keeps the first line of each place when it gets them.
    assert [line["step"] for line in lines] == [0, 1, 2, 3, 3, 2, 3, 3, 4]
    assert [line["_step"] for line in lines] == [1, 3, 5, 6, 7, 5, 6, 7, 9]
    assert len({run[0] for run in runs(folder)}) == 1


@pytest.mark.parametrize("killed", [False, True])
def test_both_evaluations_after_the_last_step_are_told(folder, killed):
    """One by the protocol of training, and then the final one, perhaps in another start."""
    told = start(folder, 0)
    step(told, folder, 0, 1.0)
    evaluate(told, folder, 1, 80.0)
    if killed:
        close(told, failed=True)
        told = start(folder, 1)
    evaluate(told, folder, 1, 84.0, full_protocol=True)
    close(told)
    scores = [line["evaluation/top1"] for line in history(folder) if "evaluation/top1" in line]
    assert scores == [80.0, 84.0]


def test_a_start_from_nothing_is_a_run_of_its_own(folder):
    first_start(folder)
    told = start(folder, 0)
    step(told, folder, 0, 9.0)
    close(told)
    assert len({run[0] for run in runs(folder)}) == 2
    assert [line["train/loss"] for line in history(folder) if line["step"] == 0] == [0.0, 9.0]
