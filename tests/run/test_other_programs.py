"""What other programs use: /proc files written by hand, and a child that computes."""

import os

import pytest

from mgexp.run import other_programs
from mgexp.run.clock import Clock
from mgexp.run.other_programs import OtherPrograms, core_seconds_of_others, other_cores

# The fields are user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice, in ticks.
STAT = """cpu  9000 9000 9000 9000 9000 9000 9000 9000 9000 9000
cpu0 1000 100 500 70000 600 20 30 50 400 40
cpu1 2000 0 300 60000 0 0 0 0 0 0
cpu10 80000 0 0 0 0 0 0 0 0 0
intr 12345
"""
BUSY_TICKS = 1000 + 100 + 500 + 20 + 30 + 50 + 2000 + 300
ROOT = 100
PROCESSES = {
    # process: its name, its parent, and its ticks: user, kernel, and those of its ended children
    1: ("init", 0, (7000, 0, 0, 0)),
    ROOT: ("python (run) 3", 1, (800, 90, 7, 3)),
    101: ("worker", ROOT, (60, 5, 0, 0)),
    102: ("pool", 101, (20, 0, 0, 1)),
    103: ("rank 1", ROOT, (5000, 0, 0, 0)),
    200: ("another", 1, (1500, 0, 0, 0)),
}
OWN_TICKS = (800 + 90 + 7 + 3) + (60 + 5) + (20 + 1)


def test_the_counts_are_those_of_the_files(tmp_path, monkeypatch):
    (tmp_path / "stat").write_text(STAT)
    for pid, (name, parent, ticks) in PROCESSES.items():
        (tmp_path / str(pid)).mkdir()
        fields = [pid, f"({name})", "S", parent, *[0] * 9, *ticks, 20, 0, 1, 0]
        (tmp_path / str(pid) / "stat").write_text(" ".join(map(str, fields)))
    # An entry that is no process, and a process that ended between two system calls.
    (tmp_path / "self").mkdir()
    (tmp_path / "300").mkdir()
    # Slurm gave process 103 other cores than ours.
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {10} if pid == 103 else {0, 1})
    ticks = core_seconds_of_others(ROOT, tmp_path) * os.sysconf("SC_CLK_TCK")
    assert ticks == pytest.approx(BUSY_TICKS - OWN_TICKS)


def test_a_system_without_proc_is_unknown(tmp_path):
    assert core_seconds_of_others(ROOT, tmp_path) is None
    clock = Clock()
    watch = OtherPrograms(clock, lambda: None)
    watch.start()
    watch.count()
    assert other_cores(clock) is None


def test_the_mean_is_carried_on_by_a_resume(monkeypatch):
    """48 core-seconds in 60 s, none in the next 20 s; the counts of a resume begin at another number."""
    monkeypatch.setattr(
        other_programs.time, "perf_counter", iter([0.0, 60.0, 100.0, 120.0]).__next__
    )
    clock = Clock()
    for counts in ([5.0, 53.0], [900.0, 899.9]):
        state = clock.state_dict()
        clock = Clock()
        clock.load_state_dict(state)
        watch = OtherPrograms(clock, iter(counts).__next__)
        watch.start()
        watch.count()
    assert other_cores(clock) == pytest.approx(48 / 80)
