"""Measured times of steps that several processes share, as people and programs read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from mgexp.multigrid.schedule import StepShape
from mgexp.plan.loading import Kind
from mgexp.plan.machine import Peak
from mgexp.plan.predict import LOADING, Balance, LegPrediction, RowPrediction
from mgexp.plan.timing import ONE_GROUP, OURS, PLAIN, TimedSteps, slowest_to_fastest
from mgexp.text import aligned

UNKNOWN = "unknown"


def duration(seconds: float) -> str:
    """In the unit that people would say: 12.3 s, 14 min 13 s, 49 h 55 min."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours:,} h {minutes:02d} min"


def row_table(rows: Sequence[RowPrediction]) -> str:
    """A line per row and number of GPUs; the speed-up is over the first row on as many GPUs."""
    head = ("row", "GPUs", "steps", "seconds", "training", "waiting", "times faster")
    baseline = {row.num_gpus: row.seconds for row in reversed(rows)}
    lines = [
        (
            row.name,
            str(row.num_gpus),
            str(row.num_steps),
            f"{row.seconds:.1f}",
            duration(row.seconds),
            f"{row.waiting_seconds / row.seconds:.0%}",
            f"{baseline[row.num_gpus] / row.seconds:.2f}",
        )
        for row in rows
    ]
    return aligned([head, *lines])


def phase_table(row: RowPrediction) -> str:
    """A line per cycle of shapes: milliseconds of a mean step by what they go into, and what binds."""
    head = ("mini-batches", "steps", "compute", "loading", "communication", "step", "binds")
    lines = [
        (
            shapes_text(leg),
            str(leg.leg.num_steps),
            _ms(leg.balance.compute),
            UNKNOWN if leg.balance.loading_core_seconds is None else _ms(leg.balance.loading),
            _ms(leg.balance.communication),
            _ms(leg.balance.wall),
            leg.balance.binds,
        )
        for leg in row.legs
    ]
    # On a CPU workers get what training leaves of the cores: clips take no less than the step.
    title = f"{row.name} on {_gpus(row.num_gpus)}, milliseconds of a step (loading: of its clips, beside training)"
    return f"{title}\n{aligned([head, *lines])}"


def shapes_text(leg: LegPrediction) -> str:
    """Such as 128x4x32² 64x4x45²."""
    return " ".join(map(str, leg.shapes))


def advice(row: RowPrediction, stores: Mapping[str, Mapping[Kind, float]]) -> list[str]:
    """A line per cycle that waits for loading, or whose batch norm spans processes; ``stores``: other loading."""
    lines = []
    for leg in row.legs:
        where = f"{row.name} on {_gpus(row.num_gpus)}, {shapes_text(leg)}"
        if leg.spans_processes:
            lines.append(
                f"{where}: fewer clips per GPU than a group of batch norm; the messages of that are not counted"
            )
        if leg.balance.binds == LOADING:
            lines.append(f"{where}: waits for loading; {remedy(leg, stores, row.num_gpus)}")
        elif leg.balance.waiting > 0.01 * leg.balance.wall:
            share = leg.balance.waiting / leg.balance.wall
            lines.append(
                f"{where}: {share:.0%} waiting, {leg.balance.binds} binds; {remedy(leg, stores, row.num_gpus)}"
            )
    return lines


def remedy(leg: LegPrediction, stores: Mapping[str, Mapping[Kind, float]], num_gpus: int) -> str:
    """How many workers of a process would end the waiting, or how many cores, and which store."""
    workers = leg.balance.workers_to_unbind()
    now = leg.balance.resources
    if workers is not None:
        found = [f"{workers} workers for each process (now {now.num_workers})"]
    else:
        cores = leg.balance.cores_to_unbind()
        found = [f"{cores} cores for each process (now {now.num_cores}), with as many workers"]
    found += [name for name, seconds in stores.items() if not _waits(leg, seconds, num_gpus)]
    return " or ".join(found) + " would end that"


def plan_json(rows: Sequence[RowPrediction]) -> list[dict[str, Any]]:
    """The predictions for programs; all times in seconds."""
    return [
        {
            "row": row.name,
            "num_gpus": row.num_gpus,
            "steps": row.num_steps,
            "train_seconds": row.seconds,
            "input_wait_seconds": row.waiting_seconds,
            "first_use_seconds": row.first_use_seconds,
            "start_seconds": row.start_seconds,
            "legs": [_leg_json(leg) for leg in row.legs],
        }
        for row in rows
    ]


def _leg_json(leg: LegPrediction) -> dict[str, Any]:
    balance: Balance = leg.balance
    return {
        "mini_batches": [str(shape) for shape in leg.shapes],
        "steps": leg.leg.num_steps,
        "compute": balance.compute,
        "compute_core_seconds": balance.compute_core_seconds,
        "loading_core_seconds": balance.loading_core_seconds,
        "loading": balance.loading,
        "communication": balance.communication,
        "exposed_communication": balance.exposed,
        "step": balance.wall,
        "binds": balance.binds,
    }


def _waits(leg: LegPrediction, seconds: Mapping[Kind, float], num_gpus: int) -> bool:
    loading = leg.leg.core_seconds_per_step(seconds) / num_gpus
    return replace(leg.balance, loading_core_seconds=loading).waiting > 1e-9


def _gpus(num: int) -> str:
    return "1 process" if num == 1 else f"{num:,} GPUs"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f}"


GIB = 2**30


@dataclass(frozen=True)
class StepTimes:
    """The timed steps of each way at each shape; the first way is the one that is looked at.

    ``flops``: of a step. ``base``: those of the shapes that are base shapes of phases. ``held_bytes``: weights,
    gradients and momenta of a way. ``kept_bytes``: what backward needs of forward, estimated, for a step.
    ``peak``: of the machine.
    """

    ways: Mapping[str, Mapping[StepShape, TimedSteps]]
    flops: Mapping[StepShape, int]
    base: tuple[StepShape, ...]
    held_bytes: int
    kept_bytes: Mapping[StepShape, int]
    peak: Peak

    @property
    def first(self) -> str:
        """The first way."""
        return next(iter(self.ways))

    @property
    def shapes(self) -> tuple[StepShape, ...]:
        """Those that were measured."""
        return tuple(self.ways[self.first])

    @property
    def is_memory_measured(self) -> bool:
        """Whether the device told its memory; else it is estimated."""
        return all(
            timed.used_bytes is not None for way in self.ways.values() for timed in way.values()
        )

    def clips_per_second(self, way: str, shape: StepShape) -> float:
        """Of the median step."""
        return shape.clips / self.ways[way][shape].median

    def flops_per_second(self, way: str, shape: StepShape) -> float:
        """Of the median step: training FLOPs by fvcore, batch norm and the update not counted."""
        return self.flops[shape] / self.ways[way][shape].median

    def share_of_peak(self, way: str, shape: StepShape) -> float:
        """Of the measured peak."""
        return self.flops_per_second(way, shape) / self.peak.flops_per_second

    def memory_bytes(self, way: str, shape: StepShape) -> int:
        """What a run of this way would hold at most: measured on a GPU, else estimated without workspace."""
        used = self.ways[way][shape].used_bytes
        return self.held_bytes + (self.kept_bytes[shape] if used is None else used)

    def times_faster(self, shape: StepShape, way: str, than: str = PLAIN) -> list[float]:
        """How many times the clips per second of ``than``, for each repeat; empty where one was not measured."""
        if not {way, than} <= set(self.ways):
            return []
        return self.ways[than][shape].ratios_to(self.ways[way][shape])

    def bn_group_costs(self, shape: StepShape) -> list[float]:
        """What a step of ours takes longer than with a single BN group, as a share, for each repeat."""
        return [1 / ratio - 1 for ratio in self.times_faster(shape, OURS, ONE_GROUP)]

    def slowest_to_fastest(self, way: str) -> float:
        """How many times as long a step at the slowest base shape takes as at the fastest, of the medians."""
        steps = self.ways[way]
        return slowest_to_fastest([steps[shape].median for shape in self.base])


def step_report(times: StepTimes) -> str:
    """All tables and lines."""
    return "\n\n".join(
        part
        for part in (
            f"{times.first}: ms per step, median (p10–p90); memory is "
            f"{'measured' if times.is_memory_measured else 'estimated'}; * base shape of a phase\n"
            + shape_table(times),
            f"ms per step in each way, median (p10–p90)\n{way_table(times)}"
            if len(times.ways) > 1
            else "",
            "\n".join(summary_lines(times)),
        )
        if part
    )


def shape_table(times: StepTimes) -> str:
    """A line per shape: the first way."""
    way = times.first
    is_compared = PLAIN in times.ways and way != PLAIN
    head = (
        *("clips x frames x pixels²", "BN groups", "ms per step", "clips/s", "GFLOP/s"),
        *("% of peak", "GiB"),
        *(("x plain's clips/s",) if is_compared else ()),
    )
    rows = [
        (
            _name(times, shape),
            str(shape.num_bn_groups),
            _ms_step_table(times.ways[way][shape]),
            f"{times.clips_per_second(way, shape):.3g}",
            f"{times.flops_per_second(way, shape) / 1e9:,.1f}",
            f"{100 * times.share_of_peak(way, shape):.1f}",
            f"{times.memory_bytes(way, shape) / GIB:.2f}",
            *((_spread(times.times_faster(shape, way)),) if is_compared else ()),
        )
        for shape in times.shapes
    ]
    return aligned([head, *rows])


def way_table(times: StepTimes) -> str:
    """A line per shape: every way, and what the first step took longer than later ones in the first way."""
    head = ("clips x frames x pixels²", *times.ways, "first use, s")
    rows = [
        (
            _name(times, shape),
            *(_ms_step_table(steps[shape]) for steps in times.ways.values()),
            f"{times.ways[times.first][shape].first_use_seconds:.2f}",
        )
        for shape in times.shapes
    ]
    return aligned([head, *rows])


def summary_lines(times: StepTimes) -> list[str]:
    """The peak, how even the steps of the base shapes are, and the cost of BN groups."""
    peak = times.peak
    lines = [
        f"measured peak: {peak.flops_per_second / 1e9:,.1f} GFLOP/s (matrix product "
        f"{peak.matmul / 1e9:,.1f}, convolution {peak.conv / 1e9:,.1f})"
    ]
    if len(times.base) > 1:
        each = ", ".join(f"{way} {times.slowest_to_fastest(way):.2f}" for way in times.ways)
        lines.append(f"base shapes, slowest step / fastest step: {each}")
    for shape in times.shapes:
        costs = times.bn_group_costs(shape)
        if costs and shape.num_bn_groups > 1:
            share = _spread([100 * cost for cost in costs], 1)
            lines.append(f"{shape}: {shape.num_bn_groups} BN groups cost {share} % over one")
    return lines


def times_json(times: StepTimes) -> dict[str, Any]:
    """All that was measured."""
    return {
        "peak": {**asdict(times.peak), "flops_per_second": times.peak.flops_per_second},
        "held_bytes": times.held_bytes,
        "memory": "measured" if times.is_memory_measured else "estimated",
        "base_slowest_to_fastest": {way: times.slowest_to_fastest(way) for way in times.ways}
        if times.base
        else {},
        "shapes": [_shape_json(times, shape) for shape in times.shapes],
    }


def _shape_json(times: StepTimes, shape: StepShape) -> dict[str, Any]:
    return {
        **asdict(shape),
        "is_base": shape in times.base,
        "flops_per_step": times.flops[shape],
        "ways": {way: _way_json(times, way, shape) for way in times.ways},
        "bn_group_costs": times.bn_group_costs(shape),
    }


def _way_json(times: StepTimes, way: str, shape: StepShape) -> dict[str, Any]:
    timed = times.ways[way][shape]
    return {
        "median_seconds": timed.median,
        "p10_seconds": timed.p10,
        "p90_seconds": timed.p90,
        "first_use_seconds": timed.first_use_seconds,
        "clips_per_second": times.clips_per_second(way, shape),
        "flops_per_second": times.flops_per_second(way, shape),
        "share_of_peak": times.share_of_peak(way, shape),
        "memory_bytes": times.memory_bytes(way, shape),
        "times_plain": times.times_faster(shape, way),
        "warmup_seconds": list(timed.warmup_seconds),
        "seconds": list(timed.seconds),
    }


def _name(times: StepTimes, shape: StepShape) -> str:
    return f"{shape}{' *' if shape in times.base else ''}"


def _ms_step_table(timed: TimedSteps) -> str:
    decimals = 0 if timed.median >= 1 else 1
    texts = [f"{1000 * value:,.{decimals}f}" for value in (timed.median, timed.p10, timed.p90)]
    return f"{texts[0]} ({texts[1]}–{texts[2]})"


def _spread(values: Sequence[float], decimals: int = 2) -> str:
    """Median, least and largest."""
    texts = [f"{value:.{decimals}f}" for value in (median(values), min(values), max(values))]
    return f"{texts[0]} ({texts[1]}–{texts[2]})"


@dataclass(frozen=True)
class Team:
    """Processes that share a mini-batch, each of a number of threads."""

    num_processes: int
    num_threads: int

    @property
    def num_cores(self) -> int:
        """Cores that it can use."""
        return self.num_processes * self.num_threads

    def __str__(self) -> str:
        return f"{self.num_processes}x{self.num_threads}"


@dataclass(frozen=True)
class TeamTimes:
    """The timed steps of each team at each shape of the global mini-batch; the first team has one core."""

    teams: Mapping[Team, Mapping[StepShape, TimedSteps]]

    @property
    def shapes(self) -> tuple[StepShape, ...]:
        """Those that were measured."""
        return tuple(next(iter(self.teams.values())))

    @property
    def alone(self) -> Team:
        """What the others are compared with."""
        return next(iter(self.teams))

    def clips_per_second(self, team: Team, shape: StepShape) -> float:
        """Of the median step."""
        return shape.clips / self.teams[team][shape].median

    def efficiency(self, team: Team, shape: StepShape) -> float:
        """Seconds of one core / (seconds of the team × its cores): 1 where nothing is lost.

        The median over the repeats, in each of which the two were measured one after the other.
        """
        one, many = self.teams[self.alone][shape], self.teams[team][shape]
        return median(one.ratios_to(many)) / team.num_cores

    def overall(self, team: Team) -> float:
        """Efficiency over a step of each shape."""
        seconds = [self.teams[one].values() for one in (self.alone, team)]
        alone, shared = (sum(timed.median for timed in one) for one in seconds)
        return alone / shared / team.num_cores


def team_report(times: TeamTimes) -> str:
    """A table for people."""
    others = [team for team in times.teams if team != times.alone]
    head = ["clips x frames x pixels²", *(f"{team}, clips/s" for team in times.teams)]
    head += [f"{team}, efficiency" for team in others]
    rows = [head]
    for shape in times.shapes:
        speeds = [f"{times.clips_per_second(team, shape):.2f}" for team in times.teams]
        rows.append(
            [str(shape), *speeds, *(f"{times.efficiency(team, shape):.2f}" for team in others)]
        )
    rows.append(
        ["a step of each", *("" for _ in times.teams), *(f"{times.overall(t):.2f}" for t in others)]
    )
    note = "2x1: two processes of one thread each, which share the mini-batch of the row."
    return f"{aligned(rows)}\n{note}"


def team_json(times: TeamTimes) -> dict[str, Any]:
    """Everything that was measured."""
    return {
        "teams": [
            {
                "num_processes": team.num_processes,
                "num_threads": team.num_threads,
                "efficiency": times.overall(team),
                "shapes": [_shape_json_team_table(times, team, shape) for shape in times.shapes],
            }
            for team in times.teams
        ]
    }


def _shape_json_team_table(times: TeamTimes, team: Team, shape: StepShape) -> dict[str, Any]:
    return {
        "clips": shape.clips,
        "frames": shape.frames,
        "crop": shape.crop,
        "seconds": list(times.teams[team][shape].seconds),
        "clips_per_second": times.clips_per_second(team, shape),
        "efficiency": times.efficiency(team, shape),
    }
