"""Every released configuration of PySlowFast for videos: converted whole, or refused for a reason."""

import math
from pathlib import Path

import pytest
import torch
from released import CONFIGS, convert, released

from mgexp.config.check import cross_problems, differing_keys
from mgexp.config.load import flatten, load_config
from mgexp.models.build import build_on_meta
from mgexp.train.setup import build_row_schedule

ROOT = Path(__file__).parents[2]

STEPWISE = "Kinetics/SLOWFAST_8x8_R50_stepwise"
REFUSED = {
    "Kinetics/SLOWFAST_NLN_4x16_R50": {"NONLOCAL.LOCATION"},
    "Kinetics/SLOWFAST_NLN_8x8_R50": {"NONLOCAL.LOCATION"},
    "Kinetics/c2/SLOWFAST_8x8_R101_50_50": {"RESNET.NUM_BLOCK_TEMP_KERNEL"},
    "Kinetics/c2/SLOWFAST_8x8_R101_50_101": {"RESNET.NUM_BLOCK_TEMP_KERNEL"},
    "Kinetics/c2/SLOWFAST_16x8_R101_50_50": {"RESNET.NUM_BLOCK_TEMP_KERNEL"},
    "Kinetics/c2/SLOWFAST_NLN_16x8_R101_50_50": {
        "RESNET.NUM_BLOCK_TEMP_KERNEL",
        "NONLOCAL.LOCATION",
    },
    "Kinetics/c2/C2D_NOPOOL_8x8_R50": {"MODEL.ARCH"},
    "AVA/SLOWFAST_32x2_R50_SHORT": {
        *("TRAIN.DATASET", "DETECTION.ENABLE", "MODEL.LOSS_FUNC"),
        *("RESNET.SPATIAL_STRIDES", "RESNET.SPATIAL_DILATIONS"),
    },
    # A network of version 1. The file here has not all of its keys, so that more have PySlowFast's defaults.
    "Kinetics/MVIT_B_16x4_CONV": {
        *("MVIT.USE_ABS_POS", "MVIT.REL_POS_SPATIAL", "MVIT.REL_POS_TEMPORAL"),
        *("MVIT.RESIDUAL_POOLING", "MVIT.DIM_MUL_IN_ATT"),
        *("MVIT.PATCH_PADDING", "MVIT.POOL_KVQ_KERNEL"),
        *("MVIT.POOL_Q_STRIDE", "MVIT.POOL_KV_STRIDE_ADAPTIVE"),
    },
}
CONVERTIBLE = [name for name in CONFIGS if name not in REFUSED]


@pytest.fixture
def load(tmp_path):
    """The configuration that a released one is converted to."""

    def run(name, **changes):
        path = tmp_path / "converted.yaml"
        path.write_text(convert(released(name, **changes)).yaml_text("A comment."))
        return load_config(path)

    return run


def test_all_that_has_a_counterpart_is_converted_and_the_rest_is_refused_by_name():
    assert len(CONVERTIBLE) == 47
    refused = {name: set(convert(released(name)).problems) for name in CONFIGS}
    assert {name: keys for name, keys in refused.items() if keys} == REFUSED


def test_every_key_is_known_and_the_result_has_a_schedule(load):
    for name in CONVERTIBLE:
        conversion = convert(released(name))
        assert not conversion.changed.keys() & conversion.dropped.keys(), name
        assert "unknown" not in conversion.report(), name
        cfg = load(name)
        assert cross_problems(cfg) == [], name
        assert build_row_schedule(cfg, 100_000, num_processes=8).total_steps > 1000, name


def test_mvit_v2_s_is_converted_whole(load):
    """34.5 million parameters are published. In each of 200 epochs, 128 videos make 8 mini-batches of 16."""
    cfg = load("Kinetics/MVITv2_S_16x4")
    schedule = build_row_schedule(cfg, 128, num_processes=8)
    assert schedule.total_steps == 200 * 8
    assert (schedule.recipe.clips, cfg.AUG.REPEATS) == (32, 2)

    def cosine(epoch):  # slowfast/utils/lr_policy.py: after 30 epochs, from 1e-4 to 1e-6
        return 1e-6 + (1e-4 - 1e-6) * 0.5 * (1 + math.cos(math.pi * (epoch - 30) / (200 - 30)))

    rates = [schedule.plan_at(8 * epoch).lr for epoch in (0, 15, 30, 100, 199)]
    assert rates == pytest.approx(
        [1e-6, (1e-6 + 1e-4) / 2, cosine(30), cosine(100), cosine(199)], rel=1e-9
    )
    assert (cfg.DATA.TRAIN_JITTER_SCALES_RELATIVE, cfg.DATA.TRAIN_JITTER_ASPECT_RELATIVE) == (
        (0.08, 1.0),
        (0.75, 1.3333),
    )
    model = build_on_meta(cfg)
    assert sum(p.numel() for p in model.parameters()) == 34_537_744
    assert model(torch.zeros(1, 3, 16, 224, 224, device="meta")).shape == (1, 400)


@pytest.mark.parametrize(
    ("name", "row", "machines"),
    [("Kinetics/MVITv2_S_16x4", "k400_mvit_v2_s", 2), ("SSv2/MVITv2_S_16x4", "ssv2_mvit_v2_s", 4)],
)
def test_rows_of_mvit_are_the_released_ones_on_as_many_machines(name, row, machines, load):
    """They differ in names, in what the long cycle needs, and in what cannot change a result."""
    converted = dict(flatten(load(name, NUM_SHARDS=machines)))
    ours = dict(flatten(load_config(ROOT / f"experiments/transformers/{row}/baseline.yaml")))
    differing = {key for key, *_ in differing_keys(ours, converted)}
    cycles = {key for key in differing if key.startswith("MULTIGRID.")}
    assert differing - cycles - {"SOLVER.STEPS", "TEST.BATCH_SIZE", "TRAIN.INIT_WEIGHTS"} == set()
    assert ours["MULTIGRID.LONG_CYCLE"] is ours["MULTIGRID.SHORT_CYCLE"] is False
    assert ours["MULTIGRID.BN_BASE_SIZE"] == converted["MULTIGRID.BN_BASE_SIZE"] == 0
    assert (ours["TRAIN.INIT_WEIGHTS"] == "") == name.startswith("Kinetics")


@pytest.mark.parametrize(
    ("name", "row", "differing"),
    [
        (STEPWISE, "main/k400_slowfast_8x8_r50/baseline", {"DATA.TEST_CROP_SIZE"}),
        (f"{STEPWISE}_multigrid", "main/k400_slowfast_8x8_r50/long_short", set()),
        (
            "SSv2/SLOWFAST_16x8_R50_multigrid",
            "datasets/ssv2_slowfast_16x8_r50/long_short",
            {"DATA.FORMAT", "DATA_LOADER.NUM_WORKERS"},  # ours: 'path label' lines, 8
        ),
        (
            "Charades/SLOWFAST_16x8_R50_multigrid",
            "datasets/charades_slowfast_16x8_r50/long_short",
            set(),
        ),
    ],
)
def test_the_rows_here_were_written_by_hand_and_say_the_same(name, row, differing, load):
    of_the_row = {"ROW", "EXPECTED", "DATA.NUM_VIDEOS", "DATA.MAX_UNUSABLE_SHARE"}
    of_the_row |= {"TRAIN.INIT_WEIGHTS", "TEST.BATCH_SIZE", "MULTIGRID.GRANULARITY"}
    ours = dict(flatten(load_config(ROOT / "experiments" / f"{row}.yaml")))
    theirs = dict(flatten(load(name)))
    found = {key for key in ours if ours[key] != theirs[key]} - of_the_row
    unread = {"DATA.SAMPLING_RATE"} if ours["DATA.FORMAT"] == "ssv2" else set()
    assert found - unread == differing
