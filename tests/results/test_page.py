"""experiments/README.md of small trees, its cells worked out by hand; that of this repository is not stale."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_experiments import CPU, GPU, experiments_with, result
from markdown_tables import row, section, tables

from mgexp.errors import InputError
from mgexp.results.page import main, render, write_page
from mgexp.run.folder import ExperimentsDir

OVER_BASE = "_BASE_: ../base/small.yaml\n"
YAMLS = {
    "quickstart/baseline": OVER_BASE,
    "quickstart/long_short": OVER_BASE + "ROW: long+short\nA: 1\n",
    "quickstart/coarse": OVER_BASE + "ROW: coarsest shape alone\nA: 1\n",
    "quickstart/short": OVER_BASE + "A: 2\n",
}
OTHER = {"commit": "d" * 40}


@pytest.fixture
def page(tmp_path):
    """The page of a tree."""

    def make(yamls, *results, published=""):
        root = tmp_path / "experiments"
        return render(experiments_with(root, yamls, *results, published=published))

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
    assert results[0].keys() >= {"published, top-1 (%)", "ours, top-1 (%)", "verdict"}
    # Differences −0.75, −1, −2: mean −1.25, deviation 0.661, half a width of 4.303 × 0.382 = 1.64.
    assert [[*line.values()][1:] for line in against] == [
        ["0, 1, 2", "−1.25", "−2.89 to +0.39", "2.00×", "2.00× to 2.00×", "4.00×"],
        ["seed 0", "−49.50", "needs two seeds", "2.00×", "needs two seeds", "1.00×"],
    ]
    commands = [line for line in section(text, "## quickstart") if line.startswith("python")]
    assert commands == [
        f"python tools/run_net.py --cfg experiments/quickstart/{name}.yaml"
        for name in ("baseline", "short", "long_short", "coarse")
    ]


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


def test_a_published_number_is_held_against_ours(page):
    yamls = {"charades/baseline": OVER_BASE}
    ours = result("charades/baseline", 0, None, map_=38.4)
    text = page(yamls, ours, published="charades/baseline,map,38.9,A zoo,\n")
    ((found,),) = tables(text, "## charades")
    assert (found["published, mAP (%)"], found["ours, mAP (%)"]) == ("38.9", "38.40")
    assert found["verdict"] == "0.50 points below the published 38.9; baseline"


def test_a_row_without_a_baseline_is_not_called_one(page):
    text = page({"own/x": OVER_BASE + "A: 1\n"}, result("own/x"))
    ((found,),) = tables(text, "## own")
    assert found["verdict"] == "no baseline to compare with"


def test_seeds_of_several_devices_are_one_row_whose_seconds_are_compared_within_one(page):
    text = page(
        YAMLS,
        *three_seeds("quickstart/baseline", 98.0, 98.0),
        result("quickstart/long_short", 0, 97.0, train_seconds=50.0),
        result("quickstart/long_short", 1, 95.0, device=GPU, train_seconds=10.0),
    )
    results, against = tables(text, "## quickstart")
    assert row(results, "long+short")["measured on"] == f"{CPU} and {GPU}, fp32, ccccccc"
    # The second pair is on two devices, so its seconds do not count.
    verdict = "loses 2.00 points, which may be chance (−14.71 to +10.71), 2.00× faster (seed 0)"
    assert row(results, "long+short")["verdict"] == verdict
    (line,) = against
    assert (line["points"], line["speed-up, wall-clock"]) == ("−2.00", "2.00× (seed 0)")


def test_commits_are_named_with_their_seeds(page):
    text = page(
        YAMLS,
        *three_seeds("quickstart/baseline", 98.0, 98.0),
        result("quickstart/long_short", 0, 97.0, train_seconds=50.0),
        result("quickstart/long_short", 1, 97.0, train_seconds=50.0, commit="d" * 40 + "-dirty"),
    )
    measured, against = (row(table, "long+short") for table in tables(text, "## quickstart"))
    commits = "Test CPU, fp32, ccccccc (seed 0), ddddddd-dirty (seed 1)"
    assert measured["measured on"] == commits
    # Other code may be faster, so the seconds of the second pair do not count.
    assert against["speed-up, wall-clock"] == "2.00× (seed 0)"


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
        result(
            "quickstart/baseline",
            1,
            steps=1500,
            recipe="old",
            date="2026-11-20T12:00:00+00:00",
            **OTHER,
        ),
    )
    gone, other = section(text, "## Results that do not count")
    assert gone == "- gone/row: its YAML is gone."
    for part in ("quickstart/baseline, seed 1, on Test CPU, ddddddd", "1,500 steps", "1e+14 FLOPs"):
        assert part in other


def test_the_index_says_what_long_short_did(page):
    text = page(
        YAMLS,
        result("quickstart/baseline", 0, 98.0),
        result("quickstart/long_short", 0, 97.0, train_seconds=50.0),
    )
    ((found,),) = tables(text, "# Experiments")
    assert (found["rows"], found["with results"]) == ("4", "2")
    assert found["long+short"] == "loses 1.00 points, 2.00× faster; one seed"


def test_tables_come_in_the_order_of_the_index_with_links_to_their_headings(page):
    names = ("quickstart/lr", "quickstart", "zebra", "large_batch", "main/k400_x")
    text = page({f"{name}/baseline": OVER_BASE for name in names})
    (index,) = tables(text, "# Experiments")
    links = ("main/k400_x", "large_batch", "zebra", "quickstart", "quickstart/lr")
    assert [line["table"] for line in index] == [
        f"[{name}](#{name.replace('/', '')})" for name in links
    ]
    headings = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    assert headings[: len(links)] == [*links]


def test_pages_beside_the_rows_are_linked(page, tmp_path):
    (tmp_path / "experiments" / "quickstart").mkdir(parents=True)
    (tmp_path / "experiments" / "quickstart" / "README.md").touch()
    text = page({"quickstart/baseline": OVER_BASE, "quickstart/lr/1": OVER_BASE})
    for folder in ("quickstart", "quickstart/lr"):
        assert "[quickstart/README.md](quickstart/README.md)" in section(text, f"## {folder}")[0]


def test_a_published_number_of_no_row_is_bad_input(page):
    with pytest.raises(InputError, match=r"published\.csv: main/y\.yaml is not a row"):
        page({"main/x": OVER_BASE}, published="main/y,top1,70,A zoo,\n")


def test_the_module_writes_the_page(tmp_path, capsys):
    experiments = experiments_with(tmp_path / "experiments", YAMLS)
    assert main([str(experiments.root)]) == 0
    assert experiments.readme_md.read_text() == render(experiments)
    assert capsys.readouterr().out == f"{experiments.readme_md}\n"


def test_bad_files_are_one_message_and_the_page_stays(tmp_path, capsys):
    experiments = experiments_with(tmp_path / "experiments", YAMLS)
    write_page(experiments)
    before = experiments.readme_md.read_text()
    (experiments.root / "quickstart" / "runs.jsonl").write_text("row,accuracy\n")
    assert main([str(experiments.root)]) == 2
    assert "runs.jsonl" in capsys.readouterr().err
    assert experiments.readme_md.read_text() == before


def test_the_page_of_this_repository_is_what_its_files_say():
    """Else run: python -m mgexp.results.page"""
    experiments = ExperimentsDir(Path(__file__).parents[2] / "experiments")
    assert experiments.readme_md.read_text(encoding="utf-8") == render(experiments)
