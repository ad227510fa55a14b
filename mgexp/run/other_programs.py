"""Measure how many of this process's cores other programs keep busy, from Linux's /proc.

A busy machine makes times useless for comparisons, so a run writes this number into result.json and the log.
Time that other virtual machines take from ours ("steal") counts too, because it slows a run in the same way.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mgexp.run.clock import Clock
from mgexp.run.environment import num_cores

PROC = Path("/proc")
OBSERVED, OTHERS = "observed", "other_programs"
"""The names in the clock: the seconds that were observed, and the core-seconds of other programs in them."""
READING_SECONDS = 60.0
"""The seconds between two readings. A reading takes 25 µs for each process of the machine (measured)."""
SILENCE_SECONDS = 600.0
"""The shortest time between two warnings."""
MANY_CORES, LARGE_SHARE = 0.25, 1 / 8
"""A machine is busy if other programs use more than both: this many cores, and this share of our cores.

Assumption: less is what the system itself needs. On two cores both limits are the same.
"""


@dataclass(frozen=True)
class CoreUse:
    """The core-seconds that were used on our cores until ``time``: by everything, and by our own processes."""

    time: float
    busy: float
    own: float

    def others_since(self, earlier: CoreUse) -> float:
        """Return the core-seconds of other programs. The counts are rounded, so never return less than 0."""
        return max(0.0, (self.busy - earlier.busy) - (self.own - earlier.own))


def read_core_use(
    root: int, proc: Path = PROC, affinity: Callable[[int], set[int]] | None = None
) -> CoreUse | None:
    """Read the use of this process's cores; None where the system does not count it.

    ``root`` is the process whose descendants are ours: this process with its loader workers, or, if a launcher
    started several processes on this machine, the launcher. Only processes that may run on our cores are ours,
    because Slurm can give each process cores of its own.
    """
    affinity = affinity or getattr(os, "sched_getaffinity", None)
    if affinity is None or not (proc / "stat").exists():
        return None
    cores = affinity(0)
    now, busy = time.perf_counter(), _busy_ticks(cores, proc)
    own = _own_ticks(root, cores, proc, affinity)
    rate = os.sysconf("SC_CLK_TCK")
    return CoreUse(now, busy / rate, own / rate)


def _busy_ticks(cores: set[int], proc: Path) -> int:
    """Add up the ticks in which ``cores`` were busy. Source of the fields: man proc_stat."""
    total = 0
    for line in (proc / "stat").read_text().splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cores:
            user, nice, system, _idle, _iowait, *irq_softirq_steal = map(int, fields[:8])
            total += user + nice + system + sum(irq_softirq_steal)
    return total


def _own_ticks(root: int, cores: set[int], proc: Path, affinity: Callable[[int], set[int]]) -> int:
    """Add up the ticks of ``root`` and its descendants that may run on ``cores``, ended children included."""
    parents, ticks = {}, {}
    for path in proc.glob("[0-9]*/stat"):
        try:
            # Field 2, the name, may contain spaces and brackets, so count after its last bracket. Linux cuts names
            # after 15 bytes, so a name may end in a part of a character.
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # The process has ended.
        pid = int(path.parent.name)
        # Fields 14 to 17 are the ticks of the process and of its ended children, in user mode and in the kernel.
        parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    total = 0
    for pid, own in ticks.items():
        ancestor = pid
        while ancestor != root and ancestor in parents:
            ancestor = parents[ancestor]
        try:
            if ancestor == root and affinity(pid) & cores:
                total += own
        except OSError:
            continue  # The process has ended since.
    return total


class OtherPrograms:
    """A watch over other programs while a run trains. It counts in ``clock``, which a resume carries on.

    ``read`` gives the present use of our cores, or None where nothing is known. ``tell`` gets a warning if the
    machine is busy, at most every ten minutes.
    """

    def __init__(
        self,
        clock: Clock,
        read: Callable[[], CoreUse | None],
        tell: Callable[[str], None],
    ) -> None:
        self._clock, self._read, self._tell = clock, read, tell
        self._last: CoreUse | None = None
        self._told = -math.inf

    def start(self) -> None:
        """Start to observe."""
        self._last = self._read()

    def note(self) -> None:
        """Count, and warn if the machine is busy, if a minute has passed since the last reading."""
        if self._last is None or time.perf_counter() - self._last.time < READING_SECONDS:
            return
        others = self.count()
        if is_busy(others) and self._last.time - self._told >= SILENCE_SECONDS:
            self._told = self._last.time
            self._tell(
                f"{busy_text(others)}: times are not comparable, and two trainings at once are slower"
            )

    def count(self) -> float:
        """Count what other programs did since the last reading. Return the mean number of their cores."""
        use = self._read()
        if use is None or self._last is None:
            return 0.0
        seconds, others = use.time - self._last.time, use.others_since(self._last)
        self._clock.add(OBSERVED, seconds)
        self._clock.add(OTHERS, others)
        self._last = use
        return others / seconds


def other_cores(clock: Clock) -> float | None:
    """Return how many cores other programs used on average while the run trained; None if nothing was observed."""
    observed = clock.seconds(OBSERVED)
    return clock.seconds(OTHERS) / observed if observed else None


def other_cores_now(seconds: float = 1.0) -> float | None:
    """Observe for ``seconds``, and return the number of cores that other programs use; None if it is not known."""
    clock = Clock()
    watch = OtherPrograms(clock, lambda: read_core_use(os.getpid()), lambda _: None)
    watch.start()
    time.sleep(seconds)
    watch.count()
    return other_cores(clock)


def is_busy(others: float) -> bool:
    """Return whether ``others``, a number of cores, is so large that times on our cores mean little."""
    return others > max(MANY_CORES, LARGE_SHARE * num_cores())


def busy_text(others: float) -> str:
    """Say how many of our cores other programs use."""
    return f"Other programs keep {others:.1f} of {num_cores()} cores busy"
