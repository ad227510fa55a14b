"""What a schedule does, in plain values that a checkpoint holds: a run goes on under the same schedule only.

The configuration is compared by itself (``folder.py``); this also finds code that makes another schedule or other
draws of the same configuration. The number of processes may change: it is in none of the values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

from mgexp.errors import listed
from mgexp.multigrid.phases import Phase
from mgexp.multigrid.sampler import Stream
from mgexp.multigrid.schedule import Schedule

NUM_DRAWS = 8
"""Videos of the stream that are compared. Assumption: other code, or another torch, draws others among them."""
MOST_PHASES = 6
"""Phases whose changes are told in full: one video more changes them all."""

Values = Mapping[str, Any]


def fingerprint(schedule: Schedule, seed: int) -> dict[str, Any]:
    """Numbers, texts and lists of these, named in words."""
    stream = Stream(schedule.num_videos, seed)
    return {
        "training videos": schedule.num_videos,
        "steps": schedule.total_steps,
        "first videos of the stream": [
            stream.index_at(position) for position in range(min(NUM_DRAWS, schedule.num_videos))
        ],
        "phases": [_phase_values(schedule, phase) for phase in schedule.phases],
    }


def _phase_values(schedule: Schedule, phase: Phase) -> dict[str, Any]:
    share = phase.clips // schedule.num_processes
    groups = phase.num_bn_groups
    shapes = (
        f"{schedule.recipe.clips * s.ratio}x{s.frames}x{s.crop}²" for s in phase.turns.turn(0)
    )
    return {
        "steps": f"{phase.start_step}–{phase.end_step}",
        "stage": phase.stage,
        "first clip": phase.first_clip,
        "mini-batches": " ".join(shapes),
        "strides": "segments"
        if phase.stride_range is None
        else "–".join(map(str, phase.stride_range)),
        "clips of a BN group": share // groups if groups > 0 else share * -groups,
        "first learning rate": schedule.plan_at(phase.start_step).lr,
        "last learning rate": schedule.plan_at(phase.end_step - 1).lr,
    }


def differences(saved: Values, now: Values) -> list[str]:
    """A sentence for each difference, none where both do the same."""
    own = {name: value for name, value in now.items() if name != "phases"}
    sentences = [f"schedule: {text}" for text in _changes(saved, own)]
    pairs = zip_longest(saved["phases"], now["phases"])
    phases = [
        _phase_sentence(number, old, new)
        for number, (old, new) in enumerate(pairs)
        if old is None or new is None or [*_changes(old, new)]
    ]
    if phases:
        sentences.append(f"schedule: {listed(phases, MOST_PHASES, separator='; ')}")
    return sentences


def _phase_sentence(number: int, old: Values | None, new: Values | None) -> str:
    if new is None:
        return f"phase {number} is gone"
    if old is None:
        return f"phase {number} is new"
    return f"phase {number}: {', '.join(_changes(old, new))}"


def _changes(old: Values, new: Values) -> Iterator[str]:
    for name, value in new.items():
        if name in old and not _is_same(old[name], value):
            yield f"{name}: {old[name]} before, now {value}"


def _is_same(old: object, new: object) -> bool:
    if isinstance(old, float) and isinstance(new, float):
        return math.isclose(
            old, new, rel_tol=1e-9
        )  # the last bits of a learning rate are its rounding
    return old == new
