"""95 % intervals over seeds, by Student's t."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from mgexp.errors import InputError

# Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom.
# Source: NIST/SEMATECH e-Handbook of Statistical Methods, section 1.3.6.7.2.
T_QUANTILES_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences; half the width of its 95 % interval, None for one pair."""

    mean: float
    half_width: float | None
    num_pairs: int

    @property
    def ends(self) -> tuple[float, float] | None:
        """Of the interval, the lower first."""
        if self.half_width is None:
            return None
        return self.mean - self.half_width, self.mean + self.half_width


def paired_difference(differences: Sequence[float]) -> Difference | None:
    """Mean and Student's t interval of paired differences; None for none.

    Raises InputError for more than 31 pairs, where the table of quantiles ends.
    """
    num_pairs = len(differences)
    if num_pairs == 0:
        return None
    if num_pairs == 1:
        return Difference(differences[0], None, 1)
    if num_pairs > len(T_QUANTILES_95) + 1:
        raise InputError([f"{num_pairs} seeds of one row: intervals are known up to 31 seeds"])
    error = stdev(differences) / math.sqrt(num_pairs)
    return Difference(fmean(differences), T_QUANTILES_95[num_pairs - 2] * error, num_pairs)


def ratio_interval(ratios: Sequence[float]) -> tuple[float, float] | None:
    """95 % interval of the geometric mean of paired ratios: Student's t on their logarithms; None for one."""
    found = paired_difference([math.log(ratio) for ratio in ratios])
    if found is None or found.ends is None:
        return None
    low, high = found.ends
    return math.exp(low), math.exp(high)
