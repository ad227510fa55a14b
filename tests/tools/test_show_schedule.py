"""show_schedule.py: the JSON of the contract, the table, and messages for what is wrong."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAIN = ROOT / "experiments" / "main"
NAMES = {
    "baseline": "baseline",
    "short": "short_only",
    "long": "long_only",
    "long_short": "long_short",
}
TOP_KEYS = [
    *("dataset_size", "total_steps", "total_epochs", "baseline_steps"),
    *("step_saving", "flop_saving", "flop_saving_unit", "phases", "shapes"),
]
PHASE_KEYS = [
    *("stage", "start_epoch", "end_epoch", "start_step", "end_step", "frames", "crop", "clips"),
    *("lr_factor", "stride_min", "stride_max", "num_bn_groups", "cycle"),
]
SHAPE_KEYS = ["frames", "crop", "clips", "ratio", "exact_ratio", "work"]


@pytest.fixture
def show(call):
    def run(row, *arguments):
        path = MAIN / f"k400_slowfast_8x8_r50/{row}.yaml"
        return call("show_schedule", "--cfg", path, *arguments)

    return run


@pytest.fixture
def shown_json(show):
    def run(row, *arguments):
        code, out, err = show(row, "--json", *arguments)
        assert (code, err) == (0, "")
        return json.loads(out)

    return run


@pytest.mark.parametrize("row", NAMES)
def test_epoch_granularity_equals_the_released_schedule(shown_json, row):
    found = shown_json(row, "--num-gpus", 8, "MULTIGRID.GRANULARITY", "epoch")
    witness = json.loads(
        (ROOT / f"tests/golden/kinetics_slowfast8x8_{NAMES[row]}.json").read_text()
    )
    phases, theirs = found["phases"], witness["phases"]
    bounds = [*witness["solver_steps"], witness["max_epoch"]]
    assert [phase["start_epoch"] for phase in phases] == bounds[:-1]
    assert [phase["end_epoch"] for phase in phases] == bounds[1:]
    assert all(isinstance(phase["end_epoch"], int) for phase in phases)
    assert [phase["lr_factor"] for phase in phases] == pytest.approx(witness["solver_lrs"])
    assert (found["dataset_size"], found["total_epochs"]) == (234_643, witness["max_epoch"])
    for phase in phases:
        their = next(one for one in theirs if phase["start_epoch"] < one["epoch_end"])
        strides = (their["sampling_rate_min"], their["sampling_rate_max"])
        assert (phase["stride_min"], phase["stride_max"]) == strides
        assert (phase["frames"], phase["crop"]) == (their["num_frames"], their["train_crop_size"])
        assert [s["clips"] // 8 for s in phase["cycle"]] == their["short_cycle_per_gpu_batch_sizes"]
        assert [s["min_jitter"] for s in phase["cycle"]] == their["jitter_min_scales"]
        assert {s["max_jitter"] for s in phase["cycle"]} == {their["jitter_max_scale"]}


def test_the_json_has_the_keys_of_the_contract_and_epochs_as_fractions(shown_json):
    found = shown_json("long_short")
    assert list(found) == TOP_KEYS
    assert all(list(phase) == PHASE_KEYS for phase in found["phases"])
    assert all(list(shape) == SHAPE_KEYS for shape in found["shapes"])
    # 1.5 × 239 epochs, to the step; 876,245 / 255,949 steps, by the formulas in fractions.
    assert found["total_epochs"] == pytest.approx(358.5, abs=0.01)
    assert (found["total_steps"], found["baseline_steps"]) == (255_949, 876_245)
    assert found["step_saving"] == pytest.approx(876_245 / 255_949)
    assert found["phases"][-1]["end_step"] == 255_949
    assert found["phases"][0]["end_epoch"] == pytest.approx(73.22, abs=0.01)


def test_all_problems_are_in_one_message(show):
    pairs = ("DATA.NUM_FRAMES", "30", "LOG_PERIOD", "0", "DATA.TRAIN_CROP_SIZE", "300")
    code, out, err = show("long_short", "--num-videos", "0", *pairs)
    assert (code, out) == (2, "")
    for said in ("7.5", "LOG_PERIOD", "--num-videos 0", "TRAIN_CROP_SIZE"):
        assert said in err


def test_ratios_by_multiply_accumulates_are_shown_with_their_rounding(show):
    """SlowFast costs a little more at 158 pixels than its share of the pixels: a step is 1 to 2 % above."""
    keys = ["MULTIGRID.BATCH_RATIO", "macs", "MULTIGRID.SHORT_CYCLE", "False"]
    code, out, _ = show("long", "--num-gpus", "8", *keys)
    assert code == 0
    rows = [line.split() for line in out[out.index("\nshape") :].splitlines()[2:]]
    assert [row[0] for row in rows] == ["8x158²", "16x158²", "16x224²", "32x224²"]
    assert [float(row[2]) for row in rows] == [8, 4, 2, 1]
    works = [float(row[-1].rstrip("%")) for row in rows]
    assert works == pytest.approx([1.5, 1.5, 0, 0], abs=0.5)


def test_with_measured_seconds_which_are_needed_a_step_takes_equally_long(show, shown_json):
    code, _, err = show("long", "MULTIGRID.BATCH_RATIO", "measured")
    assert code == 2 and "MULTIGRID.CLIP_SECONDS" in err
    seconds = "[[8,158,0.001],[16,158,0.002],[16,224,0.0041],[32,224,0.008]]"
    keys = ["MULTIGRID.BATCH_RATIO", "measured", "MULTIGRID.CLIP_SECONDS", seconds]
    found = shown_json("long", *keys)
    clips = [phase["clips"] for phase in found["phases"][:4]]
    assert clips == [8 * 64, 4 * 64, 2 * 64, 64]
