"""Networks of PySlowFast: the same ones here, or a problem."""

import pytest
from released import released

from mgexp.convert.pyslowfast import convert

SLOWFAST = "Kinetics/SLOWFAST_8x8_R50_stepwise"
I3D = "Kinetics/I3D_8x8_R50"
NONLOCAL = "Kinetics/I3D_NLN_8x8_R50"


@pytest.mark.parametrize(
    ("arch", "ours"),
    [("i3d", "I3D"), ("c2d", "C2D"), ("slow", "Slow"), ("slowonly", "Slow")],
)
def test_architecture_is_called_otherwise(arch, ours):
    assert convert(released(I3D, MODEL__ARCH=arch)).keys["MODEL.MODEL_NAME"] == ours


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        (I3D, {"MODEL__ARCH": "i3d_nopool"}, "MODEL.ARCH = i3d_nopool has no counterpart"),
        (I3D, {"MODEL__MODEL_NAME": "SlowFast"}, "with MODEL.ARCH = i3d: ResNet, PTVResNet"),
        (SLOWFAST, {"MODEL__MODEL_NAME": "AVSlowFast"}, "SlowFast, PTVSlowFast"),
        (SLOWFAST, {"RESNET__DEPTH": 18}, "networks of 50 and 101 layers"),
        (SLOWFAST, {"RESNET__NUM_GROUPS": 32}, "convolutions have one group"),
        (
            SLOWFAST,
            {"RESNET__TRANS_FUNC": "basic_transform"},
            "blocks are those of bottleneck_transform",
        ),
        (SLOWFAST, {"RESNET__STRIDE_1X1": True}, "the 3 x 3 convolution"),
        (SLOWFAST, {"MODEL__DROPCONNECT_RATE": 0.1}, "never dropped"),
        (SLOWFAST, {"MODEL__FROZEN_BN": True}, "batch normalisation is trained"),
        (SLOWFAST, {"BN__MOMENTUM": 0.01}, "move by 0.1 a step"),
        (SLOWFAST, {"DATA__INPUT_CHANNEL_NUM": [3, 2]}, "red, green and blue"),
        (SLOWFAST, {"RESNET__SPATIAL_STRIDES": [[1, 1]] * 4}, "res2 to res5 have [1, 2, 2, 2]"),
        (SLOWFAST, {"RESNET__NUM_BLOCK_TEMP_KERNEL": "all"}, "four lists of whole numbers"),
        (NONLOCAL, {"NONLOCAL__GROUP": [[1], [4], [1], [1]]}, "looked at together"),
        (NONLOCAL, {"NONLOCAL__LOCATION": "res3"}, "four lists of lists"),
        (
            NONLOCAL,
            {"NONLOCAL__POOL": [[[1, 2, 2]], [[1, 2, 2]], [[1, 1, 1]], [[1, 2, 2]]]},
            "all stages have one pool",
        ),
    ],
)
def test_network_without_a_counterpart(name, changes, said):
    (problem,) = convert(released(name, **changes)).problems
    assert said in problem


@pytest.mark.parametrize(
    ("arch", "limits", "is_same"),
    [
        ("i3d", [[3], [4], [6], [3]], True),
        ("i3d", [[3], [3], [6], [3]], True),  # kernels 3 1 3 1 of res3: the last block looks at one frame
        ("i3d", [[3], [2], [6], [3]], False),
        ("slow", [[0], [0], [6], [3]], True),  # res2 and res3 look at one frame anyway
        ("slow", [[3], [4], [5], [3]], False),
        ("c2d", [[0], [0], [0], [0]], True),
    ],
)  # fmt: skip
def test_blocks_may_lose_only_kernels_over_one_frame(arch, limits, is_same):
    changes = {"MODEL__ARCH": arch, "RESNET__NUM_BLOCK_TEMP_KERNEL": limits}
    assert (convert(released(I3D, **changes)).problems == []) == is_same


def test_pytorchvideos_builder_ignores_them():
    name = "Kinetics/pytorchvideo/SLOWFAST_16x8_R101_50_50"  # [6, 6] of 23 blocks of res4
    assert convert(released(name)).keys["RESNET.DEPTH"] == 101


def test_pytorchvideos_networks_start_residual_blocks_at_0():
    name = "Kinetics/pytorchvideo/SLOW_8x8_R50"
    changes = {"RESNET__ZERO_INIT_FINAL_BN": False}
    assert "RESNET.ZERO_INIT_FINAL_BN" not in convert(released(name, **changes)).keys  # ours: True
    assert convert(released(I3D, **changes)).keys["RESNET.ZERO_INIT_FINAL_BN"] is False


def test_nonlocal_blocks_and_their_pool():
    same = [[[1, 4, 4]]] * 4
    keys = convert(
        released(NONLOCAL, NONLOCAL__POOL=same, NONLOCAL__INSTANTIATION="dot_product")
    ).keys
    assert keys["NONLOCAL.LOCATION"] == ((), (1, 3), (1, 3, 5), ())
    assert keys["NONLOCAL.POOL"] == (1, 4, 4)
    assert keys["NONLOCAL.INSTANTIATION"] == "dot_product"


def test_activation_checkpointing():
    keys = convert(released(SLOWFAST, MODEL__ACT_CHECKPOINT=True)).keys
    assert keys["TRAIN.ACTIVATION_CHECKPOINTING"] is True


def test_a_file_that_says_nothing_has_pyslowfasts_defaults():
    assert convert({}).keys == {
        "RNG_SEED": 1,
        "DATA.NUM_FRAMES": 8,
        "DATA.SAMPLING_RATE": 8,
        "DATA.TEST_CROP_SIZE": 256,
        "DATA_LOADER.NUM_WORKERS": 8,
        "RESNET.ZERO_INIT_FINAL_BN": False,
        "SLOWFAST.ALPHA": 8,
        "SLOWFAST.FUSION_KERNEL_SZ": 5,
        "BN.USE_PRECISE_STATS": False,
        "MULTIGRID.BN_BASE_SIZE": 64,
        "SOLVER.LR_POLICY": "cosine",
        "TEST.BATCH_SIZE": 8,
    }


def test_x3d_is_converted_if_it_is_that_of_the_released_files():
    draft = convert(released("Kinetics/X3D_M"))
    assert draft.problems == []
    assert draft.keys["MODEL.MODEL_NAME"] == "X3D"
    assert "X3D.WIDTH_FACTOR" not in draft.keys  # 2, as here
    assert draft.keys["SOLVER.LR_POLICY"] == "cosine"
    wide = convert(released("Kinetics/X3D_M", RESNET__WIDTH_PER_GROUP=32))
    assert "RESNET.WIDTH_PER_GROUP" not in wide.keys  # X3D.WIDTH_FACTOR says how wide it is
    (other,) = convert(released("Kinetics/X3D_M", X3D__DIM_C1=24)).problems
    assert (
        other == "X3D.DIM_C1 = 24 has no counterpart: the smallest network begins with 12 channels"
    )
    (odd,) = convert(released("Kinetics/X3D_M", RESNET__TRANS_FUNC="bottleneck_transform")).problems
    assert odd.startswith("RESNET.TRANS_FUNC = bottleneck_transform has no counterpart")


MVIT = "Kinetics/MVITv2_S_16x4"
Q_STRIDES = released(MVIT)["MVIT.POOL_Q_STRIDE"]


def refused_of_mvit(**changes):
    """The keys of the network that are refused."""
    problems = convert(released(MVIT, **changes)).problems
    return {one.split(" = ")[0] for one in problems if one.startswith("M")}


def test_stages_of_mvit_are_where_its_channels_double():
    """Without the last stage, keys and values have a grid of 4 x 4 in place of 8 x 8."""
    doubled = [[1, 2.0], [3, 2.0]]
    strides = [[14, 1, 1, 1] if row[0] == 14 else row for row in Q_STRIDES]
    changes = {"MVIT__DIM_MUL": doubled, "MVIT__HEAD_MUL": doubled, "MVIT__POOL_Q_STRIDE": strides}
    draft = convert(released(MVIT, **changes, MVIT__POOL_KV_STRIDE_ADAPTIVE=[1, 4, 4]))
    assert draft.keys["MVIT.STAGES"] == (1, 3)
    assert not any(one.startswith("M") for one in draft.problems)
    assert refused_of_mvit(**changes) == {"MVIT.POOL_KV_STRIDE_ADAPTIVE"}


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"MVIT__POOL_Q_STRIDE": [[1, 1, 2, 2], [3, 1, 2, 2], [14, 1, 2, 2]]}, "POOL_Q_STRIDE"),
        ({"MVIT__HEAD_MUL": [[1, 2.0]]}, "HEAD_MUL"),
        ({"MVIT__DIM_MUL": [[1, 1.5], [3, 2.0], [14, 2.0]]}, "DIM_MUL"),
        ({"MVIT__PATCH_PADDING": None}, "PATCH_PADDING"),
        ({"MVIT__MODE": "max"}, "MODE"),
        ({"MVIT__USE_MEAN_POOLING": True}, "USE_MEAN_POOLING"),
    ],
)
def test_another_mvit_has_no_counterpart(changes, refused):
    # A heads' table is compared with that of the channels, so both are named if they differ.
    assert f"MVIT.{refused}" in refused_of_mvit(**changes) <= {f"MVIT.{refused}", "MVIT.HEAD_MUL"}


def test_keys_of_mvit_mean_nothing_to_other_networks():
    draft = convert(released(I3D, MVIT__DEPTH=24))
    assert not draft.problems
    assert [note.why for note in draft.dropped if note.name == "MVIT.DEPTH"] == ["only MViT has it"]


def test_an_unknown_key_of_mvit_is_listed():
    assert [one.name for one in convert(released(MVIT, MVIT__NEW=1)).unknown] == ["MVIT.NEW"]
