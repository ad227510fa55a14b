"""run_net.py --launcher local: real background processes, interrupted for real; options of launchers."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fault_runs import num_lines, started, wait_for
from run_files import assert_bit_identical, assert_same, read_lines, refused, torchrun
from tiny import command

LOCAL = ("--launcher", "local")


def trainer(output):
    """The process that trains, which holds the lock of the run folder, after its first step."""
    wait_for(lambda: num_lines(output / "metrics.jsonl") >= 1, "step")
    return int((output / "lock").read_text().split()[0])


def tasks_of(output):
    """The processes of a run, those that load clips left out."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command_line = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"submitit.core._submit" in command_line and os.fsencode(output) in command_line[-2]:
            yield int(folder.name)


def test_a_local_run_is_that_of_this_process_and_a_warning_changes_nothing(
    cfg, output, finished_run, main, capfd
):
    """The warning of a cluster saves it, and it goes on by itself."""
    with ThreadPoolExecutor() as pool:
        warned = pool.submit(lambda: os.kill(trainer(output), signal.SIGUSR2))
        assert main([*command(cfg, output), *LOCAL]) == 0
        warned.result()
    log = capfd.readouterr().err
    assert "SIGUSR2: saved after step" in log and "step 10/10" in log
    first, second = read_lines(output / "starts.jsonl")
    assert (first["after_step"], second["after_step"] > 0) == (0, True)
    assert first["commit"] != "unknown"  # from the frozen copy
    assert_same(output, finished_run)


@pytest.mark.slow
def test_two_local_processes_do_what_torchrun_s_do(cfg, tmp_path, main):
    """The second is warned: both save at the same step, and go on."""
    torchrun(command(cfg, tmp_path / "torchrun"))
    output = tmp_path / "local"
    with started([*command(cfg, output), *LOCAL, "--tasks-per-node", "2"], tmp_path) as run:
        first = trainer(output)
        (second,) = {*tasks_of(output)} - {first}
        os.kill(second, signal.SIGUSR2)
        assert run.ends() == 0
    assert len(read_lines(output / "starts.jsonl")) == 2
    assert_same(output, tmp_path / "torchrun")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_local_run_stops_saved(number, cfg, output, finished_run, main, tmp_path):
    """Ctrl-C reaches all processes of a terminal, kill the one that the message names."""
    with started([*command(cfg, output), *LOCAL], tmp_path) as run:
        pid = trainer(output)
        if number == signal.SIGINT:
            run.signal_group(number)
        else:
            os.kill(pid, number)
        assert run.ends() == 4
        assert "saved after step" in run.said
    assert len(read_lines(output / "starts.jsonl")) == 1
    assert main(command(cfg, output)) == 0
    assert_bit_identical(output, finished_run)


@pytest.mark.slow
@pytest.mark.usefixtures("hangups_reach_us")
def test_a_local_run_continues_when_its_terminal_is_closed(cfg, output, finished_run, tmp_path):
    """A terminal that is closed sends SIGHUP to all processes that it started."""
    with started([*command(cfg, output), *LOCAL], tmp_path) as run:
        trainer(output)
        run.signal_group(signal.SIGHUP)
        assert run.ends(60) == -signal.SIGHUP
    wait_for((output / "result.json").exists, "result")
    assert len(read_lines(output / "starts.jsonl")) == 1
    assert_bit_identical(output, finished_run)


def test_a_run_for_another_machine_may_need_a_gpu(cfg, output, main, capsys, monkeypatch, tmp_path):
    """The first thing that fails is that there is no Slurm."""
    monkeypatch.setenv("PATH", str(tmp_path))
    arguments = [*command(cfg, output, "DEVICE", "cuda"), "--launcher", "slurm"]
    assert "Slurm" in refused(main, capsys, arguments)
    assert not output.exists()
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "torch finds no GPU" in refused(main, capsys, arguments[:-2])
