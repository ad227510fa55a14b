"""Which lines of results.csv count in experiments/README.md, and which are compared with which."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from mgexp.record.comparison import FinishedRun, Pairs
from mgexp.record.intervals import Difference, ratio_interval
from mgexp.record.results import Result

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
