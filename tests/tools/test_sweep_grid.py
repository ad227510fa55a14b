"""Grids and seeds of a sweep."""

import pytest
from tiny import load_tool

from mgexp.errors import InputError
from mgexp.launch.sweep import SweepRun

TOOL = load_tool("sweep")


def test_every_combination_is_a_point():
    found = TOOL.read_grid(["SOLVER.BASE_LR=0.05, 0.1", "SOLVER.STEPS=[0,3],[0,4]"])
    assert found == (
        (("SOLVER.BASE_LR", "0.05"), ("SOLVER.STEPS", "[0,3]")),
        (("SOLVER.BASE_LR", "0.05"), ("SOLVER.STEPS", "[0,4]")),
        (("SOLVER.BASE_LR", "0.1"), ("SOLVER.STEPS", "[0,3]")),
        (("SOLVER.BASE_LR", "0.1"), ("SOLVER.STEPS", "[0,4]")),
    )


def test_a_point_is_named_by_its_values():
    """Without a grid there is one."""
    assert TOOL.read_grid([]) == ((),)
    assert SweepRun("main/x", (), 2).name == "all/main/x/seed2"
    point = (("SOLVER.BASE_LR", "0.05"), ("SOLVER.MAX_EPOCH", "4"))
    assert SweepRun("x", point, 0).name == "SOLVER.BASE_LR=0.05,SOLVER.MAX_EPOCH=4/x/seed0"


def test_values_that_are_no_file_names_stay_apart():
    names = {
        SweepRun("x", (("DATA.STORE", value),), 0).point_name for value in ("a/b", "a b", "a?b")
    }
    assert len(names) == 3
    assert [name for name in names if "/" in name or " " in name] == []


def test_long_points_have_short_names():
    points = [(("DATA.STORE", 300 * "x" + end),) for end in "ab"]
    names = [SweepRun("x", point, 0).point_name for point in points]
    assert [len(name) for name in names] == [100, 100]
    assert names[0] != names[1]


def test_all_problems_of_a_grid_are_told():
    """Values that are equal numbers appear twice."""
    with pytest.raises(InputError) as raised:
        TOOL.read_grid(["SOLVER.BASE_LR", "A=1,,2", "B=1", "B=2", "C=0.1,0.10"])
    for name, text in zip(("SOLVER", "A", "B", "C"), raised.value.problems, strict=True):
        assert name in text


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", (0, 1, 2)), ("1", (0,)), ("0,5", (0, 5)), ("4,", (4,))]
)
def test_seeds(text, seeds):
    assert TOOL.read_seeds(text) == seeds


@pytest.mark.parametrize(
    "text", ["0", "-1", "many", "1,1", "-1,2", ",", "0,9007199254740993", "1000000000"]
)
def test_no_seeds(text):
    with pytest.raises(InputError, match="--seeds"):
        TOOL.read_seeds(text)
