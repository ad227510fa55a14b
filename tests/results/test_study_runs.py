"""Which runs are rows and are stored, and which of a study are gathered."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from fake_runs import CONFIG, fake_run
from tiny import write_config

from mgexp.config.study import Study
from mgexp.plan.row_schedules import load_schedules
from mgexp.results.store import differences, gather_runs, read_stored, store_gathered, store_runs
from mgexp.results.study_state import new_budgets
from mgexp.run.files import append_jsonl, lock_file
from mgexp.run.folder import RunDir, RunsDir, find_runs

OTHER_YAML = {"TRAIN": {"BATCH_SIZE": 16}, "SOLVER": {"STEPS": [0, 4, 8], "BASE_LR": 0.2}}


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs" / "quickstart"


@pytest.fixture
def append(tmp_path, runs):
    """Append all runs below `runs`. The YAMLs of both rows are those of the fake runs, with ``changes``."""
    experiments = tmp_path / "experiments" / "quickstart"
    experiments.mkdir(parents=True)

    def call(**changes):
        for row in ("baseline", "long"):
            values = {**CONFIG, **changes.get(row, {})}
            (experiments / f"{row}.yaml").write_text(yaml.safe_dump(values))
        done = store_runs(find_runs(runs), experiments.parent)
        return done, list(read_stored(experiments / "runs.jsonl").runs)

    return call


def test_a_second_collection_adds_only_what_is_new(append, runs):
    first = fake_run(runs, "baseline", top1=93.4166667)
    _, before = append()
    second = fake_run(runs, "baseline", seed=2)
    done, stored = append()
    assert (done.added, done.skipped) == ([second.root], [first.root])
    assert stored[:1] == before
    assert [(run.experiment, run.seed, run.top1) for run in stored[1:]] == [
        ("quickstart/baseline", 2, 90.0)
    ]


def test_a_run_of_another_config_is_refused_and_the_others_go_on(append, runs):
    refused = fake_run(runs, "baseline")
    added = fake_run(runs, "long")
    done, stored = append(baseline=OTHER_YAML)
    assert done.added == [added.root]
    assert [*done.refused] == [refused.root]
    rate, size = done.refused[refused.root]
    assert all(part in rate for part in ("SOLVER.BASE_LR", "0.1", "0.2"))
    assert all(part in size for part in ("TRAIN.BATCH_SIZE", "8", "16"))
    assert [run.row for run in stored] == ["long"]


def test_keys_without_effect_may_differ_and_tuples_equal_lists():
    run = {"RNG_SEED": 7, "TRAIN.ENABLE": False, "A": [[0, 4], 8], "DATA_LOADER.NUM_WORKERS": 9}
    yaml = {"RNG_SEED": 0, "TRAIN.ENABLE": True, "A": ((0, 4), 8), "DATA_LOADER.NUM_WORKERS": 1}
    assert list(differences(run, yaml)) == []
    assert len(list(differences({**run, "A": [[0, 4], 9]}, yaml))) == 1


def test_a_key_that_is_newer_than_a_run_has_its_default_there():
    assert list(differences({}, {"AUG.COLOR_JITTER": 0.0})) == []
    (problem,) = differences({}, {"AUG.COLOR_JITTER": 0.4}).values()
    assert "AUG.COLOR_JITTER: the run had 0.0" in problem
    assert len([*differences({"NO.LONGER": 1}, {})]) == 1
    # A YAML may leave the lists to the command line.
    run = {"DATA.TRAIN_LIST": "/data/train.csv", "DATA.VAL_LIST": "/data/val.csv"}
    assert list(differences(run, {"DATA.TRAIN_LIST": "", "DATA.VAL_LIST": ""})) == []
    (problem,) = differences(run, {"DATA.TRAIN_LIST": "other.csv", "DATA.VAL_LIST": ""})
    assert "DATA.TRAIN_LIST" in problem


def test_a_run_that_was_gone_on_with_by_override_is_refused(append, runs):
    run = fake_run(runs, "baseline")
    for changes in ([], ["SOLVER.BASE_LR: the run folder has 0.5, this start 0.1"]):
        append_jsonl(run.starts_jsonl, {"after_step": 3, "changes": changes})
    done, stored = append()
    assert "--override" in done.refused[run.root][0]
    assert stored == []


def test_a_run_that_was_given_other_values_is_no_row(append, runs):
    run = fake_run(runs, "baseline")
    given = {"changes": [], "given": ["TRAIN.BATCH_SIZE", "DATA.PATH_PREFIX"]}
    append_jsonl(run.starts_jsonl, given)
    done, stored = append(baseline=OTHER_YAML)
    assert (done.added, done.refused, stored) == ([], {}, [])
    (problem,) = done.not_rows[run.root]
    assert "TRAIN.BATCH_SIZE: the run had 8, its YAML now says 16" in problem


def test_smoke_runs_and_runs_of_own_videos_or_of_no_yaml_are_own_rows(append, runs, tmp_path):
    smoke = fake_run(runs, "baseline")
    append_jsonl(smoke.starts_jsonl, {"changes": [], "given": ["--smoke"]})
    without = fake_run(runs, "own_idea")
    done, stored = append()
    assert (done.own, done.added, stored) == ([smoke.root, without.root], [], [])
    place = tmp_path / "experiments" / "own_data"
    place.mkdir()
    (place / "baseline.yaml").touch()
    own = fake_run(tmp_path / "runs" / "own_data", "baseline")
    assert store_runs([own], place.parent).own == [own.root]


def test_a_run_trained_again_replaces_the_older_one(append, runs, tmp_path):
    fake_run(runs, "baseline", top1=80.0)
    append()
    (runs / "baseline").rename(tmp_path / "old")
    fake_run(runs, "baseline", date="2026-11-22T12:00:00+00:00")
    done, stored = append()
    assert len(done.added) == 1
    assert [run.top1 for run in stored] == [90.0]
    done = store_runs([RunDir(tmp_path / "old" / "seed1")], tmp_path / "experiments")
    assert len(done.skipped) == 1


ADD = """
import sys
from pathlib import Path
from fake_experiments import result
from mgexp.results.store import add_to_store
from mgexp.results.comparison import Row
seed = int(sys.argv[2])
add_to_store(Path(sys.argv[1]), [Row("long", {seed: result("q/long", seed)})])
"""


def test_two_studies_that_store_at_once_lose_no_run(tmp_path):
    """Each reads and writes the file under its lock."""
    path = tmp_path / "runs.jsonl"
    with lock_file(path.with_name(".runs.jsonl.lock")):
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", ADD, str(path), str(seed)], cwd=Path(__file__).parents[1]
            )
            for seed in (0, 1)
        ]
        time.sleep(0.2)
    assert [process.wait() for process in processes] == [0, 0]
    assert sorted(read_stored(path).row("long").runs) == [0, 1]


# --- the runs of a study


@pytest.fixture
def study(tmp_path):
    """Two rows and a shorter baseline with two seeds each; their YAMLs are those of the fake runs."""
    folder = tmp_path / "experiments" / "quickstart"
    (folder / "budget").mkdir(parents=True)
    for name in ("baseline", "long", "budget/as_long"):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(CONFIG))
    return Study(folder, ("baseline", "long"), {"others": 2}, margin=1.0, equal_flops=("long",))


@pytest.fixture
def gather(study, runs):
    """Gather from the run folders of a machine, by default that of the fixture ``runs``."""

    def call(machine=runs):
        def run_dirs(row, seed):
            return [RunDir(machine / place / f"seed{seed}") for place in (row, f"budget/{row}")]

        return gather_runs(study, run_dirs)

    return call


def have(gathered):
    return {key: run.date[8:10] for key, run in gathered.runs.items()}


def test_stored_runs_and_run_folders_are_merged_and_the_newest_counts(
    study, gather, runs, tmp_path
):
    for seed in (0, 1):
        fake_run(runs, "baseline", seed, date=f"2026-11-0{seed + 1}T12:00:00+00:00")
    fake_run(runs / "budget", "as_long", 0, date="2026-11-03T12:00:00+00:00")
    stored = store_gathered(gather(), ("open", "close"))
    assert stored.comparison.class_names == ("open", "close")
    # Another machine has only the files of the repository, and trains one run again and one more.
    other = tmp_path / "other"
    fake_run(other, "baseline", 1, date="2026-11-08T12:00:00+00:00")
    fake_run(other, "long", 0, date="2026-11-09T12:00:00+00:00")
    found = gather(other)
    assert have(found) == {
        ("baseline", 0): "01",
        ("baseline", 1): "08",
        ("long", 0): "09",
        ("as_long", 0): "03",
    }
    again = store_gathered(found, ())
    assert again.comparison.class_names == ("open", "close")
    # The files alone give the same runs.
    assert have(gather(tmp_path / "nowhere")) == have(found)
    stored = read_stored(RunsDir(study.folder / "budget").stored_jsonl)
    assert [row.name for row in stored.rows] == ["as_long"]


def test_stored_runs_of_another_recipe_do_not_count(study, gather, runs, tmp_path):
    fake_run(runs, "baseline", 0)
    store_gathered(gather(), ())
    changed = {**CONFIG, "SOLVER": {"STEPS": [0, 5, 8]}}
    (study.folder / "baseline.yaml").write_text(yaml.safe_dump(changed))
    found = gather(tmp_path / "nowhere")
    assert have(found) == {}
    assert [(run.experiment, run.seed) for run in found.of_another_recipe] == [
        ("quickstart/baseline", 0)
    ]
    assert "SOLVER.STEPS" in gather().refused[runs / "baseline" / "seed0"][0]


def test_a_run_without_its_evaluations_does_not_count(study, gather, runs):
    """Its time to target would be unknown. A stored run of the seed stays."""
    for seed in (0, 1):
        fake_run(runs, "baseline", seed)
    store_gathered(gather(), ())
    fake_run(runs, "long", 0)
    for name in ("baseline", "long"):
        RunDir(runs / name / "seed0").evaluations_jsonl.unlink()
    found = gather()
    assert [*found.runs] == [("baseline", 0), ("baseline", 1)]
    assert found.runs["baseline", 0].curve
    assert "evaluations.jsonl" in found.refused[runs / "long" / "seed0"][0]
    # Nor does a copy of a run folder, as another seed.
    shutil.rmtree(runs / "baseline" / "seed0")
    (runs / "baseline" / "seed1").rename(runs / "baseline" / "seed0")
    assert "seed 1, not 0" in gather().refused[runs / "baseline" / "seed0"][0]


def test_stored_runs_of_seeds_and_rows_that_a_study_no_longer_has_stay_in_the_file(
    study, gather, runs
):
    for row, seed in (("baseline", 0), ("baseline", 1), ("long", 0)):
        fake_run(runs, row, seed)
    store_gathered(gather(), ("open", "close"))
    smaller = Study(study.folder, ("baseline",), {"others": 1}, margin=1.0)
    found = gather_runs(smaller, lambda row, seed: [])
    assert [*found.runs] == [("baseline", 0)]
    page = store_gathered(found, ())
    assert [(row.name, [*row.runs]) for row in page.comparison.rows] == [("baseline", [0])]
    stored = read_stored(RunsDir(study.folder).stored_jsonl)
    assert {row.name: [*row.runs] for row in stored.rows} == {"baseline": [0, 1], "long": [0]}


def test_a_shorter_baseline_has_the_flops_of_its_row(tmp_path, monkeypatch):
    """As many as long+short, within 0.5 %, for a set of 1,200 videos and a network whose cost follows t·s²."""

    def count(network, shapes):
        return {(frames, crop): frames * crop**2 for frames, crop in shapes}

    monkeypatch.setattr("mgexp.plan.row_schedules.count_macs", count)
    videos = {"DATA.NUM_VIDEOS": 1200}
    one_shape = {"MULTIGRID.LONG_CYCLE": False, "MULTIGRID.SHORT_CYCLE": False}
    write_config(tmp_path / "baseline.yaml", {**videos, **one_shape})
    write_config(tmp_path / "long_short.yaml", videos)
    names = ("baseline", "long_short")
    study = Study(tmp_path, names, {"others": 1}, margin=1.0, equal_flops=("long_short",))
    gathered = gather_runs(study, lambda row, seed: [])
    (text,) = new_budgets(gathered).values()
    path = study.yamls["as_long_short"]
    path.parent.mkdir()
    path.write_text(text)
    yamls = {name: study.yamls[name] for name in ("long_short", "as_long_short")}
    flops = {row.name: row.train_flops for row in load_schedules(yamls, {})}
    assert flops["long_short"] == pytest.approx(flops["as_long_short"], rel=5e-3)
