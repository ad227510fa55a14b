"""Evaluation leaves the trained model as it was."""

from dataclasses import replace

import torch
from tiny import tiny_config

from mgexp.data.clips import Batch
from mgexp.data.records import VideoRecord
from mgexp.dist import Processes
from mgexp.models.build import build_model
from mgexp.optim.build import build_optimizer
from mgexp.record.clock import Clock
from mgexp.record.run_dir import RunDir
from mgexp.train.build import build_task
from mgexp.train.checkpoint import State
from mgexp.train.evaluator import Evaluator, PreciseBn, Protocol
from mgexp.train.step import Normalizer

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
    state, before, found = ready(tmp_path, PreciseBn(batches, 1, 1))
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
