"""Runs of a detector through all sizes of pictures, interrupted in each of them."""

import csv
import json

import pytest
from pictures import picture_keys, write_pictures
from PIL import Image
from run_files import assert_same, read_lines, stop_in
from tiny import ROWS, command, load_tool

SMALL = {
    "DATA.TRAIN_CROP_SIZE": 64,
    "DATA.TEST_CROP_SIZE": 64,
    "RESNET.WIDTH_PER_GROUP": 8,
    "DETECTOR.CHANNELS": 16,
    "DETECTOR.NUM_REGIONS": 16,
    "DEVICE": "cpu",
    "LOG_PERIOD": 1,
    "SOLVER.MAX_EPOCH": 4,
    "SOLVER.STEPS": "[0,2,3]",
    "DATA_LOADER.NUM_WORKERS": 0,
}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="module")
def pairs(pictures):
    keys = {**SMALL, **picture_keys(pictures)}
    return [word for pair in keys.items() for word in pair]


@pytest.fixture(scope="module")
def whole(pairs, main, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert main(command(ROWS["large_det/long_short"], folder, *pairs)) == 0
    return folder


def test_a_schedule_changes_the_size_of_the_pictures(whole):
    lines = read_lines(whole / "metrics.jsonl")
    shapes = {(line["clips"], line["frames"], line["crop"]) for line in lines}
    assert shapes == {(16, 1, 32), (7, 1, 48), (4, 1, 64)}
    metrics = json.loads((whole / "result.json").read_text())["metrics"]
    assert metrics.keys() == {"map", "ap50", "ap_small"}  # no box has 32² pixels


@pytest.mark.parametrize(
    "share", [0.5, *(pytest.param(share, marks=pytest.mark.slow) for share in (0.2, 0.8))]
)
def test_a_run_that_stops_ends_with_the_same_bits(share, whole, pairs, main, tmp_path):
    """Regions are drawn by the seed of a step."""
    steps = json.loads((whole / "result.json").read_text())["steps"]
    arguments = command(ROWS["large_det/long_short"], tmp_path / "run", *pairs)
    stop_in(int(share * steps), main, arguments)
    assert main(arguments) == 0
    assert_same(tmp_path / "run", whole)


def test_boxes_are_written_and_drawn(whole, pictures, tmp_path, capsys):
    """With a line of 2 pixels at each side, in the colour of the class."""
    drawn, table = tmp_path / "drawn", tmp_path / "boxes.csv"
    names = [str(pictures / f"val{number}.png") for number in range(3)]
    options = ("--run", str(whole), "--draw", str(drawn), "--csv", str(table), "--top", "1")
    assert load_tool("predict").main([*names, *options, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    with table.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["video"] for line in lines] == [seen["video"] for seen in printed] == names
    for line, seen, name in zip(lines, printed, names, strict=True):
        (box,) = seen["classes"]
        sides = [box[side] for side in ("left", "top", "right", "bottom")]
        assert [float(line[side]) for side in list(line)[-4:]] == pytest.approx(sides, abs=1e-6)
        left, top, right, bottom = (
            round(side * size - 0.5) for side, size in zip(sides, (64, 48) * 2, strict=True)
        )
        before = Image.open(name).convert("RGB")
        after = Image.open(drawn / name.rpartition("/")[2])
        colour = after.getpixel(((left + right) // 2, bottom))
        assert colour in {(255, 0, 0), (255, 255, 0), (0, 255, 255)}
        assert after.getpixel((right, (top + bottom) // 2)) == colour
        assert before.getpixel((0, 0)) == after.getpixel((0, 0)) or min(left, top) <= 0


@pytest.mark.parametrize("options", [("--every", "1"), ("--top", "101")])
def test_what_is_not_for_boxes_is_refused(options, whole, pictures, capsys):
    arguments = [str(pictures), "--run", str(whole), *options]
    assert load_tool("predict").main(arguments) == 2
    assert options[0] in capsys.readouterr().err


def test_a_classifier_draws_no_boxes(finished_run, tiny_data, capsys):
    arguments = [str(tiny_data / "val0.mp4"), "--run", str(finished_run), "--draw", "drawn"]
    assert load_tool("predict").main(arguments) == 2
    assert "--draw" in capsys.readouterr().err
