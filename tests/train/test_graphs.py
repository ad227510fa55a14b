"""Training passes replay the graph of their shape. torch records on a GPU alone, so a graph is a module here."""

import copy

import pytest
import torch
from test_compiled import SHAPES, TASK, Network, batch_of, step_of

from mgexp.models.layers import Draws
from mgexp.run.clock import Clock
from mgexp.train.checkpoint import State
from mgexp.train.compiled import compiled_step

tried = []  # whether cuDNN tried its kernels when each graph was recorded


@pytest.fixture
def replays(monkeypatch):
    """(size of the clips, BN groups when it was recorded) of each graph that is replayed."""
    replayed = []
    tried.clear()

    def record(module, sample, allow_unused_input):
        tried.append(torch.backends.cudnn.benchmark)
        assert not torch.is_autocast_cache_enabled()
        module(*sample)  # as torch does
        num_groups = module.model.norm.num_groups
        eager = type(module).forward

        def replay(clips):
            replayed.append((clips.shape, num_groups))
            return eager(module, clips)

        return replay

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", record)
    return replayed


def recording(model, step, num_steps=1):
    state = State(model, step.optimizer, Clock())
    counts = dict.fromkeys(SHAPES, num_steps)
    return compiled_step("cuda_graphs", step, state, TASK, counts, progress=False)


@pytest.mark.usefixtures("replays")
def test_cudnn_tries_its_kernels_where_many_steps_pay_for_it():
    for num_steps in (9_999, 10_000):
        model = Network()
        with recording(model, step_of(model), num_steps):
            assert not torch.backends.cudnn.benchmark
    assert tried == [False] * len(SHAPES) + [True] * len(SHAPES)


def test_each_shape_has_its_graph_and_trains_like_the_plain_network(replays):
    model, plain = Network(), Network()
    ours, theirs = step_of(model), step_of(plain)
    with recording(model, ours):
        replays.clear()
        for number, shape in enumerate([*SHAPES, *SHAPES]):
            arguments = (batch_of(shape), shape.num_bn_groups, Draws(seed=0, step=number))
            torch.testing.assert_close(ours(*arguments), theirs(*arguments))
    torch.testing.assert_close(model.state_dict(), plain.state_dict())
    sizes = [(shape.clips, 3, shape.frames, shape.crop, shape.crop) for shape in SHAPES]
    wanted = [(size, shape.num_bn_groups) for size, shape in zip(sizes, SHAPES, strict=True)]
    assert replays == wanted * 2


def test_only_training_of_the_network_itself_replays(replays):
    model = Network()
    clips = torch.rand(4, 3, 2, 8, 8)
    with recording(model, step_of(model)):
        replays.clear()
        model.norm.num_groups = 2
        model(clips)
        assert len(replays) == 1
        with torch.no_grad():
            model(clips)
        other = copy.deepcopy(model)
        torch.nn.init.zeros_(other.head.weight)
        assert torch.equal(other(clips), other.head.bias.expand(4, 2))
        model.eval()(clips)
        assert len(replays) == 1
    model.train()(clips)
    assert len(replays) == 1
