"""The report of fake runs, its numbers worked out by hand; and its page, which needs nothing but itself."""

from __future__ import annotations

import re

import numpy as np
import pytest
from fake_runs import fake_run, unfinished_run
from markdown_tables import row, section, tables

from mgexp.results.html import Picture, to_html
from mgexp.results.load import load_comparison, load_runs
from mgexp.results.pages import write_report
from mgexp.results.report import list_controls, render
from mgexp.run.confusion import write_confusion
from mgexp.run.files import append_jsonl, json_line, read_json, read_jsonl, write_json
from mgexp.run.folder import RunDir, RunsDir

NAMES = ("open", "close", "push|pull")


@pytest.fixture
def report(tmp_path):
    """The report of the folder."""

    def call(expected_rows=(), pictures=(), names=()):
        comparison = load_comparison(tmp_path).with_class_names(names, tmp_path)
        return render("runs", comparison, pictures, expected_rows)

    return call


@pytest.fixture
def two_rows(tmp_path):
    for seed, seconds in ((1, 200.0), (2, 220.0)):
        fake_run(
            tmp_path,
            "baseline",
            seed,
            top1=97.0,
            train_seconds=seconds,
            controls={"repeated": 40.0 + seed, "shuffled": 50.0, "reversed": 20.0},
        )
        fake_run(
            tmp_path,
            "long_short",
            seed,
            top1=96.0 + 0.4 * seed,
            train_seconds=80.0,
            train_flops=2.5e13,
            steps=250,
            epochs=24.0,
        )


def test_the_table_of_rows(report, two_rows):
    (table,) = tables(report(), "## Rows")
    noted = "\n\nIn brackets: the lowest and the highest of the seeds.\n\n## Against the baseline\n"
    assert noted in report()
    # Steady: (196/76, 216/76) = 2.5789, 2.8421. Waiting: (5/200 + 5/220)/2 = 2.386 %.
    assert row(table, "baseline") == {
        "row": "baseline",
        "seeds": "1, 2",
        "top-1 (%)": "97.00",
        "95 % interval of the test videos": "95.9 to 97.8",
        "steps": "1,000",
        "epochs": "8.0",
        "training FLOPs (10¹²)": "100.0",
        "training (s)": "210 (200–220)",
        "speed-up, FLOPs": "1.00×",
        "speed-up, wall-clock": "1.00×",
        "steady speed-up": "1.00×",
        "waiting for input": "2.4 %",
    }
    assert [*row(table, "long_short").values()] == [
        *("long_short", "1, 2", "96.60 (96.40–96.80)", "95.4 to 97.5", "250", "24.0", "25.0", "80"),
        *("4.00×", "2.62× (2.50–2.75)", "2.71× (2.58–2.84)", "6.2 %"),
    ]


def test_one_line_names_all_runs_beside_other_programs(report, two_rows, tmp_path):
    def verdict():
        (found,) = (line for line in report().splitlines() if line.startswith("- **long_short**"))
        return found

    assert "**The seconds of busy runs" not in report()
    assert "its training seconds" in verdict()
    for place in ("long_short/seed2", "long_short/seed1", "baseline/seed2"):
        path = RunDir(tmp_path / place).result_json
        write_json(path, {**read_json(path), "other_cores": 0.62})
    (found,) = (line for line in report().splitlines() if "of busy runs" in line)
    root = tmp_path.name
    names = f"{root}/baseline (seed 2), {root}/long_short (seeds 1, 2): "
    assert found.startswith(f"**The seconds of busy runs do not count**: {names}")
    # Both runs of the row are busy, so it has no seconds, and its FLOPs and its accuracy stay.
    assert "The baseline takes 4.00× its FLOPs." in verdict()
    assert "training seconds" not in verdict()
    (lines,) = tables(report(), "## Rows")
    assert (row(lines, "baseline")["training (s)"], row(lines, "long_short")["training (s)"]) == (
        "200",
        "–",
    )
    assert row(lines, "long_short")["waiting for input"] == "–"


def test_the_table_of_differences(report, two_rows):
    # Speed-ups 2.5 and 2.75: logarithms of mean 0.96394, error 0.04766, times 12.706.
    # Steady FLOP/s: (25/76)/(100/196) = 0.6447 and (25/76)/(100/216) = 0.7105.
    ((found,),) = tables(report(), "## Against the baseline")
    assert [*found.values()] == [
        *("long_short", "1, 2", "−0.40", "−2.94 to +2.14", "1.43× to 4.80×"),
        *("0.25×", "3.00×", "0.68× (0.64–0.71)"),
    ]


def shorter_run(folder, seed, **numbers):
    """Make a run of a baseline with as many FLOPs as long_short."""
    run = fake_run(folder, "as_long_short", seed, **numbers)
    write_json(
        run.result_json, {**read_json(run.result_json), "row": "baseline, FLOPs of long_short"}
    )


@pytest.mark.parametrize("in_budget", [True, False])
def test_shorter_baselines_stand_beside_the_row_of_their_flops(
    report, two_rows, tmp_path, in_budget
):
    assert "## At equal FLOPs" not in report()
    for seed, top1 in ((1, 86.4), (2, 90.8)):
        place = tmp_path / "budget" if in_budget else tmp_path
        shorter_run(place, seed, top1=top1, epochs=2.5)
    assert [row["row"] for row in tables(report(), "## Rows")[0]] == ["baseline", "long_short"]
    # Differences 10 and 6: mean 8, error 2, times 12.706.
    ((found,),) = tables(report(), "## At equal FLOPs")
    assert [*found.values()] == [
        *("long_short", "1, 2", "96.60 (96.40–96.80)", "88.60 (86.40–90.80)", "2.5"),
        *("+8.00", "−17.41 to +33.41"),
    ]


def test_where_the_time_went(report, tmp_path):
    fake_run(tmp_path, "baseline", train_seconds=75.0, shape_warmup_seconds=1.5)
    # Program 100 s: training 75, evaluation 10, precise BN 2, checkpoints 1, so 12 remain.
    ((found,),) = tables(report(), "## Where the time went")
    assert [*found.values()] == [
        *("baseline", "100", "75.0 %", "10.0 %", "2.0 %", "1.0 %", "12.0 %", "1.5"),
    ]


def test_controls_beside_the_baseline(report, two_rows, tmp_path):
    fake_run(tmp_path, "coarse", 1, top1=70.0, train_seconds=20.0)
    text = report()
    (table,) = tables(text, "## Controls")
    # Repeated: 41 and 42 against 97: mean -55.5, error 0.5, times 12.706.
    assert [[*line.values()][1:] for line in table] == [
        ["1, 2", "41.50 (41.00–42.00)", "−55.50", "−61.85 to −49.15"],
        ["1, 2", "50.00", "−47.00", "−47.00 to −47.00"],
        ["1, 2", "20.00", "−77.00", "−77.00 to −77.00"],
        ["seed 1", "70.00", "−27.00", "needs two seeds"],
    ]
    assert "**coarse**" not in text


def test_the_controls_of_a_study_are_listed_before_they_are_evaluated(tmp_path):
    fake_run(tmp_path, "baseline")
    (control,) = list_controls(load_runs(tmp_path), ("shuffled",), has_coarse=False)
    assert control == ("the baseline, frames shuffled", [], [], None)


def test_what_is_missing_is_listed(report, two_rows, tmp_path):
    unfinished_run(tmp_path, "short", 1, steps=5)
    unfinished_run(tmp_path, "short", 2)
    path = fake_run(tmp_path, "coarse", 1).result_json
    write_json(path, {**read_json(path), "precision": "bf16"})
    lines = section(report(("baseline", "short", "long", "long_short")), "## Not in the tables")
    assert lines[:4] == [
        "- long: not run.",
        "- short, seed 1: unfinished, last logged step 4.",
        "- short, seed 2: unfinished, no step logged.",
        "- coarse, seed 2: not run.",
    ]
    assert lines[4].startswith("- coarse, seed 1: not compared with the baseline")
    assert "('bf16', 960) against ('fp32', 960)" in lines[4]


def test_without_a_finished_run_there_is_only_the_list(report, tmp_path):
    unfinished_run(tmp_path, "long", 1, steps=1)
    lines = [line for line in report().splitlines() if line]
    missing = "- long, seed 1: unfinished, last logged step 0."
    assert lines == ["# runs", "## Not in the tables", missing]


def test_how_the_numbers_were_taken_shows_a_mixture(report, tmp_path):
    fake_run(tmp_path, "baseline", 1, commit="c0ffee", curve=((50.0, 60.0),))
    fake_run(tmp_path, "baseline", 10, commit="bad-dirty", date="2026-11-23T00:00:00+00:00")
    fake_run(tmp_path, "baseline", 2)
    lines = section(report(), "## How the numbers were taken")
    assert {
        "- commit: bad-dirty, c0ffee",
        "- date: 2026-11-21T12:00:00+00:00 to 2026-11-23T00:00:00+00:00",
        "- cpu: Test CPU",
        "- seeds: 1, 2, 10",
        "- gpu: none",
        "- torch: unknown",
        "- final evaluation: 1,200 videos × 3 views",
        "- evaluation during training: 240 videos × 1 view",
    } <= {*lines}


def picture(name):
    svg = f"<svg>{name}</svg>".encode()
    return Picture(name, f"{name} & more", f"What {name} shows.", b"png", svg)


def test_pictures_stand_where_they_are_spoken_of(report, two_rows, tmp_path):
    path = RunDir(tmp_path / "baseline" / "seed1").confusion_csv
    write_confusion(path, ((0, 0, 4), (1, 1, 4)))
    places = {
        "accuracy": "## During training",
        "speed_up": "## Against the baseline",
        "seconds": "## Where the time went",
        "schedule": "## Schedules",
        "confusion": "## Classes",
    }
    text = report(pictures=[picture(name) for name in places])
    for name, heading in places.items():
        first, second, *_ = section(text, heading)
        assert first == f"![{name} & more](figures/{name}.png)"
        assert second == f"*What {name} shows.*"


# --- what comes first


def test_data_and_guessing_come_before_the_tables(report, two_rows, tmp_path):
    for seed in (1, 2):
        counts = ((0, 0, 900), (1, 0, 36), (1, 1, 264))
        write_confusion(RunDir(tmp_path / "baseline" / f"seed{seed}").confusion_csv, counts)
    before = report().split("## Rows")[0]
    # 100/1200 = 0.083, and 900 of the 1200 videos have the most common class.
    assert "960 training videos" in before
    assert "1,200 test videos: one of them is 0.08 points" in before
    assert "most common of the 2 classes would score 75.00 %" in before


@pytest.mark.parametrize(
    ("tops", "word"),
    [
        ((95.0, 95.1), "It is less accurate"),
        ((95.0, 98.5), "An interval contains 0"),
        ((95.0,), "One seed, and no scores"),
        ((97.0, 97.01), "All pairs are alike, as with too few"),
    ],
)
def test_the_verdict_says_what_the_seeds_can_tell(report, tmp_path, tops, word):
    for seed, top1 in enumerate(tops):
        fake_run(tmp_path, "baseline", seed, top1=97.0 + 0.01 * seed)
        fake_run(tmp_path, "long", seed, top1=top1)
    assert word in next(line for line in report().splitlines() if line.startswith("- **long**"))


def test_the_seconds_of_the_rows_are_those_of_one_machine(report, tmp_path):
    for seed, threads, seconds in ((1, 2, 100.0), (2, 2, 110.0), (3, 8, 30.0)):
        fake_run(tmp_path, "baseline", seed, threads=threads, train_seconds=seconds)
    text = report()
    (found,) = tables(text, "## Rows")[0]
    assert (found["seeds"], found["training (s)"]) == ("1, 2, 3", "105 (100–110)")
    assert found["waiting for input"] == "4.8 %"  # (5/100 + 5/110)/2


def save_scores(run, right):
    """Four videos of class 0, of which the network calls the first ``right`` so."""
    scores = np.array([[0.8, 0.2]] * right + [[0.1, 0.9]] * (4 - right), np.float32)
    videos = np.array([f"/videos/{n}.mp4" for n in range(4)])
    np.savez(run.scores("1x1_forward"), videos=videos, labels=np.zeros(4, int), scores=scores)


def test_test_videos_count_once_where_only_some_runs_have_their_scores(report, tmp_path):
    """Two of four videos right: 15.0 to 85.0 % by Wilson. With eight videos it would be 21.5 to 78.5 %."""
    for seed in (1, 2):
        run = fake_run(tmp_path, "baseline", seed, top1=50.0)
        lines = [{**line, "num_videos": 4} for line in read_jsonl(run.evaluations_jsonl)]
        run.evaluations_jsonl.write_text("".join(map(json_line, lines)))
    save_scores(run, 2)
    (found,) = tables(report(), "## Rows")[0]
    assert found["95 % interval of the test videos"] == "15.0 to 85.0"


def test_rows_are_compared_video_by_video_also_with_one_seed(report, tmp_path):
    save_scores(fake_run(tmp_path, "baseline", top1=75.0), 3)
    save_scores(fake_run(tmp_path, "long", top1=50.0), 2)
    text = report()
    ((found,),) = tables(text, "## Video by video")
    assert (found["only the row right"], found["only the base right"]) == ("0", "1")
    assert "An interval contains 0" in text
    assert "long alone is right on 0 and the baseline alone on 1 of 4" in text


def test_a_smoke_run_is_marked_and_its_command_shown(report, tmp_path):
    run = fake_run(tmp_path, "baseline")
    given = ["TRAIN.BATCH_SIZE", "RNG_SEED", "--smoke"]
    append_jsonl(run.starts_jsonl, {"changes": [], "given": given})
    text = report()
    assert "**Smoke runs: baseline.**" in text
    command = f"--cfg experiments/{tmp_path.name}/baseline.yaml --smoke --seed 1 TRAIN.BATCH_SIZE 8"
    assert f"python tools/run_net.py {command}" in text


def test_the_command_of_an_own_run_has_the_configuration_of_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = fake_run(tmp_path / "my project" / "runs", "baseline", 0)
    write_json(run.result_json, {**read_json(run.result_json), "experiment": "baseline"})
    append_jsonl(run.starts_jsonl, {"changes": [], "given": ["RNG_SEED"]})
    folder = "my project/runs/baseline/seed0"
    assert load_runs(run.root.parents[1]).baseline.runs[0].command == (
        f"python tools/run_net.py --cfg '{folder}/config.yaml' --output '{folder}' --seed 0"
    )


def test_a_command_names_the_files_of_its_import(report, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = fake_run(tmp_path, "baseline")
    own = f"{tmp_path}/my, nets.py (0123456789ab), /other/loss.py (ba9876543210)"
    for imports in (own, "/later/x.py (0123456789ab)"):
        append_jsonl(run.starts_jsonl, {"changes": [], "given": [], "imports": imports})
    command = "baseline.yaml --import 'my, nets.py' --import /other/loss.py\n"
    assert f"--cfg experiments/{tmp_path.name}/{command}" in report()


# --- classes


@pytest.fixture
def confused(tmp_path):
    """Baseline of two seeds; long_short is faster than short."""
    of_seeds = (
        ((0, 0, 3), (0, 1, 1), (1, 1, 4), (2, 2, 4)),
        ((0, 0, 2), (0, 2, 2), (1, 0, 1), (1, 1, 3), (2, 2, 4)),
    )
    for seed, counts in enumerate(of_seeds, start=1):
        write_confusion(fake_run(tmp_path, "baseline", seed).confusion_csv, counts)
    shorter_run(tmp_path, 1, train_seconds=20.0)
    for name, seconds in (("short", 80.0), ("long_short", 40.0), ("coarse", 10.0)):
        run = fake_run(tmp_path, name, 1, train_seconds=seconds)
        write_confusion(run.confusion_csv, ((0, 0, 4), (1, 2, 4), (2, 2, 4)))


def test_the_worst_classes_and_pairs_of_the_baseline_and_the_fastest_row(report, confused):
    worst, pairs = tables(report(names=NAMES), "## Classes")
    # Baseline, both seeds: class 0 5 of 8, taken twice for class 2; class 1 7 of 8; class 2 is perfect.
    assert [[*line.values()] for line in worst] == [
        ["baseline", "open", "8", "62.5", r"push\|pull"],
        ["baseline", "close", "8", "87.5", "open"],
        ["long_short", "close", "4", "0.0", r"push\|pull"],
    ]
    assert [[*line.values()] for line in pairs] == [
        ["baseline", "open", r"push\|pull", "2", "25.0 %"],
        ["baseline", "open", "close", "1", "12.5 %"],
        ["baseline", "close", "open", "1", "12.5 %"],
        ["long_short", "close", r"push\|pull", "4", "100.0 %"],
    ]


def test_a_perfect_run_says_so(report, tmp_path):
    write_confusion(fake_run(tmp_path, "baseline").confusion_csv, ((0, 0, 4), (1, 1, 4)))
    assert "Every video was classified correctly." in report()


# --- the page

TEXT = """\
# runs

![accuracy & more](figures/accuracy.png)

- **long**: speed-up 2×.

| row | top-1 |
| :-- | --: |
| long | 97 |
"""


def test_the_page_holds_its_tables_and_its_pictures():
    one = picture("accuracy")
    page = to_html(TEXT, [one])
    assert "<title>runs</title>" in page
    assert re.search(r'<td style="text-align: right;">97</td>', page)
    assert page.count('<div class="scroll"><table>') == page.count("</table></div>") == 1
    assert f"src='data:image/svg+xml,{one.svg.decode()}'" in page
    assert 'alt="accuracy &amp; more"' in page


def test_the_page_loads_nothing_and_runs_no_script():
    page = to_html(TEXT, [picture("accuracy")])
    assert "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\"" in page
    assert "<script" not in page
    assert re.findall(r'(?:src|srcset|href)="(?!data:)[^"]*"', page) == []


def test_a_report_is_two_files_and_the_figures(two_rows, tmp_path):
    pictures = [picture("accuracy")]
    text = render("runs", load_runs(tmp_path), pictures)
    write_report(RunsDir(tmp_path / "out"), text, pictures)
    files = {path.name: path for path in (tmp_path / "out").rglob("*.*")}
    assert files["accuracy.png"].read_bytes() == b"png"
    assert files["accuracy.svg"].read_bytes() == b"<svg>accuracy</svg>"
    assert "figures/accuracy.png" in files["report.md"].read_text()
    assert files["report.html"].read_text().count("<img ") == 1
