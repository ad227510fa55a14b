"""Take training steps in plain PyTorch, without our optimizations, for comparison in tools/bench_step.py."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import count

import torch
from torch import Tensor, nn
from torchvision.ops import StochasticDepth
from way_in_processes import WayInProcesses

from mgexp.config.keys import Config
from mgexp.models.build import build_model
from mgexp.models.layers import ClipDropout, DropPath
from mgexp.multigrid.batchnorm import GroupedBatchNorm3d
from mgexp.multigrid.schedule import StepShape
from mgexp.optim.build import build_optimizer, set_rates
from mgexp.plan.timing import Step, Way
from mgexp.plan.ways import LEARNING_RATE, RandomClips, build_training_step
from mgexp.train.compiled import Mode, compiled
from mgexp.train.precision import Precision, resolve_precision
from mgexp.train.step import seed_step
from mgexp.train.task import build_task

OURS, PLAIN, ONE_GROUP = "ours", "plain", "one_group"
WAYS = (OURS, PLAIN, ONE_GROUP)
"""The ways that are measured by default."""
COMPILED: dict[str, Mode] = {"compiled": "default", "cuda_graphs": "cuda_graphs"}
"""The ways that take torch.compile, which costs some minutes, with their value of TRAIN.COMPILE."""


class PlainStep:
    """The step in contiguous memory, with plain BN.

    ``model`` is a network of plain modules in contiguous memory (``plain_copy``). ``optimizer`` updates this
    model; the optimizers of torch loop over its parameters. The step computes the same as our step with one BN
    group, except for the masks of dropout. In fp16 it does not scale the loss.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        data: RandomClips,
        precision: Precision,
        max_grad_norm: float = 0.0,
    ) -> None:
        self.model, self.optimizer, self.data = model, optimizer, data
        self.mean, self.std, self.max_grad_norm = mean, std, max_grad_norm
        self.precision = precision

    def __call__(self, shape: StepShape) -> Step:
        """Return the step on clips of ``shape``. The step returns the mean loss."""
        device, numbers = self.data.device, count()
        batch = self.data.batch(shape)
        clips, labels = batch.clips.contiguous(), batch.labels.to(device)

        def step() -> Tensor:
            # Training seeds each step too. Here nn.Dropout draws its masks with this seed.
            seed_step(0, next(numbers))
            self.model.train()
            self.optimizer.zero_grad()
            mean, std = (
                torch.tensor(values, device=device).view(1, -1, 1, 1, 1)
                for values in (self.mean, self.std)
            )
            normalized = (clips.to(device).float() / 255 - mean) / std
            with self.precision.autocast(device):
                loss = self.data.task.loss(self.model(normalized), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            if self.max_grad_norm:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.max_grad_norm)
            self.optimizer.step()
            return loss.detach()

        return step


def plain_copy(model: nn.Module) -> nn.Module:
    """Copy a network to contiguous memory, with modules of torch and torchvision in place of ours."""
    clone = copy.deepcopy(model)
    for name, module in list(clone.named_modules()):
        if isinstance(module, GroupedBatchNorm3d):
            plain = nn.BatchNorm3d(module.num_features, module.eps, module.momentum)
            plain.load_state_dict(module.state_dict())
            clone.set_submodule(name, plain)
        elif isinstance(module, DropPath):
            clone.set_submodule(name, StochasticDepth(module.p, "row"))
        elif isinstance(module, ClipDropout):
            clone.set_submodule(name, nn.Dropout(module.p))
    return clone.to(next(model.parameters()).device).to(memory_format=torch.contiguous_format)


def build_plain_step(cfg: Config, device: torch.device) -> PlainStep:
    """Build the plain step of the network of ``cfg``, with the initial weights of ours."""
    precision = resolve_precision(cfg.TRAIN.PRECISION, device)
    # Set the same precision of matrix products and convolutions as a run does.
    precision.set_backends()
    model = plain_copy(build_model(cfg).to(device))
    optimizer = build_optimizer(cfg, model)
    for group in optimizer.param_groups:
        group.update(foreach=False, fused=False)
    set_rates(optimizer, LEARNING_RATE)
    data, most = RandomClips(build_task(cfg), device), cfg.SOLVER.CLIP_GRAD_L2NORM
    return PlainStep(model, optimizer, cfg.DATA.MEAN, cfg.DATA.STD, data, precision, most)


@contextmanager
def build_ways(
    cfg: Config, names: Collection[str], device: torch.device, num_shapes: int
) -> Iterator[dict[str, Way]]:
    """Build the ways ``names`` for the block, in their order. All start from the same weights.

    ``ours`` is the step of training. ``one_group`` is ours with all clips in one BN group, and shares the model of
    ours. ``plain`` is contiguous memory, ``nn.BatchNorm3d``, eager. These two do not cut a mini-batch into parts,
    also with TRAIN.MAX_CLIPS_PER_GPU. All have the precision of the row. The ways of
    COMPILED are ours with another value of TRAIN.COMPILE. They compile ``num_shapes`` shapes, each at its first
    step.
    """
    # On a CPU, our training makes its process keep freed memory. Plain training does not, so it gets its own
    # process.
    ours, plain = build_training_step(cfg, device), partial(build_plain_step, cfg, device)

    def in_one_group(shape: StepShape) -> Step:
        # A BN group cannot be cut into parts.
        uncut = replace(ours, step=replace(ours.step, max_clips=0))
        return uncut(replace(shape, num_bn_groups=1))

    makers: dict[str, Callable[[], Way]] = {
        OURS: lambda: ours,
        PLAIN: lambda: (
            WayInProcesses([plain], torch.get_num_threads()) if device.type == "cpu" else plain()
        ),
        ONE_GROUP: lambda: in_one_group,
    }
    with ExitStack() as stack:

        def compile_for(mode: Mode) -> Way:
            way = build_training_step(cfg, device)
            # Forward and backward are compiled separately, so there are two graphs for each shape.
            stack.enter_context(compiled(way.step.model, mode, num_graphs=2 * num_shapes))
            return way

        makers |= {name: partial(compile_for, mode) for name, mode in COMPILED.items()}
        yield {name: makers[name]() for name in names}
