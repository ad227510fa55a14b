"""tools/convert_config.py: what single keys become, and which values are refused."""

import pytest
from released import TOOL, convert, keys_of, released, write_released

from mgexp.config.load import load_config

STEPWISE = "Kinetics/SLOWFAST_8x8_R50_stepwise"
MULTIGRID = f"{STEPWISE}_multigrid"
I3D, NONLOCAL = "Kinetics/I3D_8x8_R50", "Kinetics/I3D_NLN_8x8_R50"
SSV2, CHARADES = "SSv2/SLOWFAST_16x8_R50", "Charades/SLOWFAST_16x8_R50"
MVIT = "Kinetics/MVITv2_S_16x4"
OURS = None
"""Our default, which the YAML leaves out."""


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
        # each of 4 operations takes place for half of the clips there
        (STEPWISE, {"AUG__ENABLE": True, "AUG__AA_TYPE": "rand-m7-n4-mstd0.5-inc1", "AUG__RE_PROB": 0.3},
         {"AUG.RANDAUGMENT_OPS": 2, "AUG.RANDAUGMENT_MAGNITUDE": 21, "AUG.RE_PROB": 0.3}),
        (SSV2, {"AUG__ENABLE": True, "DATA__TRAIN_JITTER_SCALES_RELATIVE": [0.08, 1.0],
                "DATA__TRAIN_JITTER_ASPECT_RELATIVE": [0.75, 1.3333]},
         {"DATA.TRAIN_JITTER_SCALES_RELATIVE": (0.08, 1.0), "DATA.INV_UNIFORM_SAMPLE": OURS}),
        # 64 test clips on 8 GPUs; one view of segments
        (STEPWISE, {}, {"TEST.BATCH_SIZE": 8, "MULTIGRID.GRANULARITY": OURS}),
        (SSV2, {"TEST__NUM_ENSEMBLE_VIEWS": 10}, {"TEST.NUM_ENSEMBLE_VIEWS": 1}),
        # networks
        ("Kinetics/pytorchvideo/SLOW_8x8_R50", {"RESNET__ZERO_INIT_FINAL_BN": False},
         {"RESNET.ZERO_INIT_FINAL_BN": OURS}),
        (I3D, {"RESNET__ZERO_INIT_FINAL_BN": False, "MVIT__DEPTH": 24}, {"RESNET.ZERO_INIT_FINAL_BN": False}),
        (NONLOCAL, {"NONLOCAL__POOL": [[[1, 4, 4]]] * 4},
         {"NONLOCAL.LOCATION": ((), (1, 3), (1, 3, 5), ()), "NONLOCAL.POOL": (1, 4, 4)}),
        # rates
        (STEPWISE, {"SOLVER__LRS": [0.5, 0.1, 0.02, 0.004]}, {"SOLVER.BASE_LR": 0.05, "SOLVER.GAMMA": 0.2}),
        ("Kinetics/pytorchvideo/SLOW_8x8_R50", {"NUM_SHARDS": 4},
         {"SOLVER.BASE_LR": 0.4, "SOLVER.WARMUP_START_LR": 0.04, "TRAIN.BATCH_SIZE": 256}),
        ("Kinetics/I3D_8x8_R50_IN1K", {}, {"SOLVER.STEPS": (0, 44, 88)}),  # of 118 epochs
        (I3D, {"SOLVER__COSINE_END_LR": 0.001}, {"SOLVER.COSINE_END_LR": 0.001}),
        # construct_optimizer of PySlowFast writes eps=1e-08
        (STEPWISE, {"SOLVER__OPTIMIZING_METHOD": "adamw"}, {"SOLVER.EPS": 1e-8, "SOLVER.MOMENTUM": OURS}),
        (MULTIGRID, {"MULTIGRID__LONG_CYCLE_FACTORS": "[(0.25, 0.7071), (0.5, 0.7071), (0.5, 1), (1, 1)]"},
         {"MULTIGRID.LONG_CYCLE_FACTORS": ((0.25, 0.7071), (0.5, 0.7071), (0.5, 1), (1, 1))}),
        # weights and precision
        (STEPWISE, {"TRAIN__CHECKPOINT_FILE_PATH": "zoo/x.pyth"}, {"TRAIN.INIT_WEIGHTS": "zoo/x.pyth"}),
        (STEPWISE, {"TRAIN__CHECKPOINT_FILE_PATH": "zoo/x.pkl"}, {"TRAIN.INIT_WEIGHTS": "zoo/x.pyth"}),
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
        (STEPWISE, {"BN__NORM_TYPE": "sub_batchnorm", "BN__NUM_SPLITS": 4}, 2),
        (SSV2, {}, 8),  # 16 clips on 8 GPUs, synchronised over 4 of them
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
        (STEPWISE, "MODEL.HEAD_ACT", "sigmoid"),
        (STEPWISE, "RESNET.TRANS_FUNC", "basic_transform"),
        (STEPWISE, "BN.MOMENTUM", 0.01),
        (STEPWISE, "RESNET.NUM_BLOCK_TEMP_KERNEL", [[3], [4], [5], [3]]),
        (NONLOCAL, "NONLOCAL.GROUP", [[1], [4], [1], [1]]),
        (MVIT, "MVIT.HEAD_MUL", [[1, 2.0]]),
        (STEPWISE, "SOLVER.LRS", [1, 0.1, 0.05, 0.001]),
        (NONLOCAL, "NONLOCAL.LOCATION", [[1, 3], [1, 3]]),
        (I3D, "RESNET.SPATIAL_STRIDES", [1, 2, 2, 2]),
    ],
)
def test_values_without_a_counterpart_are_refused_by_name(name, key, value):
    assert key in convert(released(name, **{key.replace(".", "__"): value})).problems


def test_a_file_is_written_whole_or_not_at_all(tmp_path, capsys):
    path, output = write_released(tmp_path / "theirs.yaml", STEPWISE), tmp_path / "ours.yaml"
    assert TOOL.main([str(path), "--output", str(output), "NUM_SHARDS", "2", "MINE", "1"]) == 0
    assert "MINE = 1: unknown" in capsys.readouterr().out
    assert load_config(output).TRAIN.BATCH_SIZE == 128
    write_released(path, "AVA/SLOWFAST_32x2_R50_SHORT")
    output.unlink()
    assert TOOL.main([str(path), "--output", str(output)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    for key in ("DATASET = ava", "LOSS_FUNC = bce", "SOLVER.STEPS"):
        assert key in printed.err
    assert not output.exists()
