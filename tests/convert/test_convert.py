"""tools/convert_config.py: what single keys become, and which values are refused."""

import pytest
import yaml
from released import TOOL, convert, keys_of, released, write_released

from mgexp.config.values import convert as convert_value
from mgexp.errors import InputError

STEPWISE = "Kinetics/SLOWFAST_8x8_R50_stepwise"
MULTIGRID = f"{STEPWISE}_multigrid"
I3D, NONLOCAL = "Kinetics/I3D_8x8_R50", "Kinetics/I3D_NLN_8x8_R50"
SSV2, CHARADES = "SSv2/SLOWFAST_16x8_R50", "Charades/SLOWFAST_16x8_R50"
MVIT = "Kinetics/MVITv2_S_16x4"
OURS = None
"""Our default, which the YAML leaves out."""


def test_a_key_is_in_one_table_with_a_default_of_its_kind():
    tables = [TOOL.KEPT, TOOL.RULED, TOOL.OFF, TOOL.FIXED, TOOL.DROPPED, TOOL.WITHOUT_EFFECT]
    names = [name for table in tables for name in table]
    assert len(names) == len(set(names))
    assert all(TOOL.read(name, default) == default for name, default in TOOL.DEFAULTS.items())


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        # lists
        (STEPWISE, {"DATA__PATH_TO_DATA_DIR": "lists/"}, {"DATA.TRAIN_LIST": "lists/train.csv"}),
        (SSV2, {"DATA__PATH_TO_DATA_DIR": "lists", "DATA__PATH_PREFIX": "frames"},
         {"DATA.VAL_LIST": "lists/something-something-v2-validation.json", "DATA.PATH_PREFIX": OURS,
          "DATA.CLASSES": "lists/something-something-v2-labels.json", "DATA.TEMPORAL_GRID": "segments"}),
        (CHARADES, {}, {"DATA.FORMAT": "charades", "MODEL.LOSS_FUNC": "bce_logit", "DATA.TARGET_FPS": 24}),
        # colours: extracted frames are read as BGR, videos are decoded as RGB
        (SSV2, {"DATA__MEAN": [0.1, 0.2, 0.3]}, {"DATA.MEAN": (0.3, 0.2, 0.1)}),
        (STEPWISE, {"DATA__MEAN": [0.1, 0.2, 0.3]}, {"DATA.MEAN": (0.1, 0.2, 0.3)}),
        # each of 4 operations takes place for half of the clips there
        (STEPWISE, {"AUG__ENABLE": True, "AUG__AA_TYPE": "rand-m7-n4-mstd0.5-inc1", "AUG__RE_PROB": 0.3},
         {"AUG.RANDAUGMENT_OPS": 2, "AUG.RANDAUGMENT_MAGNITUDE": 21, "AUG.RE_PROB": 0.3}),
        (CHARADES, {"AUG__ENABLE": True, "AUG__RE_PROB": 0.3}, {"AUG.RE_PROB": OURS}),
        (SSV2, {"AUG__ENABLE": True, "DATA__TRAIN_JITTER_SCALES_RELATIVE": [0.08, 1.0],
                "DATA__TRAIN_JITTER_ASPECT_RELATIVE": [0.75, 1.3333]},
         {"DATA.TRAIN_JITTER_SCALES_RELATIVE": (0.08, 1.0), "DATA.INV_UNIFORM_SAMPLE": OURS}),
        # 64 test clips on 8 GPUs; one view of segments
        (STEPWISE, {}, {"TEST.BATCH_SIZE": 8, "MULTIGRID.GRANULARITY": OURS}),
        (STEPWISE, {"NUM_GPUS": 1}, {"TEST.BATCH_SIZE": 64}),
        (SSV2, {"TEST__NUM_ENSEMBLE_VIEWS": 10}, {"TEST.NUM_ENSEMBLE_VIEWS": 1}),
        # networks
        ("Kinetics/pytorchvideo/SLOW_8x8_R50", {"RESNET__ZERO_INIT_FINAL_BN": False},
         {"RESNET.ZERO_INIT_FINAL_BN": OURS}),
        (I3D, {"RESNET__ZERO_INIT_FINAL_BN": False, "MVIT__DEPTH": 24}, {"RESNET.ZERO_INIT_FINAL_BN": False}),
        (NONLOCAL, {"NONLOCAL__POOL": [[[1, 4, 4]]] * 4},
         {"NONLOCAL.LOCATION": ((), (1, 3), (1, 3, 5), ()), "NONLOCAL.POOL": (1, 4, 4)}),
        (STEPWISE, {"MODEL__ACT_CHECKPOINT": True}, {"TRAIN.ACTIVATION_CHECKPOINTING": True}),
        ("Kinetics/X3D_M", {"RESNET__WIDTH_PER_GROUP": 32}, {"RESNET.WIDTH_PER_GROUP": OURS}),
        # rates
        (STEPWISE, {"SOLVER__LRS": [0.5, 0.1, 0.02, 0.004]}, {"SOLVER.BASE_LR": 0.05, "SOLVER.GAMMA": 0.2}),
        (MULTIGRID, {"SOLVER__LRS": [1, 0.5, 0.4, 0.3], "SOLVER__GAMMA": 0.2}, {"SOLVER.GAMMA": 0.2}),
        (STEPWISE, {"SOLVER__BASE_LR": 0.00012345678912}, {"SOLVER.BASE_LR": 0.00012345678912}),
        ("Kinetics/pytorchvideo/SLOW_8x8_R50", {"NUM_SHARDS": 4},
         {"SOLVER.BASE_LR": 0.4, "SOLVER.WARMUP_START_LR": 0.04, "TRAIN.BATCH_SIZE": 256}),
        (STEPWISE, {"NUM_SHARDS": 4}, {"SOLVER.BASE_LR": OURS, "TRAIN.BATCH_SIZE": 256}),
        ("Kinetics/I3D_8x8_R50_IN1K", {}, {"SOLVER.STEPS": (0, 44, 88)}),  # of 118 epochs
        (I3D, {"SOLVER__STEPS": [0, 100], "SOLVER__LRS": [1, 0.5]}, {"SOLVER.STEPS": OURS}),
        (I3D, {"SOLVER__COSINE_END_LR": 0.001}, {"SOLVER.COSINE_END_LR": 0.001}),
        (STEPWISE, {"SOLVER__COSINE_END_LR": 0.001}, {"SOLVER.COSINE_END_LR": OURS}),
        (STEPWISE, {"SOLVER__LR_POLICY": "cosine", "MULTIGRID__LONG_CYCLE": True, "SOLVER__STEPS": [0, 94, 400]},
         {"SOLVER.STEPS": (0, 94)}),
        (STEPWISE, {"SOLVER__CLIP_GRAD_L2NORM": None}, {"SOLVER.CLIP_GRAD_L2NORM": OURS}),
        # construct_optimizer of PySlowFast writes eps=1e-08
        (STEPWISE, {"SOLVER__OPTIMIZING_METHOD": "adamw"}, {"SOLVER.EPS": 1e-8, "SOLVER.MOMENTUM": OURS}),
        # factors of a cycle that is off
        (STEPWISE, {"MULTIGRID__SHORT_CYCLE_FACTORS": [0.5]}, {"MULTIGRID.SHORT_CYCLE_FACTORS": OURS}),
        (MULTIGRID, {"MULTIGRID__LONG_CYCLE_FACTORS": "[(0.25, 0.7071), (0.5, 0.7071), (0.5, 1), (1, 1)]"},
         {"MULTIGRID.LONG_CYCLE_FACTORS": ((0.25, 0.7071), (0.5, 0.7071), (0.5, 1), (1, 1))}),
        # weights and precision
        (STEPWISE, {"TRAIN__CHECKPOINT_FILE_PATH": "zoo/x.pyth"}, {"TRAIN.INIT_WEIGHTS": "zoo/x.pyth"}),
        (STEPWISE, {"TRAIN__CHECKPOINT_FILE_PATH": "zoo/x.pkl"}, {"TRAIN.INIT_WEIGHTS": "zoo/x.safetensors"}),
        (STEPWISE, {"TRAIN__MIXED_PRECISION": True}, {"TRAIN.PRECISION": "fp16"}),
    ],
)  # fmt: skip
def test_keys_become_ours(name, changes, expected):
    keys = keys_of(name, **changes)
    assert {key: keys.get(key) for key in expected} == expected


@pytest.mark.parametrize(
    ("name", "changes", "clips"),
    [
        (STEPWISE, {}, 8),  # 64 clips on 8 GPUs
        (STEPWISE, {"NUM_GPUS": 2}, 32),
        (STEPWISE, {"NUM_GPUS": None}, 64),  # one GPU is PySlowFast's default
        (STEPWISE, {"NUM_GPUS": 0}, 64),  # the CPU
        (STEPWISE, {"NUM_SHARDS": 2}, 8),  # machines add clips and GPUs
        (STEPWISE, {"BN__NORM_TYPE": "sub_batchnorm", "BN__NUM_SPLITS": 4}, 2),
        (SSV2, {}, 8),  # 16 clips on 8 GPUs, synchronised over 4 of them
        (SSV2, {"BN__NUM_SYNC_DEVICES": 1}, 2),
        (SSV2, {"BN__GLOBAL_SYNC": True, "NUM_SHARDS": 2}, 32),
        (MULTIGRID, {"NUM_GPUS": 2}, 8),  # the long cycle sets it by BN_BASE_SIZE
        (MULTIGRID, {"MULTIGRID__BN_BASE_SIZE": 16}, 16),
    ],
)
def test_clips_that_share_statistics(name, changes, clips):
    assert keys_of(name, **changes).get("MULTIGRID.BN_BASE_SIZE", 8) == clips


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        (STEPWISE, "TRAIN.DATASET", "imagenet"),
        (STEPWISE, "TEST.DATASET", "ssv2"),
        (STEPWISE, "DATA.MULTI_LABEL", True),
        (STEPWISE, "MODEL.HEAD_ACT", "sigmoid"),
        (STEPWISE, "DATA.TRAIN_CROP_NUM_TEMPORAL", 2),
        (STEPWISE, "DATA.TRAIN_JITTER_SCALES_RELATIVE", [0.08, 1.0]),
        (I3D, "MODEL.ARCH", "i3d_nopool"),
        (I3D, "MODEL.MODEL_NAME", "SlowFast"),
        (STEPWISE, "RESNET.NUM_GROUPS", 32),
        (STEPWISE, "RESNET.TRANS_FUNC", "basic_transform"),
        (STEPWISE, "MODEL.DROPCONNECT_RATE", 0.1),
        (STEPWISE, "BN.MOMENTUM", 0.01),
        (STEPWISE, "DATA.INPUT_CHANNEL_NUM", [3, 2]),
        (STEPWISE, "RESNET.SPATIAL_STRIDES", [[1, 1]] * 4),
        (STEPWISE, "RESNET.NUM_BLOCK_TEMP_KERNEL", [[3], [4], [5], [3]]),
        (NONLOCAL, "NONLOCAL.GROUP", [[1], [4], [1], [1]]),
        (NONLOCAL, "NONLOCAL.POOL", [[[1, 2, 2]], [[1, 2, 2]], [[1, 1, 1]], [[1, 2, 2]]]),
        ("Kinetics/X3D_M", "X3D.DIM_C1", 24),
        (MVIT, "MVIT.POOL_Q_STRIDE", [[1, 1, 2, 2], [3, 1, 2, 2], [14, 1, 2, 2]]),
        (MVIT, "MVIT.HEAD_MUL", [[1, 2.0]]),
        (MVIT, "MVIT.PATCH_PADDING", None),  # PySlowFast's default is (2, 4, 4)
        (MVIT, "MVIT.USE_MEAN_POOLING", True),
        (STEPWISE, "SOLVER.LRS", [1, 0.1, 0.05, 0.001]),
        (STEPWISE, "SOLVER.LRS", [1, 0.1]),
        (STEPWISE, "SOLVER.BASE_LR", "fast"),
        (STEPWISE, "SOLVER.OPTIMIZING_METHOD", "adam"),
        (STEPWISE, "SOLVER.DAMPENING", 0.1),
        (STEPWISE, "BN.NORM_TYPE", "layernorm"),
    ],
)
def test_values_without_a_counterpart_are_refused_by_name(name, key, value):
    assert key in convert(released(name, **{key.replace(".", "__"): value})).problems


def test_weights_that_are_only_tested_have_no_counterpart():
    given = {"TEST__CHECKPOINT_FILE_PATH": "x.pyth"}
    assert not convert(released(STEPWISE, **given)).problems
    problems = convert(released(STEPWISE, TRAIN__ENABLE=False, **given)).problems
    assert list(problems) == ["TEST.CHECKPOINT_FILE_PATH"]


def test_stages_of_mvit_are_where_its_channels_double():
    """Without the last stage, keys and values have a grid of 4 x 4 in place of 8 x 8."""
    doubled = [[1, 2.0], [3, 2.0]]
    rows = released(MVIT)["MVIT.POOL_Q_STRIDE"]
    strides = [[14, 1, 1, 1] if row[0] == 14 else row for row in rows]
    changes = {"MVIT__DIM_MUL": doubled, "MVIT__HEAD_MUL": doubled, "MVIT__POOL_Q_STRIDE": strides}
    draft = convert(released(MVIT, **changes, MVIT__POOL_KV_STRIDE_ADAPTIVE=[1, 4, 4]))
    assert (draft.keys["MVIT.STAGES"], draft.problems) == ((1, 3), {})


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


ODD = (None, "x", [], [[]], -1, 0.5, {}, [[["a"]]] * 4, [["a"]] * 4, [1] * 4)


@pytest.mark.parametrize("row", [STEPWISE, NONLOCAL, MVIT])
def test_an_odd_value_is_converted_or_refused_but_never_fails(row):
    given = released(row)
    for name in sorted({*TOOL.DEFAULTS, *TOOL.FIXED, *TOOL.OFF}):
        for value in ODD:
            convert({**given, name: value}).report()


def test_a_based_file_and_pairs_are_read(tmp_path):
    write_released(tmp_path / "base.yaml", STEPWISE)
    path = tmp_path / "row.yaml"
    path.write_text("_BASE_: base.yaml\nSOLVER: {MAX_EPOCH: 240}\n")
    pairs = ["NUM_SHARDS", "2", "DATA.PATH_PREFIX", "2024_01"]
    values = TOOL.read_pyslowfast(path, pairs)
    assert values["SOLVER.MAX_EPOCH"] == 240
    assert values["SOLVER.STEPS"] == [0, 94, 154, 196]
    assert (values["NUM_SHARDS"], values["DATA.PATH_PREFIX"]) == (2, "2024_01")


@pytest.mark.parametrize("text", ["A: !!python/object/apply:os.system [true]", "[1, 2]", None])
def test_a_file_that_cannot_be_read(text, tmp_path):
    path = tmp_path / "row.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=r"row\.yaml"):
        TOOL.read_pyslowfast(path)


def test_the_yaml_is_short_and_says_where_it_comes_from():
    """Keys that are unknown are listed in the report."""
    text = convert(released(MULTIGRID)).yaml_text("From there.")
    assert text.startswith("# From there.\n")
    assert yaml.safe_load(text) == {
        "DATA_LOADER": {"NUM_WORKERS": 8},
        "MULTIGRID": {"LONG_CYCLE": True, "SHORT_CYCLE": True, "GRANULARITY": "epoch"},
        "SOLVER": {"STEPS": [0, 94, 154, 196], "MAX_EPOCH": 239, "WARMUP_EPOCHS": 34},
        "TEST": {"BATCH_SIZE": 8},
    }
    report = convert(released(STEPWISE, DATA__NUM_FRAME=3, MINE=1)).report()
    assert "DATA.NUM_FRAME = 3: unknown" in report and "MINE = 1: unknown" in report


def test_the_yaml_reads_back_to_the_same_values():
    conversion = convert(released(NONLOCAL, SOLVER__WEIGHT_DECAY="1e-6"))
    values = yaml.safe_load(conversion.yaml_text(""))
    assert convert_value(float, values["SOLVER"]["WEIGHT_DECAY"]) == 1e-6
    assert values["NONLOCAL"]["LOCATION"] == [[], [1, 3], [1, 3, 5], []]
