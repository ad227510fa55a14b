"""Runs read from run folders and from runs.jsonl."""

from dataclasses import replace
from pathlib import Path

import pytest
from fake_experiments import experiments_with, result
from fake_runs import fake_run, save_predictions

from mgexp.errors import InputError
from mgexp.results.comparison import Comparison
from mgexp.results.store import (
    load_comparison,
    load_runs,
    read_stored,
    write_stored,
)
from mgexp.run.clock import CLOCKS
from mgexp.run.files import append_jsonl, read_json, write_json

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


# --- run folders


def test_the_seconds_of_a_run_that_went_on_elsewhere_compare_with_no_other(tmp_path):
    fake_run(tmp_path, "baseline", threads=2)
    moved = fake_run(tmp_path, "long", threads=2)
    for threads in (2, 16, 16, 16):
        append_jsonl(moved.starts_jsonl, {"threads": threads, "changes": []})
    comparison = load_runs(tmp_path)
    row = comparison.row("long")
    assert row.runs[1].environment["threads"] == "2, then 16"
    pair = comparison.pair(row)
    assert (pair.seeds, pair.timed_alike.seeds, pair.speed_up) == ((1,), (), None)


# --- runs.jsonl


def test_stored_runs_read_back_as_they_were(tmp_path):
    folder = tmp_path / "runs" / "quickstart"
    run = fake_run(folder, "baseline", 0, curve=((10.0, 50.0),), controls={"repeated": 17.0})
    save_predictions(run, ((0, 0, 3), (0, 1, 1)))
    fake_run(folder, "long_short", 0, top1=89.0)
    comparison = replace(load_runs(folder), class_names=("open", "close"))
    write_stored(tmp_path / "runs.jsonl", comparison)
    assert read_stored(tmp_path / "runs.jsonl") == comparison


def test_the_stored_runs_of_this_repository_keep_their_bytes(tmp_path):
    for path in EXPERIMENTS.rglob("runs.jsonl"):
        write_stored(tmp_path / "again.jsonl", read_stored(path))
        assert (tmp_path / "again.jsonl").read_bytes() == path.read_bytes()


def test_stored_shorter_baselines_are_beside_the_rows(tmp_path):
    fake_run(tmp_path / "runs", "long")
    fake_run(tmp_path / "shorter", "as_long")
    for folder, name, runs in (("", "long", "runs"), ("budget", "as_long", "shorter")):
        place = tmp_path / "rows" / folder
        place.mkdir(parents=True)
        (place / f"{name}.yaml").touch()
        write_stored(place / "runs.jsonl", load_runs(tmp_path / runs))
    found = load_comparison(tmp_path / "rows")
    assert [row.name for row in found.rows] == ["long"]
    assert [row.name for row in found.shorter] == ["as_long"]


def test_the_seconds_of_busy_runs_do_not_count(tmp_path):
    """Neither those of run folders nor those that are stored, also of a shorter baseline."""
    for name in ("baseline", "budget/as_long"):
        run = fake_run(tmp_path / "runs", name, 0)
        write_json(run.result_json, {**read_json(run.result_json), "other_cores": 0.5})
    fake_run(tmp_path / "runs", "baseline", 1)
    of_folders = load_comparison(tmp_path / "runs")
    for folder, rows in ((tmp_path, of_folders.rows), (tmp_path / "budget", of_folders.shorter)):
        folder.mkdir(exist_ok=True)
        (folder / f"{rows[0].name}.yaml").touch()
        write_stored(folder / "runs.jsonl", Comparison(rows))
    for found in (of_folders, load_comparison(tmp_path)):
        assert found.row("baseline").runs[0].is_busy
        assert [*found.in_usual_setting.baseline.runs] == [1]
        assert not found.row("as_long").runs[0].is_timed


def test_the_seconds_of_busy_and_early_runs_and_of_other_threads_are_not_compared(tmp_path):
    yamls = {"a/baseline": "ROW: baseline\n", "a/long": "ROW: long\n"}
    base, own = ([result(name, seed) for seed in range(4)] for name in yamls)
    base[2] = replace(base[2], date="2026-11-21T11:59:00+00:00")
    own[0] = replace(own[0], other_cores=0.5)
    own[3] = replace(own[3], environment={"threads": 2})
    experiments = experiments_with(tmp_path, yamls, *base, *own)
    (tmp_path / "a" / "study.yaml").write_text(
        "rows: [baseline, long]\nseeds: 3\nmargin: 1.0\nseconds_since: 2026-11-21T12:00+00:00\n"
    )
    (pair,) = load_comparison(experiments / "a").pairs
    assert pair.seeds == (0, 1, 2, 3)
    assert pair.timed_alike.seeds == (1,)


@pytest.mark.parametrize("text", ["", '{"class_names": []}\n{"name": "long"}\n', '{"a": 1}\n'])
def test_stored_runs_without_their_end_are_not_taken_for_all(text, tmp_path):
    """Nor is a file of something else."""
    path = tmp_path / "runs.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=r"runs\.jsonl"):
        read_stored(path)
    fake_run(tmp_path / "runs" / "quickstart", "baseline", 0)
    write_stored(path, load_runs(tmp_path / "runs" / "quickstart"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"runs\.jsonl"):
        read_stored(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("evaluations.jsonl", '{"step": 3}\n'),
        ("starts.jsonl", '{"given": 3}\n'),
        ("scores_1x1_forward.npz", "text"),
        ("scores_1x1_forward.npz", ""),
    ],
)
def test_a_damaged_file_of_a_run_names_its_folder(name, text, tmp_path):
    run = fake_run(tmp_path / "runs" / "quickstart", "baseline", 0)
    (run.root / name).write_text(text)
    with pytest.raises(InputError, match="seed0: "):
        load_runs(tmp_path / "runs" / "quickstart")


@pytest.mark.parametrize(
    "change",
    [
        {"date": "2026-11-21T12:00:00"},
        {"seconds": dict.fromkeys(CLOCKS[:-1], 1.0)},
        {"seconds": {**dict.fromkeys(CLOCKS, 1.0), "evaluate": None}},
        {"metrics": []},
    ],
)
def test_a_result_without_a_value_is_named(change, tmp_path):
    run = fake_run(tmp_path / "runs" / "quickstart", "baseline", 0)
    write_json(run.result_json, {**read_json(run.result_json), **change})
    with pytest.raises(InputError, match=r"result\.json"):
        load_runs(tmp_path / "runs" / "quickstart")
