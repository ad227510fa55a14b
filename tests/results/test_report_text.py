"""Whole lines of the report of fake runs, worked out by hand."""

from __future__ import annotations

import pytest
from fake_runs import fake_run, unfinished_run

from mgexp.results.compare import load_comparison
from mgexp.results.report import render
from mgexp.run.files import read_json, write_json
from mgexp.run.folder import RunDir


@pytest.fixture
def report(tmp_path):
    """The lines of the report of the folder."""

    def call(expected_rows=()):
        return render("runs", load_comparison(tmp_path), {}, expected_rows).splitlines()

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
            controls={"repeated": 40.0 + seed, "shuffled": 50.0},
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
    lines = report()
    assert (
        "| row | seeds | top-1 (%) | steps | epochs | training FLOPs (10¹²) | training (s) | "
        "speed-up, FLOPs | speed-up, wall-clock | steady speed-up | waiting for input |"
    ) in lines
    # Steady: (196/76, 216/76) = 2.5789, 2.8421. Waiting: (5/200 + 5/220)/2 = 2.386 %.
    assert (
        "| baseline | 1, 2 | 97.00 | 1,000 | 8.0 | 100.0 | 210 (200–220) | "
        "1.00× | 1.00× | 1.00× | 2.4 % |"
    ) in lines
    assert (
        "| long_short | 1, 2 | 96.60 (96.40–96.80) | 250 | 24.0 | 25.0 | 80 | "
        "4.00× | 2.62× (2.50–2.75) | 2.71× (2.58–2.84) | 6.2 % |"
    ) in lines


def test_a_speed_up_is_the_geometric_mean_over_seeds(report, tmp_path):
    for seed, seconds in ((1, 50.0), (2, 40.0), (3, 10.0)):
        fake_run(tmp_path, "baseline", seed, train_seconds=100.0)
        fake_run(tmp_path, "long", seed, train_seconds=seconds)
    row = next(line for line in report() if line.startswith("| long | 1, 2, 3 | 90.00 |"))
    assert row.split(" | ")[8] == "3.68× (2.00–10.00)"  # the third root of 50


def test_gain_and_loss_stand_in_one_sentence(report, two_rows):
    # Differences -0.6 and -0.2: mean -0.4, error 0.2, times 12.706 for 1 degree of freedom.
    assert (
        "- **long_short**: speed-up 2.62× (2.50–2.75) in training time, 4.00× in FLOPs; "
        "top-1 −0.40 points (95 % interval: −2.94 to +2.14)."
    ) in report()


def test_seconds_of_another_sitting_are_told(report, two_rows, tmp_path):
    path = RunDir(tmp_path / "long_short" / "seed2").result_json
    write_json(path, {**read_json(path), "date": "2026-11-25T12:00:00+00:00"})
    (found,) = (line for line in report() if line.startswith("- **long_short**"))
    assert found.endswith(
        "−2.94 to +2.14). Seeds 2: at another commit than the baseline, or more than an hour apart; "
        "the training time may tell of that."
    )


def test_the_table_of_differences(report, two_rows):
    # Speed-ups 2.5 and 2.75: logarithms of mean 0.96394, error 0.04766, times 12.706.
    # Steady FLOP/s: (25/76)/(100/196) = 0.6447 and (25/76)/(100/216) = 0.7105.
    assert (
        "| long_short | 1, 2 | −0.40 | −2.94 to +2.14 | 1.43× to 4.80× | 0.25× | 3.00× | 0.68× (0.64–0.71) |"
    ) in report()


def test_shorter_baselines_stand_beside_the_row_of_their_flops(report, two_rows, tmp_path):
    for seed, top1 in ((1, 86.4), (2, 90.8)):
        fake_run(tmp_path / "budget", "as_long_short", seed, top1=top1, epochs=2.5)
    # Differences 10 and 6: mean 8, error 2, times 12.706.
    assert (
        "| long_short | 1, 2 | 96.60 (96.40–96.80) | 88.60 (86.40–90.80) | 2.5 | +8.00 | −17.41 to +33.41 |"
    ) in report()


def test_without_shorter_baselines_nothing_is_said_of_them(report, two_rows):
    assert "## At equal FLOPs" not in report()


def test_where_the_time_went(report, tmp_path):
    fake_run(tmp_path, "baseline", train_seconds=75.0, shape_warmup_seconds=1.5)
    # Program 100 s: training 75, evaluation 10, precise BN 2, checkpoints 1, so 12 remain.
    assert "| baseline | 100 | 75.0 % | 10.0 % | 2.0 % | 1.0 % | 12.0 % | 1.5 |" in report()


def test_controls_beside_the_baseline(report, two_rows, tmp_path):
    fake_run(tmp_path, "coarse", 1, top1=70.0, train_seconds=20.0)
    lines = report()
    # Repeated: 41 and 42 against 97: mean -55.5, error 0.5, times 12.706.
    repeated = "1, 2 | 41.50 (41.00–42.00) | −55.50 | −61.85 to −49.15 |"
    assert f"| the baseline, one frame repeated | {repeated}" in lines
    shuffled = "1, 2 | 50.00 | −47.00 | −47.00 to −47.00 |"
    assert f"| the baseline, frames shuffled | {shuffled}" in lines
    coarse = "1 | 70.00 | −27.00 | needs two seeds |"
    assert f"| trained at the coarsest shape alone | {coarse}" in lines
    assert not any("**coarse**" in line for line in lines)


def test_controls_that_were_not_evaluated_say_so(report, tmp_path):
    fake_run(tmp_path, "baseline")
    assert "| the baseline, frames shuffled | – | not evaluated | – | – |" in report()


def test_what_is_missing_is_listed(report, two_rows, tmp_path):
    unfinished_run(tmp_path, "short", 1, steps=5)
    unfinished_run(tmp_path, "short", 2)
    fake_run(tmp_path, "coarse", 1, threads=1)
    lines = report(("baseline", "short", "long", "long_short"))
    start = lines.index("## Not in the tables")
    assert lines[start + 2 : lines.index("## How the numbers were taken") - 1] == [
        "- long: not run.",
        "- short, seed 1: unfinished, last logged step 4.",
        "- short, seed 2: unfinished, no step logged.",
        "- coarse, seed 2: not run.",
        "- coarse, seed 1: not compared with the baseline, "
        "('cpu', 'fp32', 1, 960) against ('cpu', 'fp32', 2, 960).",
    ]


def test_without_a_baseline_no_speed_up_is_shown(report, tmp_path):
    fake_run(tmp_path, "long", top1=95.0)
    lines = report()
    row = "| long | 1 | 95.00 | 1,000 | 8.0 | 100.0 | 100 | – | – | – | 5.0 % |"
    assert row in lines
    assert "- **long**: no comparable baseline run of the same seed." in lines


def test_without_a_finished_run_there_is_only_the_list(report, tmp_path):
    unfinished_run(tmp_path, "long", 1, steps=1)
    assert report()[1:] == [
        "",
        "## Not in the tables",
        "",
        "- long, seed 1: unfinished, last logged step 0.",
    ]


def test_how_the_numbers_were_taken_shows_a_mixture(report, tmp_path):
    fake_run(tmp_path, "baseline", 1, commit="c0ffee", curve=((50.0, 60.0),))
    fake_run(tmp_path, "baseline", 2, commit="bad-dirty", date="2026-11-23T00:00:00+00:00")
    lines = report()
    assert "- commit: bad-dirty, c0ffee" in lines
    assert "- date: 2026-11-21T12:00:00+00:00 to 2026-11-23T00:00:00+00:00" in lines
    assert "- cpu: Test CPU" in lines
    assert "- gpu: none" in lines
    assert "- torch: unknown" in lines
    assert "- final evaluation: 1200 videos × 3 views" in lines
    assert "- evaluation during training: 240 videos × 1 views" in lines


def test_a_task_without_top1_is_reported_in_map(report, tmp_path):
    run = fake_run(tmp_path, "baseline")
    record = read_json(run.result_json)
    write_json(run.result_json, {**record, "metrics": {"map": 38.25}})
    lines = report()
    assert any(line.startswith("| row | seeds | mAP (%) |") for line in lines)
    assert any(line.startswith("| baseline | 1 | 38.25 |") for line in lines)


def test_pictures_stand_where_they_are_spoken_of(two_rows, tmp_path):
    shown = {name: f"![{name}]" for name in ("accuracy", "speed_up", "seconds", "schedule")}
    lines = render("runs", load_comparison(tmp_path), shown).splitlines()
    places = {line: number for number, line in enumerate(lines)}
    assert lines[2] == "![accuracy]"
    assert places["![speed_up]"] == places["## Against the baseline"] + 2
    assert places["![seconds]"] == places["## Where the time went"] + 2
    assert places["![schedule]"] == places["## Schedules"] + 2


def test_runs_elsewhere_are_not_in_the_report(report, two_rows, tmp_path):
    other = RunDir(tmp_path / "deeper" / "row" / "seed9")
    other.root.mkdir(parents=True)
    other.config_yaml.touch()
    assert not any("seed 9" in line for line in report())
