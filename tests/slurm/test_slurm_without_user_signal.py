"""Preemption where the cluster sends SIGTERM only, which is Slurm's default."""

import pytest
from jobs import preempt, starts_after, submit, wait_for_result, wait_for_step
from run_files import assert_same

pytestmark = pytest.mark.slurm
SENDS_USER_SIGNAL = False


def test_preemption_saves_at_once_and_goes_on_until_it_is_killed(cluster, long, output, long_run):
    submit(cluster, long, output)
    wait_for_step(output, 10)
    preempt(cluster)
    wait_for_result(cluster, output)
    first, second = starts_after(output)
    assert (first, second >= 10) == (0, True)
    assert_same(output, long_run)
