"""What other programs use: /proc files written by hand, and a child that computes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from mgexp.run import other_programs
from mgexp.run.clock import Clock
from mgexp.run.other_programs import CoreUse, OtherPrograms, other_cores, read_core_use

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


@pytest.fixture
def proc(tmp_path):
    (tmp_path / "stat").write_text(STAT)
    for pid, (name, parent, ticks) in PROCESSES.items():
        (tmp_path / str(pid)).mkdir()
        fields = [pid, f"({name})", "S", parent, *[0] * 9, *ticks, 20, 0, 1, 0]
        (tmp_path / str(pid) / "stat").write_text(" ".join(map(str, fields)))
    # Linux cuts a name after 15 bytes, here inside a letter.
    name = "тренировка".encode()[:15]
    (tmp_path / "200" / "stat").write_bytes(b"200 (" + name + b") S 1 " + b"0 " * 20)
    # Entries that are no processes, and a process that ended between two system calls.
    (tmp_path / "self").mkdir()
    (tmp_path / "300").mkdir()
    return tmp_path


def cores_of(pid):
    """Slurm gave process 103 other cores than ours."""
    return {10} if pid == 103 else {0, 1}


def test_the_counts_are_those_of_the_files(proc):
    use = read_core_use(ROOT, proc, cores_of)
    rate = os.sysconf("SC_CLK_TCK")
    assert use.busy == BUSY_TICKS / rate
    assert use.own == OWN_TICKS / rate


def test_processes_of_one_launcher_are_all_ours(proc):
    use = read_core_use(ROOT, proc, lambda pid: {0, 1})
    assert use.own == (OWN_TICKS + 5000) / os.sysconf("SC_CLK_TCK")


def test_a_system_without_proc_is_unknown(tmp_path):
    assert read_core_use(ROOT, tmp_path, cores_of) is None


def test_own_work_is_not_that_of_others_and_never_negative():
    use = CoreUse(10.0, busy=100.0, own=50.0)
    assert CoreUse(20.0, busy=115.0, own=57.0).others_since(use) == 8.0
    assert CoreUse(20.0, busy=110.0, own=60.5).others_since(use) == 0.0


@pytest.fixture
def watched(monkeypatch):
    """A watch on two cores, whose time and counts a test sets: .at(time, busy, own), .clock, .said."""
    found = SimpleNamespace(clock=Clock(), said=[], use=CoreUse(0.0, 0.0, 0.0))
    monkeypatch.setattr(other_programs, "num_cores", lambda: 2)
    timer = SimpleNamespace(perf_counter=lambda: found.use.time)
    monkeypatch.setattr(other_programs, "time", timer)
    found.watch = OtherPrograms(found.clock, lambda: found.use, found.said.append)
    found.watch.start()

    def at(*use):
        found.use = CoreUse(*use)
        found.watch.note()

    found.at = at
    return found


def test_a_busy_machine_is_told_after_a_minute_and_then_every_ten(watched):
    watched.at(59.0, 100.0, 0.0)
    assert watched.said == [] and other_cores(watched.clock) is None
    watched.at(60.0, 108.0, 60.0)
    assert watched.said == [
        "Other programs keep 0.8 of 2 cores busy: times are not comparable, "
        "and two trainings at once are slower"
    ]
    for minute in range(2, 11):
        watched.at(60.0 * minute, 108.0 * minute, 60.0 * minute)
    assert len(watched.said) == 1
    watched.at(660.0, 108.0 * 11, 660.0)
    assert len(watched.said) == 2
    assert other_cores(watched.clock) == pytest.approx(0.8)


def test_a_quarter_of_a_core_is_no_word_worth(watched):
    watched.at(60.0, 15.0, 0.0)
    assert watched.said == []
    watched.at(120.0, 31.0, 0.0)
    assert len(watched.said) == 1


def test_many_cores_allow_more(monkeypatch):
    monkeypatch.setattr(other_programs, "num_cores", lambda: 64)
    assert not other_programs.is_busy(8.0) and other_programs.is_busy(8.1)


def test_the_mean_is_carried_on_by_seconds(watched):
    watched.at(60.0, 108.0, 60.0)
    resumed = Clock()
    resumed.load_state_dict(watched.clock.state_dict())
    watch = OtherPrograms(resumed, lambda: watched.use, watched.said.append)
    watch.start()
    watched.use = CoreUse(80.0, 128.0, 80.0)
    watch.count()
    assert other_cores(resumed) == pytest.approx(48 / 80)


def test_nothing_is_counted_where_nothing_is_known():
    clock = Clock()
    watch = OtherPrograms(clock, lambda: None, lambda text: None)
    watch.start()
    watch.note()
    watch.count()
    assert other_cores(clock) is None


def test_a_child_that_computes_is_seen():
    """Half a second of computing is ours if the child is ours, and of others if our root is another process."""
    compute = "import time\nwhile time.process_time() < 0.5: pass\nprint(); time.sleep(60)"
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    before = read_core_use(os.getpid()), read_core_use(sleeper.pid)
    child = subprocess.Popen([sys.executable, "-c", compute], stdout=subprocess.PIPE)
    try:
        child.stdout.readline()
        time.sleep(0.02)  # two ticks, after which its time is counted
        after = read_core_use(os.getpid()), read_core_use(sleeper.pid)
        assert 0.45 < after[0].own - before[0].own < 5.0
        # The sleeper starts up while the time runs, so a little of it counts.
        assert after[1].own - before[1].own < 0.25
        assert after[1].others_since(before[1]) > 0.2
    finally:
        for process in (child, sleeper):
            process.kill()
            process.wait()
        child.stdout.close()


def test_the_present_use_is_a_number_on_linux():
    assert other_programs.other_cores_now(0.05) >= 0.0
