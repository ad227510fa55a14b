"""Signals at every place of a run: it leaves within seconds, with exit code 4, and loses nothing."""

import signal
import sys
import time
from unittest.mock import ANY

import pytest
from fault_runs import num_lines, started, temporary_files
from run_files import assert_same, losses, read_lines
from tiny import command, data_keys, write_config

from mgexp.run.folder import RunDir

pytestmark = pytest.mark.slow

SECONDS = 20  # for a step, a save and the end of Python, on a machine that is busy
WORKERS = ("DATA_LOADER.NUM_WORKERS", 2)


def leaves(run, number, to_group=True):
    """Sends a signal; the exit code, which must come soon."""
    begin = time.monotonic()
    (run.signal_group if to_group else run.signal)(number)
    code = run.ends()
    assert time.monotonic() - begin < SECONDS, run.said
    return code


def goes_on_to_the_end(main, arguments, output, finished_run):
    assert main(arguments) == 0
    assert_same(output, finished_run)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2, signal.SIGINT])
def test_in_training_with_workers(number, finished_run, cfg, output, main, tmp_path):
    """torchrun, timeout and Slurm also signal the workers."""
    with started(command(cfg, output, *WORKERS), tmp_path) as run:
        run.until(lambda: num_lines(output / "metrics.jsonl") >= 2)
        assert leaves(run, number) == 4
        assert f"{number.name}: saved after step" in run.said
        assert "Traceback" not in run.said
    assert temporary_files(output) == []
    goes_on_to_the_end(main, command(cfg, output), output, finished_run)


def test_before_anything_is_written(cfg, output, tmp_path):
    """While videos are looked for."""
    with started(command(cfg, output), tmp_path) as run:
        run.until(run.catches_signals)
        assert leaves(run, signal.SIGTERM) == 4
        assert "SIGTERM" in "".join(run.messages)
    assert not (output / "result.json").exists()


def test_in_precise_batch_norm(finished_run, cfg, output, main, tmp_path):
    """Which comes right after the save at a milestone."""
    with started(command(cfg, output, *WORKERS), tmp_path) as run:
        run.until(RunDir(output).checkpoint(5).exists)
        assert leaves(run, signal.SIGTERM) == 4
        assert "SIGTERM: saved after step" in run.said
    goes_on_to_the_end(main, command(cfg, output), output, finished_run)
    assert [line["step"] for line in read_lines(output / "evaluations.jsonl")] == [5, 10]


@pytest.fixture
def many_views(tiny_data, tmp_path):
    """A row whose evaluations take long: each video many times in the list."""
    lines = (tiny_data / "val.txt").read_text() * 30
    (tmp_path / "many.txt").write_text(lines)
    changes = {**data_keys(tiny_data), "DATA.VAL_LIST": str(tmp_path / "many.txt")}
    return write_config(tmp_path / "tiny.yaml", {**changes, "TEST.BATCH_SIZE": 1})


def test_in_an_evaluation_during_training(finished_run, many_views, output, main, tmp_path):
    pairs = ("BN.USE_PRECISE_STATS", False)
    with started(command(many_views, output, *pairs), tmp_path) as run:
        run.until(RunDir(output).checkpoint(5).exists)
        time.sleep(0.3)
        assert leaves(run, signal.SIGTERM) == 4
        assert "SIGTERM: saved after step 5" in run.said
    assert num_lines(output / "evaluations.jsonl") == 0
    assert main(command(many_views, output, *pairs)) == 0
    assert losses(output) == losses(finished_run)
    assert [line["step"] for line in read_lines(output / "evaluations.jsonl")] == [5, 10]


TWO = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


@pytest.mark.parametrize("place", ["training", "evaluation"])
def test_two_processes_leave_together(place, many_views, output, main, tmp_path):
    """torchrun hands the signal on, and tells of it by itself; no process waits for one that has left."""
    arguments = [*command(many_views, output), "--launcher", "torchrun"]
    with started(arguments, tmp_path, before=(*TWO, "--no-python")) as run:
        if place == "training":
            run.until(lambda: num_lines(output / "metrics.jsonl") >= 2)
        else:
            run.until(RunDir(output).checkpoint(5).exists)
            time.sleep(0.5)
        run.signal(signal.SIGTERM)
        assert run.ends() == 1
        assert "SIGTERM: saved after step" in run.said
        assert "RuntimeError" not in run.said
    assert RunDir(output).checkpoint_steps()[-1] == (5 if place == "evaluation" else ANY)
