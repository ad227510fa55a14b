"""What a measurement stands for, and what a process of a node gets of it."""

import pytest
from tiny import data_keys, tiny_config

from mgexp.multigrid.schedule import StepShape
from mgexp.plan import measure
from mgexp.plan.communication import Communication, Link, Network
from mgexp.plan.measure import (
    Measurement,
    Row,
    build_cost_digest,
    build_cost_keys,
    measure_rows,
    predict_rows,
)
from mgexp.plan.predict import Resources, StepCost, leg_shapes


@pytest.mark.parametrize(
    "changes",
    [
        {"TRAIN.PRECISION": "bf16"},
        {"TRAIN.COMPILE": "default"},
        {"TRAIN.ACTIVATION_CHECKPOINTING": True},
        {"TRAIN.MAX_CLIPS_PER_GPU": 8},
        {"TRAIN.NUM_THREADS": 2},
        {"TRAIN.BF16_ALLREDUCE": True},
        {"SOLVER.OPTIMIZING_METHOD": "lars"},
        {"AUG.RE_PROB": 0.5},
        {"DATA.STORE": "store"},
        {"DATA.TRAIN_JITTER_SCALES": [32, 64]},
        {"DATA.TARGET_FPS": 15.0},
        {"MODEL.DROPOUT_RATE": 0.0},
    ],
)
def test_keys_that_change_the_seconds_change_the_digest(changes, tmp_path):
    plain, changed = tiny_config(tmp_path), tiny_config(tmp_path, changes)
    assert build_cost_digest(plain) != build_cost_digest(changed)
    before, after = build_cost_keys(plain), build_cost_keys(changed)
    assert {name for name in after if after[name] != before[name]} == set(changes)


def test_rows_of_a_table_and_places_of_videos_share_a_digest(tmp_path):
    keys = {"DATA.STORE": "store"}
    others = {
        "MULTIGRID.LONG_CYCLE": False,
        "SOLVER.BASE_LR": 0.1,
        "TRAIN.BATCH_SIZE": 8,
        "TRAIN.INIT_WEIGHTS": "weights.pyth",
        "DATA.TRAIN_LIST": "train.txt",
        "DATA.STORE": "elsewhere/store",
        "DATA_LOADER.NUM_WORKERS": 4,
    }
    plain, changed = tiny_config(tmp_path, keys), tiny_config(tmp_path, others)
    assert build_cost_digest(plain) == build_cost_digest(changed)


@pytest.mark.parametrize(("in_bf16", "num_bytes"), [(False, 4), (True, 2)])
def test_gradients_are_exchanged_in_the_format_of_the_row(
    in_bf16, num_bytes, tmp_path, monkeypatch
):
    monkeypatch.setattr(measure, "measure_cycles", lambda *_, **__: {})
    monkeypatch.setattr(measure, "num_params", lambda _: 10)
    row = Row("a", tiny_config(tmp_path, {"TRAIN.BF16_ALLREDUCE": in_bf16}), 24)
    assert measure_rows([row], 0.0).gradient_bytes == 10 * num_bytes


@pytest.mark.parametrize(
    ("workers", "given", "num_gpus", "wanted"),
    [
        ("auto", (None, None), 1, Resources(12, 12)),
        ("auto", (None, None), 4, Resources(3, 3)),
        # 8 GPUs are two nodes.
        ("auto", (None, None), 8, Resources(3, 3)),
        (5, (None, None), 4, Resources(5, 3)),
        ("auto", (None, 6), 4, Resources(6, 6)),
        (5, (0, 6), 4, Resources(0, 6)),
    ],
)
def test_the_processes_of_a_node_share_its_cores(
    workers, given, num_gpus, wanted, tiny_data, tmp_path
):
    keys = {"TRAIN.BATCH_SIZE": 32, "DATA_LOADER.NUM_WORKERS": workers}
    row = Row("a", tiny_config(tmp_path, {**data_keys(tiny_data), **keys}), 240)
    shapes = [shape for _, some in leg_shapes(row.schedule(1)) for shape in some]
    steps: dict[StepShape, StepCost] = dict.fromkeys(shapes, StepCost(1.0, 1.0))
    measurement = Measurement(steps, None, 4, 1, 12, "cpu", 1.0)
    communication = Communication(4, Network(Link(0.0, 1.0), Link(0.0, 1.0), 4))
    (found,) = predict_rows([row], measurement, communication, [num_gpus], *given)
    assert {leg.balance.resources for leg in found.legs} == {wanted}
