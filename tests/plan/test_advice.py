"""Whether multigrid pays: from times given by hand, and measured on a tiny model."""

import math
from dataclasses import replace

import pytest
import torch
from tiny import tiny_config

from mgexp.errors import TrainingError
from mgexp.multigrid.schedule import StepShape, step_counts
from mgexp.plan.advice import (
    compute_speedup,
    evenness_finding,
    loading_finding,
    precision_findings,
    speedup_finding,
    steps_finding,
    time_gradients,
)
from mgexp.plan.doctor import Finding
from mgexp.plan.loading import kinds_of, phase_loads
from mgexp.plan.predict import Resources
from mgexp.plan.ways import build_training_step
from mgexp.train.precision import Precision
from mgexp.train.precision_check import Agreement, PrecisionCheck
from mgexp.train.setup import build_row_schedule

CPU = torch.device("cpu")
COARSE, FULL = StepShape(4, 32, 32, 4), StepShape(16, 64, 8, 1)
SECONDS = {COARSE: 0.5, FULL: 1.0}


KEEPS_UP = Finding("loading", "OK", "keeps up", values={"cores": 1.0})
IN_THE_WAY = Finding("loading", "warning", "is in the way", values={"cores": 20.4})
NO_VIDEOS = Finding("loading", "warning", "not measured")


def test_the_speedup_is_that_of_seconds():
    # the row: 30 × 0.5 + 10 × 1 = 25 s; the baseline: 100 × 1
    assert compute_speedup(SECONDS, {COARSE: 30, FULL: 10}, 100) == pytest.approx(4.0)
    assert compute_speedup({FULL: 1.0}, {COARSE: 30, FULL: 10}, 100) is None


@pytest.mark.parametrize(
    ("speedup", "num_shapes", "loading", "status", "words"),
    [
        (
            4.0,
            2,
            KEEPS_UP,
            "OK",
            "computing is 4.00 times as fast as the baseline's, and loading keeps up",
        ),
        (
            4.0,
            2,
            IN_THE_WAY,
            "warning",
            "4.00 times as fast as the baseline's, but loading is in the way",
        ),
        (
            4.0,
            2,
            NO_VIDEOS,
            "OK",
            "computing is 4.00 times as fast as the baseline's; whether loading keeps up is not",
        ),
        (1.1, 2, KEEPS_UP, "warning", "little: computing"),
        (None, 2, KEEPS_UP, "warning", "too slow"),
        (1.0, 1, IN_THE_WAY, "OK", "baseline"),
    ],
)
def test_whether_it_saves_time_in_words(speedup, num_shapes, loading, status, words):
    found = speedup_finding(speedup, num_shapes, loading)
    assert found.status == status and words in found.found


def test_steps_that_cost_unequal_time_are_a_warning():
    """The coarse step has a quarter of the pixels of the full one."""
    found = evenness_finding(SECONDS, 3)
    assert found.status == "warning"
    text = "for as many pixels, slowest to fastest is 2.00 (32x4x32²: 0.5 s, 8x16x64²: 1 s)"
    assert found.found.startswith(text)
    assert found.found.endswith("only 2 of 3 shapes were measured in the time")
    assert evenness_finding({COARSE: 0.25, FULL: 1.2}, 2).status == "OK"


@pytest.mark.parametrize(
    ("core_seconds", "resources", "status"),
    [
        (0.001, Resources(2, 4), "OK"),
        (1.0, Resources(2, 4), "warning"),
        # 42.7 clips, the mean of 64, 32 and 32, in a step of 1 s on both cores.
        (0.03, Resources(2, 2, busy_cores=2), "warning"),
    ],
)
def test_loading_is_judged_by_the_cores_it_needs(tmp_path, core_seconds, resources, status):
    schedule = build_row_schedule(tiny_config(tmp_path), 24)
    seconds = dict.fromkeys(kinds_of(phase_loads(schedule)), core_seconds)
    found = loading_finding(schedule, seconds, 1.0, resources)
    assert found.status == status
    wanted = resources.busy_cores + 128 / 3 * core_seconds
    assert found.values["cores"] == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("num_videos", "status", "words"),
    [  # Four phases of 7.66 or 766 steps, then fine-tuning of 10.2 or 1,021 in two halves: tests/multigrid.
        (100, "warning", "few: 42 for 100 videos, 6 phases of 5 or more; the baseline has 100"),
        (10_000, "OK", "4,085 for 10,000 videos, 6 phases of 510 or more; the baseline has 10,000"),
    ],
)
def test_steps_are_counted_before_training(tmp_path, num_videos, status, words):
    found = steps_finding(build_row_schedule(tiny_config(tmp_path), num_videos))
    assert found.status == status and words in found.found


FEWER_STEPS = "raise SOLVER.MAX_EPOCH and SOLVER.STEPS, or lower TRAIN.BATCH_SIZE, or "


@pytest.mark.parametrize(
    ("keys", "remedy"),
    [
        (
            {},
            "set MULTIGRID.MAX_BATCH_RATIO 4 MULTIGRID.RANDOM_STRIDE False, or train the baseline",
        ),
        ({"RANDOM_STRIDE": False}, "set MULTIGRID.MAX_BATCH_RATIO 4, or train the baseline"),
        ({"RANDOM_STRIDE": False, "MAX_BATCH_RATIO": 4}, "train the baseline"),
    ],
)
def test_a_short_training_gets_the_keys_that_it_lacks(tmp_path, keys, remedy):
    cfg = tiny_config(tmp_path)
    cfg = replace(cfg, MULTIGRID=replace(cfg.MULTIGRID, **keys))
    assert steps_finding(build_row_schedule(cfg, 100)).remedy == FEWER_STEPS + remedy


def test_precision_findings():
    (fine,) = precision_findings(Precision("fp32"), [])
    assert fine.status == "OK"
    good = PrecisionCheck(COARSE, (), 0.99999)
    bad = PrecisionCheck(
        FULL, (Agreement("output of x", False, math.nan, math.nan, math.nan),), 0.0
    )
    (found,) = precision_findings(Precision("bf16"), [good])
    assert found.found == "bf16 agrees with fp32 at 1 shape (worst cosine 0.999990)"
    (found,) = precision_findings(Precision("bf16"), [good, bad])
    assert found.status == "problem" and "8x16x64² in 1 BN group: output of x is not" in found.found


def test_steps_are_timed_and_the_weights_left_alone(tmp_path):
    cfg = tiny_config(tmp_path)
    way = build_training_step(cfg, CPU)
    before = [value.clone() for value in way.step.model.parameters()]
    shapes = list(step_counts(build_row_schedule(cfg, 24)))
    found = time_gradients(way, shapes, budget_seconds=math.inf)
    assert {(one.frames, one.crop) for one in found} == {(one.frames, one.crop) for one in shapes}
    assert all(seconds > 0 for seconds in found.values())
    after = list(way.step.model.parameters())
    assert all(torch.equal(*pair) for pair in zip(after, before, strict=True))
    assert len(time_gradients(way, shapes, budget_seconds=-1.0)) == 1


def test_parts_of_whole_mini_batches_do_not_stop_the_timing(tmp_path):
    """The doctor times few clips in one BN group on a CPU, and a group cannot be cut into parts."""
    way = build_training_step(tiny_config(tmp_path, {"TRAIN.MAX_CLIPS_PER_GPU": 4}), CPU)
    shapes = [StepShape(2, 16, 32, 8), StepShape(2, 24, 8, 2)]  # 32 clips by 4 are 8
    assert [*time_gradients(way, shapes)] == shapes


def test_a_shape_that_does_not_fit_is_one_message(tmp_path, monkeypatch):
    def fail(*_):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    way = build_training_step(tiny_config(tmp_path), CPU)
    monkeypatch.setattr("mgexp.plan.advice.measure_steps", fail)
    shapes = [StepShape(4, 16, 32, 8), StepShape(8, 32, 4, 1)]
    with pytest.raises(
        TrainingError, match=r"mini-batch of 32x4x16², .* set TRAIN.MAX_CLIPS_PER_GPU 16 "
    ):
        time_gradients(way, shapes)


def test_clips_that_mixup_blends_are_timed_in_pairs(tmp_path):
    way = build_training_step(tiny_config(tmp_path, {"AUG.MIXUP_ALPHA": 0.8}), CPU)
    shapes = [StepShape(2, 16, 14, 1), StepShape(2, 24, 4, 1)]  # 14 clips by 2 are 7
    assert [*time_gradients(way, shapes)] == shapes
