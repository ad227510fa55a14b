"""State on disk: a round trip, and which checkpoints are kept. The average of the weights, by hand in float64."""

import pytest
import torch
from torch import nn

from mgexp.errors import TrainingError
from mgexp.run.clock import Clock
from mgexp.run.files import append_jsonl
from mgexp.run.folder import RunDir
from mgexp.run.torch_file import load_torch
from mgexp.train.checkpoint import State, WeightAverage, best_step, save_checkpoint


@pytest.fixture
def run_dir(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    return RunDir(tmp_path)


def new_state(weight=0.0, step=0):
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return State(model, optimizer, Clock(), step=step)


def evaluated(run_dir, step, **metrics):
    append_jsonl(run_dir.evaluations_jsonl, {"step": step, "full_protocol": False, **metrics})


def test_a_state_comes_back(run_dir):
    state = new_state(2.0)
    state.model.weight.grad = torch.ones(1, 1)
    state.optimizer.step()
    state.step, state.epoch, state.unusable = 7, 1.25, {3: "a.mp4: is broken"}
    state.clock.add("train", 12.5)
    save_checkpoint(run_dir, state, {"steps": 10})
    saved = load_torch(run_dir.checkpoint(7))
    assert saved["schedule"] == {"steps": 10}
    found = new_state()
    found.load_state_dict(saved)
    assert (found.step, found.epoch, found.unusable) == (7, 1.25, {3: "a.mp4: is broken"})
    assert found.clock.seconds("train") == 12.5
    assert found.model.weight.item() == pytest.approx(1.9)
    assert found.optimizer.state[found.model.weight]["momentum_buffer"].item() == 1.0


@pytest.mark.parametrize(("num_kept", "left"), [(1, (20,)), (2, (15, 20)), (9, (5, 10, 15, 20))])
def test_the_last_are_kept(num_kept, left, run_dir):
    for step in (5, 10, 15, 20):
        save_checkpoint(run_dir, new_state(step=step), num_kept=num_kept)
    assert run_dir.checkpoint_steps() == left


def test_that_of_the_best_evaluation_is_kept_too(run_dir):
    for step, top1 in ((5, 40.0), (10, 60.0), (15, 50.0), (20, 55.0)):
        save_checkpoint(run_dir, new_state(step=step))
        evaluated(run_dir, step, top1=top1)
    save_checkpoint(run_dir, new_state(step=25))
    assert run_dir.checkpoint_steps() == (10, 20, 25)


def test_the_best_is_the_last_of_equals_and_by_map_where_there_is_one(run_dir):
    assert best_step(run_dir) is None
    evaluated(run_dir, 5, top1=60.0)
    evaluated(run_dir, 10, top1=60.0)
    assert best_step(run_dir) == 10
    append_jsonl(
        run_dir.evaluations_jsonl, {"step": 30, "full_protocol": True, "top1": 99.0}
    )  # another protocol, at the end
    assert best_step(run_dir) == 10
    run_dir.evaluations_jsonl.unlink()
    evaluated(run_dir, 5, map=30.0)
    evaluated(run_dir, 10, map=20.0)
    assert best_step(run_dir) == 5


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_never_take_the_place_of_good_ones(value, run_dir):
    save_checkpoint(run_dir, new_state(1.0, step=5), num_kept=1)
    with pytest.raises(TrainingError, match="after step 10 the weights weight are not finite"):
        save_checkpoint(run_dir, new_state(value, step=10), num_kept=1)
    assert run_dir.checkpoint_steps() == (5,)


def test_the_average_is_that_of_its_recurrence():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).double()
    average = WeightAverage(model, decay=0.5)
    wanted = {name: x.clone() for name, x in model.state_dict().items() if x.is_floating_point()}
    assert "1.running_var" in wanted
    assert "1.num_batches_tracked" not in wanted
    # (1 + t) / (10 + t) is 2/11, 3/12, … and reaches the decay of 0.5 at t = 8.
    for step in range(1, 13):
        state = model.state_dict()
        for number, name in enumerate(wanted):
            state[name].add_(step + number)
        decay = min(0.5, (1 + step) / (10 + step))
        wanted = {name: decay * x + (1 - decay) * state[name] for name, x in wanted.items()}
        average.update(step)
    for name, value in wanted.items():
        torch.testing.assert_close(average.weights[name], value, rtol=1e-12, atol=0)
    copy = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).double()
    average.load_into(copy)
    assert torch.equal(copy[0].weight, average.weights["0.weight"])


def test_an_average_of_another_model_is_refused():
    average = WeightAverage(nn.Linear(2, 2), 0.9)
    with pytest.raises(ValueError, match="other tensors"):
        average.load({"bias": torch.zeros(2)})
