"""Learning rates, stages, mini-batches and BN groups of PySlowFast: what its code reads, and what it ignores."""

import pytest
from released import keys_of, released

from mgexp.convert.pyslowfast import convert

STEPWISE = "Kinetics/SLOWFAST_8x8_R50_stepwise"
SSV2 = "SSv2/SLOWFAST_16x8_R50"


def found(name=STEPWISE, **changes):
    return keys_of(name, **changes)


def problem(name=STEPWISE, **changes):
    (message,) = convert(released(name, **changes)).problems
    return message


def test_rates_of_the_stages_become_one_decay():
    conversion = convert(released(STEPWISE, SOLVER__LRS=[1, 0.2, 0.04, 0.008], SOLVER__GAMMA=0.7))
    assert conversion.keys["SOLVER.GAMMA"] == 0.2
    (dropped,) = [note for note in conversion.dropped if note.name == "SOLVER.GAMMA"]
    assert dropped.why == "PySlowFast reads SOLVER.LRS instead"  # GAMMA with the long cycle alone


def test_the_first_rate_multiplies_the_base_rate():
    keys = found(SOLVER__LRS=[0.5, 0.05, 0.005, 0.0005])
    assert keys["SOLVER.BASE_LR"] == 0.05
    assert "SOLVER.GAMMA" not in keys
    assert "SOLVER.WARMUP_START_LR" not in keys


def test_with_the_long_cycle_gamma_is_read_and_the_rates_are_not():
    keys = found(f"{STEPWISE}_multigrid", SOLVER__LRS=[1, 0.5, 0.4, 0.3], SOLVER__GAMMA=0.2)
    assert keys["SOLVER.GAMMA"] == 0.2


def test_a_stage_that_is_never_reached_is_left_out():
    assert found("Kinetics/I3D_8x8_R50_IN1K")["SOLVER.STEPS"] == (0, 44, 88)  # of 118 epochs


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"SOLVER__LRS": [1, 0.1, 0.05, 0.001]}, "falls by one factor, SOLVER.GAMMA"),
        ({"SOLVER__LRS": [1, 0.1]}, "no rate above 0 for each of 4 stages"),
        ({"SOLVER__STEPS": [], "SOLVER__LRS": None}, "SOLVER.STEPS = [] has no stage"),
        ({"SOLVER__DAMPENING": 0.1}, "momentum is not damped"),
        ({"SOLVER__BASE_LR": "fast"}, "SOLVER.BASE_LR = fast is not a number"),
    ],
)
def test_rates_without_a_counterpart(changes, said):
    assert any(said in message for message in convert(released(STEPWISE, **changes)).problems)


def test_the_rate_grows_with_the_machines_where_the_file_says_so():
    keys = found("Kinetics/pytorchvideo/SLOW_8x8_R50", NUM_SHARDS=4)
    assert (keys["SOLVER.BASE_LR"], keys["SOLVER.WARMUP_START_LR"]) == (0.4, 0.04)
    assert "SOLVER.COSINE_END_LR" not in keys  # 0
    conversion = convert(released("Kinetics/pytorchvideo/SLOW_8x8_R50", NUM_SHARDS=4))
    (note,) = [note for note in conversion.changed if note.name == "SOLVER.BASE_LR"]
    assert note.why == "0.4: times 4"
    assert keys["TRAIN.BATCH_SIZE"] == 256


def test_a_rate_that_is_not_multiplied_keeps_all_its_digits():
    assert found(SOLVER__BASE_LR=0.00012345678912)["SOLVER.BASE_LR"] == 0.00012345678912


def test_the_rate_stays_where_the_file_does_not_say_so():
    keys = found(NUM_SHARDS=4)
    assert keys["TRAIN.BATCH_SIZE"] == 256
    assert "SOLVER.BASE_LR" not in keys  # 0.1, our default


def test_cosine_ignores_stages():
    keys = found("Kinetics/I3D_8x8_R50", SOLVER__STEPS=[0, 100], SOLVER__LRS=[1, 0.5])
    assert keys["SOLVER.LR_POLICY"] == "cosine"
    assert "SOLVER.STEPS" not in keys
    assert "SOLVER.GAMMA" not in keys


def test_end_and_start_of_the_cosine_are_kept():
    ends = {"SOLVER__COSINE_END_LR": 0.001, "SOLVER__COSINE_AFTER_WARMUP": True}
    keys = found("Kinetics/I3D_8x8_R50", **ends)
    assert (keys["SOLVER.COSINE_END_LR"], keys["SOLVER.COSINE_AFTER_WARMUP"]) == (0.001, True)
    assert not [key for key in found(**ends) if "COSINE" in key]  # steps


def test_cosine_with_the_long_cycle_keeps_its_stages_and_says_what_differs():
    changes = {"MULTIGRID__LONG_CYCLE": True, "SOLVER__STEPS": [0, 94, 154, 196]}
    conversion = convert(released(STEPWISE, SOLVER__LR_POLICY="cosine", **changes))
    assert conversion.keys["SOLVER.STEPS"] == (0, 94, 154, 196)
    (note,) = [note for note in conversion.changed if note.name == "SOLVER.STEPS"]
    assert "there the learning rate stays where batches grow" in note.why


def test_cosine_with_the_long_cycle_leaves_out_stages_that_are_never_reached():
    changes = {"MULTIGRID__LONG_CYCLE": True, "SOLVER__STEPS": [0, 94, 154, 400]}
    assert found(STEPWISE, SOLVER__LR_POLICY="cosine", **changes)["SOLVER.STEPS"] == (0, 94, 154)


def test_clipping_and_the_decay_of_biases_are_kept():
    keys = found(SOLVER__CLIP_GRAD_L2NORM=1.5, SOLVER__ZERO_WD_1D_PARAM=True)
    assert (keys["SOLVER.CLIP_GRAD_L2NORM"], keys["SOLVER.ZERO_WD_1D_PARAM"]) == (1.5, True)
    assert "SOLVER.CLIP_GRAD_L2NORM" not in found(SOLVER__CLIP_GRAD_L2NORM=None)


# --- mini-batches and groups: PySlowFast's are of a machine and of GPUs, ours of all


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
        (STEPWISE, {"MULTIGRID__SHORT_CYCLE": True, "NUM_GPUS": 4}, 16),
        (f"{STEPWISE}_multigrid", {"NUM_GPUS": 2}, 8),  # the long cycle sets it by BN_BASE_SIZE
        (f"{STEPWISE}_multigrid", {"MULTIGRID__BN_BASE_SIZE": 16}, 16),
        (f"{STEPWISE}_multigrid", {"BN__NORM_TYPE": "sync_batchnorm"}, 8),
    ],
)
def test_clips_that_share_statistics(name, changes, clips):
    conversion = convert(released(name, **changes))
    assert conversion.problems == []
    assert conversion.keys.get("MULTIGRID.BN_BASE_SIZE", 8) == clips


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"NUM_GPUS": 7}, "TRAIN.BATCH_SIZE = 64 does not divide over NUM_GPUS = 7"),
        ({"BN__NORM_TYPE": "layernorm"}, "BN.NORM_TYPE = layernorm is none of batchnorm"),
        ({"BN__NORM_TYPE": "sub_batchnorm", "BN__NUM_SPLITS": 3}, "groups of 2.66667 clips"),
    ],
)
def test_batches_that_cannot_be(changes, said):
    assert said in "\n".join(convert(released(STEPWISE, **changes)).problems)


def test_multigrid_ends_its_phases_as_the_released_code_does():
    assert convert(released(f"{STEPWISE}_multigrid")).keys["MULTIGRID.GRANULARITY"] == "epoch"
    assert "MULTIGRID.GRANULARITY" not in convert(released(STEPWISE)).keys


def test_factors_of_a_cycle_that_is_off_are_dropped():
    factors = {"MULTIGRID__SHORT_CYCLE_FACTORS": [0.5], "MULTIGRID__EPOCH_FACTOR": 2.0}
    off = convert(released(STEPWISE, **factors))
    assert not [key for key in off.keys if key.startswith("MULTIGRID")]
    assert {"MULTIGRID.SHORT_CYCLE_FACTORS", "MULTIGRID.EPOCH_FACTOR"} <= {
        note.name for note in off.dropped
    }
    on = convert(released(STEPWISE, MULTIGRID__SHORT_CYCLE=True, **factors))
    assert on.keys["MULTIGRID.SHORT_CYCLE_FACTORS"] == (0.5,)
    assert on.keys["MULTIGRID.EPOCH_FACTOR"] == 2.0


def test_factors_may_be_written_as_python():
    text = "[(0.25, 0.7071), (0.5, 0.7071), (0.5, 1), (1, 1)]"
    keys = convert(released(f"{STEPWISE}_multigrid", MULTIGRID__LONG_CYCLE_FACTORS=text)).keys
    assert keys["MULTIGRID.LONG_CYCLE_FACTORS"][0] == (0.25, 0.7071)


def test_statistics_that_are_not_re_estimated():
    keys = convert(released(STEPWISE, BN__USE_PRECISE_STATS=False, BN__NUM_BATCHES_PRECISE=9)).keys
    assert keys["BN.USE_PRECISE_STATS"] is False
    assert "BN.NUM_BATCHES_PRECISE" not in keys


def test_adamw_has_its_own_keys():
    keys = found(
        SOLVER__OPTIMIZING_METHOD="adamw", SOLVER__BETAS=[0.9, 0.95], SOLVER__LAYER_DECAY=0.75
    )
    assert keys["SOLVER.OPTIMIZING_METHOD"] == "adamw"
    assert keys["SOLVER.BETAS"] == (0.9, 0.95)
    assert keys["SOLVER.LAYER_DECAY"] == 0.75
    assert "SOLVER.MOMENTUM" not in keys
    # construct_optimizer of PySlowFast writes eps=1e-08.
    assert keys["SOLVER.EPS"] == 1e-8
    assert "SOLVER.OPTIMIZING_METHOD = adam has no counterpart" in problem(
        SOLVER__OPTIMIZING_METHOD="adam"
    )
