"""What is said of hand-written timings."""

import pytest
import simplejson
from peak import Peak
from step_times import StepTimes, step_report, times_json

from mgexp.multigrid.schedule import StepShape
from mgexp.plan.timing import TimedSteps

COARSE, FINE = StepShape(8, 16, 4, 2), StepShape(32, 32, 1, 1)


def timed(*seconds, used=None):
    return TimedSteps((10.0,), seconds, used)


def times_of(*names, used=None):
    """Two shapes of 8 GFLOPs a step."""
    ways = {
        "ours": {COARSE: timed(2.0, 4.0, 2.0, used=used), FINE: timed(1.0, 1.0, 1.0, used=used)},
        "plain": {COARSE: timed(4.0, 6.0, 5.0, used=used), FINE: timed(3.0, 3.0, 2.0, used=used)},
        "one_group": {COARSE: timed(1.0, 2.0, 2.0), FINE: timed(1.0, 1.0, 2.0)},
    }
    return StepTimes(
        {name: ways[name] for name in names},
        flops={COARSE: 8 * 10**9, FINE: 8 * 10**9},
        base=(COARSE, FINE),
        held_bytes=2**30,
        kept_bytes={COARSE: 2**31, FINE: 2**29},
        peak=Peak(matmul=10e9, conv=16e9),
    )


@pytest.fixture
def times():
    return times_of("ours", "plain", "one_group")


def test_rates_are_those_of_the_median_step(times):
    assert times.clips_per_second("ours", COARSE) == 2.0
    assert times.flops_per_second("ours", COARSE) == 4e9
    assert times.share_of_peak("ours", COARSE) == 0.25


def test_comparisons_are_made_repeat_by_repeat(times):
    assert times.times_faster(COARSE, "ours") == [2.0, 1.5, 2.5]
    assert times.bn_group_costs(COARSE) == pytest.approx([1.0, 1.0, 0.0])
    assert times.bn_group_costs(FINE) == pytest.approx([0.0, 0.0, -0.5])
    assert times.slowest_to_fastest("ours") == 2.0


def test_the_report_as_people_read_it(times):
    lines = [line.split() for line in step_report(times).splitlines()]
    ours = "4x8x16² * 2 2,000 (2,000–3,600) 2 4.0 25.0 3.00 2.00 (1.50–2.50)"
    assert ours.split() in lines
    each = "4x8x16² * 2,000 (2,000–3,600) 5,000 (4,200–5,800) 2,000 (1,200–2,000) 8.00"
    assert each.split() in lines
    text = step_report(times)
    assert "measured peak: 16.0 GFLOP/s (matrix product 10.0, convolution 16.0)" in text
    assert "base shapes, slowest step / fastest step: ours 2.00, plain 1.67, one_group 2.00" in text
    assert "4x8x16²: 2 BN groups cost 100.0 (0.0–100.0) % over one" in text
    assert "1x32x32²: 1 BN groups" not in text
    assert "memory is estimated" in text


def test_the_json_holds_every_number(times):
    found = simplejson.loads(simplejson.dumps(times_json(times)))
    assert found["peak"] == {"matmul": 10e9, "conv": 16e9, "flops_per_second": 16e9}
    assert found["base_slowest_to_fastest"]["ours"] == 2.0
    assert found["memory"] == "estimated"
    shape = found["shapes"][0]
    assert (shape["frames"], shape["crop"], shape["clips"], shape["num_bn_groups"]) == (8, 16, 4, 2)
    assert shape["is_base"]
    assert shape["flops_per_step"] == 8 * 10**9
    assert shape["bn_group_costs"] == pytest.approx([1.0, 1.0, 0.0])
    assert shape["ways"]["ours"] == {
        "median_seconds": 2.0,
        "p10_seconds": 2.0,
        "p90_seconds": pytest.approx(3.6),
        "first_use_seconds": 8.0,
        "clips_per_second": 2.0,
        "flops_per_second": 4e9,
        "share_of_peak": 0.25,
        "memory_bytes": 3 * 2**30,
        "times_plain": [2.0, 1.5, 2.5],
        "warmup_seconds": [10.0],
        "seconds": [2.0, 4.0, 2.0],
    }
