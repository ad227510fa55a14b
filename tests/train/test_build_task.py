"""Task and number of listed videos, as a configuration asks for them."""

import pytest
import torch
from tiny import tiny_config

from mgexp.train.setup import build_task, num_videos_of
from mgexp.train.task import MAX, SUM

CSV = "id,actions\nAAAAA,c000 0 1\nBBBBB,\nCCCCC,c001 0 1\n"


@pytest.mark.parametrize(
    ("loss", "method", "wanted"),
    [("cross_entropy", "sum", SUM), ("cross_entropy", "max", MAX), ("bce_logit", "max", MAX)],
)
def test_keys_choose_loss_and_ensemble(loss, method, wanted, tmp_path):
    task = build_task(
        tiny_config(tmp_path, {"MODEL.LOSS_FUNC": loss, "DATA.ENSEMBLE_METHOD": method})
    )
    assert task.ensemble is wanted
    assert task.label_type == {"cross_entropy": torch.int64, "bce_logit": torch.float32}[loss]
    assert task.num_classes == 2


def test_a_schedule_counts_an_official_list_without_its_videos(tmp_path):
    (tmp_path / "train.csv").write_text(CSV)
    keys = {"DATA.FORMAT": "charades", "DATA.TRAIN_LIST": str(tmp_path / "train.csv")}
    cfg = tiny_config(tmp_path, {**keys, "DATA.PATH_PREFIX": str(tmp_path)})
    assert num_videos_of(cfg, None) == (3, [])
    assert num_videos_of(cfg, 7) == (7, [])


def test_problems_of_an_official_list_are_told(tmp_path):
    keys = {"DATA.FORMAT": "charades", "DATA.TRAIN_LIST": str(tmp_path / "no.csv")}
    _, (problem,) = num_videos_of(tiny_config(tmp_path, keys), None)
    assert "no.csv does not exist" in problem
