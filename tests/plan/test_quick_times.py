"""Timing of steps within a budget, on a clock of the test's own."""

from mgexp.multigrid.schedule import StepShape
from mgexp.plan.predict import StepCost
from mgexp.plan.timing import QuickTimes

SMALL, LARGE = StepShape(4, 32, 8, 1), StepShape(8, 32, 8, 1)


class Machine:
    """A step takes ``seconds`` of its shape; the first of each 10 s more."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.time = 0.0
        self.steps = []

    def step(self, shape):
        self.time += self.seconds[shape] + 10 * (shape not in self.steps)
        self.steps.append(shape)

    def times(self, budget_seconds):
        return QuickTimes(self.step, budget_seconds, lambda: self.time, lambda: 2 * self.time)


def test_cost_is_the_median_without_the_first_use():
    machine = Machine({SMALL: 1.0})
    assert machine.times(100).measure([[SMALL]]) == {SMALL: StepCost(1.0, 2.0, 10.0)}


def test_cycles_take_turns():
    machine = Machine({SMALL: 1.0, LARGE: 2.0})
    machine.times(40).measure([[SMALL], [LARGE], [SMALL]])
    assert machine.steps[:7] == [SMALL] * 3 + [LARGE] * 3 + [SMALL]


def test_it_ends_with_the_budget():
    machine = Machine({SMALL: 1.0})
    machine.times(30).measure([[SMALL]])
    assert 30 <= machine.time <= 33


def test_every_shape_is_timed_whatever_the_budget():
    machine = Machine({SMALL: 1.0, LARGE: 2.0})
    found = machine.times(0).measure([[SMALL], [LARGE]])
    assert {shape: cost.seconds for shape, cost in found.items()} == {SMALL: 1.0, LARGE: 2.0}


def test_a_short_cycle_is_visited_in_its_order():
    machine = Machine({SMALL: 1.0, LARGE: 2.0})
    machine.times(30).measure([[SMALL, LARGE]])
    assert machine.steps[:6] == [SMALL, LARGE] * 3


class Forgetful(Machine):
    """A step takes 5 s more where its shape was not among the last two steps'."""

    def step(self, shape):
        self.time += 5 * (shape not in self.steps[-2:])
        super().step(shape)


def test_the_first_turn_of_a_visit_is_not_timed():
    """A library that forgets shapes makes it dearer than a step of training is."""
    found = (
        Forgetful({SMALL: 1.0, LARGE: 2.0}).times(100).measure([[SMALL], [SMALL, LARGE], [LARGE]])
    )
    assert {shape: cost.seconds for shape, cost in found.items()} == {SMALL: 1.0, LARGE: 2.0}


def test_when_the_budget_is_spent_only_what_is_missing_is_timed():
    machine = Machine({SMALL: 1.0, LARGE: 2.0})
    machine.times(12).measure([[SMALL], [LARGE]])
    assert machine.steps == [SMALL, SMALL, LARGE, LARGE]
