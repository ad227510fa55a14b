"""Keys of augmentation: their ranges, and what they have to do with each other."""

from pathlib import Path

import pytest

from mgexp.config.check import cross_problems
from mgexp.config.load import load_config, read_config

ROW = Path(__file__).parents[2] / "experiments" / "quickstart" / "long_short.yaml"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("AUG.RANDAUGMENT_OPS", "-1", "= -1 is not allowed; it takes 0 to 100"),
        ("AUG.RANDAUGMENT_OPS", "1.5", "= 1.5 is not a whole number"),
        ("AUG.RANDAUGMENT_MAGNITUDE", "31", "= 31 is not allowed; it takes 0 to 30"),
        ("AUG.RANDAUGMENT_MAGNITUDE", "-1", "= -1 is not allowed; it takes 0 to 30"),
        ("AUG.COLOR_JITTER", "1.1", "= 1.1 is not allowed; it takes 0 to 1"),
        ("AUG.COLOR_JITTER", "-0.1", "= -0.1 is not allowed; it takes 0 to 1"),
        ("AUG.RE_PROB", "25", "= 25 is not allowed; it takes 0 to 1"),
        ("AUG.COARSE_STRENGTH", "-1", "= -1 is not allowed; it takes 0 to 10"),
        ("AUG.COARSE_STRENGTH", "11", "= 11 is not allowed; it takes 0 to 10"),
        ("MULTIGRID.LONG_CYCLE_PER", "epoch", "is not allowed; it takes one of stage, training"),
    ],
)
def test_value_out_of_range_is_said_with_what_the_key_takes(name, text, said):
    _, (problem,) = read_config(ROW, [name, text])
    assert problem.startswith(f"the command line: {name} = ")
    assert said in problem


def test_a_magnitude_without_operations_is_a_problem():
    (problem,) = cross_problems(load_config(ROW, ["AUG.RANDAUGMENT_MAGNITUDE", "15"]))
    assert problem.startswith(
        "AUG.RANDAUGMENT_MAGNITUDE = 15 is not read with AUG.RANDAUGMENT_OPS = 0: leave it at 9"
    )


def test_a_mean_that_is_no_colour_cannot_be_painted():
    pairs = ["AUG.RE_PROB", "0.25", "DATA.MEAN", "[115, 115, 115]"]
    (problem,) = cross_problems(load_config(ROW, pairs))
    assert problem.startswith("AUG.RE_PROB = 0.25 paints with DATA.MEAN = [115.0, 115.0, 115.0]")


@pytest.mark.parametrize(
    "pairs", ["AUG.RANDAUGMENT_MAGNITUDE 15 AUG.RANDAUGMENT_OPS 1", "AUG.RE_PROB 0.25"]
)
def test_keys_that_go_together_are_no_problem(pairs):
    assert cross_problems(load_config(ROW, pairs.split())) == []


def test_a_strength_of_coarse_clips_without_anything_to_change_is_a_problem():
    (problem,) = cross_problems(load_config(ROW, ["AUG.COARSE_STRENGTH", "0.5"]))
    assert problem == (
        "AUG.COARSE_STRENGTH = 0.5 has nothing to change: set AUG.RANDAUGMENT_OPS, AUG.COLOR_JITTER or "
        "AUG.RE_PROB, or leave it at 1"
    )


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ("AUG.COLOR_JITTER 0.6", "AUG.COLOR_JITTER = 0.6 times AUG.COARSE_STRENGTH = 2 is 1.2"),
        ("AUG.RE_PROB 0.75", "AUG.RE_PROB = 0.75 times AUG.COARSE_STRENGTH = 2 is 1.5"),
        (
            "AUG.RANDAUGMENT_OPS 1 AUG.RANDAUGMENT_MAGNITUDE 20",
            "AUG.RANDAUGMENT_MAGNITUDE = 20 times AUG.COARSE_STRENGTH = 2 is 40",
        ),
    ],
)
def test_strengths_of_coarse_clips_that_are_out_of_range_are_a_problem(pairs, said):
    (problem,) = cross_problems(load_config(ROW, [*pairs.split(), "AUG.COARSE_STRENGTH", "2"]))
    assert problem.startswith(f"{said} for the coarsest clips; it takes 0 to ")
    assert problem.endswith(": lower one of them")


@pytest.mark.parametrize("strength", ["0", "0.5", "2"])
def test_strengths_within_range_are_no_problem(strength):
    pairs = ["AUG.COLOR_JITTER", "0.5", "AUG.RE_PROB", "0.5", "AUG.COARSE_STRENGTH", strength]
    assert cross_problems(load_config(ROW, pairs)) == []
