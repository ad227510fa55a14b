"""Rows, their parents and their baselines: of small trees, and of the rows of this repository."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_experiments import experiments_with

from mgexp.errors import InputError
from mgexp.results.rows import read_experiments

OVER_BASE = "_BASE_: ../base/small.yaml\n"
ROOT = Path(__file__).parents[2] / "experiments"


@pytest.fixture
def rows(tmp_path):
    """Read a tree of YAMLs."""
    return lambda **yamls: read_experiments(experiments_with(tmp_path / "experiments", yamls).root)


def baseline_of(experiments, name):
    found = experiments.baseline(experiments.rows[name])
    return found and found.name


def test_a_row_is_what_its_yaml_says(rows):
    text = "_BASE_: ../base/small.yaml\nROW: long+short\nSOLVER:\n  BASE_LR: 0.1\n"
    row = rows(**{"main/long_short": text}).rows["main/long_short"]
    assert (row.label, row.base, row.is_plain) == ("long+short", "base/small", False)
    assert (row.folder, row.file) == ("main", "long_short")
    assert row.command == "python tools/run_net.py --cfg experiments/main/long_short.yaml"


def test_a_row_without_a_label_has_the_name_of_its_file(rows):
    assert rows(**{"lr/0.01": "SEED: 1\n"}).rows["lr/0.01"].label == "0.01"


def test_the_command_is_that_of_the_comments(rows):
    text = """\
# On real videos:
#   python tools/run_net.py --cfg experiments/main/x.yaml \\
#     DATA.TRAIN_LIST train.csv \\
#     DATA.VAL_LIST val.csv
# Expected: nothing.
_BASE_: ../base/small.yaml
"""
    assert rows(**{"main/x": text}).rows["main/x"].command == (
        "python tools/run_net.py --cfg experiments/main/x.yaml \\\n"
        "    DATA.TRAIN_LIST train.csv \\\n    DATA.VAL_LIST val.csv"
    )


def test_base_files_and_files_to_copy_are_no_rows(rows):
    found = rows(**{"base/small": "A: 1\n", "own_data/mine": OVER_BASE, "main/x": OVER_BASE})
    assert [*found.rows] == ["main/x"]


def test_the_baseline_beside_a_row_is_the_one_with_the_longest_common_beginning(rows):
    names = ("baseline", "i3d_baseline", "i3d_long", "long", "i3d_nl_baseline", "i3d_nl_long")
    found = rows(**{f"models/{name}": OVER_BASE + "A: 1\n" for name in names})
    assert baseline_of(found, "models/i3d_long") == "models/i3d_baseline"
    assert baseline_of(found, "models/i3d_nl_long") == "models/i3d_nl_baseline"
    assert baseline_of(found, "models/long") == "models/baseline"
    assert baseline_of(found, "models/i3d_baseline") is None


def test_a_row_without_a_baseline_beside_it_has_that_of_its_base_file(rows):
    found = rows(
        **{
            "main/baseline": OVER_BASE + "ROW: baseline\nEXPECTED: []\n",
            "main/long_short": OVER_BASE + "A: 1\n",
            "other/baseline": "_BASE_: ../base/other.yaml\n",
            "ablations/no_x": "_BASE_: ../main/long_short.yaml\nB: 1\n",
        }
    )
    assert baseline_of(found, "ablations/no_x") == "main/baseline"
    assert found.parent(found.rows["ablations/no_x"]).name == "main/long_short"
    assert found.parent(found.rows["main/long_short"]) is None


def test_the_baseline_that_was_made_for_a_row_comes_first(rows):
    found = rows(
        **{
            "main/baseline": OVER_BASE,
            "ablations/cosine": OVER_BASE + "A: 1\n",
            "ablations/baseline_cosine": "_BASE_: ../main/baseline.yaml\nB: 1\n",
        }
    )
    assert baseline_of(found, "ablations/cosine") == "ablations/baseline_cosine"
    assert baseline_of(found, "ablations/baseline_cosine") == "main/baseline"


def test_a_plain_row_beside_comes_before_one_elsewhere(rows):
    found = rows(
        **{
            "main/baseline": OVER_BASE,
            "large/sgd_1x": OVER_BASE + "ROW: SGD\n",
            "large/sgd_8x": "_BASE_: sgd_1x.yaml\nA: 1\n",
        }
    )
    assert baseline_of(found, "large/sgd_8x") == "large/sgd_1x"


def test_rows_without_any_baseline_have_none(rows):
    found = rows(
        **{
            "a/over_another_base": OVER_BASE + "A: 1\n",
            "a/over_nothing": "A: 1\n",
            "a/over_itself": "_BASE_: over_itself.yaml\nA: 1\n",
            "b/plain": "_BASE_: ../base/other.yaml\n",
        }
    )
    assert {baseline_of(found, name) for name in found.rows} == {None}


def test_baselines_come_first_and_numbers_are_in_order(rows):
    names = (
        *("z_baseline", "a_baseline", "long_short", "short", "baseline", "z_long", "coarse"),
        *("8x", "16x", "0.01", "0.0025"),
    )
    found = rows(**{f"t/{name}": OVER_BASE + "A: 1\n" for name in names})
    assert [row.file for row in found.table("t")] == [
        *("a_baseline", "baseline", "short", "long_short", "0.0025", "0.01", "8x", "16x"),
        *("coarse", "z_baseline", "z_long"),
    ]


def test_a_file_that_is_no_yaml_is_bad_input(rows):
    with pytest.raises(InputError, match=r"x\.yaml is not a YAML file"):
        rows(**{"main/x": "A: [1\n"})


def test_the_rows_of_this_repository_have_the_baselines_that_they_should():
    found = read_experiments(ROOT)
    expected = {
        "quickstart/baseline": None,
        "quickstart/long_short": "quickstart/baseline",
        "quickstart/lr/0.01": "quickstart/baseline",
        "large_batch/sgd_1x": None,
        "large_batch/pmd_lamb_16x_period13": "large_batch/sgd_1x",
        "main/k400_slowfast_8x8_r50/long_short": "main/k400_slowfast_8x8_r50/baseline",
        "pretraining/ssv2_slowfast_16x8_r50/none_long_short": (
            "pretraining/ssv2_slowfast_16x8_r50/none_baseline"
        ),
    }
    assert {name: baseline_of(found, name) for name in expected} == expected
