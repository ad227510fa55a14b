"""One training step computed by hand, mini-batches cut into parts, and freed memory."""

import copy

import pytest
import torch
import torch.nn.functional as F
from tiny import tiny_config
from torch import nn

from mgexp.data.batches import Batch
from mgexp.models.build import build_model
from mgexp.models.layers import CheckpointedBlocks, Draws
from mgexp.multigrid.batchnorm import GroupedBatchNorm3d
from mgexp.multigrid.schedule import StepShape
from mgexp.plan.ways import build_training_step
from mgexp.train.step import (
    MicroBatch,
    Normalizer,
    TrainStep,
    count_pieces,
    seed_step,
    split,
    split_problems,
)

CPU = torch.device("cpu")
IDENTITY = Normalizer((0.0,) * 3, (1 / 255,) * 3, CPU)
DRAWS = Draws(seed=0, step=0)


class Mean(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(1, 2, bias=False)
        nn.init.zeros_(self.head.weight)

    def forward(self, clips):
        return self.head(clips.mean((1, 2, 3, 4)).unsqueeze(1))


def batch_of(values, labels, flipped=None):
    clips = torch.tensor(values, dtype=torch.uint8).view(-1, 1, 1, 1, 1)
    return Batch(clips.expand(-1, 3, 2, 4, 4), torch.tensor(labels), (), flipped=flipped)


def step_of(model, max_clips=0, lr=1.0, **more):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    return TrainStep(model, optimizer, F.cross_entropy, IDENTITY, max_clips, **more)


def test_pixels_are_normalised_by_channel():
    clips = torch.tensor([0, 255, 51], dtype=torch.uint8).view(1, 3, 1, 1, 1)
    found = Normalizer((0.5, 0.5, 0.0), (0.5, 0.25, 0.1), CPU)(clips)
    torch.testing.assert_close(found.flatten(), torch.tensor([-1.0, 2.0, 2.0]))
    assert clips.flatten().tolist() == [0, 255, 51]


@pytest.mark.parametrize("flipped", [None, torch.tensor([True, False])])
def test_normalised_clips_stay_channels_last(flipped):
    clips = torch.zeros(2, 4, 5, 5, 3, dtype=torch.uint8).permute(0, 4, 1, 2, 3)
    found = Normalizer((0.45,) * 3, (0.225,) * 3, CPU)(clips, flipped)
    assert found.is_contiguous(memory_format=torch.channels_last_3d)


def test_flipped_clips_alone_are_shown_left_for_right():
    clips = torch.arange(2 * 3 * 2 * 2 * 3, dtype=torch.uint8).view(2, 3, 2, 2, 3)
    shown = IDENTITY(clips, torch.tensor([False, True]))
    torch.testing.assert_close(shown[0], clips[0].float())
    torch.testing.assert_close(shown[1], clips[1].float()[..., [2, 1, 0]])


def test_a_step_goes_down_the_gradient_of_the_mean_loss():
    model = Mean()
    loss = step_of(model)(batch_of([2, 4], [0, 0]), 1, DRAWS)
    assert loss.item() == pytest.approx(0.6931472)
    # softmax minus one-hot is ∓0.5; times the mean input 3
    torch.testing.assert_close(model.head.weight.data, torch.tensor([[1.5], [-1.5]]))


def test_gradients_of_the_step_before_are_dropped():
    model = Mean()
    model.head.weight.grad = torch.full((2, 1), 100.0)
    step_of(model)(batch_of([2], [0]), 1, DRAWS)
    torch.testing.assert_close(model.head.weight.data, torch.tensor([[1.0], [-1.0]]))


@pytest.mark.parametrize(("max_norm", "moved"), [(1.0, 0.5**0.5), (2.0, 2**0.5), (3.0, 1.5)])
@pytest.mark.parametrize("scale", [None, 4.0])
def test_gradients_are_scaled_to_the_largest_norm(max_norm, moved, scale):
    """The norm is 1.5 √2. If a scaler multiplies the loss, the limit is for the norm without the scale."""
    model = Mean()
    enabled = {"enabled": False} if scale is None else {"init_scale": scale}
    scaler = torch.amp.GradScaler("cpu", **enabled)
    step_of(model, scaler=scaler, max_grad_norm=max_norm)(batch_of([2, 4], [0, 0]), 1, DRAWS)
    torch.testing.assert_close(model.head.weight.data, torch.tensor([[moved], [-moved]]))


def test_the_largest_norm_and_smoothed_labels_are_those_of_the_configuration(tmp_path):
    """The target is 1 − ε for the class and ε / classes for all."""
    cfg = tiny_config(tmp_path, {"MODEL.LABEL_SMOOTHING": 0.2, "SOLVER.CLIP_GRAD_L2NORM": 3.0})
    step = build_training_step(cfg, CPU).step
    assert step.max_grad_norm == 3.0
    logits, labels = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0])
    logs = logits.log_softmax(1)
    wanted = -(0.8 * logs[:, 0] + 0.1 * logs.sum(1)).mean()
    torch.testing.assert_close(step.loss(logits, labels), wanted)


def network_and_batch(tmp_path, **changes):
    cfg = tiny_config(tmp_path, changes)
    model = build_model(cfg).double()  # so that only what is wrong differs
    generator = torch.Generator().manual_seed(0)
    clips = torch.randint(0, 256, (12, 4, 32, 32, 3), dtype=torch.uint8, generator=generator)
    labels = torch.arange(12) % 2
    flipped = torch.arange(12) % 3 == 0
    return model, Batch(clips.permute(0, 4, 1, 2, 3), labels, (), flipped=flipped)


def trained(model, batch, max_clips):
    model = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    normalizer = Normalizer((0.45,) * 3, (0.225,) * 3, CPU, torch.float64)
    loss = TrainStep(model, optimizer, F.cross_entropy, normalizer, max_clips)(batch, 6, DRAWS)
    return loss, model.state_dict()


@pytest.mark.parametrize("max_clips", [2, 4, 5, 11])
def test_a_step_in_parts_is_the_step_at_once(tmp_path, max_clips):
    model, batch = network_and_batch(tmp_path)
    loss, whole = trained(model, batch, 0)
    other_loss, parts = trained(model, batch, max_clips)
    torch.testing.assert_close(other_loss, loss)
    torch.testing.assert_close(parts, whole)


def test_a_step_that_computes_twice_is_the_same(tmp_path):
    model, batch = network_and_batch(tmp_path)
    twice, _ = network_and_batch(tmp_path, **{"TRAIN.ACTIVATION_CHECKPOINTING": True})
    assert list(twice.state_dict()) == list(model.state_dict())
    torch.testing.assert_close(twice.state_dict(), model.state_dict())
    torch.testing.assert_close(trained(twice, batch, 0), trained(model, batch, 0))
    torch.testing.assert_close(trained(twice, batch, 4), trained(model, batch, 0))


class RandomDropout(nn.Linear):
    """A block that draws from torch's generator, as one of a custom model may."""

    def forward(self, x):
        return F.dropout(super().forward(x), 0.25)


def test_blocks_that_are_computed_twice_draw_the_same_numbers():
    gradients = []
    for kind in (nn.ModuleList, CheckpointedBlocks):
        torch.manual_seed(0)
        blocks, x = kind(RandomDropout(8, 8) for _ in range(3)), torch.ones(4, 8)
        for block in blocks:
            x = block(x)
        x.sum().backward()
        gradients.append([parameter.grad for parameter in blocks.parameters()])
    torch.testing.assert_close(*gradients, rtol=0, atol=0)


def test_computing_twice_keeps_less(tmp_path):
    def kept_bytes(model):
        model.train()
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: sizes.append(tensor.numel()) or tensor, lambda tensor: tensor
        ):
            model(torch.zeros(2, 3, 8, 32, 32, dtype=torch.float64))
        return sum(sizes)

    plain, _ = network_and_batch(tmp_path)
    twice, _ = network_and_batch(tmp_path, **{"TRAIN.ACTIVATION_CHECKPOINTING": True})
    assert kept_bytes(twice) < kept_bytes(plain) / 3


def test_after_a_step_in_parts_statistics_move_as_usual(tmp_path):
    model, batch = network_and_batch(tmp_path)
    trained(model, batch, 4)
    layers = [m for m in model.modules() if isinstance(m, GroupedBatchNorm3d)]
    assert all(layer.kept is None for layer in layers)


def test_no_step_waits_for_the_device(tmp_path):
    """To read a value, or a size that depends on values, would wait for a GPU."""
    model, batch = network_and_batch(tmp_path)
    step = TrainStep(
        model.float(), torch.optim.SGD(model.parameters(), lr=0.1), F.cross_entropy,
        Normalizer((0.45,) * 3, (0.225,) * 3, CPU), 8, max_grad_norm=1.0,
    )  # fmt: skip
    step(batch, 6, DRAWS)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        step(batch, 6, DRAWS)
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["aten::convolution"] > 0  # the step is in it
    waits = {"aten::item", "aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero"}
    assert waits & counts.keys() == set()


def test_the_shapes_of_parts_are_those_that_the_network_sees(tmp_path):
    whole, cut, spanning = StepShape(4, 16, 20, 5), StepShape(8, 16, 8, 2), StepShape(8, 32, 4, -2)
    seen = []
    model = nn.Sequential(GroupedBatchNorm3d(3), Mean())
    model.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    step = step_of(model, max_clips=8)
    assert step.part_shapes([whole, cut, spanning]) == [
        StepShape(4, 16, 4, 1), StepShape(4, 16, 8, 2), cut, spanning
    ]  # fmt: skip
    step(batch_of([0] * 20, [0] * 20), 5, DRAWS)
    assert seen == [4, 8, 8]


def test_draws_of_torch_are_a_function_of_seed_and_step():
    def draw(*key):
        seed_step(*key)
        return torch.rand(1).item()

    keys = [(0, 0), (0, 1), (1, 0), (1, 11), (11, 1)]
    first = [draw(*key) for key in keys]
    assert len(set(first)) == len(keys)
    assert [draw(*key) for key in keys] == first


@pytest.mark.parametrize(
    ("clips", "groups", "max_clips", "parts"),
    [
        (64, 8, 0, [(0, 64, 8)]),
        (64, 8, 64, [(0, 64, 8)]),
        (64, 8, 63, [(0, 32, 4), (32, 32, 4)]),
        (64, 8, 24, [(0, 16, 2), (16, 24, 3), (40, 24, 3)]),
        (64, 8, 8, [(first, 8, 1) for first in range(0, 64, 8)]),
        (6, 3, 5, [(0, 2, 1), (2, 4, 2)]),
        (8, -2, 8, [(0, 8, -2)]),
    ],
)
def test_parts_are_whole_groups(clips, groups, max_clips, parts):
    assert split(clips, groups, max_clips) == tuple(MicroBatch(*part) for part in parts)


@pytest.mark.parametrize(
    ("groups", "said"),
    [(1, "64 clips that belong together"), (-2, "one BN group spans 2 processes")],
)
def test_a_mini_batch_that_cannot_be_cut_is_refused(groups, said):
    with pytest.raises(ValueError, match=said):
        split(64, groups, 32)


def test_without_batch_norm_a_mini_batch_is_cut_anywhere_but_in_pairs():
    shape = StepShape(8, 32, 12, 1)
    assert len([*split_problems([shape], 5)]) == 1
    assert [*split_problems([shape], 5, has_batchnorm=False)] == []
    assert [*split_problems([shape], 5, has_batchnorm=False, in_pairs=True)] == []
    assert count_pieces(12, 1, has_batchnorm=False, in_pairs=True) == 6
    assert count_pieces(12, 3, has_batchnorm=True, in_pairs=True) == 3
    (problem,) = split_problems([shape], 1, has_batchnorm=False, in_pairs=True)
    assert "too few for 12x8x32²" in problem
