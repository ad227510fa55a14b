"""show_schedule.py: the JSON of the contract, the table, and messages for what is wrong."""

import json
from pathlib import Path

import pytest
from tiny import load_tool

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
CYCLE_KEYS = ["frames", "crop", "clips", "min_jitter", "max_jitter"]
SHAPE_KEYS = ["frames", "crop", "clips", "ratio", "exact_ratio", "work"]
MEMORY_KEYS = ["frames", "crop", "clips", "clips_at_once", "activation_bytes"]
PAGE = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def main():
    """The tool's entry point."""
    return load_tool("show_schedule").main


@pytest.fixture
def show(main, capsys):
    """Runs the tool on a Kinetics row with further arguments; returns (exit code, stdout, stderr)."""

    def run(row, *arguments):
        path = MAIN / f"k400_slowfast_8x8_r50/{row}.yaml"
        code = main(["--cfg", str(path), *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def shown_json(show):
    """The JSON of a Kinetics row."""

    def run(row, *arguments):
        code, out, err = show(row, "--json", *arguments)
        assert (code, err) == (0, "")
        return json.loads(out)

    return run


def golden(row):
    """The released code's numbers."""
    name = f"kinetics_slowfast8x8_{NAMES[row]}.json"
    return json.loads((ROOT / "tests" / "golden" / name).read_text())


def test_json_has_the_keys_of_the_contract(shown_json):
    found = shown_json("long_short")
    assert list(found) == TOP_KEYS
    for phase in found["phases"]:
        assert list(phase) == PHASE_KEYS
        assert all(list(shape) == CYCLE_KEYS for shape in phase["cycle"])
    assert all(list(shape) == SHAPE_KEYS for shape in found["shapes"])


def test_the_page_names_the_keys_of_the_contract():
    told = PAGE[PAGE.index("`--json` prints the same") : PAGE.index("## The tables")]
    keys = {*TOP_KEYS, *SHAPE_KEYS, *MEMORY_KEYS, "cycle", "memory", "held_bytes"}
    assert [key for key in sorted(keys) if f"`{key}`" not in told] == []


@pytest.mark.parametrize("row", NAMES)
def test_epoch_granularity_equals_the_released_schedule(shown_json, row):
    found = shown_json(row, "--num-gpus", "8", "MULTIGRID.GRANULARITY", "epoch")
    witness = golden(row)
    bounds = [*witness["solver_steps"], witness["max_epoch"]]
    phases = found["phases"]
    assert [phase["start_epoch"] for phase in phases] == bounds[:-1]
    assert [phase["end_epoch"] for phase in phases] == bounds[1:]
    assert all(isinstance(phase["end_epoch"], int) for phase in phases)
    assert [phase["lr_factor"] for phase in phases] == pytest.approx(witness["solver_lrs"])
    assert (found["dataset_size"], found["total_epochs"]) == (234_643, witness["max_epoch"])


@pytest.mark.parametrize("row", NAMES)
def test_shapes_and_jitter_equal_the_released_ones(shown_json, row):
    found = shown_json(row, "--num-gpus", "8", "MULTIGRID.GRANULARITY", "epoch")
    witnesses = golden(row)["phases"]
    for phase in found["phases"]:
        (witness,) = (
            w for w in witnesses if w["epoch_start"] <= phase["start_epoch"] < w["epoch_end"]
        )
        cycle = phase["cycle"]
        assert (phase["frames"], phase["crop"]) == (witness["num_frames"], witness["train_crop_size"])  # fmt: skip
        assert phase["clips"] == witness["train_batch_size"]
        assert phase["stride_min"] == witness["sampling_rate_min"]
        assert phase["stride_max"] == witness["sampling_rate_max"]
        assert phase["num_bn_groups"] == witness["bn_num_splits"]
        assert {shape["frames"] for shape in cycle} == {witness["num_frames"]}
        assert [s["crop"] for s in cycle] == witness["short_cycle_crop_sizes"]
        assert [s["clips"] // 8 for s in cycle] == witness["short_cycle_per_gpu_batch_sizes"]
        assert [s["min_jitter"] for s in cycle] == witness["jitter_min_scales"]
        assert {s["max_jitter"] for s in cycle} == {witness["jitter_max_scale"]}


def test_step_granularity_has_epochs_as_fractions(shown_json):
    found = shown_json("long_short")
    # 1.5 × 239 epochs, to the step; 876,245 / 255,949 steps, by the formulas in fractions.
    assert found["total_epochs"] == pytest.approx(358.5, abs=0.01)
    assert (found["total_steps"], found["baseline_steps"]) == (255_949, 876_245)
    assert found["step_saving"] == pytest.approx(876_245 / 255_949)
    assert found["phases"][-1]["end_step"] == 255_949
    assert found["phases"][0]["end_epoch"] == pytest.approx(73.22, abs=0.01)


def test_baseline_saves_nothing(shown_json):
    found = shown_json("baseline")
    assert (found["step_saving"], found["flop_saving"]) == (1, 1)


def test_number_of_videos_is_the_given_then_the_listed_then_the_configured(shown_json, tmp_path):
    videos = tmp_path / "train.csv"
    videos.write_text("a.mp4 0\nb.mp4 1\n\nc.mp4 2\n")
    listed = ("DATA.TRAIN_LIST", str(videos))
    assert shown_json("baseline")["dataset_size"] == 234_643
    assert shown_json("baseline", *listed)["dataset_size"] == 3
    limited = shown_json("baseline", *listed, "DATA.MAX_TRAIN_VIDEOS", "2")
    assert limited["dataset_size"] == 2
    assert shown_json("baseline", "--num-videos", "77", *listed)["dataset_size"] == 77


def test_groups_of_batch_normalisation_are_per_process(shown_json):
    groups = {
        num_gpus: [p["num_bn_groups"] for p in shown_json("long", "--num-gpus", num_gpus)["phases"]]
        for num_gpus in ("1", "8", "16")
    }
    assert groups["1"][:4] == [64, 32, 16, 8]
    assert groups["8"][:4] == [8, 4, 2, 1]
    assert groups["16"][:4] == [4, 2, 1, -2]  # 4 clips per process: a group spans two


def test_table_has_a_line_per_phase_and_says_what_is_saved(show):
    code, out, _ = show("long_short", "--num-gpus", "16")
    assert code == 0
    lines = out.splitlines()
    assert len(lines) == 1 + 14 + 1 + 1 + 1 + 8  # the table of shapes has a head, too
    assert "1024x8x112² 512x8x158² 512x8x158²" in lines[1]
    assert "1 over 2 processes" in lines[4]
    assert "255949 steps" in lines[15]
    assert "3.42x fewer steps" in lines[15]
    assert "3.43x fewer clips x frames x pixels" in lines[15]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["TRAIN.BATCHSIZE", "4"], "there is no key TRAIN.BATCHSIZE; nearest: TRAIN.BATCH_SIZE"),
        (["--num-gpus", "7"], "512 clips does not divide over 7 processes"),
    ],
)
def test_what_is_wrong_ends_with_2_and_a_message(show, arguments, said):
    code, out, err = show("long", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("show_schedule.py: ")
    assert said in err


def test_all_problems_are_in_one_message(show):
    pairs = ("DATA.NUM_FRAMES", "30", "LOG_PERIOD", "0", "DATA.TRAIN_CROP_SIZE", "300")
    _, _, err = show("long_short", "--num-videos", "0", *pairs)
    for said in ("cut to 7.5", "LOG_PERIOD", "--num-videos 0", "TRAIN_CROP_SIZE"):
        assert said in err


def test_ratios_by_multiply_accumulates_are_shown_with_their_rounding(show):
    """SlowFast costs a little more at 158 pixels than its share of the pixels: a step is 1 to 2 % above."""
    keys = ["MULTIGRID.BATCH_RATIO", "macs", "MULTIGRID.SHORT_CYCLE", "False"]
    code, out, _ = show("long", "--num-gpus", "8", *keys)
    assert code == 0
    assert "fewer multiply-accumulates" in out
    rows = [line.split() for line in out[out.index("\nshape") :].splitlines()[2:]]
    assert [row[0] for row in rows] == ["8x158²", "16x158²", "16x224²", "32x224²"]
    assert [float(row[2]) for row in rows] == [8, 4, 2, 1]
    works = [float(row[-1].rstrip("%")) for row in rows]
    assert works == pytest.approx([1.5, 1.5, 0, 0], abs=0.5)


def test_memory_is_shown_on_demand(main, capsys):
    """The quickstart's SlowFast has 2,767,632 parameters: weights, gradients and momenta of 4 bytes."""
    row = ["--cfg", str(ROOT / "experiments" / "quickstart" / "long_short.yaml"), "--memory"]
    assert main(row) == 0
    assert "of which weights, gradients and optimizer hold 0.03 GiB" in capsys.readouterr().out
    assert main([*row, "--json", "TRAIN.MAX_CLIPS_PER_GPU", "16"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == [*TOP_KEYS, "memory"]
    memory = found["memory"]
    assert list(memory) == ["held_bytes", "shapes"]
    assert all(list(shape) == MEMORY_KEYS for shape in memory["shapes"])
    assert 12 * 2_767_632 < memory["held_bytes"] < 12.1 * 2_767_632
    assert [(one["clips"], one["clips_at_once"]) for one in memory["shapes"]] == [
        *[(32, 16)] * 3,
        *[(16, 16)] * 2,
        (8, 8),
    ]


def test_the_memory_of_shapes_that_cannot_be_trained_is_refused(main, capsys):
    row = ["--cfg", str(ROOT / "experiments" / "quickstart" / "long_short.yaml")]
    row += ["TRAIN.MAX_CLIPS_PER_GPU", "4"]
    assert main(row) == 0
    capsys.readouterr()
    assert main([*row, "--memory"]) == 2
    assert "TRAIN.MAX_CLIPS_PER_GPU = 4 is too few for" in capsys.readouterr().err


def test_seconds_that_are_not_given_are_told(show):
    code, _, err = show("long", "MULTIGRID.BATCH_RATIO", "measured")
    assert code == 2
    assert "MULTIGRID.CLIP_SECONDS lacks 8 x 158², 16 x 158², 16 x 224², 32 x 224²" in err
    # plan.py refuses the row as it is, for the same reason.
    assert "tools/plan.py with MULTIGRID.BATCH_RATIO pixels measures" in err


def test_with_measured_seconds_a_step_takes_equally_long(shown_json):
    seconds = "[[8,158,0.001],[16,158,0.002],[16,224,0.0041],[32,224,0.008]]"
    keys = ["MULTIGRID.BATCH_RATIO", "measured", "MULTIGRID.CLIP_SECONDS", seconds]
    found = shown_json("long", *keys)
    clips = [phase["clips"] for phase in found["phases"][:4]]
    assert clips == [8 * 64, 4 * 64, 2 * 64, 64]
    # Without BN groups the clips follow in quarters of the baseline's 64: 1.74 is nearest to 1.75.
    finer = seconds.replace("0.0041", "0.0046")  # 1.74 times the clips
    found = shown_json("long", *keys[:3], finer, "MULTIGRID.BN_BASE_SIZE", "0")
    assert [phase["clips"] for phase in found["phases"][:4]] == [512, 256, 112, 64]
