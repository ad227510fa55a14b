"""tools/collect.py as a user starts it, on runs of an experiment that is in the repository."""

from __future__ import annotations

import pytest
import simplejson
from fake_runs import fake_run, unfinished_run
from tiny import load_tool

from mgexp.config.load import load_config, to_yaml
from mgexp.run.confusion import write_confusion
from mgexp.run.files import append_jsonl, read_json, write_json


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs" / "quickstart"


@pytest.fixture
def collect(tmp_path, runs, monkeypatch, capsys):
    """Start the tool in this process on an experiments folder of its own; (exit code, output)."""
    experiments = tmp_path / "experiments"
    (experiments / "quickstart").mkdir(parents=True)
    for row in ("baseline", "long"):
        (experiments / "quickstart" / f"{row}.yaml").write_text("TRAIN: {BATCH_SIZE: 8}\n")
    tool = load_tool("collect")
    monkeypatch.setattr(tool, "EXPERIMENTS", experiments)
    # test_report.py draws the figures, and counts the networks of the schedules.
    monkeypatch.setattr("mgexp.figures.report_figures.draw_figures", lambda *_: [])
    monkeypatch.setattr("mgexp.figures.report_figures.load_schedules", lambda *_: ())

    def call(*arguments, folder=runs.parent):
        return tool.main([str(folder), *arguments]), capsys.readouterr()

    return call


def trained_with(run, tmp_path, *overrides):
    """Give a fake run the configuration that training would have saved."""
    path = tmp_path / "experiments" / "quickstart" / "baseline.yaml"
    run.config_yaml.write_text(to_yaml(load_config(path, overrides)))
    return run


def test_runs_are_collected_and_reported(collect, runs, tmp_path):
    run = trained_with(fake_run(runs, "baseline"), tmp_path, "RNG_SEED", "1")
    code, output = collect()
    assert code == 0
    assert output.out.splitlines() == [
        f"added       {run.root}",
        f"report      {runs / 'report.md'}",
        f"tables      {tmp_path / 'experiments' / 'README.md'}",
    ]
    assert (tmp_path / "experiments" / "results.csv").read_text().count("\n") == 2
    assert "- long: not run." in (runs / "report.md").read_text()
    assert (runs / "report.html").exists()


def test_a_run_alone_gets_no_report_and_the_tool_says_why(collect, runs, tmp_path):
    run = trained_with(fake_run(runs, "baseline"), tmp_path, "RNG_SEED", "1")
    code, output = collect(folder=run.root)
    assert code == 0
    assert "no report   it compares rows" in output.out
    assert not (runs / "report.md").exists()


def test_a_second_start_changes_nothing(collect, runs, tmp_path):
    trained_with(fake_run(runs, "baseline"), tmp_path)
    collect()
    files = (tmp_path / "experiments" / "results.csv", runs / "report.md")
    before = [path.read_bytes() for path in files]
    code, output = collect()
    assert code == 0
    assert output.out.startswith("known       ")
    assert [path.read_bytes() for path in files] == before


def test_a_run_with_other_values_is_refused_with_both(collect, runs, tmp_path):
    run = trained_with(fake_run(runs, "baseline"), tmp_path, "SOLVER.BASE_LR", "0.3")
    unfinished = unfinished_run(runs, "long")
    code, output = collect("--json")
    assert code == 2
    assert simplejson.loads(output.out) == {
        "added": [],
        "own": [],
        "skipped": [],
        "unfinished": [str(unfinished.root)],
        "reports": [str(runs / "report.md")],
        "tables": str(tmp_path / "experiments" / "README.md"),
        "not_rows": {},
        "refused": {
            str(run.root): [
                "SOLVER.BASE_LR: the run had 0.3, its YAML now says 0.1; train it again"
            ]
        },
    }


def test_a_run_that_was_given_another_value_is_told_and_is_no_failure(collect, runs, tmp_path):
    run = trained_with(fake_run(runs, "baseline"), tmp_path, "SOLVER.BASE_LR", "0.3")
    append_jsonl(run.starts_jsonl, {"changes": [], "given": ["SOLVER.BASE_LR"]})
    code, output = collect()
    assert code == 0
    assert output.out.splitlines()[:2] == [
        f"not a row   {run.root}",
        "  - SOLVER.BASE_LR: it was given 0.3, its YAML says 0.1",
    ]
    assert not (tmp_path / "experiments" / "results.csv").exists()


def test_the_tables_show_what_was_collected(collect, runs, tmp_path):
    trained_with(fake_run(runs, "baseline", top1=91.5), tmp_path)
    collect()
    tables = (tmp_path / "experiments" / "README.md").read_text()
    assert "| [baseline](quickstart/baseline.yaml) | unknown | 91.50 | seed 1 |" in tables
    assert "| [long](quickstart/long.yaml) | unknown | not run |" in tables


def test_a_folder_without_runs_is_bad_input(collect, runs):
    runs.mkdir(parents=True)
    code, output = collect()
    assert code == 2
    assert "holds no run folder" in output.err


def test_names_of_classes_reach_the_report(collect, runs, tmp_path):
    run = trained_with(fake_run(runs, "baseline"), tmp_path, "RNG_SEED", "1")
    write_confusion(run.confusion_csv, ((0, 1, 3), (1, 1, 1)))
    (tmp_path / "classes.txt").write_text("open\nclose\n")
    assert collect("--classes", str(tmp_path / "classes.txt"))[0] == 0
    assert "| baseline | open | close | 3 | 100.0 % |" in (runs / "report.md").read_text()


def test_own_rows_get_a_report_and_nothing_else_is_touched(collect, runs, tmp_path):
    run = fake_run(runs.parent / "mine", "baseline")
    record = read_json(run.result_json)
    write_json(run.result_json, {**record, "experiment": "my_network"})
    before = sorted((tmp_path / "experiments").rglob("*"))
    code, output = collect()
    assert code == 0
    assert output.out.splitlines() == [
        f"own row     {run.root}",
        f"report      {runs.parent / 'mine' / 'report.md'}",
    ]
    assert sorted((tmp_path / "experiments").rglob("*")) == before


def test_reports_only_leaves_experiments_as_it_is(collect, runs, tmp_path):
    trained_with(fake_run(runs, "baseline"), tmp_path)
    before = sorted((tmp_path / "experiments").rglob("*"))
    code, output = collect("--reports-only")
    assert (code, output.out) == (0, f"report      {runs / 'report.md'}\n")
    assert sorted((tmp_path / "experiments").rglob("*")) == before
