"""Steps are timed in turns, warm-up apart, by a clock that the fakes move."""

import pytest

from mgexp.multigrid.schedule import StepShape
from mgexp.plan import timing as step_time
from mgexp.plan.machine import NoMemory
from mgexp.plan.timing import TimedSteps, measure_steps, slowest_to_fastest

COARSE, FINE = StepShape(8, 16, 4, 2), StepShape(32, 32, 1, 1)


class Machine:
    """A clock that stands still but for the seconds that steps take, and a meter that counts down."""

    def __init__(self):
        self.now, self.calls = 0.0, []
        self.used = iter(range(900, 0, -100))

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
        """Of a device that is behind: what it takes to end a step counts, what is there before does not."""
        self.now += 0.5

    def start(self):
        pass

    def used_bytes(self):
        return next(self.used)


@pytest.fixture
def machine(monkeypatch):
    machine = Machine()
    monkeypatch.setattr(step_time.time, "perf_counter", lambda: machine.now)
    return machine


def test_quantiles_by_hand():
    timed = TimedSteps((9.0, 4.0), (5.0, 1.0, 4.0, 2.0, 3.0))
    assert (timed.median, timed.p10, timed.p90) == pytest.approx((3.0, 1.4, 4.6))
    assert timed.first_seconds == 9.0
    assert timed.first_use_seconds == 6.0


def test_a_first_step_that_is_no_slower_costs_nothing():
    assert TimedSteps((1.0,), (2.0,)).first_use_seconds == 0.0


def test_ratios_are_of_the_same_repeat():
    ours, plain = TimedSteps((1.0,), (1.0, 4.0)), TimedSteps((1.0,), (2.0, 12.0))
    assert plain.ratios_to(ours) == [2.0, 3.0]


@pytest.mark.parametrize(("warmup", "seconds"), [((), (1.0,)), ((1.0,), ())])
def test_both_kinds_of_steps_are_needed(warmup, seconds):
    with pytest.raises(ValueError, match="at least one of each"):
        TimedSteps(warmup, seconds)


def test_ways_take_turns_that_alternate_after_their_warm_up(machine):
    ways = {name: machine.way(name, [0] * 5) for name in "ab"}
    measure_steps(ways, [COARSE, FINE], 3, 2, machine.wait, NoMemory())
    once = "aabb" + "ab" + "ba" + "ab"
    assert [name for name, _ in machine.calls] == list(once * 2)
    assert [shape for _, shape in machine.calls] == [COARSE] * 10 + [FINE] * 10


def test_seconds_include_the_wait_for_the_device_and_not_the_making_of_clips(machine):
    ways = {"a": machine.way("a", [7, 2, 3]), "b": machine.way("b", [5, 4, 6])}
    found = measure_steps(ways, [COARSE], 2, 1, machine.wait, NoMemory())
    assert found == {
        "a": {COARSE: TimedSteps((7.5,), (2.5, 3.5))},
        "b": {COARSE: TimedSteps((5.5,), (4.5, 6.5))},
    }


def test_memory_is_the_most_of_the_timed_steps(machine):
    found = measure_steps({"a": machine.way("a", [1] * 3)}, [FINE], 2, 1, machine.wait, machine)
    assert found["a"][FINE].used_bytes == 800  # 900 was the warm-up's


def test_unevenness():
    assert slowest_to_fastest([2.0, 3.0, 2.5]) == 1.5
