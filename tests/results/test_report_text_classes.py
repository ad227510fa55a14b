"""What a report says of classes: lines worked out by hand from fake runs."""

from __future__ import annotations

import pytest
from fake_runs import fake_run

from mgexp.results.compare import load_comparison
from mgexp.results.confusion import write_confusion
from mgexp.results.report import render

NAMES = ("open", "close", "push|pull")
OF_SEEDS = (
    ((0, 0, 3), (0, 1, 1), (1, 1, 4), (2, 2, 4)),
    ((0, 0, 2), (0, 2, 2), (1, 0, 1), (1, 1, 3), (2, 2, 4)),
)


@pytest.fixture
def report(tmp_path):
    def call(names=NAMES, pictures={}):  # noqa: B006 (it is not changed)
        return render("runs", load_comparison(tmp_path), pictures, (), names).splitlines()

    return call


@pytest.fixture
def runs(tmp_path):
    """Baseline of two seeds; long_short is faster than short."""
    for seed, counts in enumerate(OF_SEEDS, start=1):
        write_confusion(fake_run(tmp_path, "baseline", seed).confusion_csv, counts)
    for row, seconds in (("short", 80.0), ("long_short", 40.0), ("coarse", 10.0)):
        run = fake_run(tmp_path, row, 1, train_seconds=seconds)
        write_confusion(run.confusion_csv, ((0, 0, 4), (1, 2, 4), (2, 2, 4)))


def test_the_worst_classes_of_the_baseline_and_the_fastest_row(report, runs):
    lines = report()
    start = lines.index("| row | class | videos | accuracy (%) | most often taken for |")
    # Baseline, both seeds: class 0 5 of 8, taken twice for class 2; class 1 7 of 8; class 2 is perfect.
    assert lines[start + 2 : start + 6] == [
        r"| baseline | open | 8 | 62.5 | push\|pull |",
        "| baseline | close | 8 | 87.5 | open |",
        r"| long_short | close | 4 | 0.0 | push\|pull |",
        "",
    ]


def test_the_most_confused_pairs(report, runs):
    lines = report()
    start = lines.index("| row | class | taken for | videos | of the class |")
    assert lines[start + 2 : start + 6] == [
        r"| baseline | open | push\|pull | 2 | 25.0 % |",
        "| baseline | open | close | 1 | 12.5 % |",
        "| baseline | close | open | 1 | 12.5 % |",
        r"| long_short | close | push\|pull | 4 | 100.0 % |",
    ]


def test_without_names_classes_are_numbers(report, runs):
    assert "| long_short | class 1 | class 2 | 4 | 100.0 % |" in report(())


def test_runs_that_do_not_say_what_they_confuse_have_no_such_section(report, tmp_path):
    fake_run(tmp_path, "baseline")
    assert "## Classes" not in report()


def test_a_perfect_run_says_so(report, tmp_path):
    write_confusion(fake_run(tmp_path, "baseline").confusion_csv, ((0, 0, 4), (1, 1, 4)))
    assert "Every video was taken for what it is." in report()


def test_the_picture_stands_before_the_words(report, runs):
    lines = report(pictures={"confusion": "![which]"})
    assert lines[lines.index("## Classes") + 2] == "![which]"
