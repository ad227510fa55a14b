"""The rows of experiments/beyond: each differs in one thing from its control, and controls cost as much."""

from pathlib import Path

import pytest

from mgexp.config.check import cross_problems
from mgexp.config.load import flatten, load_config
from mgexp.train.setup import build_row_schedule

FOLDER = Path(__file__).parents[2] / "experiments" / "beyond"
NUM_VIDEOS = 1200  # of the quickstart
TWO_SHAPES = ((0.25, pytest.approx(0.5**0.5)), (1.0, 1.0))
AUGMENTED = {"AUG.COLOR_JITTER": 0.4, "AUG.RE_PROB": 0.25}


def config(name):
    """Of a row."""
    return load_config(FOLDER / f"{name}.yaml")


def changed(name, parent):
    """Keys, and their values, in which a row differs from another, but for its name."""
    found, before = dict(flatten(config(name))), dict(flatten(config(parent)))
    return {key: found[key] for key in found if key != "ROW" and found[key] != before[key]}


@pytest.mark.parametrize("row", ["long", "long_short"])
def test_order_and_number_of_shapes_are_changed_alone_and_together(row):
    paper, once = f"../quickstart/{row}", {"MULTIGRID.LONG_CYCLE_PER": "training"}
    two_shapes = {"MULTIGRID.LONG_CYCLE_FACTORS": TWO_SHAPES}
    assert changed(f"two_level/{row}_once", paper) == once
    assert changed(f"two_level/{row}_two_shapes", paper) == two_shapes
    assert changed(f"two_level/{row}_two_level", paper) == once | two_shapes


@pytest.mark.parametrize(("row", "steps"), [("long", [565, 566]), ("long_short", [382, 383])])
def test_the_control_of_two_levels_has_as_many_steps(row, steps):
    assert [*changed(f"two_level/{row}_fewer_epochs", f"../quickstart/{row}")] == [
        "MULTIGRID.EPOCH_FACTOR"
    ]
    names = f"two_level/{row}_fewer_epochs", f"two_level/{row}_two_level"
    assert [build_row_schedule(config(name), NUM_VIDEOS).total_steps for name in names] == steps


@pytest.mark.parametrize("row", ["baseline", "long_short"])
def test_augmented_controls_differ_from_the_quickstart_by_augmentation_alone(row):
    assert changed(f"augmentation_by_shape/{row}", f"../quickstart/{row}") == AUGMENTED


@pytest.mark.parametrize(("name", "strength"), [("weaker", 0.0), ("stronger", 1.5)])
def test_rows_by_shape_differ_from_the_augmented_row_by_the_strength_alone(name, strength):
    row, control = f"long_short_coarse_{name}", "long_short"
    found = changed(f"augmentation_by_shape/{row}", f"augmentation_by_shape/{control}")
    assert found == {"AUG.COARSE_STRENGTH": strength}


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.yaml")), ids=lambda path: path.stem)
def test_nothing_is_wrong_with_a_row(path):
    assert cross_problems(load_config(path)) == []
