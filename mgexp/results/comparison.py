"""Rows (their runs by seed), pairs of rows, and all rows of a folder, with the numbers that compare them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from statistics import fmean, median_high, median_low

import numpy as np

from mgexp.errors import InputError
from mgexp.results.estimates import (
    Estimate,
    estimate_mean,
    estimate_ratio,
    estimate_score,
    half_width,
)
from mgexp.results.runs import Evaluation, Run
from mgexp.run.confusion import Confusion, sum_confusions
from mgexp.run.folder import METRIC_NAMES

BASELINE = "baseline"
COARSE_CONTROL = "coarse"
"""The control that trains only at the coarsest shape. It is not a way to train, so tables keep it apart."""
ROW_ORDER = (BASELINE, "short", "long", "long_short")


# --- a row, and a pair of rows


@dataclass(frozen=True)
class Row:
    """The finished runs of a YAML by seed, and the last logged step of each unfinished run, if any."""

    name: str
    runs: Mapping[int, Run] = field(default_factory=dict)
    unfinished: Mapping[int, int | None] = field(default_factory=dict)

    @property
    def first(self) -> Run:
        """One of its runs, for what all of them share."""
        return next(iter(self.runs.values()))

    @property
    def scores(self) -> tuple[float, ...]:
        return self.each("score")

    @property
    def score(self) -> Estimate | None:
        return estimate_score(self.scores)

    def each(self, name: str, unit: float = 1.0) -> tuple[float, ...]:
        """Return the number ``name`` of each finished run, such as "steps", divided by ``unit``."""
        return tuple(getattr(run, name) / unit for run in self.runs.values())

    def only(self, seeds: Collection[int]) -> Row:
        return replace(self, runs={seed: self.runs[seed] for seed in self.runs if seed in seeds})

    def mean(self, name: str) -> float:
        return fmean(self.each(name))

    @cached_property
    def confusion(self) -> Confusion | None:
        """The sum of the confusion matrices of its runs; None if no run has one."""
        matrices = [run.confusion for run in self.runs.values() if run.confusion]
        return sum_confusions(matrices) if matrices else None


@dataclass(frozen=True)
class Pair:
    """A row and the row that it is compared with, its base, seed by seed.

    A seed is compared only if both rows have finished it, in settings that allow it.
    """

    own: Row
    base: Row

    @property
    def _both(self) -> list[tuple[Run, Run]]:
        base = self.base.runs
        return [(run, base[seed]) for seed, run in self.own.runs.items() if seed in base]

    @cached_property
    def runs(self) -> tuple[tuple[Run, Run], ...]:
        """(run, run of the base) for each seed whose scores can be compared."""
        return tuple(
            (run, base) for run, base in self._both if run.score_setting == base.score_setting
        )

    @property
    def not_compared(self) -> tuple[tuple[Run, Run], ...]:
        """(run, run of the base) for each seed whose scores cannot be compared."""
        return tuple(
            (run, base) for run, base in self._both if run.score_setting != base.score_setting
        )

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.seed for run, _ in self.runs)

    @property
    def turned(self) -> Pair:
        return Pair(self.base, self.own)

    def only(self, seeds: Collection[int]) -> Pair:
        return Pair(self.own.only(seeds), self.base.only(seeds))

    @cached_property
    def timed(self) -> Pair:
        """The pair with the seeds whose seconds count in both rows, in one setting."""
        seeds = [
            run.seed
            for run, base in self.runs
            if run.setting == base.setting and run.is_timed and base.is_timed
        ]
        return self.only(seeds)

    @property
    def difference(self) -> Estimate | None:
        """The final score minus the base's, in points; None without a seed to compare."""
        return estimate_mean([run.score - base.score for run, base in self.runs])

    def ratio(self, name: str) -> Estimate | None:
        """Divide the number ``name`` of the base by that of the row."""
        return estimate_ratio([getattr(base, name) / getattr(run, name) for run, base in self.runs])

    @property
    def speed_up(self) -> Estimate | None:
        """The ratio of the training seconds, over the seeds of `timed`."""
        return self.timed.ratio("train_seconds")

    @property
    def flop_saving(self) -> Estimate | None:
        return self.ratio("train_flops")


# --- the rows of a folder


def row_order(name: str) -> tuple[int, str]:
    """Make a sort key: baseline, short, long, long_short, then the others by name, the control last."""
    if name in ROW_ORDER:
        return ROW_ORDER.index(name), name
    return len(ROW_ORDER) + (name == COARSE_CONTROL), name


@dataclass(frozen=True)
class Comparison:
    """All rows of a folder, in the order of their tables, to be compared with its baseline.

    ``class_names`` names the classes 0, 1, …; it may be empty. ``shorter`` holds the baseline trained for fewer
    epochs: its row ``as_<row>`` takes as many FLOPs as ``<row>``, and ``as_<row>_in_seconds`` as many seconds.
    """

    rows: tuple[Row, ...]
    class_names: tuple[str, ...] = ()
    shorter: tuple[Row, ...] = ()

    @property
    def metric(self) -> str:
        """The name of the scores: top-1, or mAP where the task has no top-1."""
        has_map = self.runs and all(run.top1 is None for run in self.runs)
        return METRIC_NAMES["map" if has_map else "top1"]

    def with_runs(self, change: Callable[[Run], Run | None]) -> Comparison:
        """Change each run of the rows and the shorter baselines, or leave it out where ``change`` gives None."""

        def changed(row: Row) -> Row:
            runs = {seed: change(run) for seed, run in row.runs.items()}
            return replace(row, runs={seed: run for seed, run in runs.items() if run})

        rows, shorter = tuple(map(changed, self.rows)), tuple(map(changed, self.shorter))
        return replace(self, rows=rows, shorter=shorter)

    @cached_property
    def timed(self) -> Comparison:
        """The rows with the runs whose seconds count, in the setting of most of them."""
        settings = Counter(run.setting for run in self.runs if run.is_timed)
        usual = [setting for setting, _ in settings.most_common(1)]
        return self.with_runs(lambda run: run if run.is_timed and run.setting in usual else None)

    def timed_since(self, moment: datetime | None) -> Comparison:
        """Mark the runs that ended before ``moment``: their seconds do not count. None changes nothing."""
        if moment is None:
            return self
        return self.with_runs(lambda run: replace(run, is_untimed=run.finished_at < moment))

    @property
    def all_rows(self) -> tuple[Row, ...]:
        return (*self.rows, *self.shorter)

    @property
    def busy(self) -> tuple[Run, ...]:
        """The runs beside which other programs worked."""
        return tuple(run for row in self.all_rows for run in row.runs.values() if run.is_busy)

    @property
    def num_train_videos(self) -> Mapping[str, set[int]]:
        return {row.name: {run.num_train_videos for run in row.runs.values()} for row in self.rows}

    @cached_property
    def finished(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.runs)

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        return tuple(run for row in self.rows for run in row.runs.values())

    def row(self, name: str) -> Row:
        """Return the row or the shorter baseline of that name, or an empty row."""
        return next((row for row in self.all_rows if row.name == name), Row(name))

    @property
    def baseline(self) -> Row:
        return self.row(BASELINE)

    @cached_property
    def compared(self) -> tuple[Row, ...]:
        """The finished rows, without the baseline and the control."""
        return tuple(row for row in self.finished if row.name not in {BASELINE, COARSE_CONTROL})

    def pair(self, row: Row) -> Pair:
        return Pair(row, self.baseline)

    @cached_property
    def equal_flops(self) -> tuple[Pair, ...]:
        """The rows of `compared`, each with the baseline of as many FLOPs, where they share a seed."""
        pairs = [Pair(row, self.row(f"as_{row.name}")) for row in self.compared]
        return tuple(pair for pair in pairs if pair.runs)

    @cached_property
    def confused(self) -> tuple[tuple[str, Confusion], ...]:
        """The confusion matrices of the baseline and of the row with the fewest training seconds, by name.

        A row without a matrix is skipped.
        """
        known = [row for row in self.compared if row.confusion]
        # A figure has room for only two matrices side by side.
        fastest = sorted(known, key=lambda row: row.mean("train_seconds"))[:1]
        matrices = ((row.name, row.confusion) for row in (self.baseline, *fastest))
        return tuple((name, matrix) for name, matrix in matrices if matrix)

    @property
    def num_classes(self) -> int:
        """The number of classes in the matrices of `confused`; 0 where no run has a confusion matrix."""
        return max((matrix.num_classes for _, matrix in self.confused), default=0)

    def with_class_names(self, names: Sequence[str], where: object) -> Comparison:
        """Name the classes, if names are given. Raises an InputError about `where` if a name is missing."""
        named = replace(self, class_names=tuple(names)) if names else self
        # More names than classes are no error, because the last classes may have no test videos.
        num = len(named.class_names)
        if 0 < num < self.num_classes:
            problem = f"its runs have {self.num_classes} classes or more, but {num} have a name"
            raise InputError([f"{where}: {problem}"])
        return named


# --- single videos


@dataclass(frozen=True)
class VideoDifference:
    """The difference in points over all videos of all pairs, with an interval over videos and seeds.

    Of the videos on which the two runs of a pair differ, only the row was right on ``num_gained``, and only the
    base on ``num_lost``. ``num_videos`` counts the videos of all pairs.
    """

    seeds: tuple[int, ...]
    mean: float
    interval: tuple[float, float]
    num_gained: int
    num_lost: int
    num_videos: int


def compare_videos(pair: Pair) -> VideoDifference | None:
    """Compare a pair of rows video by video. Return None if no seed has the scores of both.

    Half the interval is the root of two squares. One is that of Student's t over seeds; one seed has none. The
    other is that of the normal distribution over videos, each with its mean over the seeds of its list, because a
    video that is hard for one seed is hard for the others. Where groups are known, it counts them and not the
    videos; see `half_width`. Seeds of other folds have other lists. If no video of n tells the rows apart, the
    interval is that of a share of 0 of n: ±300/n points (rule of three: Hanley and Lippman-Hand, JAMA 249, 1983).
    """
    lists: defaultdict[str, list[np.ndarray]] = defaultdict(list)
    seeds, groups = [], dict[str, Sequence[int]]()
    for run, base in pair.runs:
        if run.videos and base.videos and run.videos.names_hash == base.videos.names_hash:
            own, other = run.videos.correct, base.videos.correct
            groups[run.videos.names_hash] = run.videos.groups
            lists[run.videos.names_hash].append(own.astype(np.int8) - other.astype(np.int8))
            seeds.append(run.seed)
    if not seeds:
        return None
    every = [difference for differences in lists.values() for difference in differences]
    over_seeds = estimate_mean([100 * float(difference.mean()) for difference in every])
    assert over_seeds is not None
    of_seeds = over_seeds.interval[1] - over_seeds.mean if over_seeds.interval else 0.0
    # Each list has its share in the mean over all seeds.
    of_videos = [
        100 * len(differences) / len(every) * half_width(np.mean(differences, axis=0), groups[name])
        for name, differences in lists.items()
    ]
    half = math.hypot(of_seeds, *of_videos)
    if not any(difference.any() for difference in every):
        half = 300 / sum(len({*groups[name]}) or len(lists[name][0]) for name in lists)
    return VideoDifference(
        seeds=tuple(seeds),
        mean=over_seeds.mean,
        interval=(max(-100.0, over_seeds.mean - half), min(100.0, over_seeds.mean + half)),
        num_gained=sum(int((difference > 0).sum()) for difference in every),
        num_lost=sum(int((difference < 0).sum()) for difference in every),
        num_videos=sum(len(difference) for difference in every),
    )


# --- time to target


def first_at(run: Run, target: float) -> Evaluation | None:
    """Return the first evaluation of a run whose score is at least ``target`` percent. None if it never is."""
    return next((evaluation for evaluation in run.curve if evaluation.score >= target), None)


def seconds_to(run: Run, target: float) -> float:
    """Return the training seconds until the score first reaches ``target``, infinity for a miss."""
    first = first_at(run, target)
    return math.inf if first is None else first.train_seconds


def flops_to(run: Run, target: float) -> float | None:
    """Return the training FLOPs until the score first reaches ``target``, infinity for a miss. None if unknown."""
    first = first_at(run, target)
    return math.inf if first is None else run.flops_at(first)


def speed_up_to(pair: Pair, cost: Callable[[Run], float]) -> float | None:
    """Return the median over pairs of the base's cost of the target divided by the row's. A miss costs ∞.

    Of an even number of pairs, take the geometric mean of the middle two: then the ratio the other way round is
    the inverse. A pair in which neither reaches the target says nothing and is left out. Return None without a
    pair, and where the middle two are 0 and ∞.
    """
    both = [(cost(run), cost(base)) for run, base in pair.runs]
    ratios = [base / own for own, base in both if min(own, base) < math.inf]
    middle = (median_low(ratios), median_high(ratios)) if ratios else (0.0, math.inf)
    return None if middle == (0.0, math.inf) else math.sqrt(math.prod(middle))
