"""Recipes and rows that the tests of the schedule share; source: PySlowFast's released configurations."""

from dataclasses import replace

from mgexp.multigrid.phases import Phase
from mgexp.multigrid.recipe import Multigrid, Recipe
from mgexp.multigrid.schedule import Schedule, build_schedule

HALF_AREA = 0.5**0.5  # of a side, for half the pixels
LONG = ((0.25, HALF_AREA), (0.5, HALF_AREA), (0.5, 1.0), (1.0, 1.0))
SHORT = (0.5, HALF_AREA)

KINETICS = Recipe(
    clips=64,
    frames=32,
    crop=224,
    stride=2,
    jitter=(256, 320),
    base_lr=0.1,
    stage_epochs=(0, 94, 154, 196),
    max_epoch=239,
    warmup_epochs=34,
    warmup_start_lr=0.01,
)
SSV2 = replace(
    KINETICS,
    clips=16,
    frames=64,
    stride=None,
    base_lr=0.03,
    stage_epochs=(0, 14, 18),
    max_epoch=22,
    warmup_epochs=0.19,
    warmup_start_lr=1e-4,
)
CHARADES = replace(
    SSV2, stride=2, base_lr=0.0375, stage_epochs=(0, 41, 49), max_epoch=57, warmup_epochs=4
)
TINY = replace(  # for what must hold of any recipe
    KINETICS, clips=8, frames=8, crop=64, stage_epochs=(0, 2, 3), max_epoch=4, warmup_epochs=0
)
RECIPES = {"kinetics": KINETICS, "ssv2": SSV2, "charades": CHARADES}
NUM_VIDEOS = {"kinetics": 234_643, "ssv2": 168_913, "charades": 7_985}

ROWS = {
    "baseline": Multigrid(),
    "short": Multigrid(short_factors=SHORT, epoch_factor=1.5),
    "long": Multigrid(LONG, epoch_factor=1.5, fine_tuning=True),
    "long_short": Multigrid(LONG, SHORT, epoch_factor=1.5, fine_tuning=True),
}


def schedule(
    dataset: str = "kinetics", row: str = "long_short", num_processes: int = 1, **changes
) -> Schedule:
    """The schedule of a row of a data set; ``changes`` are fields of Multigrid."""
    multigrid = replace(ROWS[row], **changes)
    return build_schedule(RECIPES[dataset], multigrid, NUM_VIDEOS[dataset], num_processes)


def identity(phase: Phase) -> tuple[int, object, float]:
    """What makes a phase: the same in either granularity."""
    return phase.stage, phase.cycle.base, round(phase.lr_factor, 9)
