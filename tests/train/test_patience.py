"""TRAIN.PATIENCE: when a training ends early, and that it stays ended."""

import json

import pytest
from tiny import command, data_keys, run_net, write_config

from mgexp.run.files import read_jsonl
from mgexp.run.folder import RunDir
from mgexp.train.checkpoint import is_out_of_patience


@pytest.mark.parametrize(
    ("scores", "patience", "is_over"),
    [
        ([], 2, False),
        ([10, 30, 20, 25], 0, False),
        ([10, 30, 20, 25], 2, True),
        ([10, 30, 20, 25], 3, False),
        ([10, 30, 20, 30], 1, False),  # an equal one counts as better
        ([10, 20, 30], 1, False),
    ],
)
def test_evaluations_behind_the_best_are_counted(tmp_path, scores, patience, is_over):
    run_dir = RunDir(tmp_path)
    lines = [
        json.dumps({"step": step, "top1": score, "full_protocol": False})
        for step, score in enumerate(scores)
    ]
    run_dir.evaluations_jsonl.write_text("".join(f"{line}\n" for line in lines))
    assert is_out_of_patience(run_dir, patience) is is_over


def test_a_run_ends_early_and_a_second_start_goes_on_from_there(tiny_data, tmp_path, monkeypatch):
    """As if no evaluation were better than the first."""
    keys = {"MULTIGRID.LONG_CYCLE": False, "MULTIGRID.SHORT_CYCLE": False, "SOLVER.STEPS": [0]}
    keys |= {"TRAIN.PATIENCE": 1, "TRAIN.NUM_EVALUATIONS": 4, "SOLVER.MAX_EPOCH": 1}
    cfg = write_config(tmp_path / "tiny.yaml", {**data_keys(tiny_data), **keys})

    def is_out_of_patience(run_dir, patience):
        return len(read_jsonl(run_dir.evaluations_jsonl)) > 1

    monkeypatch.setattr("mgexp.train.job.is_out_of_patience", is_out_of_patience)
    assert run_net().main(command(cfg, tmp_path / "run")) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    evaluations = read_jsonl(tmp_path / "run" / "evaluations.jsonl")
    assert [line["full_protocol"] for line in evaluations] == [False, False, True]
    assert [line["step"] for line in evaluations][1:] == [result["steps"]] * 2
    assert result["train_flops"] == evaluations[-1]["train_flops"] > evaluations[0]["train_flops"]
    # As after a kill in the final evaluation.
    (tmp_path / "run" / "result.json").unlink()
    assert run_net().main(command(cfg, tmp_path / "run")) == 0
    assert json.loads((tmp_path / "run" / "result.json").read_text())["steps"] == result["steps"]
