#!/usr/bin/env python3
"""Compare ways to normalise groups of clips: one after the other, all at once, and by our kernels on a GPU.

    python benchmarks/bn_groups.py --groups 1 8 64
    python benchmarks/bn_groups.py --groups 1 8 64 --compile     also seconds of torch.compile; takes minutes

For each number of groups, the table shows one step of a network without its update, forward and backward: the
operators that torch runs, the nodes of the compiled graphs, and the milliseconds. mgexp/multigrid/batchnorm.py
chooses the way by the device and the number of groups. Close other programs first. Exit 0; 2 bad input.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch.utils._python_dispatch import TorchDispatchMode

from mgexp.config.load import read_config
from mgexp.dist import device_of
from mgexp.errors import InputError, raise_problems
from mgexp.multigrid import batchnorm
from mgexp.multigrid.schedule import StepShape
from mgexp.options import ToolParser, too_small, without_folder
from mgexp.plan.timing import Step, Stopwatch, TimedSteps, measure_steps
from mgexp.plan.ways import build_training_step
from mgexp.run.environment import describe
from mgexp.run.files import write_json
from mgexp.text import aligned
from mgexp.train.compiled import compiled

# ruff: noqa: ANN401 (torch calls these with values of many types)

ROW = Path("experiments/main/k400_slowfast_8x8_r50/long_short.yaml")
WAYS = ("one by one", "at once", "kernels")


class Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operators that run in its block, without views, which compute nothing."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


@contextmanager
def normalising(way: str) -> Iterator[None]:
    """Normalise groups in this way in the block."""
    before = batchnorm.folds, batchnorm.kernels
    batchnorm.folds = lambda device: way == "at once"
    if way != "kernels":
        batchnorm.kernels = lambda: None  # type: ignore[assignment]
    try:
        yield
    finally:
        batchnorm.folds, batchnorm.kernels = before


def num_nodes(model: nn.Module, step: Step) -> int:
    """Count the nodes of the two graphs that torch.compile makes of forward and backward."""
    sizes = []

    def count(graph: torch.fx.GraphModule, inputs: Sequence[Tensor]) -> Any:
        sizes.append(sum(node.op == "call_function" for node in graph.graph.nodes))
        return make_boxed_func(graph)

    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=count, bw_compiler=count)
    model.compile(backend=backend, fullgraph=True, dynamic=False)
    step()
    uncompiled(model)
    return sum(sizes)


def compile_seconds(model: nn.Module, step: Step, stopwatch: Stopwatch) -> float:
    """Time the first step of the compiled network, without torch's cache of compiled kernels."""
    torch._dynamo.reset()
    with (
        torch._inductor.config.patch(force_disable_caches=True),
        compiled(model, "default", num_graphs=2),
    ):
        seconds = stopwatch.time(step).seconds
    uncompiled(model)
    return seconds


def uncompiled(model: nn.Module) -> None:
    """Undo ``model.compile()``."""
    model._compiled_call_impl = None


def measure(
    options: argparse.Namespace, note: Callable[[list[dict[str, Any]]], None]
) -> list[dict[str, Any]]:
    """Measure every number of groups in all ways. ``note`` gets all lines that there are, after each of them."""
    cfg, problems = read_config(options.cfg, options.overrides)
    raise_problems(problems)
    device = device_of(cfg.DEVICE)
    way, stopwatch = build_training_step(cfg, device), Stopwatch(device)
    model = way.step.model
    found = []
    for groups in options.groups:
        shape = StepShape(options.frames, options.crop, groups * options.clips_per_group, groups)
        for name in WAYS if device.type == "cuda" else WAYS[:2]:
            with normalising(name):
                step = way.gradients(shape)
                step()
                with Operators() as operators:  # type: ignore[no-untyped-call]
                    step()
                timed = measure_steps({"": way.gradients}, [shape], options.steps, 1, stopwatch)
                line = {
                    "groups": groups,
                    "way": name,
                    "operators": operators.count,
                    "nodes": num_nodes(model, step),
                    "milliseconds": [1000 * seconds for seconds in timed[""][shape].seconds],
                }
                if options.compile:
                    line["compile_seconds"] = compile_seconds(model, step, stopwatch)
            found.append(line)
            note(found)
    return found


def table(found: Sequence[dict[str, Any]]) -> str:
    """Write a line for each number of groups and way."""
    head = ["BN groups", "way", "operators", "nodes", "ms (p10–p90)", "compile (s)"]
    lines = []
    for one in found:
        ms = TimedSteps((1.0,), tuple(one["milliseconds"]))
        seconds = f"{one['compile_seconds']:.0f}" if "compile_seconds" in one else "–"
        lines.append(
            (str(one["groups"]), one["way"], f"{one['operators']:,}", f"{one['nodes']:,}",
             f"{ms.median:.1f} ({ms.p10:.1f}–{ms.p90:.1f})", seconds)
        )  # fmt: skip
    return aligned([head, *lines])


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = ToolParser(__doc__)
    add = parser.add_argument
    add("--cfg", type=Path, default=ROW, metavar="YAML", help="row (default: SlowFast R50)")
    add("--groups", type=int, nargs="+", default=[1, 8, 64], metavar="N", help="default: 1 8 64")
    add("--clips-per-group", type=int, default=1, metavar="N", help="default: 1")
    add("--frames", type=int, default=8, metavar="T", help="default: 8")
    add("--crop", type=int, default=64, metavar="PIXELS", help="default: 64")
    add("--steps", type=int, default=5, metavar="N", help="timed steps (default: 5)")
    add("--compile", action="store_true", help="also time torch.compile")
    add("--output", type=Path, metavar="FILE", help="write the numbers as JSON")
    add("overrides", nargs="*", metavar="KEY VALUE", help="configuration keys")
    return parser.parse_intermixed_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    try:
        counts = ("clips_per_group", "frames", "crop", "steps")
        numbers = {f"--{name.replace('_', '-')}": getattr(options, name) for name in counts}
        numbers["--groups"] = min(options.groups)
        raise_problems([*too_small(numbers), *without_folder({"--output": options.output})])

        # Compiling may take an hour, so what is measured is shown and written at once.
        def note(found: list[dict[str, Any]]) -> None:
            print(table(found[-1:]), file=sys.stderr, flush=True)
            if options.output:
                write_json(options.output, {"lines": found, "environment": describe()})

        found = measure(options, note)
    except InputError as error:
        print(f"bn_groups.py: {error}", file=sys.stderr)
        return 2
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
