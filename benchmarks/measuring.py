"""What the tools that measure share: options, a row of numbers, and the memory that a process holds."""

from __future__ import annotations

import argparse
import copy
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import torch
from torch import nn

from mgexp.config.keys import Config
from mgexp.errors import InputError
from mgexp.optim.build import build_optimizer
from mgexp.options import add_import_option


def add_measuring_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of tools that measure a row: which row, and where the numbers go."""
    add = parser.add_argument
    add("--cfg", required=True, type=Path, help="YAML of a row, in experiments/")
    add_import_option(parser)
    add("--json", action="store_true", help="print all measurements, for programs")
    add("--output", type=Path, metavar="FILE", help="write that to a file too")
    add("overrides", nargs="*", metavar="KEY VALUE", help="configuration keys")


def spread(values: Sequence[float], decimals: int = 2) -> str:
    """Write median, minimum and maximum: 2.00 (1.50–2.50)."""
    texts = [f"{value:.{decimals}f}" for value in (median(values), min(values), max(values))]
    return f"{texts[0]} ({texts[1]}–{texts[2]})"


def build_held_bytes(cfg: Config, model: nn.Module) -> int:
    """Count the bytes of weights, gradients and optimizer. Raises InputError if the optimizer needs numbers."""
    clone = copy.deepcopy(model).to("meta")
    weights = sum(tensor.nbytes for tensor in (*clone.parameters(), *clone.buffers()))
    optimizer, gradients = build_optimizer(cfg, clone), 0
    for parameter in (tensor for tensor in clone.parameters() if tensor.requires_grad):
        parameter.grad = torch.zeros_like(parameter)
        gradients += parameter.nbytes
    try:
        optimizer.step()
    # A custom optimizer may raise anything.
    except Exception as error:
        method, reason = cfg.SOLVER.OPTIMIZING_METHOD, f"{type(error).__name__}: {error}"
        problem = f"SOLVER.OPTIMIZING_METHOD = {method}: its memory cannot be counted: {reason}"
        raise InputError([problem]) from error
    values = (value for state in optimizer.state.values() for value in state.values())
    states = sum(value.nbytes for value in values if isinstance(value, torch.Tensor))
    return weights * (2 if cfg.TRAIN.EMA_DECAY else 1) + gradients + states
