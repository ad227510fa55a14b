"""Prepare the network of a step for its shapes: compile it, or record its passes as CUDA graphs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MethodType
from typing import Literal

import torch
from torch import Tensor, nn

from mgexp.data.batches import Batch
from mgexp.dist import Processes
from mgexp.errors import InputError, first_line
from mgexp.models.forms import take_forms
from mgexp.models.layers import Draws
from mgexp.models.resnet import fuse_norms
from mgexp.multigrid.batchnorm import grouped_layers
from mgexp.multigrid.schedule import StepShape
from mgexp.run.clock import Clock
from mgexp.run.log import LOGGER, progress_bar
from mgexp.text import counted
from mgexp.train.checkpoint import State
from mgexp.train.faults import explaining_memory
from mgexp.train.step import TrainStep, keeping_random_state
from mgexp.train.task import Task

Mode = Literal["default", "cuda_graphs"]


@contextmanager
def compiled(model: nn.Module, mode: Mode, num_graphs: int) -> Iterator[None]:
    """Compile ``model`` as a whole, in place, for the block, or record it. Its copies stay as they were.

    torch may compile ``num_graphs`` times. If it needs more, or cannot compile a part, that is an
    error.
    """
    if mode == "cuda_graphs":
        with recorded(model):
            yield
        return
    # By default torch gives up on a network that it has compiled too often, and then runs it slowly
    # without a message.
    limits = {
        "recompile_limit": num_graphs,
        "accumulated_recompile_limit": 8 * num_graphs,
        "fail_on_recompile_limit_hit": True,
    }
    with torch._dynamo.config.patch(limits):
        # dynamic=False compiles each shape by itself. By default torch would make one graph for
        # sizes that vary, as soon as a second shape comes.
        model.compile(fullgraph=True, dynamic=False, mode=mode)
        yield


class _EagerPass(nn.Module):
    """The forward pass that the class of a network defines, for torch to replace by its graph."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, clips: Tensor) -> Tensor:
        logits: Tensor = type(self.model).forward(self.model, clips)
        return logits


def take_graph_forms(model: nn.Module) -> None:
    """Give the layers of ``model`` what is fast in a CUDA graph, where many small kernels cost Python nothing."""
    take_forms(model, "cuda graph")
    for layer in grouped_layers(model):
        layer.kernel_from = 1


@contextmanager
def recorded(model: nn.Module) -> Iterator[None]:
    """Record the training passes of ``model`` in the block as CUDA graphs, each at its first clips of a size.

    A step of a convolutional network starts thousands of small kernels, and Python needs longer to start them than
    a GPU to compute them (benchmarks/h100.md). A graph starts all at once. Its activations and gradients have
    fixed places in memory, so the gradients of several parts would not add up.
    """
    take_graph_forms(model)
    # Not before: the check of precisions looks at each layer by itself.
    fuse_norms(model)
    layers = grouped_layers(model)
    graphs: dict[tuple[torch.Size, int], Callable[..., object]] = {}

    def forward(self: nn.Module, clips: Tensor) -> Tensor:
        if self is not model or not self.training or not torch.is_grad_enabled():
            eager: Tensor = type(self).forward(self, clips)
            return eager
        shape = (clips.shape, layers[0].num_groups if layers else 1)
        if shape not in graphs:
            device = clips.device.type
            # Cast weights that autocast keeps would be those of the step that is recorded.
            with torch.autocast(
                device,
                torch.get_autocast_dtype(device),
                torch.is_autocast_enabled(device),
                cache_enabled=False,
            ):
                # The graph keeps its example as the memory for all later clips, so it gets a copy. A custom
                # network may leave parameters unused.
                graphs[shape] = torch.cuda.make_graphed_callables(
                    _EagerPass(self), (clips.clone(),), allow_unused_input=True
                )
        logits = graphs[shape](clips)
        assert isinstance(logits, Tensor)
        return logits

    # A copy of the model gets a copy of a bound method, so it does not replay the graphs of this one.
    model.forward = MethodType(forward, model)
    try:
        yield
    finally:
        del model.forward


MANY_STEPS = 10_000
"""With so many steps for each shape on average, cuDNN tries its kernels. That takes 6 to 17 seconds a shape
(benchmarks/h200.md), and saves 1.9 ms of a recorded step of SlowFast R50 (benchmarks/h100.md)."""


def warm_up(step: TrainStep, shapes: Sequence[StepShape], task: Task, progress: bool) -> None:
    """Run forward and backward on black clips of each shape. Weights, statistics and draws stay the same.

    Raises TrainingError if memory runs out.
    """
    device = step.normalizer.device
    # A training pass moves the running statistics of batch norm, so we put these back at the end.
    before = {name: buffer.clone() for name, buffer in step.model.named_buffers()}
    bar = progress_bar(len(shapes), " shapes", desc="compiling", is_shown=progress)
    with bar, keeping_random_state(device):
        for shape in shapes:
            # The loader gives clips (B, 3, T, S, S) in this memory format. For another format torch
            # would compile again.
            size = (shape.clips, shape.frames, shape.crop, shape.crop, 3)
            clips = torch.zeros(size, dtype=torch.uint8, device=device).permute(0, 4, 1, 2, 3)
            # With flips, whose operators then have their memory and kernels before the first step too.
            flipped = torch.arange(shape.clips, device=device) % 2 == 0
            batch = Batch(clips, task.no_labels(shape.clips, device), (), flipped=flipped)
            with explaining_memory(f"before the first step, {shape}"):
                step.backward(batch, shape.num_bn_groups, Draws(seed=0, step=0))
            bar.update()
    step.optimizer.zero_grad(set_to_none=True)
    for name, buffer in step.model.named_buffers():
        buffer.copy_(before[name])


def settle_buckets(
    step: TrainStep, shapes: Sequence[StepShape], task: Task, processes: Processes, clock: Clock
) -> None:
    """Let DDP choose how it groups gradients before the first step, so that all steps add them in one order."""
    # DDP groups them anew after its first backward pass. With three processes or more, gloo's order of a sum
    # depends on the place in the group. So the first step after a resume would differ in its last bits from the
    # same step of a run that was not interrupted. (Measured with torch 2.15: 11 of 14 tensors with three
    # processes, 14 of 14 with four, none with two.)
    if processes.count > 2:
        with clock.measure("train"), clock.measure("shape_warmup"):
            warm_up(step, shapes, task, progress=False)


@contextmanager
def compiled_step(
    mode: Literal["off"] | Mode,
    step: TrainStep,
    state: State,
    task: Task,
    num_steps: Mapping[StepShape, int],
    progress: bool,
) -> Iterator[None]:
    """Compile the network of ``state`` for every shape of ``num_steps``, for the block, unless ``mode`` is off.

    The clock of the run counts these seconds as training and as warm-up of the shapes, and the log says them.
    Raises InputError if torch cannot compile the network.
    """
    shapes = [*num_steps]
    if mode == "off" or not shapes:
        yield
        return
    # Each part of a mini-batch has a graph of its own: it finds the statistics that the parts before it kept.
    num_graphs = sum(len(step.parts(shape.clips, shape.num_bn_groups)) for shape in shapes)
    # A compiler has errors of its own. Those of a recording look like an error of the network.
    fault = RuntimeError if mode == "cuda_graphs" else torch._dynamo.exc.TorchDynamoException
    has_many = sum(num_steps.values()) >= MANY_STEPS * len(shapes)
    cudnn, before = torch.backends.cudnn, torch.backends.cudnn.benchmark
    tries = before or (mode == "cuda_graphs" and has_many)
    with compiled(state.model, mode, num_graphs):
        start = time.monotonic()
        with state.clock.measure("train"), state.clock.measure("shape_warmup"):
            cudnn.benchmark = tries
            try:
                warm_up(step, shapes, task, progress)
            except fault as error:
                problem = f"TRAIN.COMPILE = {mode}: torch cannot make a graph of the network"
                raise InputError([f"{problem}: {first_line(error)}"]) from error
            finally:
                cudnn.benchmark = before
        if progress:
            seconds = time.monotonic() - start
            LOGGER.info(
                "compiled the network for %s in %.1f seconds",
                counted(len(shapes), "shape"),
                seconds,
            )
        yield
