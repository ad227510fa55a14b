"""Evaluation leaves the trained model as it was."""

from dataclasses import replace

import torch
from tiny import tiny_config
from view_batches import Views

from mgexp.data.clips import Batch
from mgexp.data.records import VideoRecord
from mgexp.dist import Processes
from mgexp.models.build import build_model
from mgexp.optim.build import build_optimizer
from mgexp.run.clock import Clock
from mgexp.run.folder import RunDir
from mgexp.train.checkpoint import State
from mgexp.train.evaluate import Evaluator, Protocol
from mgexp.train.precise_bn import PreciseBn
from mgexp.train.step import Normalizer
from mgexp.train.task import build_task

NORMALIZER = Normalizer((0.45,) * 3, (0.225,) * 3, torch.device("cpu"))


def batches():
    generator = torch.Generator().manual_seed(0)
    clips = torch.randint(0, 256, (4, 3, 8, 32, 32), dtype=torch.uint8, generator=generator)
    return [Batch(clips, torch.zeros(4, dtype=torch.long), ())]


def ready(tmp_path, precise):
    cfg = tiny_config(tmp_path)
    model = build_model(cfg).train()
    state = State(model, build_optimizer(cfg, model), Clock())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    evaluator = Evaluator(
        RunDir(tmp_path), NORMALIZER, Processes(), build_task(cfg), precise, 600.0
    )
    return state, before, evaluator.ready_model(state)


def differing(model, before):
    return {
        name for name, value in model.state_dict().items() if not torch.equal(value, before[name])
    }


def test_precise_statistics_are_the_copy_s_alone(tmp_path):
    state, before, found = ready(tmp_path, PreciseBn(batches, 1))
    assert differing(state.model, before) == set()
    assert state.model.training
    changed = differing(found, before)
    assert changed
    assert all("running" in name or "num_batches" in name for name in changed)
    assert state.clock.seconds("precise_bn") > 0


def test_without_precise_statistics_the_copy_is_the_model(tmp_path):
    state, before, found = ready(tmp_path, None)
    assert found is not state.model
    assert differing(found, before) == set()
    assert state.clock.seconds("precise_bn") == 0


def final_evaluation(tmp_path, labels, **changes):
    """Of two videos of one view each, by the untrained model of the tiny row; what it found."""
    cfg = tiny_config(tmp_path, changes)
    model = build_model(cfg)
    state = State(model, build_optimizer(cfg, model), Clock())
    clips = torch.zeros(2, 3, 8, 32, 32, dtype=torch.uint8)
    view = Views(clips, torch.arange(2), torch.tensor(labels))
    records = (VideoRecord("a.mp4", 0), VideoRecord("b.mp4", 1))
    protocol = Protocol(lambda first: [view][first:], records, 1, 1, batch_size=2, is_full=True)
    task = build_task(cfg)
    evaluator = Evaluator(RunDir(tmp_path), NORMALIZER, Processes(), task, None, 600.0)
    return evaluator.evaluate_finally(state, protocol)


def test_which_classes_are_confused_is_written(tmp_path):
    """Both videos are the same picture, so one of them is taken for the other's class."""
    found = final_evaluation(tmp_path, [0, 1])
    taken = found.scores[0].argmax().item()
    lines = (tmp_path / "confusion.csv").read_text().splitlines()[1:]
    rows = [line.split(",")[:3] for line in lines]
    assert [row for row in rows if row[2] != "0"] == [
        ["0", str(taken), "1"],
        ["1", str(taken), "1"],
    ]


def test_videos_of_many_labels_confuse_no_classes(tmp_path):
    changes = {"MODEL.LOSS_FUNC": "bce_logit", "DATA.ENSEMBLE_METHOD": "max"}
    final_evaluation(tmp_path, [[1.0, 0.0], [1.0, 1.0]], **changes)
    assert not (tmp_path / "confusion.csv").exists()


def test_a_part_counts_for_the_same_videos_labels_and_batches_only():
    records = (VideoRecord("a.mp4", 0), VideoRecord("b.mp4", 1))
    plain = Protocol(
        lambda first: [], records, num_clips=10, num_crops=3, batch_size=16, is_full=True
    )
    others = [
        replace(plain, batch_size=8),
        replace(plain, records=records[::-1]),
        replace(plain, records=(records[0], VideoRecord("b.mp4", 0))),
    ]
    assert len({one.fingerprint() for one in (plain, *others)}) == 4
    assert (plain.name, plain.num_views) == ("10x3_forward", 30)
    assert replace(plain, num_clips=30, num_crops=1).name != plain.name
