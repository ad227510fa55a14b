"""Which checkpoint a run goes on after."""

import pytest
import torch
from torch import nn

from mgexp.dist import Processes
from mgexp.errors import InputError, TrainingError
from mgexp.run.clock import Clock
from mgexp.run.folder import RunDir
from mgexp.run.torch_file import read_seal
from mgexp.train.checkpoint import State, save_checkpoint
from mgexp.train.resume import NO_CHOICE, choose_checkpoint, schedule_problems, set_aside, take_over


def new_state(weight=0.0, step=0, size=1):
    model = nn.Linear(size, 1, bias=False)
    nn.init.constant_(model.weight, weight)
    return State(model, torch.optim.SGD(model.parameters(), lr=0.1), Clock(), step=step)


@pytest.fixture
def run_dir(tmp_path):
    """With checkpoints after 5, 10 and 15 steps; their weight is their step."""
    found = RunDir(tmp_path)
    found.checkpoints.mkdir()
    for step in (5, 10, 15):
        save_checkpoint(found, new_state(float(step), step), {"steps": 20, "phases": []}, 3)
    return found


def damage(run_dir, *steps):
    for step in steps:
        path = run_dir.checkpoint(step)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


def taken_over(run_dir):
    state = new_state()
    take_over(run_dir, state, choose_checkpoint(run_dir), Processes())
    return state


def test_the_last_one_is_taken(run_dir):
    state = taken_over(run_dir)
    assert (state.step, state.model.weight.item()) == (15, 15.0)
    choice = choose_checkpoint(run_dir)
    assert (choice.checkpoint.seal, choice.damaged) == (read_seal(run_dir.checkpoint(15)), ())


def test_without_any_the_state_stays(tmp_path):
    state = new_state(3.0)
    take_over(RunDir(tmp_path), state, choose_checkpoint(RunDir(tmp_path)), Processes())
    assert (state.step, state.model.weight.item()) == (0, 3.0)


def test_after_a_damaged_one_comes_the_one_before_loudly(run_dir, caplog):
    damage(run_dir, 15, 10)
    choice = choose_checkpoint(run_dir)
    assert run_dir.checkpoint_steps() == (5, 10, 15)  # it only looks
    set_aside(run_dir, choice)
    assert run_dir.checkpoint_steps() == (5,)
    assert taken_over(run_dir).step == 5
    assert "step_00000015.pt cannot be read: its bytes are not those" in caplog.text
    assert "it is kept as step_00000010.pt.damaged" in caplog.text
    assert "DAMAGED CHECKPOINT: going on after step 5 instead of step 15" in caplog.text


def test_a_damaged_one_does_not_push_out_those_that_follow(run_dir):
    """Its step is later than theirs, for a while."""
    damage(run_dir, 15)
    set_aside(run_dir, choose_checkpoint(run_dir))
    save_checkpoint(run_dir, new_state(step=12), num_kept=1)
    assert run_dir.checkpoint_steps() == (12,)


def test_if_all_are_damaged_nothing_begins_anew(run_dir):
    damage(run_dir, 5, 10, 15)
    with pytest.raises(InputError) as caught:
        choose_checkpoint(run_dir)
    text = str(caught.value)
    assert "4 problems found" in text
    assert "is whole: restore one from a copy; or, to begin again at step 0, remove" in text
    assert run_dir.checkpoint_steps() == (5, 10, 15)


def test_a_checkpoint_of_an_earlier_version_is_taken(run_dir):
    """It has neither a seal nor a schedule."""
    old = {
        k: v for k, v in new_state(20.0, 20).state_dict().items() if k not in ("levels", "scaler")
    }
    torch.save(old, run_dir.checkpoint(20))
    assert taken_over(run_dir).model.weight.item() == 20.0
    choice = choose_checkpoint(run_dir)
    assert schedule_problems(choice, {"steps": 7, "phases": []}, override=False) == []


def test_what_is_whole_and_no_checkpoint_is_an_error_not_damage(run_dir):
    class Evil:
        def __reduce__(self):
            return (print, ("ran",))

    torch.save({"model": Evil()}, run_dir.checkpoint(20))
    with pytest.raises(
        TrainingError, match=r"step_00000020\.pt cannot be read, though it is whole"
    ):
        choose_checkpoint(run_dir)


def test_another_schedule_is_refused_in_words(run_dir):
    choice, now = choose_checkpoint(run_dir), {"steps": 30, "phases": []}
    with pytest.raises(InputError, match=r"steps: 20 before, now 30(.|\n)*--override"):
        schedule_problems(choice, now, override=False)
    problems = schedule_problems(choice, now, override=True)
    assert problems == ["schedule: steps: 20 before, now 30"]
    assert schedule_problems(choice, {"steps": 20, "phases": []}, override=False) == []
    assert schedule_problems(NO_CHOICE, now, override=False) == []


def test_another_model_is_told_as_such(run_dir):
    state = new_state(size=2)
    with pytest.raises(
        InputError, match="does not fit this configuration, choose another --output"
    ):
        take_over(run_dir, state, choose_checkpoint(run_dir), Processes())


def second_process(run_dir, monkeypatch, wanted):
    """The state of a process that is not the main one, which wants ``wanted``."""
    monkeypatch.setattr("mgexp.dist.from_main", lambda processes, value: wanted)
    monkeypatch.setattr("mgexp.dist.merge", lambda processes, own: own)
    state = new_state()
    take_over(run_dir, state, NO_CHOICE, Processes(1, 2))
    return state


def test_other_processes_load_what_the_main_one_chose(run_dir, monkeypatch):
    """Not the last that they see."""
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
