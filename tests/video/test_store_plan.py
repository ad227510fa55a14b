"""The table of a plan: every figure, and a warning where the store does not fit."""

import pytest

from mgexp.video.store_fill import Estimate, disk_table

PLAN = Estimate(
    num_videos=1000,
    source_bytes=5 * 10**9,
    num_sampled=8,
    level_bytes={320: 3 * 10**9, 160: 10**9},
    encode_seconds=1200.0,
    failures=(),
)


def test_every_level_and_their_sum():
    lines = disk_table(PLAN, num_processes=2, free_bytes=10**12).splitlines()
    assert lines[0] == "1000 videos, from a sample of 8:"
    figures = [line.rsplit(None, 2)[:2] for line in lines[1:5]]
    assert figures == [
        ["  videos", "5.000"],
        ["  short side 320", "3.000"],
        ["  short side 160", "1.000"],
        ["  store in all", "4.000"],
    ]
    assert len(lines) == 6


@pytest.mark.parametrize(
    ("processes", "said"), [(20, "60 seconds"), (2, "10 minutes"), (0.1, "3 hours")]
)
def test_the_time_is_in_the_unit_that_people_would_say(processes, said):
    assert disk_table(PLAN, processes, 10**12).endswith(
        f"encoding takes about {said} with {processes} processes"
    )


def test_a_store_that_does_not_fit_is_said():
    assert "it does not fit: 3.900 GB are free there" in disk_table(PLAN, 2, 39 * 10**8)
