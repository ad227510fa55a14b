"""Training gives the same result in 1, 2 and 4 processes over gloo."""

from itertools import chain, islice

import pytest
import torch
from several_processes import in_processes
from shared_training import CPU, SEED, Training
from tiny import NUM_TRAIN, RECIPE_OF_TRANSFORMERS, VIT, data_keys, tiny_config

from mgexp.data.lists import build_list
from mgexp.data.loader import build_train_loader
from mgexp.multigrid.sampler import StepSampler
from mgexp.multigrid.schedule import step_counts
from mgexp.train.compiled import settle_buckets
from mgexp.train.setup import build_row_schedule
from mgexp.train.task import build_task
from mgexp.video.pyav import PyavReader

COUNTS = (2, 4)


def train(processes, folder, changes):
    """Train in float64, so that rounding hides no fault; compare requests, losses and every tensor."""
    training = Training(processes, folder, torch.float64, **changes)
    losses = training.train()
    return {
        "requests": [[tuple(vars(one).items()) for one in step] for step in training.requests],
        "groups": [training.schedule.plan_at(s).num_bn_groups for s in range(len(losses))],
        "phases": len(training.schedule.phases),
        "losses": losses,
        "tensors": training.tensors(),
    }


def first_gradient(processes, folder, changes):
    """Train in float32."""
    return Training(processes, folder, torch.float32, **changes).first_gradient()


def relative(found, wanted):
    return float((found - wanted).norm() / wanted.norm().clamp(min=1e-30))


def unequal(found, wanted, tolerance):
    assert found.keys() == wanted.keys()
    errors = {
        name: relative(found[name].double(), value.double()) for name, value in wanted.items()
    }
    return {name: error for name, error in errors.items() if error > tolerance}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    (found,) = in_processes(train, 1, tmp_path_factory.mktemp("alone"), {})
    return found


@pytest.fixture(scope="module", params=COUNTS)
def shared(request, tmp_path_factory):
    return in_processes(train, request.param, tmp_path_factory.mktemp("shared"), {})


@pytest.mark.slow
def test_the_run_has_what_the_comparison_needs(alone, shared):
    """It has 50 steps, several phases and the short cycle, with BN groups inside processes and across all."""
    assert len(alone["losses"]) >= 50
    assert alone["phases"] > 4
    assert len({len(step) for step in alone["requests"]}) > 4
    groups = {*shared[0]["groups"]}
    assert min(groups) == -len(shared) and max(groups) >= 2
    assert alone["losses"][-1] < alone["losses"][0]


@pytest.mark.slow
def test_processes_draw_what_one_draws(alone, shared):
    steps = zip(*(one["requests"] for one in shared), strict=True)
    assert [[*chain(*blocks)] for blocks in steps] == alone["requests"]


@pytest.mark.slow
def test_every_tensor_is_that_of_one_process(alone, shared):
    """Compare weights, running and precise statistics, and momenta. Dropout is on."""
    assert unequal(shared[0]["tensors"], alone["tensors"], 1e-8) == {}


@pytest.mark.slow
def test_all_processes_have_the_same_bits(shared):
    for other in shared[1:]:
        for name, value in shared[0]["tensors"].items():
            assert torch.equal(other["tensors"][name], value), name


@pytest.mark.slow
def test_recorded_losses_are_those_of_the_global_mini_batch(alone, shared):
    for one in shared:
        assert one["losses"] == pytest.approx(alone["losses"], rel=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("count", COUNTS)
def test_the_first_gradient_in_fp32_is_that_of_one_process(count, tmp_path):
    (wanted,) = in_processes(first_gradient, 1, tmp_path / "one", {})
    found = in_processes(first_gradient, count, tmp_path, {})[0]
    assert unequal(found, wanted, 1e-5) == {}


def gradients_of_one_step(processes, folder):
    """The gradients of the first step, as the first, second and third pass of a process compute them."""
    training = Training(
        processes, folder, torch.float32, **{"TRAIN.BATCH_SIZE": 12, "MULTIGRID.BN_BASE_SIZE": 4}
    )
    shape = next(iter(step_counts(training.schedule)))
    task, clock = build_task(training.cfg), training.state.clock
    settle_buckets(training.step, [shape], task, processes, clock)
    found = []
    for _ in range(3):
        training.state.optimizer.zero_grad(set_to_none=True)
        gradients = training.first_gradient()
        found.append({name: value.clone() for name, value in gradients.items()})
    return found


@pytest.mark.slow
def test_the_first_step_of_three_processes_has_the_bits_of_a_later_one(tmp_path):
    """A run that is resumed starts its processes anew, and the step after the resume is their first."""
    first, second, third = in_processes(gradients_of_one_step, 3, tmp_path)[0]
    assert unequal(first, third, 0) == unequal(second, third, 0) == {}


@pytest.mark.slow
def test_mini_batches_in_parts_are_the_same_in_two_processes(alone, tmp_path):
    """The first phase has two parts, and the dropout masks continue from part to part."""
    found = in_processes(train, 2, tmp_path, {"TRAIN.MAX_CLIPS_PER_GPU": 16})[0]
    assert unequal(found["tensors"], alone["tensors"], 1e-8) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "tolerance"),
    [
        ({"SOLVER.CLIP_GRAD_L2NORM": 0.1}, 1e-8),
        ({"SOLVER.OPTIMIZING_METHOD": "lars", "SOLVER.TRUST_COEFFICIENT": 0.1}, 1e-8),
        ({"SOLVER.OPTIMIZING_METHOD": "pmd_lamb", "SOLVER.PMD_PERIOD": 7}, 1e-6),  # g / |g|
    ],
    ids=["clipped", "lars", "pmd_lamb"],
)
def test_other_steps_are_those_of_one_process(changes, tolerance, tmp_path, alone):
    """Clipping and trust ratios use the gradients of all processes together."""
    (wanted,) = in_processes(train, 1, tmp_path / "one", changes)
    found = in_processes(train, 2, tmp_path, changes)[0]
    assert unequal(found["tensors"], wanted["tensors"], tolerance) == {}
    plain = alone["tensors"]
    assert any(
        relative(wanted["tensors"][name], plain[name]) > 0.01 for name in plain if "weight" in name
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [{}, {"VIT.POSITIONS": "rotary"}, RECIPE_OF_TRANSFORMERS],
    ids=["learned", "rotary", "whole recipe"],
)
def test_a_transformer_is_that_of_one_process(more, tmp_path):
    """Some clips skip branches, and the same clips do in any number of processes."""
    changes = {**VIT, **more}
    (wanted,) = in_processes(train, 1, tmp_path / "one", changes)
    found = in_processes(train, 2, tmp_path, changes)[0]
    assert unequal(found["tensors"], wanted["tensors"], 1e-8) == {}
    assert wanted["losses"][-1] < wanted["losses"][0]


def first_clips(processes, folder, data):
    """The clips of the first steps, with labels, which the device of training resizes and augments."""
    folder.mkdir()
    augmented = {"AUG.RANDAUGMENT_OPS": 2, "AUG.COLOR_JITTER": 0.4, "AUG.RE_PROB": 0.5}
    cfg = tiny_config(folder, {**data_keys(data), **augmented, "AUG.DEVICE": "training"})
    schedule = build_row_schedule(cfg, NUM_TRAIN, processes.count)
    steps = islice(StepSampler(schedule, SEED, 0, processes.rank), 4)
    records = build_list(cfg, "TRAIN_LIST").records
    loader = build_train_loader(cfg, records, steps, CPU, PyavReader)
    return [batch.on(CPU).tensors() for batch in loader]


@pytest.mark.slow
def test_clips_that_the_device_makes_are_those_of_one_process(tiny_data, tmp_path):
    """Seeds of the augmentation belong to clips, and not to processes."""
    (alone,) = in_processes(first_clips, 1, tmp_path / "alone", tiny_data)
    shared = in_processes(first_clips, 2, tmp_path, tiny_data)
    assert len({len(clips) for clips, *_ in alone}) > 1  # steps of several shapes
    for step, wanted in enumerate(alone):
        parts = zip(*(one[step] for one in shared), strict=True)
        assert all(map(torch.equal, map(torch.cat, parts), wanted))
