"""A compiled network trains like the plain one, and never falls back to it without a message."""

import copy
from dataclasses import replace
from functools import partialmethod

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mgexp.config.load import config_of
from mgexp.data.batches import Batch
from mgexp.errors import InputError, TrainingError
from mgexp.models.build import build_model
from mgexp.models.layers import ClipDropout, Draws
from mgexp.multigrid.batchnorm import GroupedBatchNorm3d
from mgexp.multigrid.schedule import StepShape
from mgexp.run.clock import Clock
from mgexp.train.checkpoint import State
from mgexp.train.compiled import compiled, compiled_step, warm_up
from mgexp.train.step import Normalizer, TrainStep
from mgexp.train.task import one_label

CPU = torch.device("cpu")
TASK = one_label(2, "sum")
SHAPES = [StepShape(2, 8, 4, 2), StepShape(4, 8, 2, 1)]


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv3d(3, 4, 3, padding=1)
        self.norm = GroupedBatchNorm3d(4)
        self.dropout = ClipDropout(0.5)
        self.head = nn.Linear(4, 2)

    def forward(self, clips):
        return self.head(self.dropout(self.norm(self.conv(clips)).relu().mean((2, 3, 4))))


def step_of(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return TrainStep(model, optimizer, F.cross_entropy, Normalizer((0.45,) * 3, (0.2,) * 3, CPU))


def batch_of(shape):
    generator = torch.Generator().manual_seed(shape.frames)
    size = (shape.clips, shape.frames, shape.crop, shape.crop, 3)
    clips = torch.randint(0, 256, size, dtype=torch.uint8, generator=generator)
    marks = torch.arange(shape.clips) % 2
    return Batch(clips.permute(0, 4, 1, 2, 3), marks, (), flipped=marks == 0)


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.slow
def test_a_compiled_network_trains_like_the_plain_one():
    plain = Network()
    model = copy.deepcopy(plain)
    with compiled(model, "default", len(SHAPES)):
        warm_up(step_of(model), SHAPES, TASK, progress=False)
        torch.testing.assert_close(model.state_dict(), plain.state_dict(), rtol=0, atol=0)
        ours, theirs = step_of(model), step_of(plain)
        for step, shape in enumerate([*SHAPES, *SHAPES]):
            arguments = (batch_of(shape), shape.num_bn_groups, Draws(seed=0, step=step))
            torch.testing.assert_close(ours(*arguments), theirs(*arguments))
    torch.testing.assert_close(model.state_dict(), plain.state_dict())


def test_a_shape_too_many_is_an_error(monkeypatch):
    model = Network()
    step = step_of(model)
    with compiled(model, "default", 1), pytest.raises(Exception, match=r"[Rr]ecompile"):
        model.compile(backend="eager", fullgraph=True, dynamic=False)
        warm_up(step, SHAPES, TASK, progress=False)


def test_each_part_of_a_mini_batch_may_have_its_graph(monkeypatch):
    eager = partialmethod(nn.Module.compile, backend="eager")
    monkeypatch.setattr(Network, "compile", lambda self, mode, **more: eager.__get__(self)(**more))
    model = Network()
    step = replace(step_of(model), max_clips=2)
    # The first shape has one part, and the last pass through it comes after those in parts.
    shapes = [StepShape(4, 8, 2, 1), StepShape(2, 8, 8, 4), StepShape(4, 8, 4, 2)]
    state = State(model, step.optimizer, Clock())
    with compiled_step("default", step, state, TASK, dict.fromkeys(shapes, 1), progress=False):
        for shape in (*shapes, shapes[0]):
            step(batch_of(shape), shape.num_bn_groups, Draws(seed=0, step=1))


def test_a_copy_is_not_compiled():
    model = Network()
    with compiled(model, "default", 2):
        assert model._compiled_call_impl is not None
        assert copy.deepcopy(model)._compiled_call_impl is None


def draw(*_):
    """Take a number of torch's generator, as a custom layer may."""
    torch.rand(1)


def test_warming_up_changes_no_draw_and_keeps_no_gradient():
    model = Network()
    model.register_forward_hook(draw)
    before = copy.deepcopy(model.state_dict())
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    warm_up(step_of(model), SHAPES, TASK, progress=False)
    assert torch.equal(torch.rand(2), expected)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_warm_up_that_does_not_fit_names_the_shape_and_the_keys():
    def too_large(module, inputs):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    model = Network()
    model.register_forward_pre_hook(too_large)
    with pytest.raises(TrainingError, match="before the first step") as caught:
        warm_up(step_of(model), SHAPES, TASK, progress=False)
    assert f"{SHAPES[0]}: out of memory" in str(caught.value)
    assert "TRAIN.ACTIVATION_CHECKPOINTING" in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "ViT rotary",
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in ("ViT learned", "ViT vjepa2", "MViT")
        ),
    ],
)
def test_a_transformer_is_one_graph_for_each_shape(name):
    """Traced as a whole, and compiled again for no step: positions are a part of the graph of their shape."""
    keys = {
        "MODEL.MODEL_NAME": name.split()[0], "MODEL.NUM_CLASSES": 2,
        "DATA.NUM_FRAMES": 4, "DATA.TRAIN_CROP_SIZE": 16,
        "VIT.EMBED_DIM": 24, "VIT.DEPTH": 2, "VIT.NUM_HEADS": 2,
        "VIT.TUBELET": [2, 4, 4], "VIT.DROPPATH_RATE": 0.5,
        "MVIT.EMBED_DIM": 8, "MVIT.DEPTH": 2, "MVIT.STAGES": [1], "MVIT.DROPPATH_RATE": 0.5,
        "VIT.POSITIONS": name.split()[1] if "ViT " in name else "learned",
    }  # fmt: skip
    model, graphs = build_model(config_of(keys)), []

    def counting(graph, _inputs):
        graphs.append(graph)
        return graph

    shapes = [StepShape(2, 8, 4, 1), StepShape(4, 8, 2, 1), StepShape(4, 16, 2, 1)]
    step = step_of(model)
    with compiled(model, "default", len(shapes)):
        model.compile(backend=counting, fullgraph=True, dynamic=False)
        for number, shape in enumerate([*shapes, *shapes]):
            step(batch_of(shape), shape.num_bn_groups, Draws(seed=0, step=number))
    assert len(graphs) == len(shapes)


class Branching(Network):
    def forward(self, clips):
        return super().forward(clips if clips.mean() > 0 else clips + 1)


def test_a_network_that_is_no_single_graph_is_one_problem():
    step = step_of(Branching())
    state = State(step.model, step.optimizer, Clock())
    with (
        pytest.raises(InputError, match=r"^1 problem found:\n  - TRAIN\.COMPILE"),
        compiled_step("default", step, state, TASK, dict.fromkeys(SHAPES, 1), False),
    ):
        pass
