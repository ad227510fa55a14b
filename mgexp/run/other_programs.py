"""Measure how many of our cores other programs and virtual machines ("steal") keep busy, from Linux's /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from mgexp.run.clock import Clock

PROC = Path("/proc")
OBSERVED, OTHERS = "observed", "other_programs"
"""The names in the clock: the seconds that were observed, and the core-seconds of other programs in them."""
BUSY_CORES = 0.15
"""A run is busy if other programs kept more than this many of its cores busy on average. Assumption: on two cores
this is 7.5 % of the machine, about the spread of the seconds of undisturbed runs."""


def core_seconds_of_others(root: int, proc: Path = PROC) -> float | None:
    """Return the core-seconds that others have used on our cores since an unknown time; None where it is unknown.

    Ours are the processes below ``root`` that may run on our cores: Slurm can give each process its own cores.
    """
    if not (proc / "stat").exists():
        return None
    cores = os.sched_getaffinity(0)
    ticks = 0
    # Source of the fields: man proc_stat.
    for line in (proc / "stat").read_text().splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cores:
            user, nice, system, _idle, _iowait, *irq_softirq_steal = map(int, fields[:8])
            ticks += user + nice + system + sum(irq_softirq_steal)
    parents, used = {}, {}
    for path in proc.glob("[0-9]*/stat"):
        pid = int(path.parent.name)
        try:
            # Field 2, the name, may contain spaces and brackets, so count after its last bracket.
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
            is_on_our_cores = bool(os.sched_getaffinity(pid) & cores)
        except OSError:
            continue  # The process has ended.
        # Fields 14 to 17 are the ticks of the process and of its ended children, in user mode and in the kernel.
        parents[pid], used[pid] = int(fields[1]), is_on_our_cores * sum(map(int, fields[11:15]))
    for pid, own in used.items():
        ancestor = pid
        while ancestor != root and ancestor in parents:
            ancestor = parents[ancestor]
        ticks -= own if ancestor == root else 0
    return ticks / os.sysconf("SC_CLK_TCK")


class OtherPrograms:
    """A watch over other programs that counts in ``clock``. ``read`` gives `core_seconds_of_others`."""

    def __init__(self, clock: Clock, read: Callable[[], float | None]) -> None:
        self._clock, self._read = clock, read
        self._last: tuple[float, float | None] = (0.0, None)

    def start(self) -> None:
        self._last = (time.perf_counter(), self._read())

    def count(self) -> None:
        """Count what other programs did since the start or the last count."""
        (then, before), (now, after) = self._last, (time.perf_counter(), self._read())
        if before is not None and after is not None:
            self._clock.add(OBSERVED, now - then)
            # The counts are rounded to ticks, so a difference may be below 0.
            self._clock.add(OTHERS, max(0.0, after - before))
        self._last = (now, after)


def other_cores(clock: Clock) -> float | None:
    """Return how many cores other programs used on average while the run trained; None if nothing was observed."""
    observed = clock.seconds(OBSERVED)
    return clock.seconds(OTHERS) / observed if observed else None


def other_cores_now() -> float | None:
    """Observe for a second, and return the number of cores that other programs use; None if it is not known."""
    clock = Clock()
    watch = OtherPrograms(clock, lambda: core_seconds_of_others(os.getpid()))
    watch.start()
    time.sleep(1.0)
    watch.count()
    return other_cores(clock)


def is_busy(others: float) -> bool:
    """Return whether ``others``, a number of cores, is so large that times on our cores mean little."""
    return others > BUSY_CORES
