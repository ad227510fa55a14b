"""Mini-batches and groups of batch normalisation: PySlowFast's are of a machine and of GPUs, ours of all."""

import pytest
from released import released

from mgexp.convert.pyslowfast import convert

STEPWISE = "Kinetics/SLOWFAST_8x8_R50_stepwise"
SSV2 = "SSv2/SLOWFAST_16x8_R50"


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
    assert conversion.problems == ()
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
