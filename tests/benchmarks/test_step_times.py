"""What is said of hand-written timings."""

import pytest
import simplejson
from peak import Peak
from roofline import Roofline
from step_times import step_report, times_json

from mgexp.multigrid.schedule import StepShape
from mgexp.plan.timing import TimedSteps

COARSE, FINE = StepShape(8, 16, 4, 2), StepShape(32, 32, 1, 1)


def timed(*seconds):
    return TimedSteps((10.0,), seconds, None)


@pytest.fixture
def found():
    """Two shapes of 8 GFLOPs a step."""
    return times_json(
        {
            "ours": {COARSE: timed(2.0, 4.0, 2.0), FINE: timed(1.0, 1.0, 1.0)},
            "plain": {COARSE: timed(4.0, 6.0, 5.0), FINE: timed(3.0, 3.0, 2.0)},
            "one_group": {COARSE: timed(1.0, 2.0, 2.0), FINE: timed(1.0, 1.0, 2.0)},
        },
        flops={COARSE: 8 * 10**9, FINE: 8 * 10**9},
        base=(COARSE, FINE),
        held_bytes=2**30,
        kept_bytes={COARSE: 2**31, FINE: 2**29},
        peak=Peak(matmul=10e9, conv=16e9, bytes_per_second=1e9),
        rooflines=dict.fromkeys((COARSE, FINE), Roofline(((32 * 10**9, 10**8), (0, 2 * 10**9)))),
        operators={},
    )


def test_comparisons_are_made_repeat_by_repeat(found):
    coarse, fine = found["shapes"]
    assert coarse["ways"]["ours"]["times_plain"] == [2.0, 1.5, 2.5]
    assert coarse["bn_group_costs"] == pytest.approx([1.0, 1.0, 0.0])
    assert fine["bn_group_costs"] == pytest.approx([0.0, 0.0, -0.5])
    assert found["base_slowest_to_fastest"]["ours"] == 2.0


def test_a_line_of_the_table_has_its_numbers(found):
    _, _, line, *others = step_report(found).splitlines()
    # 4 clips in 2 s; 8 GFLOPs in 2 s, of 16 a second; 1 GiB and 2 GiB; the roofline is 4 s.
    numbers = ["2", "2,000", "(2,000–3,600)", "2", "4.0", "25.0", "3.00", "0.50", "2.00"]
    assert line.split() == ["4x8x16²", "*", *numbers, "(1.50–2.50)"]
    assert others[-1] == "4x8x16²: 2 BN groups cost 100.0 (0.0–100.0) % over one"


def test_the_json_holds_every_number(found):
    found = simplejson.loads(simplejson.dumps(found))
    peak = {"matmul": 10e9, "conv": 16e9, "bytes_per_second": 1e9, "flops_per_second": 16e9}
    assert found["peak"] == peak
    assert found["base_slowest_to_fastest"]["ours"] == 2.0
    assert found["memory"] == "estimated"
    shape = found["shapes"][0]
    assert (shape["frames"], shape["crop"], shape["clips"], shape["num_bn_groups"]) == (8, 16, 4, 2)
    assert shape["is_base"]
    assert shape["flops_per_step"] == 8 * 10**9
    # The first operator is bound by its FLOPs and takes 2 s, and the second takes 2 s for its bytes.
    assert (shape["bytes_per_step"], shape["roofline_seconds"]) == (21 * 10**8, 4.0)
    assert shape["bn_group_costs"] == pytest.approx([1.0, 1.0, 0.0])
    assert shape["ways"]["ours"] == {
        "median_seconds": 2.0,
        "p10_seconds": 2.0,
        "p90_seconds": pytest.approx(3.6),
        "first_use_seconds": 8.0,
        "clips_per_second": 2.0,
        "flops_per_second": 4e9,
        "share_of_peak": 0.25,
        "times_roofline": 0.5,
        "memory_bytes": 3 * 2**30,
        "times_plain": [2.0, 1.5, 2.5],
        "warmup_seconds": [10.0],
        "seconds": [2.0, 4.0, 2.0],
    }
