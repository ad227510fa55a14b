"""The schedule against the released code's own table (tests/golden/kinetics_*.json) and hand-computed values."""

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from recipes import CHARADES, KINETICS, ROWS, TINY, schedule
from tiny import tiny_config

from mgexp.multigrid.recipe import Multigrid
from mgexp.multigrid.schedule import StepShape, base_shapes, build_schedule, step_counts
from mgexp.train.setup import build_row_schedule

GOLDEN_FOLDER = Path(__file__).parents[1] / "golden"
GOLDEN = {
    row: json.loads((GOLDEN_FOLDER / f"kinetics_slowfast8x8_{name}.json").read_text())
    for row, name in {
        "baseline": "baseline",
        "short": "short_only",
        "long": "long_only",
        "long_short": "long_short",
    }.items()
}


def in_epochs(row):
    """The schedule to compare with the released code's, which ran on 8 GPUs."""
    return schedule(row=row, num_processes=8, granularity="epoch")


def golden_phase(row, epoch):
    """The released code's phase of an epoch; it does not start a new one at a decay of the learning rate."""
    return next(p for p in GOLDEN[row]["phases"] if p["epoch_start"] <= epoch < p["epoch_end"])


def golden_bn_groups(phase):
    """Ours of theirs: split into groups, or synchronised over processes."""
    if phase["bn_norm_type"] == "sub_batchnorm":
        return phase["bn_num_splits"]
    assert phase["bn_norm_type"] == "batchnorm"
    return 1


@pytest.mark.parametrize("row", ROWS)
def test_boundaries_and_learning_rate_factors_equal_the_released_ones(row):
    golden, phases = GOLDEN[row], in_epochs(row).phases
    assert [phase.start_epoch for phase in phases] == golden["solver_steps"]
    assert [phase.end_epoch for phase in phases] == [*golden["solver_steps"][1:], golden["max_epoch"]]  # fmt: skip
    assert [phase.lr_factor for phase in phases] == pytest.approx(golden["solver_lrs"])


@pytest.mark.parametrize("row", ["long", "long_short"])
def test_stages_equal_the_released_ones(row):
    for phase in in_epochs(row).phases:
        assert phase.stage == golden_phase(row, phase.start_epoch)["step_index"]


def test_sizes_go_from_coarse_to_fine_each_once():
    assert build_schedule(TINY, ROWS["baseline"], 100).sizes == ((8, 64),)
    assert build_schedule(TINY, ROWS["long"], 100).sizes == ((2, 45), (4, 45), (4, 64), (8, 64))
    assert build_schedule(TINY, ROWS["long_short"], 100).sizes == (
        (2, 32), (2, 45), (4, 32), (4, 45), (4, 64), (8, 32), (8, 45), (8, 64),
    )  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_shapes_clips_strides_and_groups_equal_the_released_ones(row):
    for phase in in_epochs(row).phases:
        theirs = golden_phase(row, phase.start_epoch)
        base, shapes = phase.cycle.base, phase.cycle.shapes
        assert (base.frames, base.crop) == (theirs["num_frames"], theirs["train_crop_size"])
        assert (base.ratio, phase.clips) == (theirs["b"], theirs["train_batch_size"])
        assert phase.stride_range == (theirs["sampling_rate_min"], theirs["sampling_rate_max"])
        assert [shape.crop for shape in shapes] == theirs["short_cycle_crop_sizes"]
        per_gpu = [64 * shape.ratio // 8 for shape in shapes]
        assert per_gpu == theirs["short_cycle_per_gpu_batch_sizes"]
        assert phase.num_bn_groups == golden_bn_groups(theirs)


@pytest.mark.parametrize("row", ROWS)
def test_learning_rate_over_epochs_equals_the_released_one(row):
    """A step starts up to 1024 clips after the epoch; the warm-up rises by up to 0.8 / 34 an epoch."""
    built = in_epochs(row)
    for epoch, lr in GOLDEN[row]["lr"]:
        plan = built.plan_at(built.step_at_epoch(epoch))
        assert built.lr_at(plan.step, epoch) == pytest.approx(lr), epoch
        assert 0 <= plan.epoch - epoch < 1024 / 234_643
        assert plan.lr == pytest.approx(lr, abs=0.8 / 34 * 1024 / 234_643 if epoch < 34 else 1e-12)


@pytest.mark.parametrize(
    ("dataset", "row", "epoch_factor", "saving"),
    [  # What the released formulas save; None: the row's own factor.
        *(("kinetics", "long_short", factor, s) for factor, s in ((1, 5.14), (None, 3.42), (2, 2.57))),
        *(("kinetics", "long", factor, s) for factor, s in ((1, 3.26), (None, 2.17), (2, 1.63))),
        *(("kinetics", "short", factor, s) for factor, s in ((1, 2.33), (None, 1.56), (2, 1.17))),
        *(("kinetics", "baseline", None, 1.0), ("ssv2", "long_short", None, 3.42)),
        ("charades", "long_short", None, 3.51),
    ],
)  # fmt: skip
def test_steps_are_saved_as_with_the_released_schedule(dataset, row, epoch_factor, saving):
    changes = {} if epoch_factor is None else {"epoch_factor": epoch_factor}
    assert round(schedule(dataset, row, **changes).step_saving, 2) == saving


def test_baseline_steps_are_the_epochs_over_the_mini_batches():
    # 239 · 234,643 / 64 = 876,244.95
    assert {schedule(row=row).baseline_steps for row in ROWS} == {876_245}
    assert schedule(row="baseline").total_steps == 876_245


def test_flop_saving_compares_clips_frames_and_pixels():
    # The baseline's own cost: 1; short cycle: 4·112² + 2·158² + 224² over 3·224² for each step.
    assert schedule(row="baseline").flop_saving == 1
    per_step = (4 * 112**2 + 2 * 158**2 + 224**2) / (3 * 224**2)
    short = schedule(row="short")
    assert short.flop_saving == pytest.approx(short.step_saving / per_step, rel=1e-5)


def test_warm_up_that_ends_in_a_later_phase_rises_to_that_phases_rate():
    built = build_schedule(TINY, ROWS["long"], 1000)
    inside = (built.phases[1].start_epoch + built.phases[1].end_epoch) / 2
    warm = build_schedule(replace(TINY, warmup_epochs=inside), ROWS["long"], 1000)
    # Second phase: 4 · 0.1. From 0.01, so 0.205 half way, in the first phase.
    assert warm.lr_at(0, inside / 2) == pytest.approx(0.205)
    assert warm.plan_at(warm.step_at_epoch(inside)).lr == pytest.approx(0.4)


def test_warm_up_lasts_at_least_its_steps():
    """1,000 videos, mini-batches of 8 · 8 clips: 20 steps are 1.28 epochs, more than the 0.5 asked for."""
    recipe = replace(TINY, warmup_epochs=0.5, warmup_steps=20)
    built = build_schedule(recipe, ROWS["long"], 1000)
    assert built.phases[0].num_steps > 20
    # From 0.01 to 8 · 0.1 in 20 equal parts.
    rates = [built.plan_at(step).lr for step in (0, 1, 10, 19, 20, 21)]
    assert rates == pytest.approx([0.01, 0.0495, 0.405, 0.7605, 0.8, 0.8])


def test_warm_up_of_steps_that_ends_in_a_later_phase_rises_to_that_phases_rate():
    """It is linear in epochs: coarse steps, with their larger mini-batches, rise more steeply."""
    first = build_schedule(TINY, ROWS["long"], 1000).phases[0].num_steps
    recipe = replace(TINY, warmup_start_lr=0.0, warmup_steps=first + 10)
    built = build_schedule(recipe, ROWS["long"], 1000)
    assert built.plan_at(first + 10).lr == pytest.approx(0.4)
    # 64 clips a step and then 32.
    clips = 64 * first + 32 * 10
    assert built.plan_at(first).lr == pytest.approx(0.4 * 64 * first / clips)
    assert built.plan_at(first + 9).lr == pytest.approx(0.4 * (clips - 32) / clips)


@pytest.mark.parametrize("num_videos", range(900, 920))
def test_warm_up_of_steps_that_ends_before_a_phase_does_rises_to_the_rate_of_that_phase(num_videos):
    """Quotients of clips and videos are rounded. The first phase has 8 times the baseline's rate, the second 4."""
    recipe = replace(TINY, warmup_start_lr=0.0, stage_epochs=(0, 4), max_epoch=6)
    steps = build_schedule(recipe, ROWS["long"], num_videos).phases[0].num_steps - 1
    built = build_schedule(replace(recipe, warmup_steps=steps), ROWS["long"], num_videos)
    assert built.plan_at(steps - 1).lr == pytest.approx(0.8 * (steps - 1) / steps)


def test_warm_up_of_fewer_steps_than_its_epochs_changes_nothing():
    warm = replace(TINY, warmup_epochs=0.5)
    built, same = (
        build_schedule(replace(warm, warmup_steps=steps), ROWS["long"], 1000) for steps in (0, 7)
    )
    assert built.step_at_epoch(0.5) > 7
    assert [built.plan_at(step) for step in range(60)] == [same.plan_at(step) for step in range(60)]


def test_warm_up_that_never_ends_is_an_error():
    steps = build_schedule(TINY, ROWS["long"], 1000).total_steps
    with pytest.raises(ValueError, match=f"warmup_steps = {steps} is not less than the {steps} "):
        build_schedule(replace(TINY, warmup_steps=steps), ROWS["long"], 1000)
    build_schedule(replace(TINY, warmup_steps=steps - 1), ROWS["long"], 1000)


def test_a_warm_up_longer_than_the_whole_schedule_is_refused():
    """An EPOCH_FACTOR below 1 makes the schedule shorter than the recipe."""
    recipe = replace(TINY, warmup_epochs=0.5 * TINY.max_epoch)
    multigrid = replace(ROWS["short"], epoch_factor=0.4)
    with pytest.raises(ValueError, match=r"warmup_epochs = .* epochs of the whole schedule"):
        build_schedule(recipe, multigrid, 1000)
    build_schedule(recipe, replace(multigrid, epoch_factor=0.6), 1000)


COSINE = replace(KINETICS, policy="cosine", warmup_epochs=0)
COSINE_20 = replace(COSINE, stage_epochs=(0,), max_epoch=20, cosine_after_warmup=True)


def half_cosine(epoch):
    """½(1 + cos πp) at an equivalent epoch of the 239 of the baseline."""
    return 0.5 * (1 + math.cos(math.pi * epoch / 239))


def test_cosine_baseline_is_a_cosine_over_steps():
    built = build_schedule(COSINE, Multigrid(), 234_643)
    for step in range(0, 876_245, 7919):
        expected = 0.1 * half_cosine(239 * step / 876_245)
        assert built.plan_at(step).lr == pytest.approx(expected, abs=1e-6)


def test_cosine_stages_follow_the_equivalent_epoch_of_the_baseline():
    phases = build_schedule(COSINE, ROWS["long_short"], 234_643).phases
    assert len(phases) == 13  # fine-tuning needs no halves: there is no decay between them
    # Four shapes of equal steps: their phases start at quarters of the stage; b = 8, 4, 2, 1.
    expected = [
        *(b * half_cosine(0 + 94 * q / 4) for q, b in enumerate((8, 4, 2, 1))),
        *(b * half_cosine(94 + 60 * q / 4) for q, b in enumerate((8, 4, 2, 1))),
        *(b * half_cosine(154 + 42 * q / 4) for q, b in enumerate((8, 4, 2, 1))),
        half_cosine(196),
    ]
    built = build_schedule(COSINE, ROWS["long_short"], 234_643)
    rates = [built.plan_at(phase.start_step).lr for phase in phases]
    assert rates == pytest.approx([0.1 * factor for factor in expected])


def test_cosine_after_the_warm_up_ends_at_its_last_rate():
    """lr_func_cosine and get_lr_at_epoch of the released code, by hand: 100 steps an epoch, 20 epochs."""
    recipe = replace(COSINE_20, base_lr=0.01, cosine_end_lr=0.001)
    recipe = replace(recipe, warmup_epochs=4, warmup_start_lr=0.002)
    built = build_schedule(recipe, Multigrid(), 6400)

    def released(epoch):
        return 0.001 + (0.01 - 0.001) * (math.cos(math.pi * (epoch - 4) / (20 - 4)) + 1.0) * 0.5

    rates = [built.plan_at(step).lr for step in range(2000)]
    rising = [0.002 + (0.01 - 0.002) * step / 400 for step in range(400)]
    falling = [released(step / 100) for step in range(400, 2000)]
    assert rates == pytest.approx([*rising, *falling], rel=1e-12)
    # Without the key the cosine has fallen for four epochs where the warm-up ends.
    early = build_schedule(replace(recipe, cosine_after_warmup=False), Multigrid(), 6400)
    assert early.plan_at(400).lr == pytest.approx(
        0.001 + 0.009 * 0.5 * (1 + math.cos(math.pi * 4 / 20))
    )


def test_cosine_of_the_long_cycle_starts_where_the_warm_up_ends():
    """64 to 512 clips of 6,400 videos; each of four shapes has a quarter of the first 12 epochs of 20."""
    recipe = replace(COSINE_20, stage_epochs=(0, 12), warmup_epochs=2, cosine_end_lr=0.001)
    recipe = replace(recipe, base_lr=0.01)
    built = build_schedule(recipe, replace(ROWS["long"], epoch_factor=1.0), 6400)
    coarse = built.phases[0]
    # 512 clips are 0.08 epochs of the stream, so the warm-up ends at step 25.
    start = 3 * 25 / coarse.num_steps

    def at(epoch, clips):
        share = 0.5 * (1 + math.cos(math.pi * (epoch - start) / (20 - start)))
        return clips * (0.001 + 0.009 * share)

    assert built.plan_at(25).lr == pytest.approx(8 * 0.01)
    rates = [built.plan_at(phase.start_step).lr for phase in built.phases[1:]]
    assert rates == pytest.approx([at(3, 4), at(6, 2), at(9, 1), at(12, 1)])
    assert built.plan_at(built.total_steps - 1).lr == pytest.approx(0.001, rel=1e-3)


def test_cosine_starts_where_the_last_step_of_a_warm_up_is_over():
    """500 steps of 100 to an epoch last longer than 4 epochs."""
    recipe = replace(COSINE_20, warmup_epochs=4, warmup_steps=500)
    built = build_schedule(recipe, Multigrid(), 6400)
    assert built.plan_at(500).lr == pytest.approx(0.1, rel=1e-12)
    assert built.plan_at(1250).lr == pytest.approx(0.05)  # half of the way from 5 to 20 epochs


def test_an_end_of_the_cosine_above_its_start_is_refused():
    with pytest.raises(ValueError, match=r"cosine_end_lr = 0.1 is not below recipe.base_lr = 0.1"):
        replace(COSINE, cosine_end_lr=0.1)


def test_plan_describes_the_steps_place_in_its_phase():
    built = schedule(row="long_short", num_processes=8)
    start = built.phases[2].start_step
    plans = [built.plan_at(start + offset) for offset in range(4)]
    # 2 × 64 clips of 16 × 224² and the short cycle's 8 × 64 of 112² and 4 × 64 of 158².
    sizes = [(512, 16, 112), (256, 16, 158), (128, 16, 224), (512, 16, 112)]
    assert [(p.clips, p.frames, p.crop) for p in plans] == sizes
    assert {(p.phase, p.stage, p.num_bn_groups, p.stride_range) for p in plans} == {(2, 0, 2, (2, 4))}  # fmt: skip
    assert [p.step for p in plans] == [start, start + 1, start + 2, start + 3]


def test_epoch_of_a_step_is_the_clips_before_it_over_the_videos():
    built = schedule(row="long_short")
    # First phase: 1024, 512, 512 clips in turn.
    drawn = [0, 1024, 1536, 2048, 3072]
    assert [built.plan_at(step).first_clip for step in range(5)] == drawn
    assert [built.plan_at(step).epoch for step in range(5)] == [n / 234_643 for n in drawn]


@pytest.mark.parametrize("granularity", ["step", "epoch"])
def test_step_at_epoch_is_the_first_step_that_has_drawn_so_much(granularity):
    built = schedule("charades", granularity=granularity)
    for epoch in (0.3, 1, 31, 50.5, 80, 85.4):
        step = built.step_at_epoch(epoch)
        assert built.plan_at(step - 1).epoch < epoch <= built.plan_at(step).epoch
    assert built.step_at_epoch(1000) == built.total_steps - 1


@pytest.mark.parametrize("step", [-1, 876_245])
def test_step_outside_the_schedule_is_an_error(step):
    with pytest.raises(IndexError, match=rf"step {step} is not in \[0, 876245\)"):
        schedule(row="baseline").plan_at(step)


def test_costs_add_up_over_the_phases():
    """Also in the middle of a phase, before the first step and after the last."""
    row = schedule(dataset="charades")
    costs = [p.clips * p.frames * p.crop**2 for p in map(row.plan_at, range(row.total_steps))]
    ends = [phase.end_step for phase in row.phases]
    for step in (-1, 0, 1, *ends, *(end - 2 for end in ends), *(end + 3 for end in ends)):
        assert row.cost_before(step) == sum(costs[: max(0, step)])


@pytest.mark.parametrize(
    ("changes", "num_videos", "num_processes", "message"),
    [
        ({}, 0, 1, "at least one training video, not 0"),
        ({}, 1000, 0, "at least one process, not 0"),
        ({"clips": 128}, 1, 1, "57 epochs of 1 videos"),
        ({}, 1000, 3, "16 clips does not divide over 3 processes"),
        ({"max_epoch": 1e12}, 234_643, 1, r"than can be counted, 2\^53: lower recipe.max_epoch"),
        ({"max_epoch": 1e308}, 1000, 1, "more clips than can be counted"),
        ({}, 10**400, 1, r"2\^53 training videos at most"),
        ({"base_lr": 1.7e308, "gamma": 10.0}, 1000, 1, "stage 1 has the learning rate inf"),
        ({"gamma": 1e-300, "base_lr": 1e-100}, 1000, 1, "learning rate 0, recipe.base_lr = 1e-100"),
    ],
)
def test_impossible_schedules_are_an_error(changes, num_videos, num_processes, message):
    recipe = replace(CHARADES, **changes)
    with pytest.raises(ValueError, match=message):
        build_schedule(recipe, Multigrid(), num_videos, num_processes)


@pytest.mark.parametrize("num_processes", [1, 2])
def test_counts_are_those_of_the_plans(tmp_path, num_processes):
    schedule = build_row_schedule(tiny_config(tmp_path), 24, num_processes)
    shapes = [
        StepShape(plan.frames, plan.crop, plan.clips // num_processes, plan.num_bn_groups)
        for plan in map(schedule.plan_at, range(schedule.total_steps))
    ]
    for first_step in range(schedule.total_steps + 1):
        found = step_counts(schedule, first_step)
        assert found == Counter(shapes[first_step:])


def test_base_shapes_are_those_of_the_long_cycle(tmp_path):
    """8 frames of 32 pixels in batches of 4, BN groups of 4: by hand."""
    schedule = build_row_schedule(tiny_config(tmp_path), 10_000)
    assert base_shapes(schedule) == (
        StepShape(2, 23, 32, 8),
        StepShape(4, 23, 16, 4),
        StepShape(4, 32, 8, 2),
        StepShape(8, 32, 4, 1),
    )
    assert set(base_shapes(schedule)) < set(step_counts(schedule))
    # Two processes share the clips, and the group of the last shape.
    schedule = build_row_schedule(tiny_config(tmp_path), 10_000, 2)
    assert base_shapes(schedule)[-1] == StepShape(8, 32, 2, -2)


def test_cosine_warm_up_and_the_square_root_together():
    """Rates of a transformer's recipe by hand: 20 epochs of 6,400 videos, with the long cycle until epoch 12."""
    recipe = replace(
        COSINE,
        stage_epochs=(0, 12),
        max_epoch=20,
        warmup_epochs=2,
        warmup_start_lr=0.001,
        base_lr=0.01,
    )
    multigrid = replace(ROWS["long"], lr_scaling="sqrt", epoch_factor=1.0)
    built = build_schedule(recipe, multigrid, 6400)

    def at(epoch, clips):
        return 0.01 * math.sqrt(clips) * 0.5 * (1 + math.cos(math.pi * epoch / 20))

    # Each of the four shapes has a quarter of the 12 epochs of the baseline. Their clips: 8, 4, 2, 1 times 64.
    phases = built.phases
    assert [phase.cycle.base.ratio for phase in phases] == [8, 4, 2, 1, 1]
    rates = [built.plan_at(phase.start_step).lr for phase in phases[1:]]
    assert rates == pytest.approx([at(3, 4), at(6, 2), at(9, 1), at(12, 1)])
    # The rate rises from 0.001, in a straight line over the clips, to the rate at epoch 2 of the stream.
    after = next(plan for plan in map(built.plan_at, range(built.total_steps)) if plan.epoch >= 2)
    first, before = built.plan_at(0), built.plan_at(after.step - 1)
    assert first.lr == 0.001
    assert (before.lr - first.lr) / before.epoch == pytest.approx(
        (after.lr - first.lr) / 2, rel=0.02
    )
