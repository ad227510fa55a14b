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
from way_in_process import way_in_process

from mgexp.config.keys import Config
from mgexp.models.build import build_model
from mgexp.models.layers import ClipDropout, DropPath
from mgexp.multigrid.batchnorm import GROUPED
from mgexp.multigrid.schedule import StepShape
from mgexp.optim.build import build_optimizer, set_rates
from mgexp.plan.timing import Step, Way
from mgexp.plan.ways import LEARNING_RATE, RandomClips, build_training_step
from mgexp.train.compiled import Mode, compiled
from mgexp.train.precision import resolve_precision
from mgexp.train.step import seed_step
from mgexp.train.task import build_task

OURS, PLAIN, ONE_GROUP = "ours", "plain", "one_group"
WAYS = (OURS, PLAIN, ONE_GROUP)
"""The ways that are measured by default."""
COMPILED: dict[str, Mode] = {"compiled": "default", "cuda_graphs": "cuda_graphs"}
"""The ways that take torch.compile, which costs some minutes, with their value of TRAIN.COMPILE."""


def plain_copy(model: nn.Module) -> nn.Module:
    """Copy a network to contiguous memory, with modules of torch and torchvision in place of ours."""
    clone, plain = copy.deepcopy(model), {ours: torchs for torchs, ours in GROUPED.items()}
    for name, module in list(clone.named_modules()):
        module.__class__ = plain.get(type(module), type(module))
        if isinstance(module, DropPath):
            clone.set_submodule(name, StochasticDepth(module.p, "row"))
        elif isinstance(module, ClipDropout):
            clone.set_submodule(name, nn.Dropout(module.p))
    return clone.to(next(model.parameters()).device).to(memory_format=torch.contiguous_format)


def build_plain_step(cfg: Config, device: torch.device) -> Way:
    """Build the step in contiguous memory, with plain BN, of the network of ``cfg``. It returns the mean loss.

    It starts from the initial weights of ours, and computes the same as our step with one BN group, except for the
    masks of dropout. The optimizers of torch loop over the parameters. In fp16 it does not scale the loss.
    """
    precision = resolve_precision(cfg.TRAIN.PRECISION, device)
    # Set the same precision of matrix products and convolutions as a run does.
    precision.set_backends()
    model = plain_copy(build_model(cfg).to(device))
    optimizer = build_optimizer(cfg, model)
    for group in optimizer.param_groups:
        group.update(foreach=False, fused=False)
    set_rates(optimizer, LEARNING_RATE)
    task = build_task(cfg)
    data = RandomClips(task, device)

    def way(shape: StepShape) -> Step:
        batch, numbers = data.batch(shape), count()
        clips, labels = batch.clips.contiguous(), batch.labels.to(device)

        def step() -> Tensor:
            # Training seeds each step too. Here nn.Dropout draws its masks with this seed.
            seed_step(0, next(numbers))
            model.train()
            optimizer.zero_grad()
            mean, std = (
                torch.tensor(values, device=device).view(1, -1, 1, 1, 1)
                for values in (cfg.DATA.MEAN, cfg.DATA.STD)
            )
            normalized = (clips.to(device).float() / 255 - mean) / std
            with precision.autocast(device):
                given = (normalized, labels) if task.takes_labels else (normalized,)
                loss = task.loss(model(*given), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            if cfg.SOLVER.CLIP_GRAD_L2NORM:
                nn.utils.clip_grad_norm_(model.parameters(), cfg.SOLVER.CLIP_GRAD_L2NORM)
            optimizer.step()
            return loss.detach()

        return step

    return way


@contextmanager
def build_ways(
    cfg: Config, names: Collection[str], device: torch.device, num_shapes: int
) -> Iterator[dict[str, Way]]:
    """Build the ways ``names`` for the block, in their order. All start from the same weights.

    ``ours`` is the step of training. ``one_group`` is ours with all clips in one BN group, and shares the model of
    ours. ``plain`` is contiguous memory, torch's batch norm, eager. These two do not cut a mini-batch into parts,
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
            way_in_process(plain, torch.get_num_threads()) if device.type == "cpu" else plain()
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
