"""What processes gain, from made-up seconds."""

import pytest
from teams import Team, TeamTimes

from mgexp.multigrid.schedule import StepShape
from mgexp.plan.timing import TimedSteps

ONE, TWO, THREADS = Team(1, 1), Team(2, 1), Team(1, 2)
COARSE, FINE = StepShape(8, 16, 8, 2), StepShape(32, 32, 2, 1)


def timed(*seconds):
    return TimedSteps((1.0,), seconds)


@pytest.fixture
def times():
    return TeamTimes(
        {
            ONE: {COARSE: timed(4.0, 4.0, 4.0), FINE: timed(2.0, 4.0, 8.0)},
            TWO: {COARSE: timed(2.5, 2.0, 4.0), FINE: timed(1.0, 2.0, 4.0)},
            THREADS: {COARSE: timed(4.0, 4.0, 4.0), FINE: timed(4.0, 4.0, 4.0)},
        }
    )


def test_efficiency_is_the_share_of_the_cores_that_is_not_lost(times):
    assert times.efficiency(ONE, COARSE) == 1.0
    assert times.efficiency(TWO, COARSE) == pytest.approx(4 / 2.5 / 2)  # the median of the three
    assert times.efficiency(TWO, FINE) == 1.0  # turn by turn, though the machine slowed down
    assert times.overall(TWO) == pytest.approx((4 + 4) / (2.5 + 2) / 2)


def test_the_report_has_a_row_for_each_shape(times):
    head, coarse, fine, overall, _ = times.report().splitlines()
    assert head.split()[-4:] == ["2x1,", "efficiency", "1x2,", "efficiency"]
    assert coarse.split() == ["8x8x16²", "2.00", "3.20", "2.00", "0.80", "0.50"]
    assert fine.split() == ["2x32x32²", "0.50", "1.00", "0.50", "1.00", "0.50"]
    assert overall.split() == ["a", "step", "of", "each", "0.89", "0.50"]


def test_the_json_has_every_second(times):
    _, two, _ = times.to_json()["teams"]
    assert (two["num_processes"], two["num_threads"]) == (2, 1)
    assert two["shapes"][1]["seconds"] == [1.0, 2.0, 4.0]
    assert two["shapes"][0]["clips_per_second"] == pytest.approx(3.2)
