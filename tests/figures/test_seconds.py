"""Where the time went: every second of the program once."""

import pytest
from samples import comparison, run

from mgexp.figures.seconds import PARTS, draw_seconds

ONE = run("baseline", seconds=100.0, flops=9.9e12)


def test_the_parts_add_up_to_the_program():
    # Training 100: 1 first use, 5 waiting, 94 steps. Then 12, 8 and 1, and 9 of 130 are left.
    assert [part.seconds(ONE) for part in PARTS] == [94.0, 5.0, 1.0, 12.0, 8.0, 1.0, 9.0]


def test_a_bar_is_as_long_as_the_program():
    bars, rates = draw_seconds(comparison(ONE)).axes
    assert max(patch.get_x() + patch.get_width() for patch in bars.patches) == 130.0
    # 9.9e12 FLOPs in 99 steady seconds, in GFLOP/s.
    assert rates.patches[0].get_width() == pytest.approx(100.0)


@pytest.mark.parametrize("seconds", [(100.0, 110.0, 120.0), (1.377, 1.377), (1.059, 1.059)])
def test_several_seeds_have_their_range(seconds):
    """The sum of the parts is rounded, and no arm of the range may be less than 0."""
    runs = [run("baseline", seed, seconds=each) for seed, each in enumerate(seconds)]
    bars, _ = draw_seconds(comparison(*runs)).axes
    (container,) = [one for one in bars.containers if not hasattr(one, "patches")]
    (segment,) = container.lines[2][0].get_segments()
    assert list(segment[:, 0]) == pytest.approx([seconds[0] + 30, seconds[-1] + 30])
