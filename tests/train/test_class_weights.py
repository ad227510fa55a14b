"""Classes of different size: weights of the loss, and balanced draws."""

import math
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from tiny import command, data_keys, run_net, tiny_config, write_config

from mgexp.multigrid.sampler import Stream
from mgexp.run.files import read_jsonl
from mgexp.train.setup import build_inputs
from mgexp.train.step import weighted_cross_entropy


@pytest.fixture
def three_to_one(tiny_data, tmp_path):
    """Keys of the tiny data with 12 training videos of class 0 and 4 of class 1."""
    lines = (tiny_data / "train.txt").read_text().splitlines()
    kept = [line for line in lines if line.endswith(" 0")] + lines[1:8:2]
    (tmp_path / "train.txt").write_text("\n".join(kept) + "\n")
    return {**data_keys(tiny_data), "DATA.TRAIN_LIST": str(tmp_path / "train.txt")}


def test_a_class_weighs_as_scikit_learn_balances_it(three_to_one, tmp_path):
    inputs = build_inputs(tiny_config(tmp_path, three_to_one), [], 1)
    # compute_class_weight("balanced", ...) of scikit-learn: n / (classes x count).
    assert inputs.class_weights() == {0: 16 / (2 * 12), 1: 16 / (2 * 4)}
    assert inputs.draw_weights("none") is None
    assert Counter(inputs.draw_weights("sampling")) == {16 / 24: 12, 2.0: 4}


def test_the_loss_of_a_clip_is_multiplied_by_the_factor_of_its_class():
    factors, labels = torch.tensor([0.5, 2.0]), torch.tensor([0, 0, 1])
    # Logits of 0 have a cross-entropy of log 2.
    loss = weighted_cross_entropy(torch.zeros(3, 2), labels, factors)
    assert loss.item() == pytest.approx(math.log(2) * (0.5 + 0.5 + 2) / 3)
    logits = torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        weighted_cross_entropy(logits, labels, torch.ones(2), smoothing=0.1),
        F.cross_entropy(logits, labels, label_smoothing=0.1),
    )


def test_sampling_draws_as_many_clips_of_each_class():
    weights = [2 / 3] * 12 + [2.0] * 4
    stream = Stream(16, seed=1, weights=weights)
    drawn = [stream.index_at(place) for place in range(16 * 250)]
    share = sum(index >= 12 for index in drawn) / len(drawn)
    # Four standard deviations of 4,000 draws.
    assert share == pytest.approx(0.5, abs=4 * 0.5 / 4000**0.5)
    assert {*drawn} == {*range(16)}
    assert drawn == [Stream(16, seed=1, weights=weights).index_at(p) for p in range(16 * 250)]


def test_a_run_trains_with_each_kind(three_to_one, tmp_path):
    losses = {}
    for kind in ("none", "loss", "sampling"):
        changes = {"SOLVER.CLASS_WEIGHTS": kind, "MULTIGRID.LONG_CYCLE": False}
        cfg = write_config(tmp_path / f"{kind}.yaml", {**three_to_one, **changes})
        assert run_net().main(command(cfg, tmp_path / kind)) == 0
        losses[kind] = [line["loss"] for line in read_jsonl(tmp_path / kind / "metrics.jsonl")]
    assert losses["none"] != losses["loss"]
    assert losses["none"] != losses["sampling"]
