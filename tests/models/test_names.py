"""The names of other code bases against PySlowFast's own lists and torchvision's own networks."""

import pytest
import torch
from fill import GOLDEN

from mgexp.config.load import config_of
from mgexp.models import names
from mgexp.models.build import build_on_meta
from mgexp.models.resnet import TEMPORAL, insert_nonlocals, resnet, slowfast

COMMON = {"num_classes": 400, "dropout": 0.5}


def network(golden_name: str, depth: int = 50) -> torch.nn.Module:
    """On the meta device, as PySlowFast's configuration of that name."""
    with torch.device("meta"):
        if golden_name.startswith("slowfast"):
            return slowfast(
                depth=depth,
                alpha=4,
                beta_inv=8,
                fusion_channel_ratio=2,
                fusion_kernel_frames=7,
                **COMMON,
            )
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


@pytest.mark.parametrize("depth", [50, 101])
def test_every_tensor_has_its_name_in_torchvision(depth):
    import torchvision

    with torch.device("meta"):
        theirs = getattr(torchvision.models, f"resnet{depth}")().state_dict().keys()
    state = network("c2d_r50_8x8", depth).state_dict().keys()
    rename = names.torchvision_names(state)
    assert {rename(name) for name in state} == set(theirs)


# Blobs as they stand in the released SLOWFAST_8x8_R50.pkl and I3D_NLN_8x8_R50.pkl.
CAFFE2 = {
    "conv1_w": "s1.pathway0_stem.conv.weight",
    "t_conv1_w": "s1.pathway1_stem.conv.weight",
    "res_conv1_bn_s": "s1.pathway0_stem.bn.weight",
    "t_res_conv1_bn_riv": "s1.pathway1_stem.bn.running_var",
    "t_pool1_subsample_w": "s1_fuse.conv_f2s.weight",
    "t_pool1_subsample_bn_rm": "s1_fuse.bn.running_mean",
    "t_res4_5_branch2c_bn_subsample_w": "s4_fuse.conv_f2s.weight",
    "t_res4_5_branch2c_bn_subsample_bn_b": "s4_fuse.bn.bias",
    "res2_0_branch1_w": "s2.pathway0_res0.branch1.weight",
    "res2_0_branch1_bn_b": "s2.pathway0_res0.branch1_bn.bias",
    "res4_22_branch2a_w": "s4.pathway0_res22.branch2.a.weight",
    "t_res5_2_branch2c_bn_s": "s5.pathway1_res2.branch2.c_bn.weight",
    "nonlocal_conv3_1_theta_w": "s3.pathway0_nonlocal1.conv_theta.weight",
    "nonlocal_conv4_5_g_b": "s4.pathway0_nonlocal5.conv_g.bias",
    "nonlocal_conv4_3_bn_rm": "s4.pathway0_nonlocal3.bn.running_mean",
    "pred_w": "head.projection.weight",
    "pred_b": "head.projection.bias",
}


@pytest.mark.parametrize("blob", CAFFE2)
def test_caffe2_blobs(blob):
    assert names.pyslowfast_name_of_caffe2(blob) == CAFFE2[blob]


@pytest.mark.parametrize(
    "blob",
    ["lr", "conv1_w_momentum", "res2_0_branch1", "data_w", "conv1_s", "conv1_rm", "res_conv1_bn_w"],
)
def test_what_no_rule_knows_has_no_name(blob):
    assert names.pyslowfast_name_of_caffe2(blob) is None


@pytest.mark.parametrize(
    ("blob", "expected"),
    [("lr", True), ("model_iter", True), ("conv1_w_momentum", True), ("conv1_w", False)],
)
def test_training_state_of_caffe2(blob, expected):
    assert names.is_training_state_of_caffe2(blob) is expected


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
