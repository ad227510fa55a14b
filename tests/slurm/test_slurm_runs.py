"""Runs on a real Slurm, interrupted in each of the ways it has: the result is that of an undisturbed run."""

import os
import signal

import pytest
from jobs import (
    log,
    preempt,
    starts_after,
    submit,
    task_pid,
    wait_for,
    wait_for_result,
    wait_for_step,
    wait_until_gone,
)
from run_files import assert_same

pytestmark = pytest.mark.slurm
TWO = ("--tasks-per-node", "2")
ON_TWO_NODES = ("--nodes", "2")


@pytest.mark.parametrize("options", [TWO, ON_TWO_NODES], ids=["one_node", "two_nodes"])
def test_two_tasks(options, cluster, short, output, short_run_of_two):
    submit(cluster, short, output, *options)
    wait_for_result(cluster, output)
    assert starts_after(output) == [0]
    assert_same(output, short_run_of_two)


@pytest.mark.parametrize(
    ("options", "wanted"), [((), "short_run"), (TWO, "short_run_of_two")], ids=["one", "two"]
)
def test_preemption_with_the_user_signal_saves_at_a_step(
    options, wanted, cluster, short, output, request
):
    submit(cluster, short, output, *options)
    wait_for_step(output, 10)
    preempt(cluster)
    wait_for_result(cluster, output)
    assert "SIGUSR2: saved after step" in log(output)
    first, second = starts_after(output)
    assert (first, second >= 10) == (0, True)
    assert_same(output, request.getfixturevalue(wanted))


def test_requeue_from_outside_saves_too(cluster, long, output, long_run):
    """Slurm sends SIGTERM, then kills; the job starts from the pickle that was submitted."""
    job = submit(cluster, long, output)
    wait_for_step(output, 10)
    cluster.call("scontrol", "requeue", job)
    wait_for_result(cluster, output)
    first, second = starts_after(output)
    assert (first, second >= 10) == (0, True)
    assert_same(output, long_run)


def test_a_cancelled_run_is_saved_and_not_queued_again(cluster, long, output):
    job = submit(cluster, long, output)
    wait_for_step(output, 10)
    cluster.call("scancel", job)
    wait_until_gone(cluster, job)
    assert not (output / "result.json").exists()
    assert [*(output / "checkpoints").glob("step_*.pt")]


def test_a_task_that_is_killed_ends_the_others(cluster, short, output):
    job = submit(cluster, short, output, *TWO)
    wait_for_step(output, 5)
    os.kill(task_pid(job, rank=1), signal.SIGKILL)
    wait_until_gone(cluster, job)
    assert not (output / "result.json").exists()


def test_signals_while_a_task_starts_are_not_lost(cluster, short, output, short_run):
    """They come while it imports torch: it ends before it writes anything, and is queued again."""
    job = submit(cluster, short, output)
    wait_for(lambda: task_pid(job, rank=0), "task")
    preempt(cluster)
    wait_for_result(cluster, output)
    assert "SIGUSR2: start the same command again to continue" in log(output)
    assert starts_after(output) == [0]
    assert_same(output, short_run)


def test_a_time_limit(cluster, long, output, long_run):
    """One minute, the least that Slurm knows."""
    submit(cluster, long, output, "--time-limit", "1", "--warning-seconds", "20")
    wait_for_result(cluster, output)
    assert "SIGUSR2: saved after step" in log(output)
    assert len(starts_after(output)) >= 2
    assert_same(output, long_run)


def test_nothing_is_left_in_the_queue(cluster):
    wait_for(lambda: not cluster.call("squeue", "--noheader"), "empty queue")
