"""Runs that are kept beside their YAMLs read back as they were."""

from dataclasses import replace

import pytest
from fake_runs import CONFIG, fake_run

from mgexp.config.load import flatten
from mgexp.errors import InputError
from mgexp.results.compare import load_comparison, read_stored, store, write_stored
from mgexp.results.confusion import write_confusion
from mgexp.run.folder import RunsDir


def same(_experiment):
    """The configuration of every fake run, as its YAML."""
    return dict(flatten(CONFIG))


@pytest.fixture
def runs(tmp_path):
    """Two rows of quickstart, one with what it confuses; the experiments are beside them."""
    folder = tmp_path / "runs" / "quickstart"
    run = fake_run(folder, "baseline", 0, curve=((10.0, 50.0),), controls={"repeated": 17.0})
    write_confusion(run.confusion_csv, ((0, 0, 3), (0, 1, 1)))
    fake_run(folder, "long_short", 0, top1=89.0)
    fake_run(folder, "long_short", 1, top1=88.0)
    (tmp_path / "experiments" / "quickstart").mkdir(parents=True)
    return folder


def test_stored_runs_read_back_as_they_were(runs, tmp_path):
    comparison = replace(load_comparison(runs), class_names=("open", "close"))
    write_stored(tmp_path / "runs.jsonl", comparison)
    assert read_stored(tmp_path / "runs.jsonl") == comparison


def test_only_runs_of_results_csv_are_stored(runs, tmp_path):
    known = {runs / "baseline" / "seed0", runs / "long_short" / "seed1"}
    place = store(RunsDir(runs), known, tmp_path / "experiments", same)
    assert place.root == tmp_path / "experiments" / "quickstart"
    found = read_stored(place.stored_jsonl)
    assert {row.name: [*row.runs] for row in found.rows} == {"baseline": [0], "long_short": [1]}


def test_without_a_run_of_results_csv_nothing_is_stored(runs, tmp_path):
    with pytest.raises(InputError, match="no YAML"):
        store(RunsDir(runs), (), tmp_path / "experiments", same)
    assert not [*(tmp_path / "experiments").rglob("*.jsonl")]


def test_a_run_of_another_configuration_is_not_stored(runs, tmp_path):
    known = {runs / "baseline" / "seed0", runs / "long_short" / "seed1"}
    changed = {**same(""), "TRAIN.BATCH_SIZE": 16}
    with pytest.raises(InputError) as caught:
        store(RunsDir(runs), known, tmp_path / "experiments", lambda _: changed)
    assert caught.value.problems[0] == (
        f"{runs}/baseline/seed0 is not stored: TRAIN.BATCH_SIZE: the run had 8, its YAML now says 16; "
        "train it again"
    )
    assert not [*(tmp_path / "experiments").rglob("*.jsonl")]


@pytest.mark.parametrize("text", ["", '{"class_names": []}\n{"name": "long"}\n', '{"a": 1}\n'])
def test_a_file_of_something_else_is_bad_input(tmp_path, text):
    (tmp_path / "runs.jsonl").write_text(text)
    with pytest.raises(InputError, match="does not hold stored runs"):
        read_stored(tmp_path / "runs.jsonl")
