"""The baselines of quickstart/budget: the FLOPs of each row of multigrid, the same recipe but for its length."""

from pathlib import Path

import pytest

from mgexp.config.load import load_config
from mgexp.train.setup import build_row_schedule

FOLDER = Path(__file__).parents[2] / "experiments" / "quickstart"
FLOPS = {
    "baseline": 18533560320000,
    "short": 12656757123072,
    "long": 9034277363712,
    "long_short": 5758274113536,
}
"""Of training, as counted in the runs of experiments/results.csv."""


@pytest.mark.parametrize("row", ["short", "long", "long_short"])
def test_a_budget_is_the_flops_of_its_row_within_one_step(row):
    baseline, budget = (load_config(FOLDER / f"{n}.yaml") for n in ("baseline", f"budget/as_{row}"))
    steps = [build_row_schedule(cfg, 1200).total_steps for cfg in (baseline, budget)]
    assert abs(steps[1] - steps[0] * FLOPS[row] / FLOPS["baseline"]) <= 1


@pytest.mark.parametrize("row", ["short", "long", "long_short"])
def test_stages_and_warm_up_have_the_share_that_they_have_in_the_baseline(row):
    baseline, budget = (
        load_config(FOLDER / f"{n}.yaml").SOLVER for n in ("baseline", f"budget/as_{row}")
    )
    share = budget.MAX_EPOCH / baseline.MAX_EPOCH
    wanted = [share * epoch for epoch in (*baseline.STEPS, baseline.WARMUP_EPOCHS)]
    assert [*budget.STEPS, budget.WARMUP_EPOCHS] == pytest.approx(wanted, abs=1e-3)
