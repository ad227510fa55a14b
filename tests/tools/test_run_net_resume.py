"""Runs that were interrupted, and started again: the same bits, in the same folder only."""

import random
import signal

import pytest
import torch
from fault_runs import num_lines, started
from run_files import (
    OFTEN,
    assert_bit_identical,
    assert_same,
    contents,
    losses,
    read_lines,
    refused,
    stop_in,
    tensors,
)
from tiny import command

from mgexp.run.folder import RunDir

NUM_STEPS = 10  # of the tiny row; by hand: (2, 2, 2, 2) of the long cycle and 2 of fine-tuning


def test_a_killed_run_ends_with_the_same_bits(
    finished_run, cfg, output, main, tmp_path, record_property
):
    step = random.Random().randrange(2, NUM_STEPS - 2)
    record_property("killed_at", step)
    arguments = command(cfg, output, *OFTEN)
    with started(arguments, tmp_path) as run:
        run.until(lambda: num_lines(output / "metrics.jsonl") >= step)
        run.signal(signal.SIGKILL)
        assert run.ends() == -signal.SIGKILL
    assert not (output / "result.json").exists()
    assert RunDir(output).checkpoint_steps()[-1] > 0
    assert main(arguments) == 0
    assert_same(output, finished_run)


@pytest.mark.parametrize(
    "step", [0, *(pytest.param(step, marks=pytest.mark.slow) for step in (3, 4, 8))]
)
def test_a_terminated_run_saves_and_ends_with_the_same_bits(step, finished_run, cfg, output, main):
    """Step 4 is the one before an evaluation."""
    stop_in(step, main, command(cfg, output))
    assert not (output / "result.json").exists()
    assert main(command(cfg, output)) == 0
    assert_same(output, finished_run)
    assert [line["step"] for line in read_lines(output / "evaluations.jsonl")] == [5, NUM_STEPS]


def test_a_torn_line_and_lines_after_the_checkpoint_are_cut(interrupted, finished_run, cfg, main):
    """Keys that no result depends on may change meanwhile."""
    with (interrupted / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "loss": 1.0}\n{"step": 4, "lo')
    pairs = ("DATA_LOADER.PREFETCH_FACTOR", 3, "DATA.MAX_UNUSABLE_SHARE", 0.5)
    assert main(command(cfg, interrupted, *pairs)) == 0
    assert losses(interrupted) == losses(finished_run)


def test_a_folder_of_another_configuration_is_left_alone(interrupted, cfg, main, capsys):
    before = contents(interrupted)
    pairs = ("SOLVER.BASE_LR", 0.001)
    message = refused(main, capsys, [*command(cfg, interrupted, *pairs), "--seed", "1"])
    assert [
        word for word in ("SOLVER.BASE_LR", "RNG_SEED", "--override") if word not in message
    ] == []
    assert contents(interrupted) == before


@pytest.mark.parametrize(
    "pair",
    [
        ("SOLVER.WEIGHT_DECAY", 0),  # as batch norm's: no group of its own is left
        ("SOLVER.BIAS_LR_FACTOR", 2.0),  # one group more
    ],
)
def test_override_takes_effect_from_there_on(pair, interrupted, finished_run, cfg, main):
    assert main([*command(cfg, interrupted, *pair), "--override"]) == 0
    assert losses(interrupted)[:4] == losses(finished_run)[:4]
    first, second = read_lines(interrupted / "starts.jsonl")
    assert (first["after_step"], first["changes"], second["after_step"]) == (0, [], 3)
    assert second["changes"][0].startswith(f"{pair[0]}: ")
    found, plain = dict(tensors(interrupted)), dict(tensors(finished_run))
    assert any(not torch.equal(found[name], plain[name]) for name in plain)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("SOLVER.OPTIMIZING_METHOD", "lamb", "sgd"),
        ("RESNET.WIDTH_PER_GROUP", 16, "blocks.0."),
        ("TRAIN.EMA_DECAY", 0.9, "step_00000003.pt"),
    ],
)
def test_a_start_that_the_checkpoint_refuses_changes_no_record(
    key, value, said, interrupted, cfg, main, capsys
):
    """Else the command of before would be refused, although no step had other keys."""
    before, log = contents(interrupted), interrupted / "log.txt"
    message = refused(main, capsys, [*command(cfg, interrupted, key, value), "--override"])
    assert said in message
    assert {**contents(interrupted), log: b""} == {**before, log: b""}


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    [
        ("SOLVER.OPTIMIZING_METHOD", "pmd_lamb", "SOLVER.PMD_PERIOD", 4),
        ("TRAIN.EMA_DECAY", 0.9, "BN.USE_PRECISE_STATS", "False"),
    ],
    ids=["PMD-LAMB", "average with the statistics of training"],
)
def test_moments_and_averages_go_on(keys, cfg, tmp_path, main):
    """PMD-LAMB is interrupted in the middle of its second period."""
    assert main(command(cfg, tmp_path / "whole", *keys)) == 0
    stop_in(5, main, command(cfg, tmp_path / "run", *keys))
    assert main(command(cfg, tmp_path / "run", *keys)) == 0
    assert_bit_identical(tmp_path / "run", tmp_path / "whole")
