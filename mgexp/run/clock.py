"""Count seconds by name, also across resumes, and time steps on a CPU or a GPU."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

CLOCKS = (
    *("train", "steady", "input_wait"),
    *("evaluate", "precise_bn", "checkpoint", "shape_warmup", "program"),
)
"""The seconds of result.json and runs.jsonl. `train` includes `input_wait` and `shape_warmup`, and `steady` is
`train` without `shape_warmup`."""


class Clock:
    """A counter of seconds by name. If one name is measured inside another, both count the seconds.

    `now` gives the present time in seconds. Work on a GPU is asynchronous: synchronise before you measure it.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._started: dict[str, float] = {}

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Count the seconds of the block, also if it ends with an exception."""
        if name in self._started:
            raise ValueError(f"clock {name!r} is running already")
        self._started[name] = self._now()
        try:
            yield
        finally:
            self._seconds[name] += self._now() - self._started.pop(name)

    def add(self, name: str, seconds: float) -> None:
        """Count seconds that were measured elsewhere."""
        self._seconds[name] += seconds

    def seconds(self, name: str) -> float:
        """Return the seconds so far, including a block that still runs; 0.0 for an unused name."""
        running = self._now() - self._started[name] if name in self._started else 0.0
        return self._seconds.get(name, 0.0) + running

    def record(self) -> dict[str, float]:
        """List the seconds of each activity of a run. ``steady`` is training without the shapes' warm-up."""
        seconds = {name: self.seconds(name) for name in CLOCKS}
        return {**seconds, "steady": seconds["train"] - seconds["shape_warmup"]}

    def state_dict(self) -> dict[str, float]:
        names = sorted(self._seconds.keys() | self._started.keys())
        return {name: self.seconds(name) for name in names}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Add the seconds of earlier processes to those of this one."""
        # The seconds were saved with the checkpoint. Steps between it and a kill are done again and count once.
        for name, seconds in state.items():
            self.add(name, seconds)


def seconds_since_process_start() -> float:
    """Return the seconds since this process started, imports included."""
    # Field 22 is the start in ticks since the machine started. Field 2, the name, may contain spaces and brackets,
    # so count after its last bracket. CLOCK_BOOTTIME counts the time of a suspended machine, as field 22 does.
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


class StepTimer:
    """A timer of steps from ``start`` to ``stop``. ``computed`` marks the end of the computation between them."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._steps: list[list[Any]] = []

    def start(self) -> None:
        """Note the start of a step, before the wait for its clips."""
        self._steps.append([self._now()])

    def computed(self) -> None:
        """Note that the last work of a step was queued. Until ``stop`` the device waits for the next clips."""
        self._steps[-1].append(self._now())

    def stop(self) -> None:
        """Note the end of a step, after the wait for the clips of the next one."""
        self._steps[-1].append(self._now())

    def drop(self) -> None:
        """Forget the last start: the step was not taken."""
        self._steps.pop()

    def read(self) -> list[tuple[float, float]]:
        """Return (seconds, seconds after ``computed``) of each step since the last call. Wait for the last."""
        steps, self._steps = self._steps, []
        if not self._on_gpu:
            return [(end - start, end - computed) for start, computed, end in steps]
        # A GPU does the work of its queue in order, so the last event comes after all others.
        if steps:
            steps[-1][2].synchronize()
        return [
            (start.elapsed_time(end) / 1000, computed.elapsed_time(end) / 1000)
            for start, computed, end in steps
        ]

    def _now(self) -> Any:  # noqa: ANN401
        if not self._on_gpu:
            return time.perf_counter()
        # A GPU computes while Python continues. So events go into its queue, and are read later, all at once.
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event
