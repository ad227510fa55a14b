"""How a run starts in its folder, which checkpoint it resumes from, and how schedules are compared."""

from dataclasses import replace

import pytest
import torch
from tiny import tiny_config
from torch import nn

from mgexp.config.load import to_yaml
from mgexp.data.time_limit import VideoFailure, read_failures, write_failure
from mgexp.dist import Processes
from mgexp.errors import InputError
from mgexp.run.clock import Clock
from mgexp.run.files import append_jsonl, read_json, read_jsonl, write_json
from mgexp.run.folder import RunDir
from mgexp.run.torch_file import read_seal
from mgexp.train.checkpoint import State, save_checkpoint
from mgexp.train.resume import (
    Choice,
    check_folder,
    choose_checkpoint,
    config_problems,
    cut_records,
    differences,
    fingerprint,
    forget_failures,
    is_evaluated,
    mend_records,
    schedule_problems,
    set_aside,
    take_over,
    write_folder,
)
from mgexp.train.setup import build_row_schedule


def new_state(weight=0.0, step=0, size=1):
    model = nn.Linear(size, 1, bias=False)
    nn.init.constant_(model.weight, weight)
    return State(model, torch.optim.SGD(model.parameters(), lr=0.1), Clock(), step=step)


@pytest.fixture
def run_dir(tmp_path):
    """A run folder with checkpoints after 5, 10 and 15 steps. The weight in each equals its step."""
    found = RunDir(tmp_path)
    found.checkpoints.mkdir()
    for step in (5, 10, 15):
        save_checkpoint(found, new_state(float(step), step), {"steps": 20, "phases": []}, 3)
    return found


def damage(run_dir, *steps):
    for step in steps:
        path = run_dir.checkpoint(step)
        path.write_bytes(path.read_bytes()[:-100])


def taken_over(run_dir):
    state = new_state()
    take_over(run_dir, state, choose_checkpoint(run_dir), Processes())
    return state


def test_the_last_checkpoint_is_taken(run_dir):
    state = taken_over(run_dir)
    assert (state.step, state.model.weight.item()) == (15, 15.0)
    choice = choose_checkpoint(run_dir)
    assert (choice.checkpoint.seal, choice.damaged) == (read_seal(run_dir.checkpoint(15)), ())


def test_after_a_damaged_checkpoint_the_one_before_is_taken_with_a_warning(run_dir, caplog):
    damage(run_dir, 15, 10)
    choice = choose_checkpoint(run_dir)
    assert run_dir.checkpoint_steps() == (5, 10, 15)  # it only looks
    set_aside(run_dir, choice)
    assert run_dir.checkpoint_steps() == (5,)
    assert taken_over(run_dir).step == 5
    assert "step_00000010.pt.damaged" in caplog.text
    assert "resuming after step 5 instead of step 15" in caplog.text


def test_a_damaged_checkpoint_does_not_push_out_later_ones(run_dir):
    """The damaged checkpoint has a later step than the new ones at first."""
    damage(run_dir, 15)
    set_aside(run_dir, choose_checkpoint(run_dir))
    save_checkpoint(run_dir, new_state(step=12), num_kept=1)
    assert run_dir.checkpoint_steps() == (12,)


def test_if_all_checkpoints_are_damaged_the_run_does_not_begin_again(run_dir):
    damage(run_dir, 5, 10, 15)
    with pytest.raises(InputError, match="4 problems found"):
        choose_checkpoint(run_dir)
    assert run_dir.checkpoint_steps() == (5, 10, 15)


def test_another_schedule_is_refused_in_words(run_dir):
    checkpoint, now = choose_checkpoint(run_dir).checkpoint, {"steps": 30, "phases": []}
    with pytest.raises(InputError, match=r"steps: 20 before, now 30(.|\n)*--override"):
        schedule_problems(checkpoint, now, override=False)
    problems = schedule_problems(checkpoint, now, override=True)
    assert problems == ["schedule: steps: 20 before, now 30"]
    assert schedule_problems(checkpoint, {"steps": 20, "phases": []}, override=False) == []


def test_another_model_is_named_as_the_reason(run_dir):
    with pytest.raises(InputError, match="does not fit this configuration"):
        take_over(run_dir, new_state(size=2), choose_checkpoint(run_dir), Processes())


def second_process(run_dir, monkeypatch, wanted):
    """Return the state of rank 1 after rank 0 asked for the checkpoint ``wanted``."""
    monkeypatch.setattr("mgexp.dist.from_main", lambda processes, value: wanted)
    monkeypatch.setattr("mgexp.dist.merge", lambda processes, own: own)
    state = new_state()
    take_over(run_dir, state, Choice(), Processes(1, 2))
    return state


def test_other_processes_load_what_the_main_one_chose(run_dir, monkeypatch):
    """They do not load the last checkpoint that they see."""
    wanted = (10, read_seal(run_dir.checkpoint(10)))
    assert second_process(run_dir, monkeypatch, wanted).step == 10
    assert second_process(run_dir, monkeypatch, None).step == 0


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ((10, "mgexp sha256 of another"), "process 1: .* is not the file that process 0 read"),
        ((20, None), "process 1: .*No such file.*the run folder must be the same"),
    ],
)
def test_another_file_than_the_main_process_s_is_an_error(wanted, words, run_dir, monkeypatch):
    with pytest.raises(InputError, match=words):
        second_process(run_dir, monkeypatch, wanted)


VIDEOS = {"num_train_videos": 24, "train_sha256": "abc", "missing": []}


@pytest.fixture
def folder(tmp_path):
    found = RunDir(tmp_path / "run")
    found.root.mkdir()
    return found


@pytest.fixture
def written(folder, tmp_path):
    cfg = tiny_config(tmp_path)
    write_folder(folder, to_yaml(cfg), VIDEOS, build_row_schedule(cfg, 24))
    return folder


def config(tmp_path, changes=None):
    return to_yaml(tiny_config(tmp_path, changes))


@pytest.fixture
def checkpointed(written):
    written.checkpoints.mkdir()
    written.checkpoint(7).touch()
    return written


def test_every_difference_is_listed(checkpointed, tmp_path):
    other = config(tmp_path, {"SOLVER.BASE_LR": 0.5, "RNG_SEED": 3})
    with pytest.raises(InputError) as caught:
        check_folder(checkpointed, other, {**VIDEOS, "num_train_videos": 23}, override=False)
    text = str(caught.value)
    videos = "number of training videos: 24 at the first start, 23 now"
    for words in ("SOLVER.BASE_LR", "RNG_SEED", videos, "--override"):
        assert words in text
    changes = check_folder(checkpointed, other, VIDEOS, override=True)
    assert [change.split(":")[0] for change in changes] == ["SOLVER.BASE_LR", "RNG_SEED"]


def test_a_complete_run_takes_no_other_key(checkpointed, tmp_path):
    """It trains no more, so --override would have no effect."""
    write_json(checkpointed.result_json, {})
    other = config(tmp_path, {"SOLVER.BASE_LR": 0.5})
    assert check_folder(checkpointed, config(tmp_path), VIDEOS, override=True) == []
    for override in (False, True):
        with pytest.raises(InputError, match="need another --output") as caught:
            check_folder(checkpointed, other, VIDEOS, override)
        assert "--override" not in str(caught.value)


def test_anything_may_change_before_the_first_checkpoint_and_is_told(written, tmp_path, caplog):
    cfg = tiny_config(tmp_path, {"SOLVER.BASE_LR": 0.5})
    assert check_folder(written, to_yaml(cfg), VIDEOS, override=False) == []
    write_folder(written, to_yaml(cfg), VIDEOS, build_row_schedule(cfg, 24))
    assert "SOLVER.BASE_LR" in caplog.text


def test_every_start_is_recorded(checkpointed, tmp_path, caplog):
    cfg, given = tiny_config(tmp_path), ["SOLVER.BASE_LR"]
    first = read_json(checkpointed.environment_json)
    write_json(checkpointed.environment_json, {**first, "torch": "1.0"})
    schedule = build_row_schedule(cfg, 24)
    write_folder(checkpointed, to_yaml(cfg), VIDEOS, schedule, ["a change"], given)
    lines = read_jsonl(checkpointed.starts_jsonl)
    found = [(line["after_step"], line["changes"], line["given"]) for line in lines]
    assert found == [(0, [], []), (7, ["a change"], given)]
    assert read_json(checkpointed.environment_json)["torch"] == "1.0"
    assert "torch was 1.0 at the first start" in caplog.text


def test_ignored_sections_may_differ(written, tmp_path):
    other = config(tmp_path, {"TEST.NUM_ENSEMBLE_VIEWS": 5, "SOLVER.BASE_LR": 0.5})
    problems = config_problems(written, other, ignored=("TEST.",))
    assert problems == ["SOLVER.BASE_LR: the run folder has 0.005, this start 0.5"]


def test_records_of_steps_that_are_done_again_are_dropped(written):
    for step in range(6):
        append_jsonl(written.metrics_jsonl, {"step": step})
    for step, full in ((2, False), (4, False), (5, False), (4, True)):
        line = {"step": step, "full_protocol": full, "top1": 50.0}
        append_jsonl(written.evaluations_jsonl, line)
    cut_records(written, 4)
    assert [line["step"] for line in read_jsonl(written.metrics_jsonl)] == [0, 1, 2, 3]
    left = [(line["step"], line["full_protocol"]) for line in read_jsonl(written.evaluations_jsonl)]
    assert left == [(2, False), (4, False)]
    assert is_evaluated(written, 4)
    assert not is_evaluated(written, 5)


def test_a_torn_line_is_cut_before_another_is_appended(written):
    for path in (written.failures_jsonl, written.evaluations_jsonl):
        append_jsonl(path, {"step": 1})
        with path.open("a") as file:
            file.write('{"step": 2, "to')
    mend_records(written)
    for path in (written.failures_jsonl, written.evaluations_jsonl):
        append_jsonl(path, {"step": 3})
        assert read_jsonl(path) == [{"step": 1}, {"step": 3}]
    assert not written.metrics_jsonl.exists()


@pytest.mark.parametrize(("num_allowed", "kept"), [(1, ["a", "b", "a"]), (0, [])])
def test_failures_that_stopped_a_start_are_tried_again(written, num_allowed, kept):
    def check(paths):
        if len(paths) > num_allowed:
            raise InputError(["too many"])

    forget_failures(written, check)
    for path, seed in (("a", (0, 1)), ("b", None), ("a", (0, 9))):
        write_failure(written.failures_jsonl, VideoFailure(path, seed))
    forget_failures(written, check)
    assert [one.path for one in read_failures(written.failures_jsonl)] == kept


@pytest.fixture
def schedule(tmp_path):
    return build_row_schedule(tiny_config(tmp_path), 24)


def changed(schedule, number, **fields):
    """Change one phase of the schedule, as another version of the code might."""
    phases = list(schedule.phases)
    phases[number] = replace(phases[number], **fields)
    return replace(schedule, phases=tuple(phases))


def test_values_are_plain_and_come_back(schedule, tmp_path):
    found = fingerprint(schedule, 0)
    torch.save(found, tmp_path / "x.pt")
    assert torch.load(tmp_path / "x.pt", weights_only=True) == found
    assert differences(found, fingerprint(schedule, 0)) == []
    assert found["phases"][0] == {
        "steps": "0–2",
        "stage": 0,
        "first clip": 0,
        "mini-batches": "64x2x16² 32x2x23² 32x2x23²",
        "strides": "1–4",
        "clips of a BN group": 4,
        "first learning rate": 0.04,
        "last learning rate": 0.04,
    }


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"lr_factor": 1.0}, "phase 1, first learning rate: 0.02 before, now 0.005"),
        ({"num_bn_groups": 1}, "phase 1, clips of a BN group: 4 before, now 16"),
    ],
)
def test_each_change_is_named(fields, said, schedule):
    other = changed(schedule, 1, **fields)
    (text,) = differences(fingerprint(schedule, 0), fingerprint(other, 0))
    assert said in text
    shorter = replace(other, phases=other.phases[:-1])
    (text,) = differences(fingerprint(other, 0), fingerprint(shorter, 0))
    assert "phase 5, steps: 9–10 before, now gone" in text


def test_other_draws_are_another_schedule(schedule):
    (text,) = differences(fingerprint(schedule, 0), fingerprint(schedule, 1))
    assert text.startswith("schedule: first videos of the stream: [")


@pytest.mark.parametrize("group", [4, 0])
def test_the_number_of_processes_changes_nothing(group, tmp_path):
    """A group of 4 clips spans all processes at the full shape; without batch norm there are none."""
    cfg = tiny_config(tmp_path, {"MULTIGRID.BN_BASE_SIZE": group})
    one, two, four = (
        fingerprint(build_row_schedule(cfg, 24, num), 0, group > 0) for num in (1, 2, 4)
    )
    assert differences(one, two) == differences(one, four) == []


def test_the_last_bits_of_a_learning_rate_may_differ(schedule):
    factor = schedule.phases[0].lr_factor * (1 + 1e-14)
    other = fingerprint(changed(schedule, 0, lr_factor=factor), 0)
    assert differences(fingerprint(schedule, 0), other) == []


def test_another_order_of_shapes_is_reported(tmp_path):
    short = {"MULTIGRID.LONG_CYCLE": False}
    ordered = fingerprint(build_row_schedule(tiny_config(tmp_path, short), 24), 0)
    changes = {**short, "MULTIGRID.SHAPE_ORDER": "random"}
    permuted = fingerprint(build_row_schedule(tiny_config(tmp_path, changes), 24), 0)
    assert "phase 1, mini-batches: " in " ".join(differences(ordered, permuted))


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("metrics.jsonl", {}),
        ("evaluations.jsonl", {"step": 3}),
        ("evaluations.jsonl", {"step": 3, "full_protocol": False}),
    ],
)
def test_records_that_lack_a_key_name_their_file_before_training(name, line, checkpointed):
    append_jsonl(checkpointed.root / name, line)
    with pytest.raises(InputError, match=f"{name}: its contents are not those that mgexp writes"):
        cut_records(checkpointed, 7)
