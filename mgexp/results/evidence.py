"""Judge a study: margins, numbers of seeds, single videos, and time to target."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median_high, median_low, stdev

import numpy as np

from mgexp.results.estimates import Z_95, Estimate, estimate_mean, t_quantile_95
from mgexp.results.model import Evaluation, Pair, Run

Z_POWER_90 = 1.2816
"""The 90 % quantile of the normal distribution: the claim is decided in 9 of 10 studies of that size."""
MOST_SEEDS = 1000
"""A study with more seeds than this is not worth planning."""


# --- a claim with a margin


def is_constant(difference: Estimate) -> bool:
    """Return whether there are several pairs, and all have the same difference."""
    # results.csv has four decimals of each accuracy. One video of a set of 400,000 is 2.5e-4.
    return len(difference.each) > 1 and max(difference.each) - min(difference.each) < 2.5e-4


def judge_margin(difference: Estimate | None, margin: float) -> str:
    """Judge the claim that a row is not worse than its base by more than ``margin`` points, as Markdown.

    It holds if the whole 95 % interval lies above −margin, it fails if the whole interval lies below, and it is
    open otherwise; then the text says how many seeds would decide. It is open too if all pairs have the same
    difference: an interval without a width says that the test videos are too few or too easy, and nothing about
    the next seed.
    """
    if difference is None or difference.interval is None:
        why = "one seed decides nothing" if difference else "no pair of runs can be compared"
        return f"open: {why}"
    if is_constant(difference):
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
    video that is hard for one seed is hard for the others. Seeds of other folds have other lists. If no video of
    n tells the rows apart, the interval is that of a share of 0 of n: ±300/n points (rule of three: Hanley and
    Lippman-Hand, JAMA 249, 1983).
    """
    lists: defaultdict[str, list[np.ndarray]] = defaultdict(list)
    seeds = []
    for run, base in pair.runs:
        if run.videos and base.videos and run.videos.names_hash == base.videos.names_hash:
            own, other = run.videos.correct, base.videos.correct
            lists[run.videos.names_hash].append(own.astype(np.int8) - other.astype(np.int8))
            seeds.append(run.seed)
    if not seeds:
        return None
    every = [difference for differences in lists.values() for difference in differences]
    over_seeds = estimate_mean([100 * float(difference.mean()) for difference in every])
    assert over_seeds is not None
    of_seeds = over_seeds.interval[1] - over_seeds.mean if over_seeds.interval else 0.0
    # The variance of the mean over all seeds, from the videos of each list.
    variance = sum(
        (len(differences) / len(every)) ** 2
        * float(np.mean(differences, axis=0).var())
        / len(differences[0])
        for differences in lists.values()
    )
    half = math.hypot(of_seeds, 100 * Z_95 * math.sqrt(variance))
    if not any(difference.any() for difference in every):
        half = 300 / sum(len(of_list[0]) for of_list in lists.values())
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
    """Return the training seconds until the score first reaches ``target``. A run that misses it has infinity."""
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
