"""Steps on random clips: what training does, on clips like a loader's."""

from dataclasses import replace

import pytest
import torch
from tiny import tiny_config

from mgexp.multigrid.batchnorm import GroupedBatchNorm3d
from mgexp.multigrid.schedule import StepShape
from mgexp.plan.ways import RandomClips, build_training_step
from mgexp.train.task import one_label

CPU = torch.device("cpu")
SHAPE = StepShape(frames=4, crop=16, clips=4, num_bn_groups=2)


@pytest.fixture
def cfg(tmp_path):
    return tiny_config(tmp_path, {"SOLVER.BASE_LR": 0.1})


def test_clips_are_those_of_a_loader():
    batch = RandomClips(one_label(3, "sum"), CPU).batch(SHAPE)
    clips, labels = batch.clips, batch.labels
    assert clips.shape == (4, 3, 4, 16, 16)
    assert clips.dtype == torch.uint8
    assert clips.is_contiguous(memory_format=torch.channels_last_3d)
    assert labels.dtype == torch.int64
    assert labels.shape == (4,)
    assert set(labels.tolist()) <= {0, 1, 2}


def test_ours_has_the_groups_of_the_shape(cfg):
    ours = build_training_step(cfg, CPU)
    ours(SHAPE)()
    assert groups_of(ours.step.model) == {2}
    ours(replace(SHAPE, num_bn_groups=1))()
    assert groups_of(ours.step.model) == {1}


def test_gradients_leave_the_weights_alone(cfg):
    way = build_training_step(cfg, CPU)
    before = [parameter.clone() for parameter in way.step.model.parameters()]
    assert way.gradients(SHAPE)().item() == build_training_step(cfg, CPU)(SHAPE)().item()
    parameters = list(way.step.model.parameters())
    assert all(torch.equal(*pair) for pair in zip(parameters, before, strict=True))
    assert all(parameter.grad is not None for parameter in parameters)


def groups_of(model):
    return {m.num_groups for m in model.modules() if isinstance(m, GroupedBatchNorm3d)}
