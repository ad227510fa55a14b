"""tools/collect.py as a user starts it, on runs of an experiment that is in the repository."""

import pytest
import simplejson
from fake_runs import fake_run, unfinished_run
from tiny import load_tool

from mgexp.config.load import load_config, to_yaml


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
    for path in (run.root, runs / "report.md", tmp_path / "experiments" / "README.md"):
        assert str(path) in output.out
    assert (tmp_path / "experiments" / "results.csv").read_text().count("\n") == 2
    assert (runs / "report.html").exists()
    tables = (tmp_path / "experiments" / "README.md").read_text()
    assert "(quickstart/baseline.yaml) | unknown |  | 90.00 (seed 1) |" in tables


def test_a_run_with_other_values_is_refused_with_both(collect, runs, tmp_path):
    run = trained_with(fake_run(runs, "baseline"), tmp_path, "SOLVER.BASE_LR", "0.3")
    unfinished = unfinished_run(runs, "long")
    code, output = collect("--json")
    assert code == 2
    found = simplejson.loads(output.out)
    (problem,) = found.pop("refused")[str(run.root)]
    assert "SOLVER.BASE_LR: the run had 0.3, its YAML now says 0.1" in problem
    assert found == {
        "added": [],
        "own": [],
        "skipped": [],
        "not_rows": {},
        "unfinished": [str(unfinished.root)],
        "reports": [str(runs / "report.md")],
        "tables": str(tmp_path / "experiments" / "README.md"),
    }


def test_reports_only_leaves_experiments_as_it_is(collect, runs, tmp_path):
    trained_with(fake_run(runs, "baseline"), tmp_path)
    before = sorted((tmp_path / "experiments").rglob("*"))
    assert collect("--reports-only")[0] == 0
    assert (runs / "report.md").exists()
    assert sorted((tmp_path / "experiments").rglob("*")) == before
