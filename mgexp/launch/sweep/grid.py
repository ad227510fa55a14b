"""Which runs a sweep has: experiments × points of a grid × seeds."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from mgexp.errors import InputError
from mgexp.record.sweep_dir import MAX_NAME, file_name

EVERYWHERE = "all"
"""The name of the only point of a sweep without a grid."""

BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}

Point = tuple[tuple[str, str], ...]
"""(key, value as text) of each key of the grid."""


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep."""

    experiment: str
    point: Point
    seed: int

    @property
    def point_name(self) -> str:
        """The name of its point's folder."""
        text = ",".join(f"{key}={value}" for key, value in self.point) or EVERYWHERE
        name = file_name(text)
        return name if name == text else _distinct(name, text)

    @property
    def name(self) -> str:
        """<point>/<experiment>/seed<N>: where its run folder is, and what it is called."""
        return f"{self.point_name}/{self.experiment}/seed{self.seed}"


def _distinct(name: str, text: str) -> str:
    """Where a text is no file name, two may become the same: its hash keeps them apart."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{name[: MAX_NAME - 9]}-{digest}"


def read_grid(texts: Sequence[str]) -> tuple[Point, ...]:
    """Every combination of the values of KEY=V1,V2; raises InputError with every problem.

    A comma in brackets is part of a value: SOLVER.STEPS=[0,3],[0,4] has two.
    """
    problems, axes, seen = [], [], set()
    for text in texts:
        key, equals, rest = text.partition("=")
        values = [value.strip() for value in _split(rest)]
        if not equals or not key or not all(values):
            problems.append(
                f"--grid {text!r}: it takes KEY=VALUE,VALUE, such as SOLVER.BASE_LR=0.05,0.1"
            )
        elif key in seen:
            problems.append(f"--grid {text}: {key} is there twice; give its values together")
        elif len(set(values)) < len(values):
            problems.append(f"--grid {text}: a value is there twice")
        seen.add(key)
        axes.append([(key, value) for value in values])
    if problems:
        raise InputError(problems)
    return tuple(itertools.product(*axes))


def _split(text: str) -> list[str]:
    """At the commas outside brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += BRACKETS.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def read_seeds(text: str) -> tuple[int, ...]:
    """ "3": seeds 0, 1 and 2; "3,5": these. Raises InputError."""
    try:
        numbers = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        numbers = ()
    seeds = numbers if "," in text else tuple(range(sum(numbers)))
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        problem = (
            f"--seeds {text}: it takes a number of seeds, such as 3, or the seeds, such as 0,5"
        )
        raise InputError([problem])
    return seeds
