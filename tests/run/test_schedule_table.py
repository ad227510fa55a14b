"""The schedule as a table and as JSON, on the tiny long+short row."""

import pytest
from tiny import tiny_config

from mgexp.run.schedule_table import schedule_json, schedule_rows, schedule_table
from mgexp.train.setup import build_row_schedule


@pytest.fixture
def schedule(tmp_path):
    return build_row_schedule(tiny_config(tmp_path), 24)


def test_a_line_per_phase_with_its_mini_batches(schedule):
    head, *lines = schedule_table(schedule).splitlines()
    assert head.split()[:3] == ["stage", "epochs", "steps"]
    assert "0.00–4.00" in lines[0]
    assert lines[0].endswith("64x2x16² 32x2x23² 32x2x23²")
    assert "9.67–10.33" in lines[5]
    assert lines[6].startswith(
        "10 steps, 10.33 epochs of 24 videos; baseline 24 steps: 2.40x fewer"
    )
    assert len(lines) == 7


def test_small_batches_are_said(tmp_path):
    schedule = build_row_schedule(tiny_config(tmp_path, {"MULTIGRID.BN_BASE_SIZE": 8}), 24)
    assert "fewer than 8 clips" in schedule_table(schedule).splitlines()[-1]


def test_segments_have_no_stride(tmp_path):
    schedule = build_row_schedule(tiny_config(tmp_path, {"DATA.TEMPORAL_GRID": "segments"}), 24)
    assert "segments" in schedule_table(schedule)
    assert schedule_json(schedule)["phases"][0]["stride_min"] is None


def test_jitter_shrinks_with_the_crop(schedule):
    phases = schedule_json(schedule)["phases"]
    jitters = [(s["crop"], s["min_jitter"], s["max_jitter"]) for s in phases[3]["cycle"]]
    assert jitters == [(16, 16, 40), (23, 23, 40), (32, 32, 40)]


def test_rows_are_flat(schedule):
    rows = schedule_rows(schedule)
    assert [row["lr_factor"] for row in rows] == pytest.approx([8, 4, 2, 1, 1, 0.1])
    assert all(not isinstance(value, list | dict) for row in rows for value in row.values())


def test_a_random_order_is_said(tmp_path, schedule):
    permuted = build_row_schedule(tiny_config(tmp_path, {"MULTIGRID.SHAPE_ORDER": "random"}), 24)
    assert schedule_table(permuted).endswith("in another order in each turn of its cycle")
    assert "another order" not in schedule_table(schedule)
