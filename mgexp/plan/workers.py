"""How many loader workers keep up with training, and how many batches each keeps ready."""

from __future__ import annotations

import math
from dataclasses import dataclass

HEADROOM = 1.25
"""Workers more than the mean needs: clips differ in cost. Assumption."""
PREFETCH = 2
"""Batches that each worker keeps ready: one that is taken, one that is made. torch's own default."""


@dataclass(frozen=True)
class Workers:
    """Settings of a loader: DATA_LOADER.NUM_WORKERS and PREFETCH_FACTOR."""

    num_workers: int
    prefetch_factor: int


def choose_workers(
    load_core_seconds: float,
    step_seconds: float,
    max_workers: int,
    batch_bytes: int,
    free_bytes: float,
) -> Workers:
    """As many workers as load a step's clips, ``load_core_seconds``, while one is trained, ``step_seconds``.

    At least one and at most ``max_workers``; fewer batches ready, then fewer workers, where their batches of
    ``batch_bytes`` and the one in use do not fit into ``free_bytes`` of shared memory.
    """
    wanted = min(
        max(1, math.ceil(HEADROOM * load_core_seconds / step_seconds)), max(1, max_workers)
    )
    num_batches = (
        max(1, int(free_bytes // batch_bytes) - 1) if math.isfinite(free_bytes) else math.inf
    )
    for prefetch in range(PREFETCH, 0, -1):
        if wanted * prefetch <= num_batches:
            return Workers(wanted, prefetch)
    return Workers(int(num_batches), 1)
