"""Estimate a number over several seeds or videos, with its 95 % interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, geometric_mean, stdev

import numpy as np

# Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom. With this table we do not need SciPy,
# which nothing else here uses. Source: NIST/SEMATECH e-Handbook of Statistical Methods, section 1.3.6.7.2.
T_QUANTILES_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
Z_95 = 1.959964
"""The two-sided 95 % quantile of the normal distribution."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its 95 % interval. ``interval`` is None for one seed."""

    each: tuple[float, ...]
    mean: float
    interval: tuple[float, float] | None

    def holds(self, value: float) -> bool:
        """Return whether the interval contains ``value``. Then the mean may differ from ``value`` by chance."""
        return self.interval is not None and self.interval[0] <= value <= self.interval[1]


def t_quantile_95(freedom: int) -> float:
    """Return the two-sided 95 % quantile of Student's t for a number of degrees of freedom.

    Beyond the table this is the expansion 26.7.5 in Abramowitz & Stegun, Handbook of Mathematical Functions
    (1964). From 30 degrees of freedom on, four terms give every digit of the published tables.
    """
    if freedom <= len(T_QUANTILES_95):
        return T_QUANTILES_95[freedom - 1]
    z = Z_95
    terms: tuple[float, ...] = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return math.fsum(term / freedom**power for power, term in enumerate(terms))


def estimate_mean(values: Sequence[float]) -> Estimate | None:
    """Estimate the mean with the interval of Student's t. Return None if there is no value."""
    num = len(values)
    if num == 0:
        return None
    mean = fmean(values)
    if num == 1:
        return Estimate(tuple(values), mean, None)
    # A row has three to twenty seeds: too few for the quantile of the normal distribution.
    half_width = t_quantile_95(num - 1) * (stdev(values) / math.sqrt(num))
    return Estimate(tuple(values), mean, (mean - half_width, mean + half_width))


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


Z_POWER_90 = 1.2816
"""The 90 % quantile of the normal distribution: the claim is decided in 9 of 10 studies of that size."""
MOST_SEEDS = 1000
"""A study with more seeds than this is not worth planning."""


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
