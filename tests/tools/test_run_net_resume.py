"""Runs that were interrupted, and started again: the same bits, in the same folder only."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import pytest
import torch
from run_files import (
    assert_bit_identical,
    interrupt_in,
    losses,
    read_lines,
    refused,
    tensors,
)
from tiny import TOOL, command

from mgexp.run.folder import RunDir

NUM_STEPS = 10  # of the tiny row; by hand: (2, 2, 2, 2) of the long cycle and 2 of fine-tuning
OFTEN = ("TRAIN.CHECKPOINT_MINUTES", 0.000001)


def kill_at(step, arguments, folder):
    """Starts a run in a process of its own and kills it when ``step`` steps are recorded."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, str(TOOL), *arguments],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    metrics, end = folder / "metrics.jsonl", time.monotonic() + 120
    try:
        while time.monotonic() < end and process.poll() is None:
            if metrics.exists() and len(metrics.read_text().splitlines()) >= step:
                break
            time.sleep(0.002)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL


def test_a_killed_run_ends_with_the_same_bits(finished_run, cfg, output, main, record_property):
    step = random.Random().randrange(2, NUM_STEPS - 2)
    record_property("killed_at", step)
    arguments = command(cfg, output, *OFTEN)
    kill_at(step, arguments, output)
    assert not (output / "result.json").exists()
    assert RunDir(output).checkpoint_steps()[-1] > 0
    assert main(arguments) == 0
    assert_bit_identical(output, finished_run)
    assert losses(output) == losses(finished_run)


@pytest.mark.parametrize(
    "step", [0, 4, pytest.param(3, marks=pytest.mark.slow), pytest.param(8, marks=pytest.mark.slow)]
)
def test_a_terminated_run_saves_and_ends_with_the_same_bits(
    step, finished_run, cfg, output, main, monkeypatch
):
    """Step 4 is the one before an evaluation."""
    interrupt_in(step, monkeypatch)
    assert main(command(cfg, output)) == 4
    assert not (output / "result.json").exists()
    monkeypatch.undo()
    assert main(command(cfg, output)) == 0
    assert_bit_identical(output, finished_run)
    assert losses(output) == losses(finished_run)
    assert [line["step"] for line in read_lines(output / "evaluations.jsonl")] == [5, NUM_STEPS]


def test_a_signal_to_the_whole_group_saves_too(finished_run, cfg, output, main):
    """torchrun, timeout and Slurm also signal the loader's workers."""
    pairs = ("DATA_LOADER.NUM_WORKERS", 2)
    process = subprocess.Popen(
        [sys.executable, str(TOOL), *command(cfg, output, *pairs)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    metrics = output / "metrics.jsonl"
    # With a first line in it the workers are there.
    while not (metrics.exists() and metrics.read_text().count("\n")):
        assert process.poll() is None
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(60) == 4
    assert main(command(cfg, output)) == 0
    assert_bit_identical(output, finished_run)


def test_a_torn_line_and_lines_after_the_checkpoint_are_cut(interrupted, finished_run, cfg, main):
    """Keys that no result depends on may change meanwhile."""
    with (interrupted / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "loss": 1.0}\n{"step": 4, "lo')
    pairs = ("DATA_LOADER.PREFETCH_FACTOR", 3, "DATA.MAX_UNUSABLE_SHARE", 0.5)
    assert main(command(cfg, interrupted, *pairs)) == 0
    assert losses(interrupted) == losses(finished_run)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_the_number_of_workers_changes_nothing(workers, finished_run, cfg, output, main):
    assert main(command(cfg, output, "DATA_LOADER.NUM_WORKERS", workers)) == 0
    assert_bit_identical(output, finished_run)


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_of_another_configuration_is_left_alone(interrupted, cfg, main, capsys):
    before = contents(interrupted)
    pairs = ("SOLVER.BASE_LR", 0.001)
    message = refused(main, capsys, [*command(cfg, interrupted, *pairs), "--seed", "1"])
    assert "SOLVER.BASE_LR: the run folder has 0.005, this start 0.001" in message
    assert "RNG_SEED: the run folder has 0, this start 1" in message
    assert "--override" in message
    assert contents(interrupted) == before


@pytest.mark.parametrize(
    "pair",
    [
        ("SOLVER.WEIGHT_DECAY", 0.1),
        ("SOLVER.WEIGHT_DECAY", 0),  # as batch norm's: no group of its own is left
        ("SOLVER.BIAS_LR_FACTOR", 2.0),  # one group more
    ],
)
def test_override_takes_effect_from_there_on(pair, interrupted, finished_run, cfg, main, capsys):
    assert main([*command(cfg, interrupted, *pair), "--override"]) == 0
    assert "resuming after step 3 of 10" in capsys.readouterr().err
    assert losses(interrupted)[:4] == losses(finished_run)[:4]
    first, second = read_lines(interrupted / "starts.jsonl")
    assert (first["after_step"], first["changes"], second["after_step"]) == (0, [], 3)
    assert second["changes"][0].startswith(f"{pair[0]}: ")
    found, plain = dict(tensors(interrupted)), dict(tensors(finished_run))
    assert any(not torch.equal(found[name], plain[name]) for name in plain)


@pytest.mark.parametrize("override", [[], ["--override"]])
def test_the_state_of_another_optimizer_is_not_gone_on_with(
    override, interrupted, cfg, main, capsys
):
    before = contents(interrupted)
    arguments = command(cfg, interrupted, "SOLVER.OPTIMIZING_METHOD", "lamb")
    message = refused(main, capsys, [*arguments, *override])
    assert "SOLVER.OPTIMIZING_METHOD lamb: the checkpoints of" in message
    assert (
        "hold the state of sgd, which lamb cannot resume from: choose another --output" in message
    )
    assert "add --override" not in message
    assert contents(interrupted) == before


def test_the_weights_of_another_network_are_not_gone_on_with(interrupted, cfg, main, capsys):
    before = contents(interrupted)
    arguments = command(cfg, interrupted, "RESNET.WIDTH_PER_GROUP", 16)
    message = refused(main, capsys, [*arguments, "--override"])
    assert "the checkpoint after step 3 is of another network (blocks.0." in message
    assert contents(interrupted) == before


def test_a_start_that_the_checkpoint_refuses_changes_no_record(interrupted, cfg, main, capsys):
    """Else the command of before would be refused, although no step had other keys."""
    before, log = contents(interrupted), interrupted / "log.txt"
    arguments = command(cfg, interrupted, "TRAIN.EMA_DECAY", 0.9)
    message = refused(main, capsys, [*arguments, "--override"])
    assert "step_00000003.pt does not fit this configuration" in message
    assert {**contents(interrupted), log: b""} == {**before, log: b""}


@pytest.mark.parametrize(
    "keys",
    [
        ("SOLVER.OPTIMIZING_METHOD", "pmd_lamb", "SOLVER.PMD_PERIOD", 4),
        ("TRAIN.EMA_DECAY", 0.9),
        ("TRAIN.EMA_DECAY", 0.9, "BN.USE_PRECISE_STATS", "False"),
    ],
    ids=["PMD-LAMB", "average", "average with the statistics of training"],
)
def test_moments_and_averages_go_on(keys, cfg, tmp_path, main, monkeypatch):
    """PMD-LAMB is interrupted in the middle of its second period."""
    assert main(command(cfg, tmp_path / "whole", *keys)) == 0
    interrupt_in(5, monkeypatch)
    assert main(command(cfg, tmp_path / "run", *keys)) == 4
    monkeypatch.undo()
    assert main(command(cfg, tmp_path / "run", *keys)) == 0
    assert_bit_identical(tmp_path / "run", tmp_path / "whole")


def test_a_run_of_lamb_may_go_on_with_decaying_moments(cfg, output, main, monkeypatch):
    keys = ("SOLVER.OPTIMIZING_METHOD", "lamb")
    interrupt_in(2, monkeypatch)
    assert main(command(cfg, output, *keys)) == 4
    monkeypatch.undo()
    keys = ("SOLVER.OPTIMIZING_METHOD", "pmd_lamb", "SOLVER.PMD_PERIOD", 4)
    assert main([*command(cfg, output, *keys), "--override"]) == 0
