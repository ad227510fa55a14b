"""State on disk: a round trip, what is kept, and files that cannot be read."""

import pytest
import torch
from torch import nn

from mgexp.errors import TrainingError
from mgexp.record.clock import Clock
from mgexp.record.run_dir import RunDir
from mgexp.train.checkpoint import State, load_checkpoint, load_torch, save_checkpoint


@pytest.fixture
def run_dir(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    return RunDir(tmp_path)


def new_state(weight=0.0):
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, weight)
    return State(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), Clock())


def test_a_state_comes_back(run_dir):
    state = new_state(2.0)
    state.model.weight.grad = torch.ones(1, 1)
    state.optimizer.step()
    state.step, state.epoch, state.unusable = 7, 1.25, {3: "a.mp4: is broken"}
    state.clock.add("train", 12.5)
    save_checkpoint(run_dir, state)
    found = new_state()
    assert load_checkpoint(run_dir, found)
    assert (found.step, found.epoch, found.unusable) == (7, 1.25, {3: "a.mp4: is broken"})
    assert found.clock.seconds("train") == 12.5
    assert found.model.weight.item() == pytest.approx(1.9)
    assert found.optimizer.state[found.model.weight]["momentum_buffer"].item() == 1.0


def test_the_last_two_are_kept_and_the_last_is_loaded(run_dir):
    for step in (5, 10, 15):
        state = new_state(float(step))
        state.step = step
        save_checkpoint(run_dir, state)
    assert run_dir.checkpoint_steps() == (10, 15)
    found = new_state()
    load_checkpoint(run_dir, found)
    assert (found.step, found.model.weight.item()) == (15, 15.0)


def test_without_a_checkpoint_the_state_stays(run_dir):
    state = new_state(3.0)
    assert not load_checkpoint(run_dir, state)
    assert (state.step, state.model.weight.item()) == (0, 3.0)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "step_00000005.pt"
    path.write_bytes(b"half a file")
    with pytest.raises(TrainingError, match=r"step_00000005\.pt cannot be read"):
        load_torch(path)


def test_code_in_a_file_is_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    torch.save({"model": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(TrainingError):
        load_torch(tmp_path / "evil.pt")
    assert not (tmp_path / "ran").exists()
