"""The rows of experiments/: each makes a small smoke run, and rows of transformers have the published rates."""

import pytest
from tiny import EXPERIMENTS, ROWS

from mgexp.config.check import cross_problems
from mgexp.config.load import flatten, load_config, smoke
from mgexp.train.setup import build_row_schedule


def config(name):
    return load_config(EXPERIMENTS / f"{name}.yaml")


def test_smoke_changes_only_videos_width_and_the_verdict():
    may_change = {"DATA.MAX_TRAIN_VIDEOS", "DATA.MAX_VAL_VIDEOS", "RESNET.WIDTH_PER_GROUP"}
    may_change |= {"VIT.EMBED_DIM", "MVIT.EMBED_DIM", "X3D.WIDTH_FACTOR", "DETECTOR.CHANNELS"}
    may_change |= {"TRAIN.INIT_WEIGHTS", "EXPECTED", "SOLVER.WARMUP_STEPS"}
    may_change |= {"TRAIN.NUM_EVALUATIONS", "BN.NUM_BATCHES_PRECISE"}
    may_change |= {"TEST.NUM_ENSEMBLE_VIEWS", "TEST.NUM_SPATIAL_CROPS"}
    for path in ROWS.values():
        cfg = load_config(path)
        small = smoke(cfg)
        before, after = dict(flatten(cfg)), dict(flatten(small))
        assert {name for name in before if before[name] != after[name]} <= may_change, path
        assert before.keys() == after.keys()
        assert cross_problems(cfg) == cross_problems(small) == [], path


def sizes_of(phase):
    return phase.stage, {(shape.frames, shape.crop) for shape in phase.cycle.shapes}


def ratios_of(phase):
    shapes = (phase.cycle.base, *phase.cycle.shapes)
    return [(shape.frames, shape.crop, shape.ratio) for shape in shapes]


# To count multiply-accumulates, each network runs at every shape.
@pytest.mark.parametrize("ratio", ["pixels", pytest.param("macs", marks=pytest.mark.slow)])
def test_smoke_has_every_phase_of_a_row_in_few_steps(ratio):
    rows = map(load_config, ROWS.values())
    of_ratio = [cfg for cfg in rows if ratio == cfg.MULTIGRID.BATCH_RATIO]
    # Phases of whole epochs are lost where a mini-batch has more videos than these epochs.
    in_steps = [cfg for cfg in of_ratio if cfg.MULTIGRID.GRANULARITY == "step"]
    assert len(in_steps) >= {"pixels": 40, "macs": 10}[ratio]
    for cfg in in_steps:
        small = smoke(cfg)
        full = build_row_schedule(cfg, num_videos=10_000)
        quick = build_row_schedule(small, small.DATA.MAX_TRAIN_VIDEOS)
        # By multiply-accumulates, the smaller network has other ratios, and maybe another order in a cycle.
        assert [sizes_of(phase) for phase in quick.phases] == [
            sizes_of(phase) for phase in full.phases
        ], cfg.ROW
        if ratio == "pixels":
            assert [*map(ratios_of, quick.phases)] == [*map(ratios_of, full.phases)], cfg.ROW
        assert quick.total_steps <= 64, cfg.ROW


def test_smoke_is_not_shorter_than_a_warm_up_in_steps():
    row = EXPERIMENTS / "quickstart" / "long_short.yaml"
    small = smoke(load_config(row, ("SOLVER.WARMUP_STEPS", "300")))
    assert build_row_schedule(small, small.DATA.MAX_TRAIN_VIDEOS).plan_at(10).lr > 0


@pytest.mark.parametrize(("channels", "fewer"), [(64, 8), (56, 8), (32, 6), (5, 5)])
def test_smoke_keeps_pairs_of_channels_that_rotary_positions_turn(channels, fewer):
    given = ("VIT.NUM_HEADS", "6", "VIT.EMBED_DIM", f"{6 * channels}")
    vit = smoke(load_config(EXPERIMENTS / "transformers/k400_vit_b/long.yaml", given)).VIT
    of_head = vit.EMBED_DIM / vit.NUM_HEADS
    assert of_head == fewer


def test_the_vit_has_the_rates_of_videomae():
    """run_class_finetuning.py multiplies --lr 5e-4 and --min_lr 1e-6 by videos / 256. Its warm-up starts at 0.

    5 of 75 epochs warm up. The classifier has the deviation 0.02 times --init_scale 0.001.
    """
    cfg = config("transformers/k400_vit_b/baseline")
    videos = cfg.TRAIN.BATCH_SIZE / cfg.AUG.REPEATS
    solver = cfg.SOLVER
    rates = (solver.BASE_LR, solver.COSINE_END_LR, solver.WARMUP_START_LR)
    assert rates == pytest.approx([5e-4 * videos / 256, 1e-6 * videos / 256, 0.0])
    assert (solver.MAX_EPOCH, solver.WARMUP_EPOCHS) == (75 * cfg.AUG.REPEATS, 5 * cfg.AUG.REPEATS)
    assert solver.COSINE_AFTER_WARMUP
    assert pytest.approx(0.02 * 0.001) == cfg.MODEL.FC_INIT_STD


@pytest.mark.parametrize("row", ["k400_vit_b", "k400_vit_b_scratch", "k400_mvit_v2_s"])
def test_rows_of_transformers_have_the_published_epsilon_of_adamw(row):
    """--opt_eps 1e-8 in VideoMAE's script, eps=1e-08 in PySlowFast's construct_optimizer."""
    assert config(f"transformers/{row}/baseline").SOLVER.EPS == 1e-8
