"""Runs that TensorBoard and W&B are told of, through run_net.py."""

import pytest
from run_files import assert_bit_identical, read_lines, stop_in
from tiny import command
from wandb_files import history, summary

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
wandb = pytest.importorskip("wandb")

BOTH = ("TENSORBOARD.ENABLE", True, "WANDB.ENABLE", True, "WANDB.MODE", "offline")


@pytest.fixture
def without_account(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    yield
    wandb.teardown()


def scalars(folder, tag):
    found = accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return [(event.step, event.value) for event in found.Scalars(tag)]


def test_a_resumed_run_is_told_of_once_and_learns_the_same(
    finished_run, cfg, output, main, without_account
):
    """Stopped after three steps of ten, of which W&B and TensorBoard were told."""
    stop_in(2, main, command(cfg, output, *BOTH))
    assert main(command(cfg, output, *BOTH)) == 0
    wandb.teardown()
    assert_bit_identical(output, finished_run)
    steps = read_lines(output / "metrics.jsonl")
    losses = [(line["step"], pytest.approx(line["loss"])) for line in steps]
    top1 = read_lines(output / "evaluations.jsonl")[-1]["top1"]
    assert scalars(output, "train/loss") == losses
    assert scalars(output, "final/top1") == [(10, pytest.approx(top1))]
    lines = (line for line in history(output) if "train/loss" in line)
    assert [(line["step"], line["train/loss"]) for line in lines] == losses
    assert summary(output)["final/top1"] == top1


def test_keys_of_trackers_do_not_block_a_resume(interrupted, cfg, main, tmp_path):
    """The folder is one for many runs."""
    pairs = ("TENSORBOARD.ENABLE", True, "TENSORBOARD.LOG_DIR", tmp_path / "all")
    assert main(command(cfg, interrupted, *pairs)) == 0
    (events,) = (tmp_path / "all").rglob("events.*")
    assert events.parent.name == interrupted.name
    assert [step for step, _ in scalars(events.parent, "train/loss")] == [*range(3, 10)]
