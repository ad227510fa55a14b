"""The order of steps, saves and evaluations in the loop, with a tiny network."""

import os
import signal
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from tiny import tiny_config
from torch import nn

from mgexp.data.batches import Batch
from mgexp.dist import Processes
from mgexp.errors import InputError, TrainingError
from mgexp.run.clock import Clock
from mgexp.run.files import read_jsonl
from mgexp.run.log import Progress
from mgexp.run.other_programs import OtherPrograms, other_cores
from mgexp.stop import StopRequest
from mgexp.train import loop
from mgexp.train.checkpoint import State
from mgexp.train.loop import LoadedClips, Loop, milestones
from mgexp.train.setup import build_row_schedule
from mgexp.train.step import Normalizer, TrainStep

NORMALIZER = Normalizer((0.45,) * 3, (0.225,) * 3, torch.device("cpu"))
NUM_STEPS = 10  # of the tiny row on 24 videos


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(3, 2)

    def forward(self, clips):
        return self.head(clips.mean((2, 3, 4)))


class Bench:
    """A loop whose calls are recorded as (name, finished steps)."""

    def __init__(
        self, folder, milestones=(), checkpoint_seconds=1e9, unusable=(), settle_steps=1, changes=()
    ):
        self.calls, self.readings, self.stop = [], [], StopRequest()
        model = Network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.5)
        self.state = State(model, optimizer, Clock())
        self.path, self.unusable = folder / "metrics.jsonl", unusable
        self.rates, self.decays = [], []
        self.before_step = {}
        self.loop = Loop(
            state=self.state,
            train_step=TrainStep(model, optimizer, F.cross_entropy, NORMALIZER),
            schedule=build_row_schedule(tiny_config(folder, dict(changes)), 24),
            processes=Processes(),
            stop=self.stop,
            seed=0,
            milestones=milestones,
            settle_steps=settle_steps,
            evaluate=lambda: self.note("evaluate") is None,
            write_checkpoint=lambda: self.note("save"),
            checkpoint_seconds=checkpoint_seconds,
            loaded=LoadedClips(self.state, Processes(), lambda reasons: self.note("check")),
            others=OtherPrograms(self.state.clock, self.core_use),
        )

    def core_use(self):
        """Each reading finds 5 core-seconds more of other programs."""
        self.readings.append(self.state.step)
        return 5.0 * len(self.readings)

    def note(self, name):
        if name == "evaluate":
            assert "train" not in self.state.clock._started
        self.calls.append((name, self.state.step))

    def batches(self):
        for step in range(self.state.step, NUM_STEPS):
            self.before_step.get(step, lambda: None)()
            plan = self.loop.schedule.plan_at(step)
            clips = torch.zeros(plan.clips, 3, plan.frames, plan.crop, plan.crop, dtype=torch.uint8)
            labels = torch.zeros(plan.clips, dtype=torch.long)
            yield Batch(clips, labels, self.unusable)
            group = self.state.optimizer.param_groups[0]
            self.rates.append(group["lr"])
            self.decays.append(group["weight_decay"])

    def run_to_signal(self, step, first_step=0):
        """SIGTERM comes while the loop waits for the clips of ``step``; whether it then came to the end."""
        self.before_step[step] = lambda: os.kill(os.getpid(), signal.SIGTERM)
        with self.stop.listening():
            return self.run(first_step)

    def run(self, first_step=0):
        with Progress(self.path, first_step, NUM_STEPS, 1) as progress:
            return self.loop.run(self.batches(), progress)


@pytest.mark.parametrize("settle_steps", [1, 4])
def test_milestones_save_before_they_evaluate(settle_steps, tmp_path):
    """Also where losses are read later."""
    bench = Bench(tmp_path, milestones=(3, 6), settle_steps=settle_steps)
    assert bench.run()
    calls = [("save", 3), ("evaluate", 3), ("save", 6), ("evaluate", 6)]
    assert bench.calls == [*calls, ("save", NUM_STEPS)]
    assert (bench.state.step, bench.state.epoch) == (10, 248 / 24)


def test_learning_rates_and_weight_decays_are_the_plan_s(tmp_path):
    bench = Bench(tmp_path, changes={"MULTIGRID.WD_SCALING": "linear"})
    bench.run()
    # 0.005 times 8, 4, 2, 1 of the long cycle, fine-tuning at 1 then 0.1
    wanted = [0.04, 0.04, 0.02, 0.02, 0.01, 0.01, 0.005, 0.005, 0.005, 0.0005]
    found = [line["lr"] for line in read_jsonl(bench.path)]
    torch.testing.assert_close(torch.tensor(found), torch.tensor(wanted))
    torch.testing.assert_close(torch.tensor(bench.rates), torch.tensor(wanted[:9]))
    # 0.5 times 8, 4, 2, 1 of the long cycle, and of fine-tuning
    assert bench.decays == [4.0, 4.0, 2.0, 2.0, 1.0, 1.0, 0.5, 0.5, 0.5]


def test_checkpoints_follow_the_clock(tmp_path):
    bench = Bench(tmp_path, checkpoint_seconds=0)
    bench.run()
    assert bench.calls == [("save", step) for step in range(1, NUM_STEPS + 1)]


@pytest.mark.parametrize(("first_step", "saved"), [(0, [1]), (4, [])])
def test_the_first_checkpoint_of_a_run_comes_sooner(first_step, saved, tmp_path, monkeypatch):
    """A resumed run has one already."""
    monkeypatch.setattr(loop, "FIRST_CHECKPOINT_SECONDS", 0)
    bench = Bench(tmp_path)
    bench.state.step = first_step
    bench.run(first_step)
    assert bench.calls == [("save", step) for step in (*saved, NUM_STEPS)]


@pytest.mark.parametrize("milestones", [(), (3, 6)])
def test_a_request_to_stop_saves_at_the_step_s_end(milestones, tmp_path, monkeypatch):
    """At a milestone the evaluation is left to the next start."""
    bench = Bench(tmp_path, milestones)

    def seed(_, number):
        if number == 2:
            bench.stop.signal_name = "SIGTERM"

    monkeypatch.setattr("mgexp.train.loop.seed_step", seed)
    assert not bench.run()
    assert bench.calls == [("save", 3)]


@pytest.mark.parametrize("settle_steps", [1, 5])
def test_a_signal_ends_the_wait_for_clips(settle_steps, tmp_path):
    """A video may hang. The step that waited for it is not done at all."""
    bench = Bench(tmp_path, settle_steps=settle_steps)
    assert not bench.run_to_signal(2)
    assert bench.calls == [("save", 2)]
    assert [line["step"] for line in read_jsonl(bench.path)] == [0, 1]


def test_a_signal_ends_the_wait_for_the_clips_of_the_next_step(tmp_path, monkeypatch):
    """On a GPU the loop waits there. The step before it is done."""
    bench, ended = Bench(tmp_path), []

    def fetch_ahead(source):
        if bench.state.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)
            ended.append("the wait")

    monkeypatch.setattr(loop.DeviceBatches, "fetch_ahead", fetch_ahead)
    with bench.stop.listening():
        assert not bench.run()
    assert ended == []
    assert bench.calls == [("save", 3)]


def test_several_processes_stop_after_the_same_step(tmp_path, monkeypatch):
    """This process waits for clips, but the other one has its clips already."""
    monkeypatch.setattr("mgexp.dist.any_true", lambda processes, flags, device: flags)
    monkeypatch.setattr("mgexp.dist.mean_", lambda processes, losses: losses)
    bench = Bench(tmp_path)
    bench.loop.processes = bench.loop.loaded.processes = Processes(0, 2)
    assert not bench.run_to_signal(2)
    assert bench.calls == [("save", 3)]


def test_a_step_on_disk_is_not_saved_again(tmp_path):
    """A signal stops the run in its first wait after a resume."""
    bench = Bench(tmp_path)
    bench.state.step = 4
    assert not bench.run_to_signal(4, first_step=4)
    assert bench.calls == []


def test_slow_steps_are_looked_at_more_often(tmp_path, monkeypatch):
    """Steps take 2 s each, so a signal must not wait for five of them."""

    def read(timer):
        num, timer._steps = len(timer._steps), []
        return [(2.0, 0.5)] * num

    monkeypatch.setattr("mgexp.train.loop.StepTimer.read", read)
    bench = Bench(tmp_path, settle_steps=5)
    agreed = []
    agree = bench.loop._agree
    bench.loop._agree = lambda pending: agreed.append(bench.state.step) or agree(pending)
    assert bench.run()
    # Nobody knows yet how long the first step takes.
    assert agreed == [1, 4, 5, 8, 10]
    # A GPU waits after its step, and this wait is a part of the step.
    lines = read_jsonl(bench.path)
    assert {line["step_seconds"] for line in lines} == {2.0}
    assert all(0.5 <= line["input_wait_seconds"] < 1.0 for line in lines)
    assert 5.0 <= bench.state.clock.seconds("input_wait") < 6.0


def test_a_request_to_save_is_answered_once_and_training_goes_on(tmp_path):
    bench = Bench(tmp_path)
    bench.stop.should_save = True
    assert bench.run()
    assert bench.calls == [("save", 1), ("save", NUM_STEPS)]
    assert bench.state.step == NUM_STEPS


def test_an_unusable_video_is_noted_once(tmp_path):
    bench = Bench(tmp_path, unusable=((4, "a.mp4: is broken"),))
    bench.run()
    assert bench.state.unusable == {4: "a.mp4: is broken"}
    assert bench.calls == [("check", 1), ("save", NUM_STEPS)]


def test_unusable_videos_of_a_checkpoint_are_judged_again(tmp_path):
    """On a GPU a signal may save them before the limit is checked, and another start must not go past it."""
    state = Bench(tmp_path, unusable=((4, "a.mp4: is broken"),)).state
    assert not LoadedClips(state, Processes(), list).has_news
    state.unusable = {4: "a.mp4: is broken"}
    assert LoadedClips(state, Processes(), list).has_news


def test_unusable_videos_of_other_processes_count(tmp_path, monkeypatch):
    bench = Bench(tmp_path)
    monkeypatch.setattr(
        "mgexp.dist.any_true", lambda processes, flags, device: (False, False, True)
    )
    monkeypatch.setattr("mgexp.dist.merge", lambda processes, own: {9: "b.mp4: is broken"})
    bench.run()
    assert bench.state.unusable == {9: "b.mp4: is broken"}
    assert bench.calls[0] == ("check", 1)


def test_a_step_without_clips_is_an_end_with_the_reasons(tmp_path):
    bench = Bench(tmp_path)
    empty = Batch(torch.empty(0, 3, 2, 16, 16), torch.empty(0), ((4, "a.mp4: is broken"),))
    with (
        Progress(bench.path, 0, NUM_STEPS, 1) as progress,
        pytest.raises(InputError, match=r"a\.mp4: is broken"),
    ):
        bench.loop.run(iter([empty]), progress)


def test_the_first_step_of_a_shape_warms_up_by_what_it_takes_longer_than_the_second(tmp_path):
    bench, clock = Bench(tmp_path), Clock()
    pending = loop.PendingSteps(torch.device("cpu"), Processes(), clock)
    plan = bench.loop.schedule.plan_at(0)
    other = replace(plan, clips=plan.clips + 1)
    # Seconds of a step, and of waiting inside it.
    times = [(9.0, 1.0), (2.0, 0.0), (5.0, 3.0), (4.0, 0.0), (7.0, 0.0), (1.0, 0.0)]
    plans = [plan, plan, plan, other, other, other]
    pending.steps = [(one, 0.0, torch.zeros(())) for one in plans]
    pending.timer.read = lambda: times
    assert [one.step_seconds for one in pending.read(0)] == [seconds for seconds, _ in times]
    # 9 − 1 is 6 more than 2. The second shape was not slower in its first step.
    assert clock.seconds("shape_warmup") == 6.0
    assert clock.seconds("input_wait") == 4.0


def test_losses_that_are_read_later_are_the_same_records(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    each, later = Bench(tmp_path / "a"), Bench(tmp_path / "b", settle_steps=4)
    assert each.run()
    assert later.run()
    names = ("step", "loss", "lr", "clips", "epoch")
    one, other = (
        [[line[name] for name in names] for line in read_jsonl(bench.path)]
        for bench in (each, later)
    )
    assert one == other
    assert len(one) == NUM_STEPS


@pytest.mark.parametrize("settle_steps", [1, 5])
def test_a_loss_that_is_not_finite_is_named_and_not_saved(tmp_path, settle_steps):
    bench = Bench(tmp_path, checkpoint_seconds=0, settle_steps=settle_steps)
    steps = iter(range(NUM_STEPS))
    original = bench.loop.train_step.loss

    def loss(logits, labels):
        return original(logits, labels) * (float("nan") if next(steps) == 2 else 1)

    bench.loop.train_step = replace(bench.loop.train_step, loss=loss)
    with pytest.raises(TrainingError, match=r"step 2 \(epoch .*: the loss is nan") as caught:
        bench.run()
    assert all(step <= 2 for _, step in bench.calls)
    # The first step is read alone, because its time is not known.
    step = 2 if settle_steps == 1 else 1
    assert f"The last checkpoint, after step {step}, is from before that step" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("can't allocate memory: you", TrainingError, r"step 0 .*, 64x2x16²: out of memory"),
        ("a bug", RuntimeError, "a bug"),
    ],
)
def test_a_shape_that_does_not_fit_is_named_and_other_errors_stay(text, kind, said, tmp_path):
    def fails(scores, labels):
        raise RuntimeError(text)

    bench = Bench(tmp_path)
    bench.loop.train_step = replace(bench.loop.train_step, loss=fails)
    with pytest.raises(kind, match=said):
        bench.run()


BASELINE = {"MULTIGRID.LONG_CYCLE": False, "MULTIGRID.SHORT_CYCLE": False}


def test_steps_of_one_shape_are_divided_evenly(tmp_path):
    schedule = build_row_schedule(tiny_config(tmp_path, BASELINE), 100)  # 4 epochs of 25 steps
    assert milestones(schedule, 4) == (25, 50, 75, 100)
    assert milestones(schedule, 1) == (100,)


def test_shapes_are_divided_by_cost(tmp_path):
    schedule = build_row_schedule(tiny_config(tmp_path), 2400)
    found = milestones(schedule, 5)
    costs = [schedule.cost_before(step) / schedule.cost_before(found[-1]) for step in found]
    assert [round(cost, 2) for cost in costs] == [0.2, 0.4, 0.6, 0.8, 1.0]


def test_a_run_of_few_steps_has_no_step_twice_and_not_the_first(tmp_path):
    schedule = build_row_schedule(tiny_config(tmp_path, BASELINE), 3)  # 3 steps
    assert milestones(schedule, 10) == (1, 2, 3)


def test_other_programs_are_observed_from_the_first_step_to_the_last_and_at_each_save(tmp_path):
    bench = Bench(tmp_path, milestones=(4,))
    bench.run()
    assert bench.readings == [0, 4, NUM_STEPS]
    assert bench.state.clock.seconds("other_programs") == 10.0
    assert other_cores(bench.state.clock) > 0
