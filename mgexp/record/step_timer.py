"""Seconds of steps: read at once on a CPU, later and together on a GPU, which computes by itself."""

from __future__ import annotations

import time
from typing import Any

import torch


class StepTimer:
    """``start`` and ``stop`` around each step; ``read`` gives the seconds of all steps since the last reading."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._starts: list[Any] = []
        self._ends: list[Any] = []

    def start(self) -> None:
        """Before the wait for the step's clips."""
        self._starts.append(self._now())

    def stop(self) -> None:
        """After the step's last work was given out."""
        self._ends.append(self._now())

    def drop(self) -> None:
        """Forgets a start: the step was not taken."""
        self._starts.pop()

    def is_device_idle(self) -> bool:
        """Whether all work given out is done; a CPU always is."""
        return not self._on_gpu or not self._ends or bool(self._ends[-1].query())

    def read(self) -> list[float]:
        """Seconds of each step; on a GPU, waits for the last."""
        pairs = list(zip(self._starts, self._ends, strict=True))
        self._starts, self._ends = [], []
        if not self._on_gpu:
            return [end - start for start, end in pairs]
        if pairs:
            pairs[-1][1].synchronize()
        return [start.elapsed_time(end) / 1000 for start, end in pairs]

    def _now(self) -> Any:  # noqa: ANN401 - seconds, or an event of a GPU
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event
