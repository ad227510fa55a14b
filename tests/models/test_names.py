"""The names of other code bases against PySlowFast's own lists and torchvision's own networks."""

import pytest
import torch
from fill import GOLDEN
from networks import slowfast

from mgexp.config.load import config_of
from mgexp.models import names
from mgexp.models.build import build_on_meta
from mgexp.models.resnet import TEMPORAL, insert_nonlocals, resnet

COMMON = {"num_classes": 400, "dropout": 0.5}


def network(golden_name: str, depth: int = 50) -> torch.nn.Module:
    """On the meta device, as PySlowFast's configuration of that name."""
    with torch.device("meta"):
        if golden_name.startswith("slowfast"):
            return slowfast(**{"RESNET.DEPTH": depth})
        kind = {"i3d": "I3D", "c2d": "C2D", "slow": "Slow"}[golden_name.split("_", maxsplit=1)[0]]
        model = resnet(TEMPORAL[kind], depth=depth, **COMMON)
        if "nonlocal" in golden_name:
            places = ((), (1, 3), (1, 3, 5), ())
            options = {"pool": (1, 2, 2), "instantiation": "softmax"}
            insert_nonlocals(model, places=places, **options)
        return model


@pytest.mark.parametrize("golden_name", GOLDEN)
def test_every_tensor_has_its_name_and_shape_in_pyslowfast(golden_name):
    state = network(golden_name).state_dict()
    rename = names.pyslowfast_names(state.keys())
    found = {rename(name): list(value.shape) for name, value in state.items()}
    assert len(found) == len(state)
    assert found == dict(GOLDEN[golden_name]["names"])


@pytest.mark.parametrize("golden_name", GOLDEN)
def test_every_tensor_of_depth_101_has_a_name_of_its_own_in_pyslowfast(golden_name):
    state = network(golden_name, depth=101).state_dict()
    rename = names.pyslowfast_names(state.keys())
    found = {rename(name) for name in state}
    assert len(found) == len(state)
    assert found.isdisjoint(state)


@pytest.mark.parametrize("depth", [50, 101])
def test_every_tensor_has_its_name_in_torchvision(depth):
    import torchvision

    with torch.device("meta"):
        theirs = getattr(torchvision.models, f"resnet{depth}")().state_dict().keys()
    state = network("c2d_r50_8x8", depth).state_dict().keys()
    rename = names.torchvision_names(state)
    assert {rename(name) for name in state} == set(theirs)


@pytest.mark.parametrize("naming", names.RENAMINGS)
@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("ViT", "patches.weight"),
        ("X3D", "blocks.0.conv.conv_t.weight"),
        ("X3D", "blocks.1.res_blocks.0.branch2.norm_b.1.block.0.weight"),
    ],
)
def test_a_tensor_that_a_convention_does_not_have_keeps_its_name(model, name, naming):
    state = build_on_meta(config_of({"MODEL.MODEL_NAME": model})).state_dict()
    rename = names.RENAMINGS[naming](state)
    assert name in state and rename(name) == name


@pytest.mark.parametrize("name", ["ViT", "MViT", "X3D", "SlowFast", "I3D"])
def test_the_head_is_the_classifier_alone(name):
    model = build_on_meta(config_of({"MODEL.MODEL_NAME": name, "MODEL.NUM_CLASSES": 7}))
    state = model.state_dict()
    heads = [state[name].shape for name in names.head_of(state)]
    assert [shape[0] for shape in heads] == [7, 7]


def test_projections_in_the_blocks_of_a_network_of_ones_own_are_no_classifier():
    blocks = [f"blocks.{number}.proj.{end}" for number in (0, 1) for end in ("weight", "bias")]
    head = ["head.weight", "head.bias"]
    assert names.head_of([*blocks, *head]) == names.head_of([*head, *blocks]) == tuple(head)
    assert names.head_of(blocks) == tuple(blocks[2:])
    assert names.head_of(["stem.weight"]) == ()
