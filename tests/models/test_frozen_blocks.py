"""Frozen blocks: which tensors a step changes, and what it refuses."""

import pytest
import torch
from tiny import VIT, tiny_config

from mgexp.errors import InputError
from mgexp.models.build import build_model
from mgexp.models.names import head_of
from mgexp.multigrid.batchnorm import grouped_layers
from mgexp.multigrid.schedule import StepShape
from mgexp.plan.ways import build_training_step

WEIGHTS = {"TRAIN.INIT_WEIGHTS": "weights.pyth"}


def changed_by_a_step(tmp_path, changes):
    """The names of the tensors that one step changes, of all names."""
    cfg = tiny_config(tmp_path, {**WEIGHTS, **changes})
    step = build_training_step(cfg, torch.device("cpu"))
    model = step.step.model
    # New residual blocks end with scales of 0, which stop the gradients of what comes before.
    for layer in grouped_layers(model):
        torch.nn.init.ones_(layer.weight)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    step(StepShape(cfg.DATA.NUM_FRAMES, cfg.DATA.TRAIN_CROP_SIZE, 8, 2))()
    after = model.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    return changed, [*before]


def test_the_blocks_behind_the_frozen_ones_train(tmp_path):
    changed, names = changed_by_a_step(tmp_path, {"MODEL.FREEZE": 3})
    later = {name for name in names if int(name.split(".")[1]) >= 3}
    assert changed == later
    everything, names = changed_by_a_step(tmp_path, {})
    assert everything == {*names}


@pytest.mark.parametrize("network", [{}, VIT], ids=["SlowFast", "ViT"])
def test_the_classifier_trains_alone(tmp_path, network):
    changed, names = changed_by_a_step(tmp_path, {"MODEL.FREEZE": -1, **network})
    assert changed == {*head_of(names)}


def test_a_network_without_a_later_block_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"MODEL\.FREEZE"):
        build_model(tiny_config(tmp_path, {**WEIGHTS, "MODEL.FREEZE": 40}))
