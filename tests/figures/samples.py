"""Runs and rows with numbers chosen by hand, and what is asked of every figure."""

from fake_experiments import result

from mgexp.multigrid.recipe import LONG_SHORT, Multigrid, Recipe
from mgexp.multigrid.schedule import build_schedule
from mgexp.plan.row_schedules import RowSchedule
from mgexp.results.comparison import Comparison, Row, row_order
from mgexp.results.runs import Evaluation, Run

RECIPE = Recipe(
    clips=8,
    frames=16,
    crop=64,
    stride=2,
    jitter=(64, 80),
    base_lr=0.1,
    stage_epochs=(0, 6, 8),
    max_epoch=10,
    warmup_epochs=1,
    warmup_start_lr=0.01,
)
SHAPES = [(t, s) for t in (4, 8, 16) for s in (32, 45, 64)]
MACS = {(t, s): 1000 * t * s**2 for t, s in SHAPES}
"""As if a network took 1,000 multiply-adds a pixel."""


def row_schedule(name="long_short", multigrid: Multigrid = LONG_SHORT) -> RowSchedule:
    return RowSchedule(name, build_schedule(RECIPE, multigrid, num_videos=1200), MACS)


def run(
    row: str,
    seed: int = 0,
    *,
    top1: float = 97.0,
    seconds: float = 100.0,
    flops: float = 1e13,
    steps: int = 1000,
    curve: tuple[tuple[int, float, float], ...] = (),
) -> Run:
    """`curve` is (step, train seconds, top-1) during training."""
    during = [
        Evaluation(step, at, score, 1, 60, False, "forward", round(flops * step / steps))
        for step, at, score in curve
    ]
    end = Evaluation(steps, seconds, top1, 1, 1200, True, "forward")
    clocks = {"steady_seconds": seconds - 1, "program_seconds": seconds + 30}
    clocks |= {"evaluate_seconds": 12.0, "precise_bn_seconds": 8.0}
    clocks |= dict.fromkeys(("checkpoint_seconds", "shape_warmup_seconds"), 1.0)
    work = {"train_seconds": seconds, "train_flops": flops, "steps": steps}
    return result(f"quickstart/{row}", seed, top1, **work, **clocks, evaluations=(*during, end))


def comparison(*runs: Run) -> Comparison:
    names = sorted({one.row for one in runs}, key=row_order)
    of = {name: {r.seed: r for r in runs if r.row == name} for name in names}
    return Comparison(tuple(Row(name, of[name], {}) for name in names))
