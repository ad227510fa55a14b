"""experiments/README.md of small trees, written out by hand; and that of this repository is not stale."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_experiments import CPU, GPU, experiments_with, result

from mgexp.errors import InputError
from mgexp.results.page import main, render, write_experiments_table
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
    """The page of a tree as lines."""

    def make(yamls, *results, published=""):
        experiments = experiments_with(
            tmp_path / "experiments", yamls, *results, published=published
        )
        return render(experiments).splitlines()

    return make


def section(lines, heading):
    """The lines below a heading, up to the next one, without the empty ones."""
    start = lines.index(heading) + 1
    ends = [number for number, line in enumerate(lines) if line.startswith("#") and number > start]
    return [line for line in lines[start : min([*ends, len(lines)])] if line]


def three_seeds(name, *tops, **changes):
    return [result(name, seed, top1, **changes) for seed, top1 in enumerate(tops)]


def test_a_table_of_rows(page):
    lines = page(
        YAMLS,
        *three_seeds("quickstart/baseline", 97.75, 98.0, 98.25, train_seconds=200.0),
        *three_seeds("quickstart/long_short", 97.0, 97.0, 96.25, train_flops=2.5e13),
        result("quickstart/coarse", 0, 48.25),
    )
    # Differences −0.75, −1, −2: mean −1.25, deviation 0.661, half a width of 4.303 × 0.382 = 1.64.
    assert section(lines, "## quickstart") == [
        "| row | published, top-1 (%) | ours, top-1 (%) | seeds | measured on | verdict |",
        "| :-- | --: | --: | --: | :-- | :-- |",
        "| [baseline](quickstart/baseline.yaml) | unknown | 98.00 ± 0.25 | 0, 1, 2 "
        "| Test CPU, fp32, ccccccc | baseline |",
        "| [short](quickstart/short.yaml) | unknown | not run |  |  |  |",
        "| [long+short](quickstart/long_short.yaml) | unknown | 96.75 ± 0.43 | 0, 1, 2 "
        "| Test CPU, fp32, ccccccc | loses 1.25 points (not resolved), 2.00× faster |",
        "| [coarsest shape alone](quickstart/coarse.yaml) | unknown | 48.25 | 0 "
        "| Test CPU, fp32, ccccccc | control; loses 49.50 points, 2.00× faster; one seed |",
        "Against the baseline:",
        "| row | seeds | points | 95 % interval | speed-up, wall-clock | 95 % interval | speed-up, FLOPs |",
        "| :-- | --: | --: | --: | --: | --: | --: |",
        "| [long+short](quickstart/long_short.yaml) | 0, 1, 2 | −1.25 | −2.89 to +0.39 "
        "| 2.00× | 2.00–2.00× | 4.00× |",
        "| [coarsest shape alone](quickstart/coarse.yaml) | 0 | −49.50 | needs two seeds "
        "| 2.00× | needs two seeds | 1.00× |",
        "<details><summary>Commands</summary>",
        "```bash",
        *(
            f"python tools/run_net.py --cfg experiments/quickstart/{name}.yaml"
            for name in ("baseline", "short", "long_short", "coarse")
        ),
        "```",
        "</details>",
    ]


def test_a_table_that_was_not_run_is_short(page):
    published = "main/long_short,top1,76.6,A zoo,a note\nmain/long_short,top5,92.7,A zoo,\n"
    yamls = {"main/baseline": OVER_BASE, "main/long_short": OVER_BASE + "A: 1\n"}
    lines = page(yamls, published=published)
    assert section(lines, "## main")[:4] == [
        "| row | published, top-1 (%) | ours, top-1 (%) |",
        "| :-- | --: | --: |",
        "| [baseline](main/baseline.yaml) | unknown | not run |",
        "| [long_short](main/long_short.yaml) | 76.6 | not run |",
    ]
    assert section(lines, "## Published numbers")[2:] == [
        "| [main/long_short](main/long_short.yaml) | top-1 | 76.6 | A zoo | a note |",
        "| [main/long_short](main/long_short.yaml) | top-5 | 92.7 | A zoo |  |",
    ]
    assert "| [main](#main) | 2 | not run |  |" in lines


def test_a_published_number_is_held_against_ours(page):
    yamls = {"charades/baseline": OVER_BASE}
    ours = result("charades/baseline", 0, None, map_=38.4)
    lines = page(yamls, ours, published="charades/baseline,map,38.9,A zoo,\n")
    assert section(lines, "## charades")[::2][:2] == [
        "| row | published, mAP (%) | ours, mAP (%) | seeds | measured on | verdict |",
        "| [baseline](charades/baseline.yaml) | 38.9 | 38.40 | 0 | Test CPU, fp32, ccccccc "
        "| 0.50 points below the published 38.9; baseline |",
    ]


def test_a_row_without_a_baseline_is_not_called_one(page):
    lines = page({"own/x": OVER_BASE + "A: 1\n"}, result("own/x"))
    assert section(lines, "## own")[2].endswith("| no baseline to be held against |")


def test_devices_have_a_line_each_and_are_not_compared_with_one_another(page):
    lines = page(
        YAMLS,
        result("quickstart/baseline", 0, 98.0),
        result("quickstart/long_short", 0, 97.0),
        result("quickstart/long_short", 0, 95.0, device=GPU),
    )
    found = [line for line in section(lines, "## quickstart") if "[long+short]" in line]
    link = "[long+short](quickstart/long_short.yaml)"
    assert found == [
        f"| {link} | unknown | 97.00 | 0 | {CPU}, fp32, ccccccc | loses 1.00 points, as fast; one seed |",
        f"| {link} | unknown | 95.00 | 0 | {GPU}, fp32, ccccccc "
        "| not compared: no run of its base with the same seed, device, precision and videos |",
        f"| {link} on {CPU}, fp32 | 0 | −1.00 | needs two seeds | 1.00× | needs two seeds | 1.00× |",
    ]


def test_numbers_of_videos_that_differ_show(page):
    few = result("quickstart/baseline", 0, 90.0, num_train_videos=480)
    lines = page(YAMLS, result("quickstart/baseline", 0, 98.0), few)
    assert [line.split(" | ")[4] for line in section(lines, "## quickstart")[2:4]] == [
        "Test CPU, fp32, 480 videos, ccccccc",
        "Test CPU, fp32, 960 videos, ccccccc",
    ]


def test_commits_are_named_with_their_seeds_and_seconds_of_others_are_marked(page):
    lines = page(
        YAMLS,
        *three_seeds("quickstart/baseline", 98.0, 98.0),
        result("quickstart/long_short", 0, 97.0, train_seconds=50.0),
        result("quickstart/long_short", 1, 97.0, train_seconds=50.0, commit="d" * 40 + "-dirty"),
    )
    measured, against = (line for line in section(lines, "## quickstart") if "[long+short]" in line)
    assert "Test CPU, fp32, ccccccc (seeds 0), ddddddd-dirty (seeds 1)" in measured
    assert measured.endswith("| loses 1.00 points, as many FLOPs |")
    assert "| 2.00× † |" in against


def test_an_ablation_stands_below_what_it_changes(page):
    yamls = {**YAMLS, "ablations/no_x": "_BASE_: ../quickstart/long_short.yaml\nB: 1\n"}
    lines = page(
        yamls,
        result("quickstart/baseline", 0, 98.0),
        result("quickstart/long_short", 0, 97.0),
        result("ablations/no_x", 0, 95.0),
    )
    found = section(lines, "## ablations")
    assert [line.split(" | ")[0] for line in found[2:5]] == [
        "| [baseline](quickstart/baseline.yaml) (quickstart)",
        "| [long+short](quickstart/long_short.yaml) (quickstart)",
        "| [no_x](ablations/no_x.yaml)",
    ]
    assert found[4].endswith("| loses 3.00 points, as fast; one seed |")
    start = found.index("Against the row that each one changes:")
    assert found[start + 3] == (
        "| [no_x](ablations/no_x.yaml) | [long+short](quickstart/long_short.yaml) (quickstart) "
        "| 0 | −2.00 | needs two seeds | 1.00× | needs two seeds | 1.00× "
        "| loses 2.00 points, as fast; one seed |"
    )
    assert found[start + 4] == "<details><summary>Commands</summary>"


def test_a_row_over_its_baseline_is_compared_once(page):
    yamls = {**YAMLS, "quickstart/wide": "_BASE_: baseline.yaml\nROW: wide | deep\nB: 1\n"}
    lines = page(yamls, result("quickstart/baseline"), result("quickstart/wide"))
    found = section(lines, "## quickstart")
    assert "Against the row that each one changes:" not in found
    cells = "| [wide \\| deep](quickstart/wide.yaml) | unknown | 90.00 | 0 |"
    assert [line for line in found if line.startswith(cells)] == found[5:6]


def test_results_that_do_not_count_are_told(page):
    lines = page(
        YAMLS,
        result("gone/row"),
        result("quickstart/baseline", 0, date="2026-11-20T12:00:00+00:00"),
        result("quickstart/baseline", 0),
        result("quickstart/baseline", 1, steps=1500, date="2026-11-20T12:00:00+00:00", **OTHER),
    )
    assert section(lines, "## Results that do not count") == [
        "- gone/row: its YAML is gone.",
        "- quickstart/baseline, seed 1, on Test CPU, ddddddd: 1,500 steps and 1e+14 FLOPs, which the "
        "newest run of the row has not.",
        "- Older results of runs that were made again: 1.",
    ]


def test_the_index_says_what_long_short_did(page):
    lines = page(
        YAMLS,
        *(result("quickstart/baseline", 0, 98.0, device=device) for device in (CPU, GPU)),
        result("quickstart/long_short", 0, 97.0, train_seconds=50.0),
        result("quickstart/long_short", 0, 98.5, device=GPU, train_seconds=200.0),
    )
    assert (
        "| [quickstart](#quickstart) | 4 | 2 | loses 1.00 points, 2.00× faster; one seed (Test CPU)"
        "<br>gains 0.50 points, 2.00× slower; one seed (Test GPU) |"
    ) in lines


def test_tables_come_in_the_order_of_the_index_with_links_to_their_headings(page):
    names = ("quickstart/lr", "quickstart", "zebra", "large_batch", "main/k400_x")
    lines = page({f"{name}/baseline": OVER_BASE for name in names})
    assert [line for line in lines if line.startswith("| [") and "#" in line] == [
        "| [main/k400_x](#maink400_x) | 1 | not run |  |",
        "| [large_batch](#large_batch) | 1 | not run |  |",
        "| [zebra](#zebra) | 1 | not run |  |",
        "| [quickstart](#quickstart) | 1 | not run |  |",
        "| [quickstart/lr](#quickstartlr) | 1 | not run |  |",
    ]


def test_pages_beside_the_rows_are_linked(page, tmp_path):
    (tmp_path / "experiments" / "quickstart").mkdir(parents=True)
    (tmp_path / "experiments" / "quickstart" / "README.md").touch()
    lines = page({"quickstart/baseline": OVER_BASE, "quickstart/lr/1": OVER_BASE})
    more = "More: [quickstart/README.md](quickstart/README.md)."
    assert section(lines, "## quickstart")[0] == more
    assert section(lines, "## quickstart/lr")[0] == more


def test_a_published_number_of_no_row_is_bad_input(page):
    with pytest.raises(InputError, match=r"published\.csv: main/y\.yaml is no row"):
        page({"main/x": OVER_BASE}, published="main/y,top1,70,A zoo,\n")


def test_the_module_writes_the_page(tmp_path, capsys):
    experiments = experiments_with(tmp_path / "experiments", YAMLS)
    assert main([str(experiments.root)]) == 0
    assert experiments.readme_md.read_text() == render(experiments)
    assert capsys.readouterr().out == f"{experiments.readme_md}\n"


def test_bad_files_are_one_message_and_the_page_stays(tmp_path, capsys):
    experiments = experiments_with(tmp_path / "experiments", YAMLS)
    write_experiments_table(experiments)
    before = experiments.readme_md.read_text()
    experiments.results_csv.write_text("row,accuracy\n")
    assert main([str(experiments.root)]) == 2
    assert "first line is not" in capsys.readouterr().err
    assert experiments.readme_md.read_text() == before


def test_the_page_of_this_repository_is_what_its_files_say():
    """Else run: python -m mgexp.results.page"""
    experiments = ExperimentsDir(Path(__file__).parents[2] / "experiments")
    assert experiments.readme_md.read_text(encoding="utf-8") == render(experiments)
