"""What a row is worth, in one line: losses said as readily as gains."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import geometric_mean

from mgexp.results.compare import FinishedRun, Pairs
from mgexp.results.stats import Difference, ratio_interval
from mgexp.results.table import Result

Setting = tuple[str, str, int]
"""Device, precision and number of training videos: what must agree before two results are compared."""


@dataclass(frozen=True)
class Measured:
    """The results of a row that count, in one setting; by seed."""

    setting: Setting
    runs: Mapping[int, FinishedRun]

    @property
    def results(self) -> tuple[Result, ...]:
        """By seed."""
        return tuple(run.result for run in self.runs.values())

    @property
    def scores(self) -> tuple[float, ...]:
        """Percent, by seed."""
        return tuple(run.score for run in self.runs.values())


@dataclass(frozen=True)
class Count:
    """Results by experiment. `older`: a newer run of the same seed and setting counts in their place;
    `of_another_recipe`: their steps or FLOPs are not those of the newest run of the row in their setting."""

    measured: Mapping[str, tuple[Measured, ...]]
    older: tuple[Result, ...]
    of_another_recipe: tuple[Result, ...]

    def of(self, experiment: str, setting: Setting) -> Measured | None:
        """What counts of a row in a setting."""
        found = self.measured.get(experiment, ())
        return next((one for one in found if one.setting == setting), None)


@dataclass(frozen=True)
class Versus:
    """A row held against another, its base: same seeds, same setting."""

    base: Measured
    own: Measured

    @cached_property
    def pairs(self) -> Pairs:
        """(run, run of the base) of the seeds that both have."""
        return Pairs.of(self.own.runs, self.base.runs)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of the pairs."""
        return self.pairs.seeds

    @property
    def difference(self) -> Difference | None:
        """Of the scores, in points; None without a pair."""
        return self.pairs.difference

    @property
    def time_ratios(self) -> tuple[float, ...]:
        """Of the training seconds."""
        return self.pairs.ratios(lambda run: run.result.train_seconds)

    @property
    def flop_ratios(self) -> tuple[float, ...]:
        """Of the training FLOPs."""
        return self.pairs.ratios(lambda run: run.result.train_flops)

    @property
    def time_interval(self) -> tuple[float, float] | None:
        """95 % interval of the ratio of training seconds; None for one pair."""
        return ratio_interval(self.time_ratios)

    @property
    def is_one_sitting(self) -> bool:
        """Whether the seconds of each pair compare: the same code, in one sitting."""
        return not self.pairs.apart


def count(results: Iterable[Result]) -> Count:
    """Of the results of one (experiment, seed, setting) the newest by date; of equally new ones the last.

    Of these, those that have the steps and FLOPs of the newest: a mean over two recipes is that of none.
    """
    newest: dict[tuple[str, Setting, int], Result] = {}
    older = []
    for result in sorted(results, key=lambda one: one.moment):  # a stable sort
        key = (result.experiment, setting_of(result), result.seed)
        if key in newest:
            older.append(newest.pop(key))
        newest[key] = result
    groups: defaultdict[tuple[str, Setting], list[Result]] = defaultdict(list)
    for (experiment, setting, _), result in newest.items():  # the oldest first
        groups[experiment, setting].append(result)
    measured: defaultdict[str, list[Measured]] = defaultdict(list)
    others: list[Result] = []
    for (experiment, setting), found in sorted(groups.items()):
        alike = [one for one in found if _recipe(one) == _recipe(found[-1])]
        others += [one for one in found if one not in alike]
        measured[experiment].append(_measured(setting, alike))
    return Count(
        {name: tuple(ones) for name, ones in measured.items()}, tuple(older), tuple(others)
    )


def _measured(setting: Setting, results: Sequence[Result]) -> Measured:
    """Of results that have seeds of their own; a table has no more of a run than its line."""
    by_seed = sorted(results, key=lambda one: one.seed)
    return Measured(setting, {one.seed: FinishedRun(one, {}, {}, ()) for one in by_seed})


def setting_of(result: Result) -> Setting:
    """What a result was measured with."""
    return (result.device, result.precision, result.num_train_videos)


def _recipe(result: Result) -> tuple[int, float]:
    return (result.steps, result.train_flops)


NOT_RESOLVED = " (not resolved)"
"""Said where the 95 % interval holds "no difference"."""


def verdict(versus: Versus) -> str:
    """Such as "loses 1.17 points (not resolved), 2.76× faster"; one seed is said to be one.

    Seconds of different code, or of hours apart, are no verdict: FLOPs stand in for them.
    """
    difference = versus.difference
    if difference is None:
        return "not compared: no run of its base with the same seed, device, precision and videos"
    cost = _speed(versus) if versus.is_one_sitting else _flops(versus.flop_ratios)
    parts = ", ".join([_points(difference), cost])
    return f"{parts}; one seed" if difference.num_pairs == 1 else parts


def to_published(score: float, published: str) -> str:
    """Such as "0.20 points below the published 76.8"."""
    distance = f"{abs(score - float(published)):.2f}"
    if distance == "0.00":
        return f"the published {published}"
    side = "above" if score > float(published) else "below"
    return f"{distance} points {side} the published {published}"


def _points(difference: Difference) -> str:
    points = f"{abs(difference.mean):.2f}"
    if points == "0.00":
        return "no difference seen"
    doubt = difference.half_width is not None and difference.half_width >= abs(difference.mean)
    verb = "gains" if difference.mean > 0 else "loses"
    return f"{verb} {points} points{NOT_RESOLVED if doubt else ''}"


def _speed(versus: Versus) -> str:
    interval = versus.time_interval
    doubt = interval is not None and interval[0] <= 1 <= interval[1]
    return _times(versus.time_ratios, "faster", "slower", "as fast", NOT_RESOLVED if doubt else "")


def _flops(ratios: Sequence[float]) -> str:
    return _times(ratios, "fewer FLOPs", "more FLOPs", "as many FLOPs", "")


def _times(ratios: Sequence[float], above: str, below: str, same: str, doubt: str) -> str:
    ratio = geometric_mean(ratios)
    if f"{ratio:.2f}" == "1.00":
        return same
    return f"{max(ratio, 1 / ratio):.2f}× {above if ratio > 1 else below}{doubt}"
