"""Every row of experiments/ as a smoke run on generated clips: one of each table, with --slow all of them.

What makes a row large is cut: crops of 224 or 256 pixels to 64, their mini-batches to 8 clips, the final
evaluation to one view. Weights to start from are left out; tests/models/test_row_weights.py has them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny import NUM_TRAIN, NUM_VAL, command

from mgexp.config.load import load_config

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
ROWS = {
    path.relative_to(EXPERIMENTS).with_suffix("").as_posix(): path
    for path in sorted(EXPERIMENTS.rglob("*.yaml"))
    if path.parent.name != "base"
}
TABLES = sorted({name.split("/")[0] for name in ROWS})
CROP, CLIPS = 64, 8


def chosen(table):
    """The row of a table that is run always: long+short, from random weights, where there is one."""
    names = [name for name in ROWS if name.split("/")[0] == table]
    return next((name for name in names if name.endswith("long_short")), names[0])


QUICK = [chosen(table) for table in TABLES]


@pytest.fixture(scope="module")
def charades_lists(tmp_path_factory):
    """The tiny videos, listed as Charades lists its own."""
    folder = tmp_path_factory.mktemp("charades")
    for split, num in (("train", NUM_TRAIN), ("val", NUM_VAL)):
        rows = [f"{split}{index},c{index % 2:03d} 0.00 0.80,0.8" for index in range(num)]
        (folder / f"{split}.csv").write_text("\n".join(["id,actions,length", *rows]))
    return folder


def pairs(cfg, data, charades_lists):
    """The keys that make a row small, and point to the videos."""
    lists, ending = (charades_lists, "csv") if cfg.DATA.FORMAT == "charades" else (data, "txt")
    small = {
        "DEVICE": "cpu",
        "DATA.TRAIN_LIST": lists / f"train.{ending}",
        "DATA.VAL_LIST": lists / f"val.{ending}",
        "DATA.PATH_PREFIX": data,
        "DATA_LOADER.NUM_WORKERS": 0,
        "TRAIN.INIT_WEIGHTS": "",
        "TRAIN.NUM_EVALUATIONS": 1,
        "TRAIN.NUM_THREADS": 1,
        "TEST.NUM_ENSEMBLE_VIEWS": 1,
        "TEST.NUM_SPATIAL_CROPS": 1,
    }
    if cfg.DATA.TRAIN_CROP_SIZE > CROP:  # not of the quickstart's size
        small |= {"DATA.TRAIN_CROP_SIZE": CROP, "DATA.TEST_CROP_SIZE": CROP}
        small |= {"DATA.TRAIN_JITTER_SCALES": f"[{CROP},80]", "TRAIN.BATCH_SIZE": CLIPS}
    return [word for pair in small.items() for word in pair]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in ROWS],
)
def test_a_smoke_run_of_the_row_ends(name, main, output, tiny_data, charades_lists):
    cfg = load_config(ROWS[name])
    small = pairs(cfg, tiny_data, charades_lists)
    assert main(command(ROWS[name], output, "--smoke", *small)) == 0
    result = json.loads((output / "result.json").read_text())
    metrics = {"map"} if cfg.DATA.FORMAT == "charades" else {"top1", "top5"}
    assert (result["experiment"], result["row"]) == (name, cfg.ROW)
    assert result["metrics"].keys() == metrics
    assert 0 < result["steps"] <= 60
