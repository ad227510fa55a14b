#!/usr/bin/env python3
"""Measure what a training step of a row costs on this machine, shape by shape; needs no videos.

    python tools/bench_step.py --cfg ROW.yaml --batch-size 2 --base-shapes

The tool takes training steps on random clips in several ways, in turns:
  ours       what training does: channels_last_3d memory, BN over groups of clips
  plain      the same network and weights in contiguous memory, nn.BatchNorm3d, eager, a loop over the parameters;
             on a CPU in a process of its own, which returns freed memory to the system, as processes do by default
  one_group  ours with all clips in one BN group: the extra time of ours over it is the cost of BN groups
  compiled, cuda_graphs   ours with that TRAIN.COMPILE; "first use" is then the time to compile a shape
Close other programs first. Exit 0; 1 a step failed; 2 bad input; 4 stopped by Ctrl-C.

In detail:
The precision is TRAIN.PRECISION. The first table shows the first way. Of ways that share kernels, only the first
pays for the first use of a shape. TRAIN.MAX_CLIPS_PER_GPU cuts no mini-batches of plain and one_group. The peak is
the highest rate of a large matrix product or convolution, before or after the steps. The roofline is the least
time of the step of one_group: of each operator, its FLOPs at the peak or its bytes at the rate of a large copy,
whichever takes longer. Loading is not measured.
--operators lists what torch runs in one more step. If all of it takes a GPU less time than a step, the GPU waits
for Python in the rest of the step. The mini-batches are those of one process: for G GPUs, give
--batch-size TRAIN.BATCH_SIZE / G. On a CPU, memory is an estimate.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

# mgexp comes before torch, because it sets how torch's threads wait.
import mgexp  # noqa: F401

# isort: split
import simplejson
import torch

from mgexp.config.keys import Config
from mgexp.config.load import experiment_name, read_config
from mgexp.dist import device_of, device_problems
from mgexp.errors import TrainingError, first_line, raise_problems
from mgexp.models.build import build_model, network_title
from mgexp.models.cost import FLOPS_PER_MAC, TRAINING_PER_FORWARD, activation_bytes, count_macs
from mgexp.multigrid.schedule import Schedule, StepShape, base_shapes, step_counts
from mgexp.options import ToolParser, run_tool, say, too_small, without_folder
from mgexp.plan.measure import build_checked_schedule
from mgexp.plan.timing import Stopwatch, Way, measure_steps
from mgexp.run.environment import describe
from mgexp.run.files import write_json
from mgexp.train.precision import resolve_precision

# Code that is used only to measure is not a part of the package. It is in benchmarks/, beside its results.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from measuring import add_measuring_options, build_held_bytes
from operators import OperatorTime, operator_times
from peak import measure_peak
from plain_step import COMPILED, ONE_GROUP, OURS, WAYS, build_ways
from roofline import roofline_of
from step_times import step_report, times_json


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = ToolParser(__doc__, "--cfg YAML [options] [KEY VALUE ...]")
    add_measuring_options(parser)
    add = parser.add_argument
    add("--steps", type=int, default=5, metavar="N", help="number of steps to time (default: 5)")
    text = "number of steps before those, not timed (default: 2)"
    add("--warmup", type=int, default=2, metavar="N", help=text)
    text = "clips of a mini-batch at the full shape (default: TRAIN.BATCH_SIZE)"
    add("--batch-size", type=int, metavar="B", help=text)
    text = "measure the phases' own shapes only, not the smaller crops of the short cycle"
    add("--base-shapes", action="store_true", help=text)
    text = "measure only shapes such as 8x224: frames x crop"
    add("--shapes", nargs="+", metavar="TxS", help=text)
    text = f"what is measured (default: {' '.join(WAYS)})"
    add("--ways", nargs="+", choices=(*WAYS, *COMPILED), default=WAYS, help=text)
    text = "also list the ten operators of torch (on a GPU: kernels) that take most of the time of our step"
    add("--operators", action="store_true", help=text)
    return parser.parse_with_pairs(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    try:
        cfg, schedule = read(options)
        shapes = chosen_shapes(schedule, options)
        timed = bench(cfg, schedule, shapes, options)
    except (TrainingError, RuntimeError) as error:
        say(f"a step failed: {error}")
        return 1
    environment, device = describe(), device_of(cfg.DEVICE)
    precision = resolve_precision(cfg.TRAIN.PRECISION, device).name
    found = {
        **timed,
        "row": experiment_name(options.cfg),
        "model": network_title(cfg.MODEL.MODEL_NAME, cfg.RESNET.DEPTH),
        "batch_size": cfg.TRAIN.BATCH_SIZE,
        "device": device.type,
        "precision": precision,
        "environment": environment,
    }
    if options.output:
        write_json(options.output, found)
    if options.json:
        print(simplejson.dumps(found, indent=2))
    else:
        name = environment["gpu"] if device.type == "cuda" else environment["cpu"]
        threads, torch_version = environment["threads"], environment["torch"]
        machine = f"{name}, {threads} threads, {precision}, torch {torch_version}"
        print(f"{step_report(timed)}\n{machine}")
    return 0


def read(options: argparse.Namespace) -> tuple[Config, Schedule]:
    """Check the options, read the configuration and build its schedule. Raises InputError with all problems."""
    batch = [] if options.batch_size is None else ["TRAIN.BATCH_SIZE", str(options.batch_size)]
    cfg, problems = read_config(options.cfg, [*options.overrides, *batch])
    compile_mode = "cuda_graphs" if "cuda_graphs" in options.ways else "off"
    numbers = {
        "--batch-size": options.batch_size,
        "--steps": options.steps,
        "--warmup": options.warmup,
    }
    # Check now whether the files can be written, and not after an hour of measuring.
    found = [
        *too_small(numbers),
        *without_folder({"--output": options.output}),
        *problems,
        *device_problems(cfg.DEVICE, torch.cuda.device_count(), compile_mode),
    ]
    if options.operators and OURS not in options.ways:
        found.append(f"--operators lists those of {OURS}: add it to --ways")
    return cfg, build_checked_schedule(cfg, found)


def chosen_shapes(schedule: Schedule, options: argparse.Namespace) -> tuple[StepShape, ...]:
    """Return the shapes that the options ask for. Raises InputError for one that the schedule lacks."""
    shapes = base_shapes(schedule) if options.base_shapes else tuple(step_counts(schedule))
    if not options.shapes:
        return shapes
    names = {f"{shape.frames}x{shape.crop}": shape for shape in shapes}
    unknown = [name for name in options.shapes if name not in names]
    raise_problems(
        [f"--shapes {name}: the row has the shapes {', '.join(names)}" for name in unknown]
    )
    return tuple(names[name] for name in options.shapes)


def bench(
    cfg: Config, schedule: Schedule, shapes: tuple[StepShape, ...], options: argparse.Namespace
) -> dict[str, Any]:
    """Measure every way at the shapes, and return the numbers for JSON."""
    torch.set_num_threads(cfg.TRAIN.NUM_THREADS or torch.get_num_threads())
    device = device_of(cfg.DEVICE)
    # Clocks and temperatures change during a long measurement, so the peak is measured before and after it.
    dtype = resolve_precision(cfg.TRAIN.PRECISION, device).dtype
    peak = measure_peak(device, dtype)
    # A way may be given twice. `dict.fromkeys` takes it once and keeps the order.
    names = dict.fromkeys(options.ways)
    with build_ways(cfg, names, device, len(shapes)) as ways:
        timed = measure_steps(
            ways, shapes, options.steps, options.warmup, Stopwatch(device), progress=True
        )
        counted = shapes if ONE_GROUP in ways else ()
        rooflines = {shape: roofline_of(ways[ONE_GROUP](shape)) for shape in counted}
        operators = list_operators(ways[OURS], shapes, device) if options.operators else {}
    peak = peak.best_of(measure_peak(device, dtype))
    base = tuple(shape for shape in base_shapes(schedule) if shape in shapes)
    found = {"peak": peak, "rooflines": rooflines, "operators": operators}
    return times_json(timed, base=base, **found, **costs_of(cfg, shapes))


def list_operators(
    way: Way, shapes: tuple[StepShape, ...], device: torch.device
) -> dict[StepShape, tuple[OperatorTime, ...]]:
    """Find the operators of a step of each shape. If torch cannot do that here, say so and return none."""
    try:
        return {shape: operator_times(way(shape), device) for shape in shapes}
    # torch raises the second where its profiler was built without CUPTI.
    except (RuntimeError, AssertionError) as error:
        say(f"--operators: torch cannot list them here: {first_line(error)}")
        return {}


def costs_of(cfg: Config, shapes: tuple[StepShape, ...]) -> dict[str, Any]:
    """Count FLOPs and bytes of a step at each shape, and the bytes held between steps, for times_json."""
    model = build_model(cfg)
    macs = count_macs(model, [(shape.frames, shape.crop) for shape in shapes])
    per_mac = FLOPS_PER_MAC * TRAINING_PER_FORWARD
    return {
        "flops": {s: per_mac * s.clips * macs[s.frames, s.crop] for s in shapes},
        "kept_bytes": {s: s.clips * activation_bytes(model, s.frames, s.crop) for s in shapes},
        "held_bytes": build_held_bytes(cfg, model),
    }


if __name__ == "__main__":
    sys.exit(run_tool(main))
