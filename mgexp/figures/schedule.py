"""The schedules of rows side by side: shapes, learning rate, BN groups, cost of a step, clips that it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from mgexp.figures.style import (
    FAINT,
    Columns,
    PrintFigure,
    ink,
    printed,
    quiet_grid,
    row_colours,
    row_label,
)
from mgexp.models.cost import FLOPS_PER_MAC, TRAINING_PER_FORWARD, train_flops
from mgexp.multigrid.phases import Phase
from mgexp.multigrid.schedule import Schedule
from mgexp.multigrid.shapes import BatchShape
from mgexp.results.model import COARSE_CONTROL

MAX_LR_STEPS = 400
"""Steps whose learning rate is looked at: more do not show in a panel of a few centimetres."""


@dataclass(frozen=True)
class RowSchedule:
    """A row; ``macs`` are those of a forward pass of one clip, by (frames, crop)."""

    name: str
    schedule: Schedule
    macs: Mapping[tuple[int, int], int]

    @property
    def train_flops(self) -> int:
        """Of all steps."""
        return train_flops(self.schedule, dict(self.macs))

    @property
    def work(self) -> tuple[int, int]:
        """Steps and training FLOPs: what a run of this row comes to."""
        return self.schedule.total_steps, self.train_flops

    def flops_before(self, step: int) -> int:
        """Training FLOPs of the steps before ``step``."""
        done = (
            replace(phase, end_step=min(phase.end_step, step))
            for phase in self.schedule.phases
            if phase.start_step < step
        )
        return train_flops(replace(self.schedule, phases=tuple(done)), dict(self.macs))

    def clips(self, shape: BatchShape) -> int:
        """Of a mini-batch of ``shape``, over all processes."""
        return self.schedule.recipe.clips * shape.ratio

    def step_flops(self, shape: BatchShape) -> int:
        """Training FLOPs of a step of ``shape``."""
        macs = self.macs[shape.frames, shape.crop]
        return self.clips(shape) * macs * FLOPS_PER_MAC * TRAINING_PER_FORWARD

    def clips_per_teraflop(self, phase: Phase) -> float:
        """Clips that a turn of the cycle takes for each 10¹² FLOPs of training.

        That is also the clips a second that must be loaded where the devices do 10¹² FLOPs a second.
        """
        shapes = phase.cycle.shapes
        return 1e12 * sum(map(self.clips, shapes)) / sum(map(self.step_flops, shapes))

    def learning_rates(self) -> list[tuple[int, float]]:
        """(step, rate) at every phase's ends, and at most MAX_LR_STEPS evenly spaced ones."""
        total = self.schedule.total_steps
        stride = max(1, total // MAX_LR_STEPS)
        ends = {step for one in self.schedule.phases for step in (one.start_step, one.end_step - 1)}
        steps = sorted({*ends, *range(0, total, stride)})
        return [(step, self.schedule.plan_at(step).lr) for step in steps]

    def stage_starts(self) -> list[int]:
        """First steps of the stages but the first."""
        phases = self.schedule.phases
        return [new.start_step for old, new in pairwise(phases) if new.stage != old.stage]


MAX_ROWS: dict[Columns, int] = {1: 2, 2: 4}
"""Rows that stand side by side in a figure. Assumption: panels narrower than 4 cm cannot be read."""

PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"))


@dataclass(frozen=True)
class Panel:
    """A line of panels: ``levels`` of the shapes that a phase takes in turn, and their ``mean``."""

    label: str
    scale: Literal["log", "linear"]
    levels: Callable[[RowSchedule, Phase], Sequence[float]]
    mean: Callable[[RowSchedule, Phase], float]


def draw_schedule(rows: Sequence[RowSchedule], columns: Columns = 2) -> PrintFigure:
    """A column of panels per row: the first ones, with the last of all as the last; 0.82 inches a panel."""
    shown = _shown(rows, MAX_ROWS[columns])
    panels = _panels(shown)
    colours = row_colours([row.name for row in shown])
    with printed():
        figure = PrintFigure(columns, 0.55 + 0.82 * (len(panels) + 1))
        grid = figure.subplots(
            len(panels) + 1, len(shown), squeeze=False, sharex="col", sharey="row"
        )
        for row, column in zip(shown, grid.T, strict=True):
            _title(column[0], row, colours[row.name])
            for axes, panel in zip(column[:-1], panels, strict=True):
                _draw_levels(axes, row, panel, colours[row.name])
            _draw_rates(column[-1], row, colours[row.name])
            for axes in column:
                _mark_stages(axes, row)
        for line, panel in zip(grid[:-1], panels, strict=True):
            _scale(line[0], panel, shown)
        grid[-1][0].set_ylabel("learning rate")
        figure.align_ylabels(list(grid[:, 0]))
        figure.settle()
    return figure


def _shown(rows: Sequence[RowSchedule], most: int) -> Sequence[RowSchedule]:
    """Rows that do different things, not the control; where there are too many, the first ones and the last."""
    different: list[RowSchedule] = []
    for row in [row for row in rows if row.name != COARSE_CONTROL] or rows:
        if all(row.schedule != other.schedule for other in different):
            different.append(row)
    return different if len(different) <= most else [*different[: most - 1], different[-1]]


def _panels(rows: Sequence[RowSchedule]) -> list[Panel]:
    largest = max(
        row.step_flops(s) for row in rows for p in row.schedule.phases for s in p.cycle.shapes
    )
    unit, prefix = next(one for one in PREFIXES if largest >= one[0] or one is PREFIXES[-1])
    return [
        _of_shapes("frames", "log", lambda _, shape: shape.frames),
        _of_shapes("crop (pixels)", "log", lambda _, shape: shape.crop),
        _of_shapes("clips a step", "log", lambda row, shape: row.clips(shape)),
        Panel("BN groups\na step", "log", _groups, lambda row, phase: _groups(row, phase)[0]),
        _of_shapes(
            f"{prefix}FLOPs a step", "linear", lambda row, shape: row.step_flops(shape) / unit
        ),
        Panel(
            "clips a second\nper TFLOP/s",
            "log",
            lambda row, phase: [
                1e12 * row.clips(s) / row.step_flops(s) for s in phase.cycle.shapes
            ],
            RowSchedule.clips_per_teraflop,
        ),
    ]


def _of_shapes(
    label: str, scale: Literal["log", "linear"], value: Callable[[RowSchedule, BatchShape], float]
) -> Panel:
    def levels(row: RowSchedule, phase: Phase) -> list[float]:
        return [value(row, shape) for shape in phase.cycle.shapes]

    return Panel(label, scale, levels, lambda row, phase: fmean(levels(row, phase)))


def _groups(_: RowSchedule, phase: Phase) -> list[float]:
    """Groups of batch normalisation in a mini-batch, for a schedule of one process."""
    return [phase.num_bn_groups]


def _title(axes: Axes, row: RowSchedule, colour: str) -> None:
    schedule = row.schedule
    saved = f" ({schedule.step_saving:.2f}× fewer)" if schedule.step_saving > 1.005 else ""
    axes.set_title(row_label(row.name), weight="bold", color=ink(colour), pad=13)
    axes.text(
        0,
        1.06,
        f"{schedule.total_steps:,} steps{saved}",
        transform=axes.transAxes,
        fontsize=6.5,
        va="bottom",
    )


def _draw_levels(axes: Axes, row: RowSchedule, panel: Panel, colour: str) -> None:
    """Thin: the shapes that are taken in turn; thick: their mean."""
    for phase in row.schedule.phases:
        ends = (phase.start_step, phase.end_step)
        levels = sorted(set(panel.levels(row, phase)))
        axes.fill_between(ends, levels[0], levels[-1], color=colour, alpha=0.12, lw=0)
        if len(levels) > 1:
            axes.hlines(levels, *ends, color=colour, lw=0.6, alpha=0.75)
    steps = [step for one in row.schedule.phases for step in (one.start_step, one.end_step)]
    means = [panel.mean(row, phase) for phase in row.schedule.phases for _ in range(2)]
    axes.plot(steps, means, color=colour, lw=1.4, solid_capstyle="butt")


def _draw_rates(axes: Axes, row: RowSchedule, colour: str) -> None:
    steps, rates = zip(*row.learning_rates(), strict=True)
    axes.plot(steps, rates, color=colour, lw=1.2)
    axes.set_yscale("log")
    axes.set_xlim(0, row.schedule.total_steps)
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(_thousands))
    axes.set_xlabel("step")


def _thousands(step: float, _: object) -> str:
    return f"{step / 1000:g}k" if step >= 10_000 else f"{step:,.0f}"


def _mark_stages(axes: Axes, row: RowSchedule) -> None:
    quiet_grid(axes)
    axes.grid(False, axis="x")
    for step in row.stage_starts():
        axes.axvline(step, color=FAINT, lw=0.6, ls=(0, (1, 2)))


def _scale(axes: Axes, panel: Panel, rows: Sequence[RowSchedule]) -> None:
    """Label and ticks of a line of panels; a logarithmic one has ticks at the levels that occur."""
    axes.set_ylabel(panel.label)
    if panel.scale == "linear":
        axes.set_ylim(0, 1.2 * axes.get_ylim()[1])
        axes.yaxis.set_major_locator(MaxNLocator(4))
        return
    axes.set_yscale("log", base=2)
    found = {v for row in rows for phase in row.schedule.phases for v in panel.levels(row, phase)}
    ticks = _apart(sorted(found))
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(_short))
    axes.set_ylim(min(found) / 1.3, max(found) * 1.3)


def _apart(levels: Sequence[float]) -> list[float]:
    """The levels that can stand beside each other as ticks: at least a seventh of the whole range apart."""
    least = max(1.15, (levels[-1] / levels[0]) ** (1 / 7))
    kept = [levels[0]]
    for level in levels[1:]:
        if level >= kept[-1] * least:
            kept.append(level)
    return kept


def _short(value: float, _: object) -> str:
    """Whole numbers as they are, others to two digits."""
    digits = value if value == round(value) else float(f"{value:.2g}")
    return f"{digits:,.10g}"
