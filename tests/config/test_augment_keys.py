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
