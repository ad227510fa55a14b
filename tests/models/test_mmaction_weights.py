"""Weights of MMAction2 and of TSM's released code: a ResNet below another name, beside a classifier of theirs."""

import re
from pathlib import Path

import pytest
import torch
from tiny import tiny_config

from mgexp.errors import InputError
from mgexp.models.build import build_on_meta
from mgexp.models.names import head_of, torchvision_names
from mgexp.models.weights import fit_weights, named_weights

# Some tensors, written by hand from the code: torchvision's name and MMAction2's.
MMACTION2 = {
    "conv1.weight": "backbone.conv1.conv.weight",
    "bn1.running_mean": "backbone.conv1.bn.running_mean",
    "layer1.0.conv1.weight": "backbone.layer1.0.conv1.conv.net.weight",
    "layer1.0.bn3.bias": "backbone.layer1.0.conv3.bn.bias",
    "layer2.0.downsample.0.weight": "backbone.layer2.0.downsample.conv.weight",
    "layer2.0.downsample.1.weight": "backbone.layer2.0.downsample.bn.weight",
}


def in_mmaction2(name):
    name = re.sub(r"bn(\d)\.", r"conv\1.bn.", name)
    name = re.sub(r"(conv\d)\.weight", r"\1.conv.weight", name)
    name = name.replace("downsample.0", "downsample.conv").replace("downsample.1", "downsample.bn")
    return "backbone." + re.sub(r"(layer\d\.\d+\.conv1\.conv)\.", r"\1.net.", name)


@pytest.fixture
def model(tmp_path):
    keys = {"MODEL.MODEL_NAME": "TSM", "RESNET.DEPTH": 50, "RESNET.WIDTH_PER_GROUP": 64}
    return build_on_meta(tiny_config(tmp_path, keys))


def weights_for(model, rename):
    """Tensors of one value for a network of torchvision's, by its names without the classifier."""
    state = model.state_dict()
    theirs = torchvision_names(state)
    pictures = {
        theirs(name): tensor[:, :, 0] if tensor.dim() == 5 else tensor
        for name, tensor in state.items()
    }
    return {
        rename(name): torch.zeros(()).expand(tensor.shape)
        for name, tensor in pictures.items()
        if not name.startswith("fc.")
    }


def test_the_names_are_those_of_both_code_bases():
    assert {name: in_mmaction2(name) for name in MMACTION2} == MMACTION2


@pytest.mark.parametrize(
    "rename",
    [in_mmaction2, "backbone.{}".format, "base_model.{}".format],
    ids=["modules", "plain", "tsm"],
)
def test_the_backbone_is_read_and_the_classifier_is_left(model, rename):
    state = model.state_dict()
    tensors = weights_for(model, rename) | {"cls_head.fc_cls.weight": torch.zeros(400, 2048)}
    fit = fit_weights(named_weights(Path("file.pth"), tensors), model)
    assert {*fit.used} == {name for name in state if name not in head_of(state)}
    assert (fit.left, fit.unused) == (head_of(state), ("cls_head.fc_cls.weight",))
    assert "cls_head.fc_cls.weight" in fit.summary()


def test_a_backbone_that_lacks_a_tensor_is_refused(model):
    tensors = weights_for(model, in_mmaction2)
    del tensors[MMACTION2["layer1.0.conv1.weight"]]
    with pytest.raises(InputError, match="not in the file"):
        fit_weights(named_weights(Path("file.pth"), tensors), model)
