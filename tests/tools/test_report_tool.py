"""tools/report.py as a user starts it: on runs, on stored runs and on YAMLs alone."""

import re
from pathlib import Path

import pytest
from fake_runs import fake_run, unfinished_run
from tiny import load_tool

from mgexp.figures.report_figures import load_results
from mgexp.results.load import load_runs, write_stored
from mgexp.run.confusion import write_confusion
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
    """A baseline and long_short of one seed."""
    folder = tmp_path / "quickstart"
    for row, seconds in (("baseline", 200.0), ("long_short", 80.0)):
        fake_run(folder, row, 1, train_seconds=seconds).config_yaml.write_text(ROW)
    return folder


@pytest.fixture
def report(monkeypatch):
    """Start the tool in this process; the exit code."""
    tool = load_tool("report")

    return lambda *arguments: tool.main([*map(str, arguments)])


@pytest.fixture
def not_drawn(monkeypatch):
    """Figures as they would be written, but empty."""
    monkeypatch.setattr("mgexp.figures.style.PrintFigure.file", lambda figure, kind: b"")


def figures(folder):
    return sorted(path.name for path in RunsDir(folder).figures.iterdir())


def test_a_single_run_is_no_folder_of_rows(runs, report, capsys):
    run = RunDir(runs / "baseline" / "seed1")
    append_jsonl(run.starts_jsonl, {"changes": [], "given": ["--smoke"]})
    assert report(run.root) == 2
    assert "seed1 is the folder of one run" in capsys.readouterr().err
    assert not RunsDir(run.root).report_md.exists()


def test_runs_of_a_network_of_one_s_own_need_its_file(runs, report, not_drawn, capsys, own_code):
    for path in runs.glob("*/*/config.yaml"):
        path.write_text(ROW.replace("SlowFast, NUM", "PatchNet, NUM"))
    assert report(runs) == 2
    assert "--import FILE.py" in capsys.readouterr().err
    assert report(runs, "--import", EXPERIMENTS.parent / "examples/own_model.py") == 0


def test_the_report_of_a_project_says_where_the_verdicts_of_its_study_are(runs, report, not_drawn):
    folder = runs.rename(runs.with_name("runs"))
    assert report(folder) == 0
    assert "verdicts" not in RunsDir(folder).report_md.read_text()
    folder.with_name("study.yaml").touch()
    assert report(folder) == 0
    name = folder.parent.name
    where, first_row = RunsDir(folder).report_md.read_text().splitlines()[2:5:2]
    assert where == (
        f"The claim is in `{name}/study.yaml`, and `tools/study.py` writes the verdicts on it into "
        f"`{name}/README.md`."
    )
    assert first_row.startswith("- **long_short**: ")
    assert f"<code>{name}/README.md</code>" in RunsDir(folder).report_html.read_text()


def test_every_figure_is_there_and_shown(runs, report):
    assert report(runs) == 0
    names = ("accuracy", "schedule", "seconds", "speed_up")
    assert figures(runs) == [f"{name}.{kind}" for name in names for kind in ("png", "svg")]
    text = RunsDir(runs).report_md.read_text()
    shown = re.findall(r"!\[.*\]\((.*)\)", text)
    assert sorted(shown) == [f"figures/{name}.png" for name in names]
    assert RunsDir(runs).report_html.read_text().count("<img ") == 4


def test_classes_have_the_names_that_the_runs_keep(runs, report):
    first, second = (RunDir(runs / row / "seed1") for row in ("baseline", "long_short"))
    write_confusion(first.confusion_csv, ((0, 1, 3), (1, 1, 1)))
    for run in (first, second):
        run.classes_txt.write_text("open\nclose\n")
    assert report(runs) == 0
    text = RunsDir(runs).report_md.read_text()
    assert "| baseline | open | 3 | 0.0 | close |" in text
    second.classes_txt.write_text("left\nright\n")
    assert report(runs) == 0
    assert "| baseline | class 0 | 3 | 0.0 | class 1 |" in RunsDir(runs).report_md.read_text()


def test_names_of_another_data_set_are_refused(runs, report, tmp_path, capsys):
    write_confusion(RunsDir(runs).root / "baseline" / "seed1" / "confusion.csv", ((2, 2, 4),))
    (tmp_path / "classes.txt").write_text("open\nclose\n")
    assert report(runs, "--classes", tmp_path / "classes.txt") == 2
    assert "3 classes or more, but 2 have a name" in capsys.readouterr().err
    assert not RunsDir(runs).report_md.exists()


def test_without_a_finished_run_there_is_only_the_list(report, tmp_path):
    unfinished_run(tmp_path, "long", 1, steps=1)
    assert report(tmp_path) == 0
    assert not RunsDir(tmp_path).figures.exists()
    assert RunsDir(tmp_path).report_html.exists()


def test_stored_runs_are_reported_as_the_runs_are(runs, report, tmp_path, capsys, not_drawn):
    folder = tmp_path / "experiments" / "quickstart"
    folder.mkdir(parents=True)
    for row in ("baseline", "long_short"):
        (folder / f"{row}.yaml").write_text(ROW)
    write_stored(RunsDir(folder).stored_jsonl, load_runs(runs))
    assert report(folder) == 0
    assert capsys.readouterr().out == f"{folder}/report.md\n{folder}/report.html\n"
    assert report(runs) == 0
    assert RunsDir(folder).report_md.read_text() == RunsDir(runs).report_md.read_text()
    assert load_results(folder) == load_results(runs)


def test_the_figures_of_a_study_stay(runs, report, capsys):
    (runs / "study.yaml").touch()
    assert report(runs) == 2
    assert "belongs to the page of tools/study.py: give another folder" in capsys.readouterr().err
    assert not RunsDir(runs).figures.exists()


def test_yamls_alone_have_their_schedules(tmp_path, report):
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "baseline.yaml").write_text(ROW)
    assert report(tmp_path / "rows", "--output", tmp_path) == 0
    assert figures(tmp_path) == ["schedule.png", "schedule.svg"]
    text = RunsDir(tmp_path).report_md.read_text()
    assert "- baseline: not run." in text
    assert "## Schedules" in text


def test_a_sweep_is_reported_value_by_value(tmp_path, report, capsys):
    for rate in (0.1, 0.2):
        run = fake_run(tmp_path / "runs" / f"SOLVER.BASE_LR={rate}" / "quickstart", "baseline")
        run.config_yaml.write_text(f"{ROW}SOLVER: {{BASE_LR: {rate}}}\n")
    place = tmp_path / "new" / "report"
    assert report(tmp_path / "runs", "--output", place) == 0
    assert capsys.readouterr().out == f"{place}/report.md\n{place}/report.html\n"
    assert "| quickstart/baseline | 0.2 | seed 1 |" in RunsDir(place).report_md.read_text()


def test_a_folder_of_nothing_is_bad_input(tmp_path, report, capsys):
    assert report(tmp_path) == 2
    assert "holds neither runs nor the YAML of a row" in capsys.readouterr().err
