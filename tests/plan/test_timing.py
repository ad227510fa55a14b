"""Steps are timed in turns, warm-up apart, by a clock that the fakes move."""

import pytest
import torch

from mgexp.multigrid.schedule import StepShape
from mgexp.plan import timing
from mgexp.plan.timing import Sample, Stopwatch, TimedSteps, measure_steps

COARSE, FINE = StepShape(8, 16, 4, 2), StepShape(32, 32, 1, 1)


CPU = torch.device("cpu")


class Machine(Stopwatch):
    """A clock that stands still but for the seconds that steps take."""

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
    return machine


def test_quantiles_by_hand():
    timed = TimedSteps((9.0, 4.0), (5.0, 1.0, 4.0, 2.0, 3.0))
    assert (timed.median, timed.p10, timed.p90) == pytest.approx((3.0, 1.4, 4.6))
    assert timed.first_use_seconds == 6.0


def test_a_first_step_that_is_no_slower_costs_nothing():
    assert TimedSteps((1.0,), (2.0,)).first_use_seconds == 0.0


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
            return Sample(1.0, next(self.used))

    found = measure_steps({"a": lambda shape: None}, [FINE], 2, 1, Meter())
    assert found["a"][FINE].used_bytes == 800  # 900 was the warm-up's


def test_a_cpu_tells_no_memory():
    assert Stopwatch(CPU).time(lambda: None).used_bytes is None
