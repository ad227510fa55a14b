"""Every row of experiments/ as a smoke run on generated clips: one of them, with --slow all.

What makes a row large is cut: clips to 16 frames of 32 pixels (64 where there are non-local blocks), mini-batches
to 8 of them, the final evaluation to one view. What is run always has 18 layers where the network can; with --slow
it has its own. Weights to start from are left out; tests/models/test_weights.py has them.
"""

import json
import math

import pytest
from pictures import picture_keys, write_pictures
from tiny import NUM_TRAIN, NUM_VAL, ROWS, command

from mgexp.config.load import SMOKE_STEPS, load_config

QUICK = "datasets/charades_slowfast_16x8_r50/long_short"
FULL_CROP = 224
"""Rows of this crop are cut; those of the quickstart's size are not."""


@pytest.fixture(scope="module")
def charades_lists(tmp_path_factory):
    """The tiny videos, listed as Charades lists its own."""
    folder = tmp_path_factory.mktemp("charades")
    for split, num in (("train", NUM_TRAIN), ("val", NUM_VAL)):
        rows = [f"{split}{index},c{index % 2:03d} 0.00 0.80,0.8" for index in range(num)]
        (folder / f"{split}.csv").write_text("\n".join(["id,actions,length", *rows]))
    return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return picture_keys(write_pictures(tmp_path_factory.mktemp("pictures")))


def pairs(cfg, data, charades_lists, pictures):
    """The keys that make a row small, and point to the videos or pictures."""
    lists, ending = (charades_lists, "csv") if cfg.DATA.FORMAT == "charades" else (data, "txt")
    small = {
        "DEVICE": "cpu",
        "DATA.TRAIN_LIST": lists / f"train.{ending}",
        "DATA.VAL_LIST": lists / f"val.{ending}",
        "DATA.PATH_PREFIX": data,
        "DATA.NUM_FOLDS": 0,
        "DATA_LOADER.NUM_WORKERS": 0,
        "TRAIN.INIT_WEIGHTS": "",
        "TRAIN.NUM_EVALUATIONS": 1,
        "TRAIN.NUM_THREADS": 1,
        "TEST.NUM_ENSEMBLE_VIEWS": 1,
        "TEST.NUM_SPATIAL_CROPS": 1,
    }
    if cfg.DATA.FORMAT == "coco":
        small |= {"DATA.TRAIN_CROP_SIZE": 64, "DATA.TEST_CROP_SIZE": 64, "TRAIN.BATCH_SIZE": 4}
        small |= {"MODEL.NUM_CLASSES": 3, "DETECTOR.NUM_REGIONS": 16, **pictures}
        small |= {"SOLVER.BASE_LR": 0.002, "SOLVER.WARMUP_START_LR": 0.0}  # few pictures, of many
    if cfg.DATA.TRAIN_CROP_SIZE == FULL_CROP:
        crop = 64 if any(cfg.NONLOCAL.LOCATION) else 32
        if cfg.MODEL.MODEL_NAME in {"ViT", "MViT"}:
            # Crops of 56, 40 and 32 pixels, which divide into tokens.
            crop = 56
            small |= {"VIT.TUBELET": "[2,8,8]", "MVIT.STAGES": "[1]"}
        small |= {"DATA.TRAIN_CROP_SIZE": crop, "DATA.TEST_CROP_SIZE": crop}
        small |= {"DATA.TRAIN_JITTER_SCALES": f"[{crop},{crop + 8}]", "TRAIN.BATCH_SIZE": 8}
        small |= {"DATA.NUM_FRAMES": min(16, cfg.DATA.NUM_FRAMES)}
    return [word for pair in small.items() for word in pair]


@pytest.mark.parametrize(
    ("name", "is_quick"),
    [(QUICK, True), *(pytest.param(name, False, marks=pytest.mark.slow) for name in ROWS)],
)
def test_a_row_is_trained(name, is_quick, main, output, tiny_data, charades_lists, pictures):
    cfg = load_config(ROWS[name])
    small = pairs(cfg, tiny_data, charades_lists, pictures)
    if is_quick:
        small += ["RESNET.DEPTH", 18]
    assert main(command(ROWS[name], output, "--smoke", *small)) == 0
    result = json.loads((output / "result.json").read_text())
    metrics = {"charades": {"map"}, "coco": {"map", "ap50", "ap_small"}}
    assert (result["experiment"], result["row"]) == (name, cfg.ROW)
    assert result["metrics"].keys() == metrics.get(cfg.DATA.FORMAT, {"top1", "top5"})
    # The mini-batches are cut, so many epochs have so few videos that rounding them up adds steps.
    clips, epochs = cfg.TRAIN.BATCH_SIZE, cfg.SOLVER.MAX_EPOCH
    clips = 8 if cfg.DATA.TRAIN_CROP_SIZE == FULL_CROP else clips
    clips = 4 if cfg.DATA.FORMAT == "coco" else clips
    most = math.ceil(SMOKE_STEPS * clips / epochs) * epochs / clips
    assert 0 < result["steps"] <= max(64, most)
