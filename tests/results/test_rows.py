"""Rows, their parents and their baselines; published numbers; which results count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_experiments import GPU, experiments_with, result

from mgexp.errors import InputError
from mgexp.results.rows import (
    Page,
    Published,
    count_results,
    read_experiments,
    read_page,
    read_published,
)

OVER_BASE = "_BASE_: ../base/small.yaml\n"
ROOT = Path(__file__).parents[2] / "experiments"


@pytest.fixture
def rows(tmp_path):
    """Read a tree of YAMLs."""
    root = tmp_path / "experiments"
    return lambda **yamls: Page(root, read_experiments(experiments_with(root, yamls).root))


def baseline_of(page, name):
    found = page.baseline(page.experiments[name])
    return found and found.name


def test_a_row_is_what_its_yaml_says(rows):
    text = "_BASE_: ../base/small.yaml\nROW: long+short\nSOLVER:\n  BASE_LR: 0.1\n"
    row = rows(**{"main/long_short": text}).experiments["main/long_short"]
    assert (row.label, row.base, row.is_plain) == ("long+short", "base/small", False)
    assert (row.folder, row.file) == ("main", "long_short")
    assert row.command == "python tools/run_net.py --cfg experiments/main/long_short.yaml"


def test_the_command_is_that_of_the_comments(rows):
    text = """\
# On real videos:
#   python tools/run_net.py --cfg experiments/main/x.yaml \\
#     DATA.TRAIN_LIST train.csv \\
#     DATA.VAL_LIST val.csv
# Expected: nothing.
_BASE_: ../base/small.yaml
"""
    assert rows(**{"main/x": text}).experiments["main/x"].command == (
        "python tools/run_net.py --cfg experiments/main/x.yaml \\\n"
        "    DATA.TRAIN_LIST train.csv \\\n    DATA.VAL_LIST val.csv"
    )


def test_base_files_and_files_to_copy_are_no_rows(rows):
    found = rows(**{"base/small": "A: 1\n", "own_data/mine": OVER_BASE, "main/x": OVER_BASE})
    assert [*found.experiments] == ["main/x"]


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
    assert found.parent(found.experiments["ablations/no_x"]).name == "main/long_short"
    assert found.parent(found.experiments["main/long_short"]) is None


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
    assert {baseline_of(found, name) for name in found.experiments} == {None}


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
    found = Page(ROOT, read_experiments(ROOT))
    expected = {
        "quickstart/baseline": None,
        "quickstart/long_short": "quickstart/baseline",
        "large_batch/sgd_1x": None,
        "large_batch/pmd_lamb_16x_period13": "large_batch/sgd_1x",
        "main/k400_slowfast_8x8_r50/long_short": "main/k400_slowfast_8x8_r50/baseline",
        "pretraining/ssv2_slowfast_16x8_r50/none_long_short": (
            "pretraining/ssv2_slowfast_16x8_r50/none_baseline"
        ),
    }
    assert {name: baseline_of(found, name) for name in expected} == expected


# --- published.csv

HEADER = "experiment,metric,value,source,note\n"


@pytest.fixture
def table(tmp_path):
    def write(text):
        path = tmp_path / "published.csv"
        path.write_text(text)
        return path

    return write


def test_a_line_is_a_number_with_its_source(table):
    path = table(HEADER + 'main/x,top1,76.8,"A zoo, column ""standard""",\n')
    assert read_published(path) == (
        Published("main/x", "top1", "76.8", 'A zoo, column "standard"', ""),
    )


def test_every_problem_is_told(table):
    path = table(HEADER + "x,top3,many,,\ny,map,1.5,a zoo,column, standard\n")
    with pytest.raises(InputError) as caught:
        read_published(path)
    assert [problem.partition(": ")[2] for problem in caught.value.problems] == [
        "the metric 'top3' is unknown",
        "the value 'many' is not a percentage, such as 76.8",
        "has no source",
        "has 6 cells, not 5",
    ]
    assert "published.csv, line 3" in caught.value.problems[3]


@pytest.mark.parametrize("name", ["published.csv", "a/baseline.yaml"])
def test_a_file_in_another_encoding_is_named(name, tmp_path):
    experiments = experiments_with(tmp_path, {"a/baseline": "ROW: x\n"})
    (tmp_path / name).write_bytes("# Étude\n".encode("cp1252"))
    with pytest.raises(InputError, match=rf"{name}: its contents .*UnicodeDecodeError"):
        read_page(experiments)


def test_other_columns_are_bad_input(table):
    with pytest.raises(InputError, match="first line is not 'experiment,metric,value,source,note'"):
        read_published(table("row,value\nx,1\n"))


# --- which results count


def test_runs_of_another_recipe_precision_or_number_of_videos_do_not_count():
    """The learning rate was changed after seed 1, which left the steps and the FLOPs as they were."""
    days = [f"2026-11-{day}T12:00:00+00:00" for day in (20, 21, 22, 23)]
    old = result("q/x", 1, 91.0, date=days[0], recipe="old")
    low = result("q/x", 2, 92.0, date=days[1], recipe="new", precision="bf16")
    few = result("q/x", 4, 92.0, date=days[1], recipe="new", num_train_videos=480)
    first = result("q/x", 3, 10.0, date=days[2], recipe="new")
    newest = result("q/x", 0, 11.0, date=days[3], recipe="new", device=GPU)
    rows, others = count_results([newest, first, few, low, old])
    assert [*rows] == ["q/x"]
    assert rows["q/x"].runs == {0: newest, 3: first}
    assert others in [(old, low, few), (old, few, low)]


def test_dates_are_compared_as_moments():
    early = result("q/x", 0, 91.0, date="2026-11-21T13:00:00+02:00", recipe="old")  # 11:00 UTC
    late = result("q/x", 1, 92.0, date="2026-11-21T12:00:00+00:00", recipe="new")
    rows, _ = count_results([late, early])
    assert rows["q/x"].scores == (92.0,)


def test_the_seconds_of_busy_and_early_runs_and_of_other_threads_are_not_compared(tmp_path):
    yamls = {"a/baseline": "_BASE_: ../base/b.yaml\n", "a/long": "_BASE_: ../base/b.yaml\nA: 1\n"}
    base, own = ([result(name, seed) for seed in range(4)] for name in yamls)
    base[2] = replace(base[2], date="2026-11-21T11:59:00+00:00")
    own[0] = replace(own[0], other_cores=0.5)
    own[3] = replace(own[3], environment={"threads": 2})
    experiments = experiments_with(tmp_path, yamls, *base, *own)
    (tmp_path / "a" / "study.yaml").write_text(
        "rows: [baseline, long]\nseeds: 3\nmargin: 1.0\nseconds_since: 2026-11-21T12:00+00:00\n"
    )
    page = read_page(experiments)
    pair = page.against_baseline(page.experiments["a/long"])
    assert pair.seeds == (0, 1, 2, 3)
    assert pair.timed.seeds == (1,)
