"""From the numbers of runs to means with 95 % intervals: a row over its seeds, and two rows seed by seed."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from statistics import fmean, geometric_mean, median_high, median_low, stdev

import numpy as np

from mgexp.errors import InputError
from mgexp.results.confusion import Confusion, sum_confusions
from mgexp.results.runs import Evaluation, Run
from mgexp.run.folder import METRIC_NAMES

BASELINE = "baseline"
COARSE_CONTROL = "coarse"
"""The control that trains only at the coarsest shape. It is not a way to train, so tables keep it apart."""
ROW_ORDER = (BASELINE, "short", "long", "long_short")

# Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom. With this table we do not need SciPy,
# which nothing else here uses. Source: NIST/SEMATECH e-Handbook of Statistical Methods, section 1.3.6.7.2.
T_QUANTILES_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
Z_95 = 1.959964  # the two-sided 95 % quantile of the normal distribution
Z_POWER_90 = 1.2816  # its 90 % quantile: a claim is decided in 9 of 10 studies of that size
MOST_SEEDS = 1000
"""A study with more seeds than this is not worth planning."""


# --- a mean with its interval


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its 95 % interval. One seed has none."""

    each: tuple[float, ...]
    mean: float
    interval: tuple[float, float] | None

    def holds(self, value: float) -> bool:
        """Return whether the interval contains ``value``. Then the mean may differ from ``value`` by chance."""
        return self.interval is not None and self.interval[0] <= value <= self.interval[1]

    @property
    def is_constant(self) -> bool:
        """Whether there are several seeds, and all have the same value."""
        # results.csv has four decimals of each accuracy. One video of a set of 400,000 is 2.5e-4.
        return len(self.each) > 1 and max(self.each) - min(self.each) < 2.5e-4


def t_quantile_95(freedom: int) -> float:
    """Return the two-sided 95 % quantile of Student's t for a number of degrees of freedom."""
    if freedom <= len(T_QUANTILES_95):
        return T_QUANTILES_95[freedom - 1]
    # The expansion 26.7.5 in Abramowitz & Stegun, Handbook of Mathematical Functions (1964). From 30 degrees on,
    # four terms give every digit of the published tables.
    z = Z_95
    terms: tuple[float, ...] = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return math.fsum(term / freedom**power for power, term in enumerate(terms))


def estimate_mean(values: Sequence[float]) -> Estimate | None:
    """Estimate the mean with the interval of Student's t. None without a value."""
    num = len(values)
    if num < 2:
        return Estimate(tuple(values), values[0], None) if values else None
    # A row has three to twenty seeds: too few for the quantile of the normal distribution.
    mean, half = fmean(values), t_quantile_95(num - 1) * (stdev(values) / math.sqrt(num))
    return Estimate(tuple(values), mean, (mean - half, mean + half))


def estimate_ratio(ratios: Sequence[float]) -> Estimate | None:
    """Estimate the geometric mean with the interval of Student's t on the logarithms. None without ratios."""
    # On the logarithms a speed-up of 2 and one of ½ cancel. Their arithmetic mean would be 1.25.
    logs = estimate_mean([math.log(ratio) for ratio in ratios])
    if logs is None:
        return None
    interval = logs.interval and (math.exp(logs.interval[0]), math.exp(logs.interval[1]))
    return Estimate(tuple(ratios), geometric_mean(ratios), interval)


def estimate_score(scores: Sequence[float]) -> Estimate | None:
    """Estimate a mean in percent as `estimate_mean` does, with an interval that ends at 0 and 100."""
    # Student's t knows no ends. With few seeds, or near 100 %, its interval has values that no network can reach.
    estimate = estimate_mean(scores)
    if estimate is None or estimate.interval is None:
        return estimate
    low, high = estimate.interval
    return replace(estimate, interval=(max(0.0, low), min(100.0, high)))


def wilson_interval(percent: float, num_videos: int) -> tuple[float, float]:
    """Return the 95 % interval of an accuracy in percent that was measured on ``num_videos`` videos.

    It is the score interval, which also holds for few videos and near 0 and 100 %. Source: E. B. Wilson, Journal
    of the American Statistical Association 22 (1927).
    """
    share, square = percent / 100, Z_95**2
    center = (share + square / (2 * num_videos)) / (1 + square / num_videos)
    spread = share * (1 - share) / num_videos + square / (4 * num_videos**2)
    half = Z_95 * math.sqrt(spread) / (1 + square / num_videos)
    return 100 * max(0.0, center - half), 100 * min(1.0, center + half)


def half_width(values: np.ndarray, groups: Sequence[int] = ()) -> float:
    """Return half the 95 % interval of the mean of one value for each video, of which whole ``groups`` are drawn.

    With groups, the variance is the cluster-robust one, G/(G−1) · Σ (sum of the deviations in a group)² / n² for G
    groups and n videos, and Student's t has G−1 degrees of freedom. One group says nothing of others. Source:
    E. Miller, Adding Error Bars to Evals, arXiv 2411.00640 (2024), for the sum; A. C. Cameron and D. L. Miller,
    Journal of Human Resources 50 (2015), for the factor and the degrees.
    """
    if not groups:
        return Z_95 * math.sqrt(float(values.var()) / len(values))
    sums = np.bincount(groups, values - values.mean())
    num = len(sums)
    if num == 1:
        return math.inf
    variance = num / (num - 1) * float((sums**2).sum()) / len(values) ** 2
    return t_quantile_95(num - 1) * math.sqrt(variance)


def grouped_interval(correct: np.ndarray, groups: Sequence[int]) -> tuple[float, float]:
    """Return the 95 % interval of an accuracy in percent over groups of videos, cut at 0 and 100 %.

    ``correct`` is the share of the runs that were right, for each video. If all groups are alike, as at 100 %,
    the interval is Wilson's of as many videos as there are groups.
    """
    percent, half = 100 * float(correct.mean()), 100 * half_width(correct, groups)
    if half < 1e-9:
        return wilson_interval(percent, max(groups) + 1)
    return max(0.0, percent - half), min(100.0, percent + half)


# --- a claim with a margin


def judge_margin(difference: Estimate | None, margin: float) -> str:
    """Judge the claim that a row is not worse than its base by more than ``margin`` points, as Markdown.

    It holds if the whole 95 % interval lies above −margin, it fails if the whole interval lies below, and it is
    open otherwise; then the text says how many seeds would decide.
    """
    if difference is None or difference.interval is None:
        why = "one seed decides nothing" if difference else "no pair of runs can be compared"
        return f"open: {why}"
    # An interval without a width says nothing about the next seed.
    if difference.is_constant:
        return "open: all pairs are alike, as with too few or too easy test videos"
    low, high = difference.interval
    if low > -margin:
        return "**holds**"
    if high < -margin:
        return "**fails**"
    num = seeds_to_decide(stdev(difference.each), difference.mean + margin)
    if num is None:
        return f"open: more than {MOST_SEEDS:,} seeds would be needed"
    return f"open: about {num} seeds would decide"


def seeds_to_decide(deviation: float, distance: float) -> int | None:
    """Compute how many seeds decide a claim with 90 % probability. Return None for more than MOST_SEEDS.

    ``deviation`` is the standard deviation of the paired differences. ``distance`` is how far their true mean,
    taken as observed, lies from −margin. The claim is decided where the end of the 95 % interval lies on the same
    side as the mean, which is a test of one side at 2.5 %: (t + z)·deviation/√n ≤ distance, with Student's t for
    the interval and the normal z for the power. With z for t it is the usual formula of non-inferiority trials.
    """
    for num in range(2, MOST_SEEDS + 1):
        if (t_quantile_95(num - 1) + Z_POWER_90) * deviation / math.sqrt(num) <= abs(distance):
            return num
    return None


# --- a row, and a pair of rows


@dataclass(frozen=True)
class Row:
    """The finished runs of a YAML by seed, and the seeds of unfinished runs."""

    name: str
    runs: Mapping[int, Run] = field(default_factory=dict)
    unfinished: Sequence[int] = ()

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

    def mean(self, name: str) -> float:
        return fmean(self.each(name))

    def only(self, seeds: Collection[int]) -> Row:
        return replace(self, runs={seed: run for seed, run in self.runs.items() if seed in seeds})

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

    @cached_property
    def runs(self) -> tuple[tuple[Run, Run], ...]:
        """(run, run of the base) for each seed whose scores can be compared."""
        both = self._both
        return tuple((run, base) for run, base in both if run.score_setting == base.score_setting)

    @property
    def not_compared(self) -> tuple[tuple[Run, Run], ...]:
        both = self._both
        return tuple((run, base) for run, base in both if run.score_setting != base.score_setting)

    @property
    def _both(self) -> list[tuple[Run, Run]]:
        base = self.base.runs
        return [(run, base[seed]) for seed, run in self.own.runs.items() if seed in base]

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.seed for run, _ in self.runs)

    @property
    def turned(self) -> Pair:
        return Pair(self.base, self.own)

    def only(self, seeds: Collection[int]) -> Pair:
        return Pair(self.own.only(seeds), self.base.only(seeds))

    @cached_property
    def timed_alike(self) -> Pair:
        """The pair with the seeds whose seconds count in both rows, in one setting."""
        both = [(run, base) for run, base in self.runs if run.is_timed and base.is_timed]
        return self.only([run.seed for run, base in both if run.setting == base.setting])

    @property
    def difference(self) -> Estimate | None:
        """The final score minus the base's, in points; None without a seed to compare."""
        return estimate_mean([run.score - base.score for run, base in self.runs])

    def ratio(self, name: str) -> Estimate | None:
        """Divide the number ``name`` of the base by that of the row."""
        return estimate_ratio([getattr(base, name) / getattr(run, name) for run, base in self.runs])

    @property
    def speed_up(self) -> Estimate | None:
        """The ratio of the training seconds, over the seeds of `timed_alike`."""
        return self.timed_alike.ratio("train_seconds")

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

    @cached_property
    def in_usual_setting(self) -> Comparison:
        """The rows with the runs whose seconds count, in the setting of most of them."""
        settings = Counter(run.setting for run in self.runs if run.is_timed)
        usual = [setting for setting, _ in settings.most_common(1)]
        return self.with_runs(lambda run: run if run.is_timed and run.setting in usual else None)

    def timed_since(self, moment: datetime | None) -> Comparison:
        """Mark the runs that ended before ``moment``: their seconds do not count. None changes nothing."""
        if moment is None:
            return self
        return self.with_runs(lambda run: replace(run, is_untimed=run.finished_at < moment))

    def with_runs(self, change: Callable[[Run], Run | None]) -> Comparison:
        """Change each run, or leave it out where ``change`` gives None."""

        def changed(row: Row) -> Row:
            runs = {seed: new for seed, run in row.runs.items() if (new := change(run))}
            return replace(row, runs=runs)

        rows, shorter = tuple(map(changed, self.rows)), tuple(map(changed, self.shorter))
        return replace(self, rows=rows, shorter=shorter)

    @property
    def all_rows(self) -> tuple[Row, ...]:
        return (*self.rows, *self.shorter)

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

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The rows of `compared`, each with the baseline."""
        return tuple(map(self.pair, self.compared))

    @cached_property
    def equal_flops(self) -> tuple[Pair, ...]:
        """The rows of `compared`, each with the baseline of as many FLOPs, where they share a seed."""
        pairs = [Pair(row, self.row(f"as_{row.name}")) for row in self.compared]
        return tuple(pair for pair in pairs if pair.runs)

    @cached_property
    def confused(self) -> Mapping[str, Confusion]:
        """The confusion matrices of the baseline and of the row with the fewest training seconds, if known."""
        known = [row for row in self.compared if row.confusion]
        # A figure has room for only two matrices side by side.
        fastest = sorted(known, key=lambda row: row.mean("train_seconds"))[:1]
        return {row.name: row.confusion for row in (self.baseline, *fastest) if row.confusion}

    @property
    def num_classes(self) -> int:
        """The number of classes in the matrices of `confused`; 0 where no run has a confusion matrix."""
        return max((matrix.num_classes for matrix in self.confused.values()), default=0)

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
    """Compare a pair of rows video by video. None if no seed has the scores of both.

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
    every = [difference for differences in lists.values() for difference in differences]
    over_seeds = estimate_mean([100 * float(difference.mean()) for difference in every])
    if over_seeds is None:
        return None
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
        num_gained=int((np.concatenate(every) > 0).sum()),
        num_lost=int((np.concatenate(every) < 0).sum()),
        num_videos=len(np.concatenate(every)),
    )


# --- time to target


def first_at(run: Run, target: float) -> Evaluation | None:
    """Return the first evaluation of a run whose score is at least ``target`` percent. None if it never is."""
    return next((evaluation for evaluation in run.curve if evaluation.score >= target), None)


def seconds_to(run: Run, target: float) -> float:
    """Return the training seconds until the score first reaches ``target``, infinity for a miss."""
    first = first_at(run, target)
    return math.inf if first is None else first.train_seconds


def flops_to(run: Run, target: float) -> float:
    """Return the training FLOPs until the score first reaches ``target``, infinity for a miss."""
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
