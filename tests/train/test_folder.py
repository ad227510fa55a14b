"""The run folder at the start of a run."""

import csv

import pytest
from tiny import tiny_config

from mgexp.config.load import to_yaml
from mgexp.errors import InputError
from mgexp.run.files import append_jsonl, read_json, read_jsonl, write_json
from mgexp.run.folder import RunDir
from mgexp.train.setup import schedule_of
from mgexp.train.start import check_folder, config_problems, cut_records, is_evaluated, write_folder

VIDEOS = {"num_train_videos": 24, "train_sha256": "abc", "missing": []}


@pytest.fixture
def run_dir(tmp_path):
    found = RunDir(tmp_path / "run")
    found.root.mkdir()
    return found


@pytest.fixture
def written(run_dir, tmp_path):
    cfg = tiny_config(tmp_path)
    write_folder(run_dir, to_yaml(cfg), VIDEOS, schedule_of(cfg, 24))
    return run_dir


def config(tmp_path, **changes):
    return to_yaml(tiny_config(tmp_path, {k.replace("__", "."): v for k, v in changes.items()}))


def test_a_new_folder_and_the_same_run_are_fine(run_dir, tmp_path):
    cfg = tiny_config(tmp_path)
    check_folder(run_dir, to_yaml(cfg), VIDEOS, override=False)
    write_folder(run_dir, to_yaml(cfg), VIDEOS, schedule_of(cfg, 24))
    check_folder(run_dir, to_yaml(cfg), VIDEOS, override=False)


@pytest.fixture
def checkpointed(written):
    """A folder whose run has come somewhere."""
    written.checkpoints.mkdir()
    written.checkpoint(7).touch()
    return written


def test_every_difference_is_listed(checkpointed, tmp_path):
    other = config(tmp_path, SOLVER__BASE_LR=0.5, RNG_SEED=3)
    with pytest.raises(InputError) as caught:
        check_folder(checkpointed, other, {**VIDEOS, "num_train_videos": 23}, override=False)
    text = str(caught.value)
    for words in ("SOLVER.BASE_LR", "RNG_SEED", "was 24, now it is 23", "--override"):
        assert words in text
    changes = check_folder(checkpointed, other, VIDEOS, override=True)
    assert [change.split(":")[0] for change in changes] == ["SOLVER.BASE_LR", "RNG_SEED"]


def test_anything_may_change_before_the_first_checkpoint(written, tmp_path):
    other = config(tmp_path, SOLVER__BASE_LR=0.5)
    assert check_folder(written, other, VIDEOS, override=False) == []


def test_every_start_is_recorded(checkpointed, tmp_path, caplog):
    cfg = tiny_config(tmp_path)
    first = read_json(checkpointed.environment_json)
    write_json(checkpointed.environment_json, {**first, "torch": "1.0"})
    write_folder(checkpointed, to_yaml(cfg), VIDEOS, schedule_of(cfg, 24), ["SOLVER.BASE_LR: …"])
    lines = read_jsonl(checkpointed.starts_jsonl)
    assert [(line["after_step"], line["changes"]) for line in lines] == [
        (0, []),
        (7, ["SOLVER.BASE_LR: …"]),
    ]
    assert read_json(checkpointed.environment_json)["torch"] == "1.0"
    assert "torch was 1.0 at the first start" in caplog.text


def test_a_start_says_which_keys_were_given_beside_the_yaml(run_dir, tmp_path):
    cfg = tiny_config(tmp_path)
    given = ("SOLVER.BASE_LR",)
    write_folder(run_dir, to_yaml(cfg), VIDEOS, schedule_of(cfg, 24), given=given)
    assert read_jsonl(run_dir.starts_jsonl)[0]["given"] == ["SOLVER.BASE_LR"]


def test_ignored_sections_may_differ(written, tmp_path):
    other = config(tmp_path, TEST__NUM_ENSEMBLE_VIEWS=5, SOLVER__BASE_LR=0.5)
    problems = config_problems(written, other, ignored=("TEST.",))
    assert problems == ["SOLVER.BASE_LR: the run folder has 0.005, this start 0.5"]


def test_the_schedule_is_a_table_of_phases(written):
    with written.schedule_csv.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["start_step"] for row in rows] == ["0", "2", "4", "6", "8", "9"]
    assert rows[0]["cycle"] == "64x2x16 32x2x23 32x2x23"


def test_records_of_what_is_done_again_are_forgotten(written):
    for step in range(6):
        append_jsonl(written.metrics_jsonl, {"step": step})
    for step, full in ((2, False), (4, False), (5, False), (4, True)):
        append_jsonl(written.evaluations_jsonl, {"step": step, "full_protocol": full})
    cut_records(written, 4)
    assert [line["step"] for line in read_jsonl(written.metrics_jsonl)] == [0, 1, 2, 3]
    left = [(line["step"], line["full_protocol"]) for line in read_jsonl(written.evaluations_jsonl)]
    assert left == [(2, False), (4, False)]
    assert is_evaluated(written, 4)
    assert not is_evaluated(written, 5)
