"""In which order shapes are taken: from coarse to fine, or in another order each time, by fixed constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from mgexp.multigrid.shapes import BatchShape

ShapeOrder = Literal["coarse_to_fine", "random"]


def in_turn(num: int, *_: int) -> tuple[int, ...]:
    """0 … num − 1: as they are given, wherever that is."""
    return tuple(range(num))


def scrambled(num: int, *place: int) -> tuple[int, ...]:
    """A permutation of 0 … num − 1 that follows from ``place`` alone: the same in every run."""
    return tuple(sorted(range(num), key=lambda index: _hash(*place, index)))


ORDERS: dict[ShapeOrder, Callable[..., tuple[int, ...]]] = {
    "coarse_to_fine": in_turn,  # paper, Fig. 2; released code
    "random": scrambled,  # the paper's is unknown: ours permutes, so that every shape gets its steps
}
"""Of ``num`` shapes at a place: (stage,) for the long cycle, (stage, turn) for the short one."""


def _hash(*numbers: int) -> int:
    """64 bits of ``numbers``, each mixed in by SplitMix64 (Steele et al., 2014)."""
    value = 0
    for number in numbers:
        value = (value + number + 0x9E3779B97F4A7C15) % 2**64
        value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
        value ^= value >> 31
    return value


@dataclass(frozen=True)
class Turns:
    """A cycle as the steps of a phase in ``stage`` take it: turn after turn, each through all ``shapes``."""

    shapes: tuple[BatchShape, ...]
    stage: int
    order: ShapeOrder

    def turn(self, number: int) -> tuple[BatchShape, ...]:
        """The shapes of one turn as they come."""
        return tuple(self.shapes[place] for place in self._places(number))

    def shape_at(self, offset: int) -> BatchShape:
        """The shape of a step, ``offset`` steps after the first one of the phase."""
        number, position = divmod(offset, len(self.shapes))
        return self.turn(number)[position]

    def steps_by_shape(self, num_steps: int) -> list[tuple[BatchShape, int]]:
        """Every shape, and how many of the first ``num_steps`` steps have it; exact inside a turn too."""
        turns, rest = divmod(num_steps, len(self.shapes))
        begun = self._places(turns)[:rest]
        return [(shape, turns + (place in begun)) for place, shape in enumerate(self.shapes)]

    def ratio_before(self, num_steps: int) -> int:
        """Clips drawn in the first ``num_steps`` steps, in units of the baseline's mini-batch."""
        return sum(shape.ratio * steps for shape, steps in self.steps_by_shape(num_steps))

    def _places(self, number: int) -> tuple[int, ...]:
        return ORDERS[self.order](len(self.shapes), self.stage, number)
