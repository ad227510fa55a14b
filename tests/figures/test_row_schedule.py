"""FLOPs, clips and rates of a row, summed step by step and by hand."""

import pytest
from samples import MACS, RECIPE, row_schedule

from mgexp.multigrid.recipe import BASELINE


@pytest.fixture(scope="module")
def row():
    return row_schedule()


def step_by_step(row, steps):
    plans = (row.schedule.plan_at(step) for step in range(steps))
    return sum(6 * plan.clips * MACS[plan.frames, plan.crop] for plan in plans)


@pytest.mark.parametrize("step", [0, 1, 2, 100, 217, 428])
def test_flops_before_a_step_are_the_sum_of_the_steps_before(row, step):
    assert row.flops_before(step) == step_by_step(row, step)


def test_the_flops_of_the_run_are_those_before_its_end(row):
    assert row.train_flops == row.flops_before(row.schedule.total_steps)


def test_the_baseline_costs_the_same_at_every_step():
    row = row_schedule("baseline", BASELINE)
    # 8 clips × 16 frames × 64² pixels × 1,000 multiply-adds × 2 × 3.
    assert row.flops_before(10) == 10 * 8 * 16 * 64**2 * 1000 * 6


def test_clips_for_each_teraflop(row):
    # The first cycle: 128 clips of 4 × 32², twice 64 clips of 4 × 45².
    flops = 6000 * (128 * 4 * 32**2 + 2 * 64 * 4 * 45**2)
    assert row.clips_per_teraflop(row.schedule.phases[0]) == pytest.approx(256 / flops * 1e12)


def test_learning_rates_hold_every_jump(row):
    found = dict(row.learning_rates())
    ends = {step for one in row.schedule.phases for step in (one.start_step, one.end_step - 1)}
    assert ends <= found.keys()
    assert len(found) <= 450
    assert all(rate == row.schedule.plan_at(step).lr for step, rate in found.items())


def test_stages_start_where_the_rate_falls(row):
    firsts = [next(p.start_step for p in row.schedule.phases if p.stage == k) for k in (1, 2)]
    assert row.stage_starts() == firsts
    assert len(RECIPE.stage_epochs) == 3
