"""What a report says of classes: lines worked out by hand from fake runs."""

from __future__ import annotations

import matplotlib.image
import pytest
from fake_runs import fake_run

from mgexp.errors import InputError
from mgexp.record.confusion import write_confusion
from mgexp.record.report import write_report
from mgexp.record.run_dir import RunsDir

NAMES = ("open", "close", "push|pull")
OF_SEEDS = (
    ((0, 0, 3), (0, 1, 1), (1, 1, 4), (2, 2, 4)),
    ((0, 0, 2), (0, 2, 2), (1, 0, 1), (1, 1, 3), (2, 2, 4)),
)


@pytest.fixture
def report(tmp_path):
    def call(names=NAMES):
        write_report(tmp_path, class_names=names)
        return RunsDir(tmp_path).report_md.read_text().splitlines()

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
    assert not RunsDir(tmp_path).confusion_png.exists()


def test_a_perfect_run_says_so(report, tmp_path):
    write_confusion(fake_run(tmp_path, "baseline").confusion_csv, ((0, 0, 4), (1, 1, 4)))
    assert "Every video was taken for what it is." in report()


def test_names_of_another_data_set_are_refused(report, runs):
    with pytest.raises(InputError, match="3 classes or more, but 2 have a name"):
        report(NAMES[:2])


def test_the_picture_has_a_square_for_each_of_the_two_rows(report, runs, tmp_path):
    assert "![which classes are taken for which](confusion.png)" in report()
    picture = matplotlib.image.imread(RunsDir(tmp_path).confusion_png)
    assert picture.shape[:2] == (750, 1650)  # 2 × 5.5 × 5 inches at 150 dots per inch


def test_more_than_50_classes_are_not_drawn(report, tmp_path):
    counts = tuple((label, (label + 1) % 51, 1) for label in range(51))
    write_confusion(fake_run(tmp_path, "baseline").confusion_csv, counts)
    lines = report(())
    assert "| baseline | class 0 | class 1 | 1 | 100.0 % |" in lines
    assert not any("confusion.png" in line for line in lines)
    assert not RunsDir(tmp_path).confusion_png.exists()
