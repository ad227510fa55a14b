"""What loading the clips of a schedule costs: milliseconds per clip, measured, times the clips of its steps."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mgexp.data.clips import TrainingClips
from mgexp.multigrid.phases import Phase
from mgexp.multigrid.sampler import ClipRequest
from mgexp.multigrid.schedule import Schedule

REPEATS = 3
"""Clips of each video and shape that are measured. Assumption: the median of three is steady enough."""

Kind = tuple[int, int, tuple[int, int] | None]
"""(frames, crop, stride range): what the cost of a clip depends on."""


@dataclass(frozen=True)
class PhaseCost:
    """A phase: ``clips_per_step``, a mean over its cycle, and seconds of one core that loading them takes."""

    phase: Phase
    clips_per_step: float
    core_seconds_per_step: float

    @property
    def core_seconds(self) -> float:
        """Of all its steps."""
        return self.core_seconds_per_step * self.phase.num_steps

    @property
    def ms_per_clip(self) -> float:
        """Milliseconds of one core, a mean over the clips of the cycle."""
        return 1000 * self.core_seconds_per_step / self.clips_per_step


def kinds(schedule: Schedule) -> list[Kind]:
    """Every kind of clip that a schedule loads, each once."""
    found = (
        (shape.frames, shape.crop, phase.stride_range)
        for phase in schedule.phases
        for shape in phase.cycle.shapes
    )
    return list(dict.fromkeys(found))


def measure_clips(clips: TrainingClips, wanted: Sequence[Kind]) -> dict[Kind, float]:
    """Seconds to load a clip of each kind, in this process: the mean over videos of the median of REPEATS.

    Raises RuntimeError where a video fails; give those that can be decoded.
    """
    return {kind: _mean_seconds(clips, kind) for kind in wanted}


def phase_costs(schedule: Schedule, seconds: Mapping[Kind, float]) -> list[PhaseCost]:
    """The cost of every phase, from ``seconds`` per clip of each kind."""
    return [_phase_cost(schedule.recipe.clips, phase, seconds) for phase in schedule.phases]


def loading_table(source: Sequence[PhaseCost], store: Sequence[PhaseCost]) -> str:
    """A line per phase: its steps, shapes and clips, and what loading costs from the videos and the store."""
    head = ("stage", "steps", "frames", "crops", "clips/step",
            "ms/clip video", "store", "core s/step video", "store")  # fmt: skip
    rows = [head, *(_cells(*pair) for pair in zip(source, store, strict=True))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    hours = [sum(cost.core_seconds for cost in costs) / 3600 for costs in (source, store)]
    total = (
        f"loading all clips of this schedule: {hours[0]:.2f} core hours from the videos, {hours[1]:.2f} from "
        f"the store, {hours[0] / hours[1]:.1f} times less"
    )
    return "\n".join([*lines, total])


def _phase_cost(clips: int, phase: Phase, seconds: Mapping[Kind, float]) -> PhaseCost:
    shapes = phase.cycle.shapes
    costs = [
        clips * shape.ratio * seconds[shape.frames, shape.crop, phase.stride_range]
        for shape in shapes
    ]
    return PhaseCost(phase, clips * phase.cycle.mean_ratio, sum(costs) / len(costs))


def _mean_seconds(clips: TrainingClips, kind: Kind) -> float:
    videos = range(len(clips.records))
    return statistics.fmean(_median_seconds(clips, kind, video) for video in videos)


def _median_seconds(clips: TrainingClips, kind: Kind, video: int) -> float:
    frames, crop, stride_range = kind
    requests = [ClipRequest(video, frames, crop, stride_range, (0, i)) for i in range(REPEATS)]
    return statistics.median(_seconds(clips, request) for request in requests)


def _seconds(clips: TrainingClips, request: ClipRequest) -> float:
    start = time.perf_counter()
    clip = clips[request]
    if clip.unusable:
        raise RuntimeError(f"a clip that is to be measured cannot be loaded: {clip.unusable[0][1]}")
    return time.perf_counter() - start


def _cells(source: PhaseCost, store: PhaseCost) -> tuple[str, ...]:
    shapes = source.phase.cycle.shapes
    return (
        str(source.phase.stage),
        str(source.phase.num_steps),
        str(source.phase.cycle.base.frames),
        " ".join(str(shape.crop) for shape in shapes),
        f"{source.clips_per_step:.1f}",
        f"{source.ms_per_clip:.2f}",
        f"{store.ms_per_clip:.2f}",
        f"{source.core_seconds_per_step:.2f}",
        f"{store.core_seconds_per_step:.2f}",
    )
