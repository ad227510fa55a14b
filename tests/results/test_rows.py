"""The order of rows; published numbers; which results count."""

from dataclasses import replace

import pytest
from fake_experiments import GPU, experiments_with, result

from mgexp.errors import InputError
from mgexp.results.experiments_page import Published, count_results, read_page, read_published
from mgexp.results.runs import VideoScores

OVER_BASE = "_BASE_: ../base/small.yaml\n"


def test_baselines_come_first_and_numbers_are_in_order(tmp_path):
    names = ("long_short", "short", "baseline", "coarse", "8x", "16x", "0.01", "0.0025")
    no_rows = {"base/small": "A: 1\n", "own_data/mine": OVER_BASE}
    of_study = {"s/baseline": "A: 1\n", "s/study": "rows: [baseline]\nseeds: 1\nmargin: 1\n"}
    rows = {f"t/{name}": OVER_BASE for name in names}
    page = read_page(experiments_with(tmp_path, {**no_rows, **of_study, **rows}))
    assert page.rows == [
        *("t/baseline", "t/short", "t/long_short", "t/0.0025", "t/0.01", "t/8x", "t/16x"),
        "t/coarse",
    ]


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


def test_a_text_with_a_comma_needs_quotes(table):
    with pytest.raises(InputError, match=r"published\.csv"):
        read_published(table(HEADER + "y,map,1.5,a zoo,column, standard\n"))


@pytest.mark.parametrize("name", ["published.csv", "a/study.yaml"])
def test_a_file_in_another_encoding_is_named(name, tmp_path):
    experiments = experiments_with(tmp_path, {"a/baseline": "ROW: x\n"})
    (tmp_path / name).write_bytes("# Étude\n".encode("cp1252"))
    with pytest.raises(InputError, match=name):
        read_page(experiments)


# --- which results count


def test_runs_of_another_recipe_precision_or_number_of_videos_do_not_count():
    """The learning rate was changed after seed 1, which left the steps and the FLOPs as they were."""
    days = [f"2026-11-{day}T12:00:00+00:00" for day in (20, 21, 22, 23)]
    old = result("q/x", 1, 91.0, date=days[0], recipe="old")
    low = result("q/x", 2, 92.0, date=days[1], recipe="new", precision="bf16")
    few = result("q/x", 4, 92.0, date=days[1], recipe="new", num_train_videos=480)
    first = result("q/x", 3, 10.0, date=days[2], recipe="new")
    newest = result("q/x", 0, 11.0, date=days[3], recipe="new", device=GPU)
    fold = replace(few, seed=5, num_train_videos=470, videos=VideoScores(1, "another list", "80"))
    rows, others = count_results([newest, fold, first, few, low, old])
    assert {"q/x": {0: newest, 3: first, 5: fold}} == {name: rows[name].runs for name in rows}
    assert others in [(old, low, few), (old, few, low)]
    # Dates are compared as moments: the first is 11:00 UTC.
    early = result("q/x", 0, 91.0, date="2026-11-21T13:00:00+02:00", recipe="old")
    late = result("q/x", 1, 92.0, date="2026-11-21T12:00:00+00:00", recipe="new")
    assert count_results([late, early])[0]["q/x"].scores == (92.0,)
