"""tools/study.py: the order of runs, going on, pieces of time, and what it writes. Runs are made up in no time."""

import csv
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from fake_runs import CONFIG, fake_run, unfinished_run
from run_files import contents
from tiny import load_tool

from mgexp.config import load, values
from mgexp.config.load import experiment_name, load_config, to_yaml
from mgexp.config.study import Task, read_study
from mgexp.errors import InputError, raise_problems
from mgexp.launch import sweep, sweep_state
from mgexp.run.environment import REPOSITORY, git_commit
from mgexp.run.files import append_jsonl, read_json, read_jsonl, short_path, write_json
from mgexp.train.result import Outcome

STUDY = {
    "rows": ["baseline", "long"],
    "seeds": 2,
    "margin": 1.0,
    "controls": ["repeated"],
    "control_seeds": 1,
    "equal_seconds": ["long"],
    "seconds_pairs": 2,
}
A, B, AS_B = "baseline", "long", "as_long_in_seconds"


def write_row(folder, name, **changes):
    (folder / f"{name}.yaml").write_text(yaml.safe_dump({**CONFIG, "ROW": name, **changes}))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A study of two rows in a folder experiments/, with runs/ beside it."""
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "experiments" / "group"
    place.mkdir(parents=True)
    for module in (load, values):  # the tool reads it when a test loads it
        monkeypatch.setattr(module, "EXPERIMENTS", place.parent)
    for name in (A, B):
        write_row(place, name)
    (place / "study.yaml").write_text(yaml.safe_dump(STUDY))
    return place


class FakeRuns:
    """Take the place of the launcher: write the run folder of a run, and note what was started."""

    def __init__(self):
        self.started, self.outcomes, self.clock = [], {}, 0

    def __call__(self, options, _resources, _problems, _say, _code):
        root = options.output
        row, number = root.parent.name, len(self.started)
        what = (row, options.seed, *options.overrides[3:])
        self.started.append(what)
        outcome = self.outcomes.pop(what, Outcome.OK)
        if options.overrides:
            line = read_jsonl(root / "evaluations.jsonl")[-1]
            append_jsonl(root / "evaluations.jsonl", {**line, "frame_order": options.overrides[3]})
        elif outcome in (Outcome.OK, Outcome.MISSED):
            seconds = {A: 100.0, B: 40.0}.get(row, 40.0)
            date = f"2026-11-21T12:{3 * number:02d}:00+00:00"
            run = fake_run(root.parents[1], row, options.seed, train_seconds=seconds, date=date)
            run.config_yaml.write_text(to_yaml(load_config(options.config)))
            name = experiment_name(options.config)
            write_json(run.result_json, {**read_json(run.result_json), "experiment": name})
            run.model.touch()
            self.clock += seconds + 25
        return outcome


@pytest.fixture
def runs(monkeypatch):
    return FakeRuns()


@pytest.fixture
def study(monkeypatch, runs, folder):
    tool = load_tool("study")
    monkeypatch.setattr(tool, "to_local", runs)
    # The figures are tested with the reports, and they take seconds.
    monkeypatch.setattr(tool, "draw", lambda results: [])
    # In the module itself, time would stand still for everything, and a wait with a limit would not end.
    monkeypatch.setattr(tool, "time", SimpleNamespace(monotonic=lambda: runs.clock))
    return lambda *arguments, folder="experiments/group": tool.main([folder, *arguments])


def test_rows_are_interleaved_and_everything_is_written(study, runs, folder, capsys):
    assert study() == 0
    # The seconds of the first two pairs are known at the end, so its baseline comes last.
    first, second = [(A, 0), (B, 0), (A, 0, "repeated")], [(A, 1), (B, 1)]
    assert runs.started == [*first, *second, (AS_B, 0), (AS_B, 1)]
    budget = yaml.safe_load((folder / "budget" / f"{AS_B}.yaml").read_text())
    assert budget["SOLVER"]["STEPS"] == [0.0, 1.6, 3.2]  # 100 s against 40 s: 0.4 of all epochs
    lines = csv.DictReader((folder.parent / "results.csv").open())
    found = [(line["experiment"], line["seed"]) for line in lines]
    assert found[:2] == [("group/baseline", "0"), ("group/long", "0")]
    page = (folder / "README.md").read_text()
    assert "missing" not in page
    # Two seeds that score the same: 100 s against 40 s, and as many FLOPs.
    assert re.search(
        r"long +2 +\+0\.00 +\+0\.00 to \+0\.00 +2\.50× +1\.00× +open", capsys.readouterr().out
    )
    assert "(group/README.md) | 6 of 6 |" in (folder.parent / "README.md").read_text()
    for options in ((), ("--only-page",)):  # there is nothing left to do
        assert study(*options) == 0
    assert len(runs.started) == 7
    assert (folder / "README.md").read_text() == page


@pytest.mark.parametrize("words", ["--parallel 4", "--minutes 4 --launcher slurm --nodes 1"])
def test_a_limit_that_cannot_be_used_is_bad_input(words, study, runs, folder, capsys):
    """A page that a person wrote stays, too."""
    assert study(*words.split()) == 2
    assert words.split()[0] in capsys.readouterr().err
    (folder / "README.md").write_text("# Ours\n")
    assert study() == 2
    assert (runs.started, (folder / "README.md").read_text()) == ([], "# Ours\n")


def test_it_goes_on_where_it_was_interrupted_also_with_stored_runs_alone(study, runs):
    runs.outcomes = {(B, 1): Outcome.INTERRUPTED}
    assert study() == 4
    shutil.rmtree("runs")
    runs.started.clear()
    assert study() == 0
    assert runs.started == [(B, 1), (AS_B, 0), (AS_B, 1)]


def test_a_failed_run_ends_the_study_and_a_missed_expectation_does_not(study, runs):
    runs.outcomes = {(A, 0): Outcome.MISSED, (A, 1): Outcome.FAILED}
    assert study() == 1
    assert runs.started[-1] == (A, 1)
    runs.outcomes = {(A, 1): Outcome.MISSED}
    assert study() == 3


def test_no_run_starts_that_would_end_too_late(study, runs):
    """The first run takes 125 s, so a second one, of which nothing is known, may take as long."""
    assert study("--minutes", "4") == 4
    assert runs.started == [(A, 0)]
    # long takes 65 s, and then no other baseline ends within 190 s.
    assert study("--minutes", "3.1") == 4
    assert runs.started[1:] == [(B, 0), (A, 0, "repeated")]
    assert study("--minutes", "3.2") == 4
    assert runs.started[3:] == [(A, 1), (B, 1)]


def test_a_control_is_evaluated_where_slurm_left_the_weights(folder):
    tool = load_tool("study")
    board = tool.Board(read_study(folder))
    control = Task(A, 0, "repeated")
    untouched = SimpleNamespace(control=lambda frame_order: None)
    board.gathered = SimpleNamespace(runs={(A, 0): untouched})
    assert board.is_done(control)  # there are no weights anywhere
    there = board.sweep_dir.run(board.sweep_run(A, 0).name)
    there.root.mkdir(parents=True)
    there.model.touch()
    assert not board.is_done(control)
    assert tool.run_options(board, control).output == there.root


def test_the_status_says_what_is_done_and_writes_nothing(study, runs, folder, capsys):
    runs.outcomes = {(A, 1): Outcome.INTERRUPTED}
    study()
    before = contents(folder)
    capsys.readouterr()
    assert study("--status") == 0
    _, *lines, left = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [[A, "2", "1"], [B, "2", "1"], [AS_B, "2", "0"]]
    assert left == "4 tasks left, about 7 min 20 s"
    assert contents(folder) == before


def test_a_changed_row_is_trained_again_only_after_its_runs_are_put_away(
    study, runs, folder, capsys
):
    """One message has every folder and the YAML of the shorter baseline; without them, the study goes on."""
    study()
    runs.started.clear()
    capsys.readouterr()
    write_row(folder, A, SOLVER={"STEPS": [0, 4, 8], "MAX_EPOCH": 20})
    assert study() == 2
    said = capsys.readouterr().err
    for place in ("runs/group/baseline", f"runs/group/budget/{AS_B}"):
        assert all(f"{place}/seed{seed} " in said for seed in (0, 1))
    assert "SOLVER.MAX_EPOCH" in said and f"budget/{AS_B}.yaml" in said
    assert "runs/group/long/" not in said
    assert runs.started == []
    for option in ("--status", "--only-page"):
        assert study(option) == 2
        assert capsys.readouterr().err == said
    follow(said)
    assert study() == 0
    assert runs.started == [(A, 0), (A, 0, "repeated"), (A, 1), (AS_B, 0), (AS_B, 1)]


def test_a_changed_row_keeps_the_page_and_its_stored_runs(study, runs, folder, capsys):
    """Their folders are gone. The runs of the other row still count after that."""
    study()
    shutil.rmtree("runs")
    runs.started.clear()
    capsys.readouterr()
    write_row(folder, B, SOLVER={"STEPS": [0, 4, 8], "MAX_EPOCH": 20})
    before = contents(folder)
    for options in ((), ("--only-page",), ("--status",)):
        assert study(*options) == 2
    said = capsys.readouterr().err
    assert contents(folder) == before
    follow(said)
    assert study() == 0
    assert runs.started == [(B, 0), (B, 1), (AS_B, 0), (AS_B, 1)]


def follow(message):
    """Take away what a message names, as a person would."""
    for line in dict.fromkeys(message.splitlines()):
        name, _, why = line.strip().partition(" ")
        path = Path(name)
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name == "runs.jsonl":
            row = re.fullmatch(r"holds \d+ runs? of (.+) with an earlier recipe", why)[1]
            lines = path.read_text().splitlines(keepends=True)
            path.write_text("".join(one for one in lines if json.loads(one).get("name") != row))
        elif path.is_file():
            path.unlink()


def test_an_unfinished_run_of_an_earlier_configuration_is_named(study, folder, capsys):
    run = unfinished_run(folder.parents[1] / "runs" / "group", A, 1)
    run.config_yaml.write_text(to_yaml(load_config(folder / "baseline.yaml")))
    # Without a checkpoint, a run uses nothing of its folder.
    write_row(folder, A, SOLVER={"STEPS": [0, 4, 8], "BASE_LR": 0.5})
    board = load_tool("study").Board(read_study(folder))
    board.check(trains=True)
    run.checkpoint(7).touch()
    with pytest.raises(InputError, match=f"{short_path(run.root)} .*SOLVER.BASE_LR"):
        board.check(trains=True)
    assert study("--only-page") == 0


def test_a_folder_outside_experiments_has_its_runs_to_itself(study, folder):
    project = folder.parents[1] / "project"
    shutil.copytree(folder, project)
    (project / "study.yaml").write_text(yaml.safe_dump({**STUDY, "equal_seconds": []}))
    assert study(folder="project") == 0
    assert (project / "runs/long/seed1/result.json").exists()
    assert not (folder.parents[1] / "runs").exists()
    assert "2.50×" in (project / "README.md").read_text()
    assert not (folder.parent / "results.csv").exists()


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--only-page", "--minutes 4"),
        ("--status", "--launcher slurm"),
        # The baseline has this value, and the row another one.
        ("--only-page", "TRAIN.BATCH_SIZE 8"),
    ],
)
def test_what_trains_nothing_refuses_the_options_and_keys_of_training(
    words, option, study, folder, capsys
):
    write_row(folder, B, TRAIN={"BATCH_SIZE": 16})
    assert study(option, *words.split()) == 2
    assert words.split()[0] in capsys.readouterr().err


def test_a_changed_yaml_is_used_once_no_run_of_the_old_one_waits(tmp_path, monkeypatch, capsys):
    """A run of the first call is queued, and then it is cancelled. A list takes the place of Slurm's queue."""
    write_row(tmp_path, A)
    (tmp_path / "study.yaml").write_text("{rows: [baseline], seeds: 2, margin: 1}")
    queue, jobs = {"7_0": ("PENDING", "")}, [SimpleNamespace(job_id=f"7_{n}") for n in range(2)]
    monkeypatch.setattr(sweep_state, "slurm_queue", lambda: queue)
    monkeypatch.setattr(sweep, "check_submission", lambda *given: raise_problems(given[-1]))
    monkeypatch.setattr(sweep, "to_slurm", lambda _, runs: jobs[: len(runs)])
    tool, call = load_tool("study"), (str(tmp_path), "--launcher", "slurm", "--cpus-per-task", "1")
    assert tool.main(call) == 0
    frozen = tmp_path / "runs" / "sweeps"
    (frozen / "code" / "commit.txt").write_text("old\n")
    capsys.readouterr()
    assert tool.main(call) == 0
    assert "commit old" in capsys.readouterr().err
    write_row(tmp_path, A, SOLVER={"STEPS": [0, 5, 8]})
    assert tool.main(call) == 2
    queue.clear()
    assert tool.main(call) == 0
    assert "2 runs are submitted" in capsys.readouterr().err
    (text,) = (path.read_text() for path in (frozen / "configs").rglob("baseline.yaml"))
    assert yaml.safe_load(text)["SOLVER"]["STEPS"] == [0, 5, 8]
    assert git_commit(frozen / "code") == git_commit(REPOSITORY)
