"""The schedule as a table and as JSON, on the tiny long+short row."""

import pytest
from tiny import tiny_config

from mgexp.run.schedule_table import schedule_json, schedule_rows, schedule_table
from mgexp.train.setup import build_row_schedule


@pytest.fixture
def schedule(tmp_path):
    return build_row_schedule(tiny_config(tmp_path), 24)


def test_the_ratio_and_the_work_of_each_shape_by_hand(schedule, tmp_path):
    """A clip of the full shape has 8 * 32² pixels. 23 pixels are a little more than 32/√2."""
    shapes = {(one["frames"], one["crop"]): one for one in schedule_json(schedule)["shapes"]}
    assert [one["ratio"] for one in shapes.values()] == [16, 8, 8, 4, 4, 2, 2, 1]
    one = shapes[2, 23]
    exact = 8 * 32**2 / (2 * 23**2)
    assert one["exact_ratio"] == pytest.approx(exact)
    assert one["work"] == pytest.approx(8 / exact)
    assert one["clips"] == 8 * schedule.recipe.clips
    row = next(line for line in schedule_table(schedule).splitlines() if line.startswith("2x23²"))
    assert row.split() == ["2x23²", f"{one['clips']}", "8", "7.74", "+3.3%"]
    baseline = {"MULTIGRID.LONG_CYCLE": False, "MULTIGRID.SHORT_CYCLE": False}
    one_shape = build_row_schedule(tiny_config(tmp_path, baseline), 24)
    assert [shape["work"] for shape in schedule_json(one_shape)["shapes"]] == [1]


def test_a_limit_shows_as_less_work(tmp_path):
    limited = build_row_schedule(tiny_config(tmp_path, {"MULTIGRID.MAX_BATCH_RATIO": 4}), 24)
    found = {(one["frames"], one["crop"]): one for one in schedule_json(limited)["shapes"]}
    one = found[2, 16]
    assert (one["ratio"], one["exact_ratio"], one["work"]) == (4, 16, 0.25)


def test_crops_of_a_random_area_have_no_short_side_and_segments_no_stride(tmp_path):
    keys = {
        "DATA.TEMPORAL_GRID": "segments",
        "DATA.TRAIN_JITTER_SCALES_RELATIVE": [0.08, 1.0],
        "DATA.TRAIN_JITTER_ASPECT_RELATIVE": [0.75, 1.3333],
    }
    (first, *_) = schedule_json(build_row_schedule(tiny_config(tmp_path, keys), 24))["phases"]
    jitters = {(shape["min_jitter"], shape["max_jitter"]) for shape in first["cycle"]}
    assert (jitters, first["stride_min"]) == ({(None, None)}, None)


def test_rows_are_flat(schedule):
    rows = schedule_rows(schedule)
    assert [row["lr_factor"] for row in rows] == pytest.approx([8, 4, 2, 1, 1, 0.1])
    assert all(not isinstance(value, list | dict) for row in rows for value in row.values())
