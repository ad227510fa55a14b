"""tools/report.py as a user starts it: on runs, on stored runs and on YAMLs alone."""

import re
from pathlib import Path

import pytest
from fake_runs import fake_run, save_predictions
from tiny import load_tool

from mgexp.run.files import append_jsonl
from mgexp.run.folder import RunDir, RunsDir

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
SMALL = """\
MODEL: {MODEL_NAME: SlowFast, NUM_CLASSES: 2}
RESNET: {DEPTH: 18, WIDTH_PER_GROUP: 8}
SLOWFAST: {ALPHA: 2, BETA_INV: 4}
"""
ROW = f"TRAIN: {{BATCH_SIZE: 8}}\nDATA: {{NUM_VIDEOS: 960, NUM_FRAMES: 8, TRAIN_CROP_SIZE: 64}}\n{SMALL}"


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / "quickstart"
    for row, seconds in (("baseline", 200.0), ("long_short", 80.0)):
        fake_run(folder, row, 1, train_seconds=seconds).config_yaml.write_text(ROW)
    return folder


@pytest.fixture
def report():
    """Start the tool in this process; the exit code."""
    tool = load_tool("report")
    return lambda *arguments: tool.main([*map(str, arguments)])


@pytest.fixture
def not_drawn(monkeypatch):
    """Figures as they would be written, but empty."""
    monkeypatch.setattr("mgexp.figures.style.PrintFigure.file", lambda figure, kind: b"")


def figures(folder):
    return sorted(path.name for path in RunsDir(folder).figures.iterdir())


def test_a_single_run_and_a_study_are_no_folder_of_rows(runs, report):
    """The figures of a study belong to its page."""
    run = RunsDir(runs / "baseline" / "seed1")
    append_jsonl(RunDir(run.root).starts_jsonl, {"changes": [], "given": ["--smoke"]})
    assert report(run.root) == 2
    assert not run.report_md.exists()
    (runs / "study.yaml").touch()
    assert report(runs) == 2
    assert not RunsDir(runs).figures.exists()


def test_runs_of_a_network_of_one_s_own_need_its_file(runs, report, not_drawn, own_code):
    for path in runs.glob("*/*/config.yaml"):
        path.write_text(ROW.replace("SlowFast, NUM", "PatchNet, NUM"))
    assert report(runs) == 2
    assert report(runs, "--import", EXPERIMENTS.parent / "examples/own_model.py") == 0


def test_every_figure_is_there_and_shown(runs, report, not_drawn):
    assert report(runs) == 0
    names = ("accuracy", "schedule", "speed_up")
    assert figures(runs) == [f"{name}.{kind}" for name in names for kind in ("png", "svg")]
    text = RunsDir(runs).report_md.read_text()
    shown = re.findall(r"!\[.*\]\((.*)\)", text)
    assert sorted(shown) == [f"figures/{name}.png" for name in names]
    assert RunsDir(runs).report_html.read_text().count("<img ") == 3


def test_classes_have_the_names_that_the_runs_keep(runs, report, not_drawn):
    first, second = (RunDir(runs / row / "seed1") for row in ("baseline", "long_short"))
    save_predictions(first, ((0, 1, 3), (1, 1, 1)))
    for run in (first, second):
        run.classes_txt.write_text("open\nclose\n")
    assert report(runs) == 0
    text = RunsDir(runs).report_md.read_text()
    assert "| baseline | open | 3 | 0.0 | close |" in text
    second.classes_txt.write_text("left\nright\n")
    assert report(runs) == 0
    assert "| baseline | class 0 | 3 | 0.0 | class 1 |" in RunsDir(runs).report_md.read_text()


def test_yamls_alone_have_their_schedules(tmp_path, report):
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "baseline.yaml").write_text(ROW)
    assert report(tmp_path / "rows", "--output", tmp_path) == 0
    assert figures(tmp_path) == ["schedule.png", "schedule.svg"]
