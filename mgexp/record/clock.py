"""Named, accumulating seconds: what a run spent its time on.

Names in use: `train` (holds `input_wait` and `shape_warmup`), `input_wait`, `evaluate`,
`precise_bn`, `checkpoint`, `shape_warmup`, `program`. Each is counted on its own: a clock inside
another counts in both, so `train` must be stopped while the run evaluates.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


class Clock:
    """Seconds by name, carried across resumes by `state_dict` and `load_state_dict`.

    `now` gives the present time in seconds from any fixed origin. Work on an accelerator is
    asynchronous: who measures it synchronises first.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._started: dict[str, float] = {}

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Count the seconds of the block, also where it ends in an exception.

        Raises ValueError if `name` is running already: the seconds would be counted twice.
        """
        if name in self._started:
            raise ValueError(f"clock {name!r} is running already")
        self._started[name] = self._now()
        try:
            yield
        finally:
            self._seconds[name] += self._now() - self._started.pop(name)

    def add(self, name: str, seconds: float) -> None:
        """Count seconds that were measured elsewhere."""
        if seconds < 0:
            raise ValueError(f"clock {name!r} cannot go back by {seconds} seconds")
        self._seconds[name] += seconds

    def seconds(self, name: str) -> float:
        """Seconds so far, those of a block that is still running included; 0.0 if never used."""
        running = self._now() - self._started[name] if name in self._started else 0.0
        return self._seconds.get(name, 0.0) + running

    def state_dict(self) -> dict[str, float]:
        """Seconds so far by name, for a checkpoint."""
        names = sorted(self._seconds.keys() | self._started.keys())
        return {name: self.seconds(name) for name in names}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Add the seconds of the processes before this one to those counted here since its start.

        Seconds between that checkpoint and the kill are not in it: steps that are done again are
        counted once.
        """
        for name, seconds in state.items():
            self.add(name, seconds)


def seconds_since_process_start(stat: Path = Path("/proc/self/stat")) -> float:
    """Age of this process, to 0.01 s: what it spent on its start and its imports. 0 but on Linux."""
    if not stat.exists():
        return 0.0
    # Field 22, in ticks since the machine started; field 2, the name, may hold spaces and brackets.
    ticks = int(stat.read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
