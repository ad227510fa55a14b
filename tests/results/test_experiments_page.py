"""experiments/README.md of small trees, its cells worked out by hand; that of this repository is not stale."""

from pathlib import Path

import pytest
from fake_experiments import experiments_with, result
from markdown_tables import section, tables

from mgexp.results.experiments_page import render_experiments
from mgexp.run.folder import ExperimentsDir

OVER_BASE = "_BASE_: ../base/small.yaml\n"
YAMLS = {
    "quickstart/baseline": OVER_BASE,
    "quickstart/long_short": OVER_BASE + "ROW: long+short\nA: 1\n",
    "quickstart/coarse": OVER_BASE + "ROW: coarsest shape alone\nA: 1\n",
    "quickstart/short": OVER_BASE + "A: 2\n",
}


@pytest.fixture
def page(tmp_path):
    def make(yamls, *results, published=""):
        root = tmp_path / "experiments"
        return render_experiments(experiments_with(root, yamls, *results, published=published))

    return make


def three_seeds(name, *tops, **changes):
    return [result(name, seed, top1, **changes) for seed, top1 in enumerate(tops)]


def test_a_table_of_rows(page):
    text = page(
        YAMLS,
        *three_seeds("quickstart/baseline", 97.75, 98.0, 98.25, train_seconds=200.0),
        *three_seeds("quickstart/long_short", 97.0, 97.0, 96.25, train_flops=2.5e13),
        result("quickstart/coarse", 0, 48.25),
    )
    results, against = tables(text, "## quickstart")
    assert [[*line.values()][1:] for line in results] == [
        ["unknown", "98.00 ± 0.25", "0, 1, 2", "Test CPU, fp32, ccccccc", "baseline"],
        ["unknown", "not run", "", "", ""],
        [
            *("unknown", "96.75 ± 0.43", "0, 1, 2", "Test CPU, fp32, ccccccc"),
            "loses 1.25 points, which may be chance (−2.89 to +0.39), 2.00× faster",
        ],
        [
            *("unknown", "48.25", "seed 0", "Test CPU, fp32, ccccccc"),
            "control; loses 49.50 points, 2.00× faster; one seed",
        ],
    ]
    assert results[2]["row"] == "[long+short](quickstart/long_short.yaml)"
    # Differences −0.75, −1, −2: mean −1.25, deviation 0.661, half a width of 4.303 × 0.382 = 1.64.
    assert [[*line.values()][1:] for line in against] == [
        ["0, 1, 2", "−1.25", "−2.89 to +0.39", "2.00×", "2.00× to 2.00×", "4.00×"],
        ["seed 0", "−49.50", "needs two seeds", "2.00×", "needs two seeds", "1.00×"],
    ]
    ((found,),) = tables(text, "# Experiments")
    assert (found["rows"], found["with results"]) == ("4", "3")


def test_a_table_that_was_not_run_is_short(page):
    published = "main/long_short,top1,76.6,A zoo,a note\nmain/long_short,top5,92.7,A zoo,\n"
    yamls = {"main/baseline": OVER_BASE, "main/long_short": OVER_BASE + "A: 1\n"}
    text = page(yamls, published=published)
    (table,) = tables(text, "## main")
    assert [[*line.values()][1:] for line in table] == [["unknown", "not run"], ["76.6", "not run"]]
    (sources,) = tables(text, "## Published numbers")
    assert [[*line.values()][1:] for line in sources] == [
        ["top-1", "76.6", "A zoo", "a note"],
        ["top-5", "92.7", "A zoo", ""],
    ]
    (index,) = tables(text, "# Experiments")
    assert [*index[0].values()] == ["[main](#main)", "2", "not run", ""]


def test_an_ablation_stands_below_what_it_changes(page):
    yamls = {**YAMLS, "ablations/no_x": "_BASE_: ../quickstart/long_short.yaml\nB: 1\n"}
    text = page(
        yamls,
        result("quickstart/baseline", 0, 98.0),
        result("quickstart/long_short", 0, 97.0),
        result("ablations/no_x", 0, 95.0),
    )
    results, _, changed = tables(text, "## ablations")
    assert [line["row"] for line in results] == [
        "[baseline](quickstart/baseline.yaml) (quickstart)",
        "[long+short](quickstart/long_short.yaml) (quickstart)",
        "[no_x](ablations/no_x.yaml)",
    ]
    assert results[2]["verdict"] == "loses 3.00 points, as fast; one seed"
    (line,) = changed
    assert line["changes"] == "[long+short](quickstart/long_short.yaml) (quickstart)"
    assert (line["points"], line["verdict"]) == ("−2.00", "loses 2.00 points, as fast; one seed")


def test_results_that_do_not_count_are_told(page):
    text = page(
        YAMLS,
        result("gone/row"),
        result("quickstart/baseline", 0),
        result("quickstart/baseline", 1, recipe="old", date="2026-11-20T12:00:00+00:00"),
    )
    gone, other = section(text, "## Results that do not count")
    assert "gone/row" in gone
    assert "quickstart/baseline, seed 1" in other


def test_the_page_of_this_repository_is_what_its_files_say():
    """Else run: python tools/study.py experiments/quickstart --only-page"""
    experiments = ExperimentsDir(Path(__file__).parents[2] / "experiments")
    assert experiments.readme_md.read_text(encoding="utf-8") == render_experiments(experiments)
