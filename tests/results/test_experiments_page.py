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


def test_rows_with_a_score(page):
    text = page(
        YAMLS,
        *three_seeds("quickstart/baseline", 97.75, 98.0, 98.25, train_seconds=200.0),
        *three_seeds("quickstart/long_short", 97.0, 97.0, 96.25, train_flops=2.5e13),
        result("quickstart/coarse", 0, 48.25),
        published="quickstart/baseline,top1,97.5,A zoo,a note\nquickstart/baseline,top5,99.7,A zoo,\n",
    )
    (rows,) = tables(text, "## Published scores, and ours")
    # There is no score of quickstart/short.
    assert [[*line.values()] for line in rows] == [
        [
            *("[quickstart/baseline](quickstart/baseline.yaml)", "97.5 top-1, 99.7 top-5"),
            *("A zoo; a note", "98.00 ± 0.25 (seeds 0, 1, 2)"),
        ],
        [
            *("[quickstart/long_short](quickstart/long_short.yaml)", "unknown", ""),
            "96.75 ± 0.43 (seeds 0, 1, 2)",
        ],
        ["[quickstart/coarse](quickstart/coarse.yaml)", "unknown", "", "48.25 (seed 0)"],
    ]
    assert "## Studies" not in text


def test_a_study_has_one_line_and_its_rows_none(page, tmp_path):
    for name, rows in (("done", "baseline, long"), ("planned", "baseline")):
        folder = tmp_path / "experiments" / name
        folder.mkdir(parents=True)
        (folder / "study.yaml").write_text(f"rows: [{rows}]\nseeds: 2\nmargin: 1.5\n")
    (tmp_path / "experiments/done/prose.md").write_text("# Two rows\n")
    (tmp_path / "experiments/done/README.md").touch()
    names = ("done/baseline", "done/long", "planned/baseline", "planned/beside")
    text = page(
        {**dict.fromkeys(names, OVER_BASE), "base/small": "MULTIGRID:\n  LONG_CYCLE: True\n"},
        *(result("done/baseline", seed, 90.0 + seed) for seed in range(3)),
        *(result("done/long", seed, 90.0 + 1.1 * seed, train_flops=5e13) for seed in range(3)),
        result("planned/beside", 0, 80.0),
    )
    (studies,) = tables(text, "## Studies")
    # Seed 2 is not of the study. The differences are 0 and 0.1: mean 0.05, half a width of 12.706 × 0.05.
    assert [[*line.values()] for line in studies] == [
        [
            *("[Two rows](done/README.md) (done)", "4 of 4", "1.5", "the paper's"),
            *("+0.05 (−0.59 to +0.69), 2.00× fewer FLOPs: **holds**", ""),
        ],
        ["[planned](planned/study.yaml)", "0 of 2", "1.5", "", "", ""],
    ]
    (rows,) = tables(text, "## Published scores, and ours")
    assert [line["row"] for line in rows] == ["[planned/beside](planned/beside.yaml)"]


@pytest.mark.parametrize(("key", "said"), [("EPOCH_FACTOR: 1.0", "its own"), ("", "the paper's")])
def test_the_schedule_of_a_study(key, said, page, tmp_path):
    (tmp_path / "experiments/s").mkdir(parents=True)
    study = tmp_path / "experiments/s/study.yaml"
    study.write_text("rows: [baseline, long_short]\nseeds: 2\nmargin: 1.5\n")
    text = page(
        {"s/baseline": "ROW: b\n", "s/long_short": f"MULTIGRID:\n  SHORT_CYCLE: True\n  {key}\n"}
    )
    assert tables(text, "## Studies")[0][0]["schedule"] == said


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
