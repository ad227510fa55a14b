"""Steps are timed in turns, warm-up apart, by a clock that the fakes move."""

import pytest
import torch

from mgexp.multigrid.schedule import StepShape
from mgexp.plan import timing
from mgexp.plan.predict import StepCost
from mgexp.plan.timing import Sample, Stopwatch, TimedSteps, measure_cycles, measure_steps
from mgexp.run import log

COARSE, FINE = StepShape(8, 16, 4, 2), StepShape(32, 32, 1, 1)


CPU = torch.device("cpu")


class Machine(Stopwatch):
    """A clock that stands still but for the seconds that steps take. Two threads compute."""

    def __init__(self):
        super().__init__(CPU)
        self.now, self.calls = 0.0, []

    def way(self, name, seconds):
        """A way whose steps take ``seconds`` in turn; making the clips takes 1000, which must not count."""

        def make(shape):
            self.now += 1000
            turns = iter(seconds)

            def step():
                self.calls.append((name, shape))
                self.now += next(turns)

            return step

        return make

    def wait(self):
        """The device is behind: what it takes to end a step counts, what is there before does not."""
        self.now += 0.5


@pytest.fixture
def machine(monkeypatch):
    machine = Machine()
    monkeypatch.setattr(timing.time, "perf_counter", lambda: machine.now)
    monkeypatch.setattr(timing.time, "process_time", lambda: 2 * machine.now)
    return machine


def test_quantiles_by_hand():
    timed = TimedSteps((9.0, 4.0), (5.0, 1.0, 4.0, 2.0, 3.0))
    assert (timed.median, timed.p10, timed.p90) == pytest.approx((3.0, 1.4, 4.6))
    assert timed.first_use_seconds == 6.0


def test_a_first_step_that_is_no_slower_costs_nothing():
    assert TimedSteps((1.0,), (2.0,)).first_use_seconds == 0.0


def test_ratios_are_of_the_same_repeat():
    ours, plain = TimedSteps((1.0,), (1.0, 4.0)), TimedSteps((1.0,), (2.0, 12.0))
    assert plain.ratios_to(ours) == [2.0, 3.0]


def test_ways_take_turns_that_alternate_after_their_warm_up(machine):
    ways = {name: machine.way(name, [0] * 5) for name in "ab"}
    measure_steps(ways, [COARSE, FINE], 3, 2, machine)
    once = "aabb" + "ab" + "ba" + "ab"
    assert [name for name, _ in machine.calls] == list(once * 2)
    assert [shape for _, shape in machine.calls] == [COARSE] * 10 + [FINE] * 10


def test_seconds_include_the_wait_for_the_device_and_not_the_making_of_clips(machine):
    ways = {"a": machine.way("a", [7, 2, 3]), "b": machine.way("b", [5, 4, 6])}
    found = measure_steps(ways, [COARSE], 2, 1, machine)
    assert found == {
        "a": {COARSE: TimedSteps((7.5,), (2.5, 3.5))},
        "b": {COARSE: TimedSteps((5.5,), (4.5, 6.5))},
    }


def test_memory_is_the_most_of_the_timed_steps():
    class Meter:
        used = iter(range(900, 0, -100))

        def time(self, step):
            return Sample(1.0, 1.0, next(self.used))

    found = measure_steps({"a": lambda shape: None}, [FINE], 2, 1, Meter())
    assert found["a"][FINE].used_bytes == 800  # 900 was the warm-up's


def test_a_cpu_tells_no_memory():
    assert Stopwatch(CPU).time(lambda: None).used_bytes is None


class Cycles(Machine):
    """A step takes ``seconds`` of its shape; the first of each 10 s more. The device is never behind."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds, self.steps = seconds, []

    def wait(self):
        pass

    def step(self, shape):
        self.now += self.seconds[shape] + 10 * (shape not in self.steps)
        self.steps.append(shape)

    def measure(self, cycles, budget_seconds, **options):
        way = lambda shape: lambda: self.step(shape)  # noqa: E731
        return measure_cycles(way, cycles, budget_seconds, self, **options)


class Forgetful(Cycles):
    """A step takes 5 s more where its shape was not among the last two steps'."""

    def step(self, shape):
        self.now += 5 * (shape not in self.steps[-2:])
        super().step(shape)


@pytest.fixture
def cycles(monkeypatch):
    def make(kind=Cycles, seconds=(1.0, 2.0)):
        machine = kind(dict(zip((COARSE, FINE), seconds, strict=True)))
        monkeypatch.setattr(timing.time, "perf_counter", lambda: machine.now)
        monkeypatch.setattr(timing.time, "process_time", lambda: 2 * machine.now)
        return machine

    return make


def test_cost_is_the_median_without_the_first_use(cycles):
    assert cycles().measure([[COARSE]], 100) == {COARSE: StepCost(1.0, 2.0, 10.0)}


def test_cycles_take_turns(cycles):
    machine = cycles()
    machine.measure([[COARSE], [FINE], [COARSE]], 40)
    assert machine.steps[:7] == [COARSE] * 3 + [FINE] * 3 + [COARSE]


def test_it_ends_with_the_budget(cycles):
    machine = cycles()
    machine.measure([[COARSE]], 30)
    assert 30 <= machine.now <= 33


def test_the_seconds_are_shown_where_there_is_no_terminal(cycles, monkeypatch, capsys):
    monkeypatch.setattr(log, "LINE_SECONDS", 0)
    cycles().measure([[COARSE]], 30, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" [")[0] for line in lines[:3]] == [
        f"timing steps: {seconds}/30 s" for seconds in (0, 11, 12)
    ]


def test_every_shape_is_timed_whatever_the_budget(cycles):
    found = cycles().measure([[COARSE], [FINE]], 0)
    assert {shape: cost.seconds for shape, cost in found.items()} == {COARSE: 1.0, FINE: 2.0}


def test_a_short_cycle_is_visited_in_its_order(cycles):
    machine = cycles()
    machine.measure([[COARSE, FINE]], 30)
    assert machine.steps[:6] == [COARSE, FINE] * 3


def test_the_first_turn_of_a_visit_is_not_timed(cycles):
    """A library that forgets shapes makes it dearer than a step of training is."""
    found = cycles(Forgetful).measure([[COARSE], [COARSE, FINE], [FINE]], 100)
    assert {shape: cost.seconds for shape, cost in found.items()} == {COARSE: 1.0, FINE: 2.0}


def test_when_the_budget_is_spent_only_what_is_missing_is_timed(cycles):
    machine = cycles()
    machine.measure([[COARSE], [FINE]], 12)
    assert machine.steps == [COARSE, COARSE, FINE, FINE]
