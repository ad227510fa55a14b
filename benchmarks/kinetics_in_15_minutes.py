#!/usr/bin/env python3
"""Predict how "Training Kinetics in 15 Minutes" (arXiv 1910.00932) scales from 6 to 1,536 GPUs.

    python benchmarks/kinetics_in_15_minutes.py [--plot PNG] [--output FILE] [--json]

One constant is fitted to the published time on 6 GPUs. The published time on 1,536 GPUs then tests the model of
communication in communication.py. The study also predicts SlowFast with and without long+short.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import matplotlib as mpl
import simplejson
from communication import Communication, Link, Network
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from mgexp.figures.style import COLOURS, FAINT, OTHER_COLOURS, QUIET
from mgexp.multigrid.recipe import LONG_SHORT, Multigrid, Recipe
from mgexp.multigrid.schedule import Schedule, build_schedule
from mgexp.options import ToolParser
from mgexp.run.files import atomic_file, write_json
from mgexp.text import aligned, duration

STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": QUIET,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": QUIET,
    "ytick.labelcolor": QUIET,
}


@dataclass(frozen=True)
class Constant:
    """A number of the study, its unit and its source."""

    value: float
    unit: str
    source: str


ABSTRACT = "abstract of arXiv 1910.00932"
NCCL = "NCCL, src/graph/tuning.cc at 01afd20, hwLat, ring, Simple"
CONSTANTS = {
    "few_gpus": Constant(6, "V100", "github.com/mit-han-lab/temporal-shift-module, issue 28; a node of Summit"),
    "few_seconds": Constant(49 * 3600 + 55 * 60, "s", ABSTRACT),
    "many_gpus": Constant(1536, "V100", ABSTRACT),
    "many_seconds": Constant(14 * 60 + 13, "s", ABSTRACT),
    "clips_per_gpu": Constant(8, "clips", ABSTRACT + ": 12,288 clips on 1,536 GPUs"),
    "epochs": Constant(100, "epochs", "assumption: the released checkpoint is named e100 (TSM repository)"),
    "videos": Constant(240_000, "videos", "assumption: Kinetics-400 has about 240,000 training videos"),
    "tsm_params": Constant(24_327_632, "parameters", "tools/show_model.py, TSM R50, 400 classes"),
    "tsm_gmacs": Constant(32.876, "GMACs of a clip", "tools/show_model.py, TSM R50, 8 frames of 224²"),
    "inside": Constant(32, "GB/s", "X bus of a Summit node, 64 GB/s both ways together (WikiChip, Summit): "
                       "a ring of six GPUs crosses it; NVLink has 50 (Summit User Guide)"),
    "between": Constant(23, "GB/s", "node injection bandwidth, dual-rail EDR InfiniBand (Summit User Guide)"),
    "inside_latency": Constant(3.4, "µs", NCCL + ", NVLink"),
    "between_latency": Constant(9.6, "µs", NCCL + ", network"),
    "gpu_range": Constant(0.08, "of the median", "mean performance variation of identical GPUs, Summit among the "
                          "clusters (P. Sinha et al., SC22, arXiv 2208.11035)"),
    "slowfast_params": Constant(34_566_488, "parameters", "tools/show_model.py, SlowFast R50 8x8, 400 classes"),
}  # fmt: skip

# tools/show_model.py, experiments/main/k400_slowfast_8x8_r50/long_short.yaml: GMACs of a clip of (frames, crop).
SLOWFAST_GMACS = {
    (8, 112): 3.315, (8, 158): 6.442, (16, 112): 6.629, (16, 158): 12.883,
    (32, 112): 13.256, (16, 224): 25.291, (32, 158): 25.765, (32, 224): 50.582,
}  # fmt: skip

# PySlowFast's SLOWFAST_8x8_R50_stepwise and its multigrid defaults: experiments/base/kinetics_slowfast_8x8.yaml.
RECIPE = Recipe(64, 32, 224, 2, (256, 320), 0.1, (0.0, 94.0, 154.0, 196.0), 239.0)

GPU_COUNTS = (6, 12, 24, 48, 96, 192, 384, 768, 1536)
RANGE_IN_DEVIATIONS = 2 * 2.698
"""The distance between the whiskers of a box plot of normal draws, in standard deviations. Assumption:
``gpu_range`` means this distance."""

LIMIT = 0.15
"""The largest error on the many GPUs for which the text calls the prediction right."""


def value(name: str) -> float:
    """Look up a constant."""
    return CONSTANTS[name].value


def expected_largest(num: int) -> float:
    """Approximate the expected largest of ``num`` standard normal draws, to 0.03. Source: G. Blom (1958)."""
    return NormalDist().inv_cdf((num - 0.375) / (num + 0.25)) if num > 1 else 0.0


@dataclass(frozen=True)
class Cluster:
    """The cluster Summit, as the study assumes it.

    ``gpu_range`` is the difference between the fastest and the slowest GPU, as a share of the median.
    """

    gpu_range: float = value("gpu_range")
    overlaps: bool = False
    algorithm: str = "best"

    def communication(self, params: float) -> Communication:
        """Return the all-reduce of the gradients of ``params`` parameters in fp32."""
        inside = Link(value("inside_latency") / 1e6, value("inside") * 1e9)
        between = Link(value("between_latency") / 1e6, value("between") * 1e9)
        network = Network(inside, between, int(value("few_gpus")))
        # A gradient in fp32 has 4 bytes.
        return Communication(int(4 * params), network, self.algorithm, self.overlaps)

    def slowest(self, num_gpus: int) -> float:
        """Divide the time of the slowest of ``num_gpus`` GPUs by that of the median GPU."""
        # All GPUs wait for the slowest one in each all-reduce, so the slowest one sets the time of a step.
        return 1 + self.gpu_range / RANGE_IN_DEVIATIONS * expected_largest(num_gpus)

    def step_seconds(self, compute_seconds: float, params: float, num_gpus: int) -> float:
        """Predict a step that takes ``compute_seconds`` on the median GPU."""
        compute = compute_seconds * self.slowest(num_gpus)
        return compute + self.communication(params).exposed_seconds(num_gpus, compute)


@dataclass(frozen=True)
class Study:
    """The predictions for ``cluster``. One constant is fitted to the published time on the few GPUs."""

    cluster: Cluster

    @property
    def clip_seconds(self) -> float:
        """The fitted constant, found by bisection: the seconds of the median GPU for one training clip of TSM."""
        # The predicted time grows with the seconds of a clip, so only one value fits.
        few = int(value("few_gpus"))
        low, high = 0.0, 1.0
        while high - low > 1e-12:
            middle = (low + high) / 2
            is_slow = self.tsm_seconds(few, middle) > value("few_seconds")
            low, high = (low, middle) if is_slow else (middle, high)
        return (low + high) / 2

    def tsm_seconds(self, num_gpus: int, clip_seconds: float) -> float:
        """Predict the seconds in which TSM trains on ``num_gpus``."""
        clips = value("clips_per_gpu")
        steps = value("epochs") * value("videos") / (clips * num_gpus)
        step = self.cluster.step_seconds(clips * clip_seconds, value("tsm_params"), num_gpus)
        return steps * step

    def slowfast_seconds(self, multigrid: Multigrid, num_gpus: int, clip_seconds: float) -> float:
        """Predict the seconds in which SlowFast R50 8x8 trains, with 8 clips of the full shape on each GPU.

        Assumption: a GMAC takes as long as in TSM. SlowFast's many thin layers may take longer.
        """
        per_gmac, params = clip_seconds / value("tsm_gmacs"), value("slowfast_params")
        return sum(
            num_steps * self.cluster.step_seconds(gmacs * per_gmac, params, num_gpus)
            for num_steps, gmacs in slowfast_steps(multigrid, num_gpus)
        )

    @property
    def error(self) -> float:
        """The predicted time on the many GPUs, divided by the measured time, minus 1."""
        predicted = self.tsm_seconds(int(value("many_gpus")), self.clip_seconds)
        return predicted / value("many_seconds") - 1

    def curve(self) -> list[dict[str, float]]:
        """Return for each number of GPUs the seconds of each training, and TSM's share of perfect scaling."""
        clip_seconds = self.clip_seconds
        few = value("few_gpus")
        points = []
        for num in GPU_COUNTS:
            tsm = self.tsm_seconds(num, clip_seconds)
            points.append(
                {
                    "num_gpus": num,
                    "tsm_seconds": tsm,
                    "tsm_efficiency": value("few_seconds") * few / (tsm * num),
                    "slowfast_baseline_seconds": self.slowfast_seconds(
                        Multigrid(), num, clip_seconds
                    ),
                    "slowfast_long_short_seconds": self.slowfast_seconds(
                        LONG_SHORT, num, clip_seconds
                    ),
                }
            )
        return points

    def to_json(self) -> dict[str, Any]:
        """Return the constants, the curve, the error, and the errors of the other choices for JSON."""
        return {
            "constants": {name: vars(constant) for name, constant in CONSTANTS.items()},
            "fitted_clip_seconds": self.clip_seconds,
            "curve": self.curve(),
            "error": self.error,
            "other_choices": other_choices(),
        }


def slowfast_schedule(multigrid: Multigrid, num_gpus: int) -> Schedule:
    """Return the schedule on ``num_gpus``, with 8 clips of the full shape on each."""
    recipe = replace(RECIPE, clips=int(value("clips_per_gpu")) * num_gpus)
    return build_schedule(recipe, multigrid, int(value("videos")), num_gpus)


def slowfast_steps(multigrid: Multigrid, num_gpus: int) -> Iterator[tuple[float, float]]:
    """Yield for each shape of each phase the number of its steps, and the GMACs of a GPU in such a step."""
    for phase in slowfast_schedule(multigrid, num_gpus).phases:
        for shape in phase.cycle.shapes:
            # The shapes of a cycle take turns, so each one gets an equal share of the steps.
            num_steps = phase.num_steps / len(phase.cycle.shapes)
            yield num_steps, shape.clips // num_gpus * SLOWFAST_GMACS[shape.frames, shape.crop]


def other_choices() -> dict[str, float]:
    """Return the error for each alternative to a debatable choice."""
    clusters = {
        "all-reduce overlapped with the backward pass": Cluster(overlaps=True),
        "all GPUs equally fast": Cluster(gpu_range=0.0),
        "overlapped, and all GPUs equally fast": Cluster(gpu_range=0.0, overlaps=True),
        "one ring through all GPUs": Cluster(algorithm="ring"),
        "rings in nodes and across nodes": Cluster(algorithm="hierarchical"),
    }
    return {name: Study(cluster).error for name, cluster in clusters.items()}


def study_text(study: Study) -> str:
    """Write the constants, the curve, the errors and the open questions."""
    head = ("GPUs", "TSM R50", "of perfect", "SlowFast baseline", "long+short", "times faster")
    lines = [
        (
            f"{point['num_gpus']:,}",
            duration(point["tsm_seconds"]),
            f"{point['tsm_efficiency']:.1%}",
            duration(point["slowfast_baseline_seconds"]),
            duration(point["slowfast_long_short_seconds"]),
            f"{point['slowfast_baseline_seconds'] / point['slowfast_long_short_seconds']:.2f}",
        )
        for point in study.curve()
    ]
    constants = [f"  {name} = {c.value:g} {c.unit}: {c.source}" for name, c in CONSTANTS.items()]
    choices = [f"  {error:+.1%}  {name}" for name, error in other_choices().items()]
    many = int(value("many_gpus"))
    predicted = study.tsm_seconds(many, study.clip_seconds)
    measured = value("few_seconds") * value("few_gpus") / (value("many_seconds") * many)
    verdict = "within" if abs(study.error) <= LIMIT else "NOT within"
    return "\n".join(
        [
            "Training Kinetics in 15 Minutes (arXiv 1910.00932), 8 clips on each GPU",
            *constants,
            f"  fitted on {value('few_gpus'):g} GPUs: {1000 * study.clip_seconds:.2f} ms of a GPU for a clip",
            "",
            aligned([head, *lines]),
            "",
            f"{many:,} GPUs: predicted {duration(predicted)}, measured {duration(value('many_seconds'))}: "
            f"{study.error:+.1%}, {verdict} {LIMIT:.0%} (measured: {measured:.1%} of perfect scaling)",
            "This assumes an all-reduce after the backward pass and GPUs that differ. Other assumptions give:",
            *choices,
            "",
            f"long+short has {clips_text()} clips on each GPU: whole groups of batch norm (8) everywhere.",
            "SlowFast: a GMAC takes as long as in TSM (assumption). Only the time is predicted: mini-batches of",
            f"up to {16 * 8 * many:,} clips are far beyond any whose accuracy is known (12,288 for TSM).",
        ]
    )


def clips_text() -> str:
    """Write the most and the fewest clips per GPU of each long-cycle shape: 128–64, 64–32, …"""
    shapes = dict.fromkeys(phase.cycle for phase in slowfast_schedule(LONG_SHORT, 1).phases)
    found = [[shape.clips for shape in cycle.shapes] for cycle in shapes]
    return ", ".join(f"{max(clips)}–{min(clips)}" for clips in found)


CURVES = (
    ("slowfast_baseline_seconds", "SlowFast R50, baseline (model)", COLOURS["baseline"], -4),
    ("slowfast_long_short_seconds", "SlowFast R50, long + short (model)", COLOURS["long_short"], 4),
    ("tsm_seconds", "TSM R50 (model)", OTHER_COLOURS[0], -12),
)


def draw_study(study: Study, path: Path) -> None:
    """Write the picture, 7 × 4.5 inches at 150 dots per inch: training hours over GPUs, both logarithmic."""
    points = study.curve()
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.subplots()
        for name, label, colour, offset in CURVES:
            hours = [point[name] / 3600 for point in points]
            axes.plot(GPU_COUNTS, hours, "-o", ms=4, color=colour, label=label)
            axes.annotate(
                duration(points[-1][name]), (GPU_COUNTS[-1], hours[-1]), xytext=(8, offset),
                textcoords="offset points", color=colour, fontsize=9, annotation_clip=False,
            )  # fmt: skip
        measured = [
            (value(f"{which}_gpus"), value(f"{which}_seconds")) for which in ("few", "many")
        ]
        axes.plot(
            [gpus for gpus, _ in measured], [seconds / 3600 for _, seconds in measured], "x",
            ms=9, mew=2, color="black", label="TSM R50, arXiv 1910.00932: 49 h 55 min, 14 min 13 s",
        )  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(GPU_COUNTS, [f"{num:,}" for num in GPU_COUNTS])
        axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda hours, _: f"{hours:g}"))
        axes.set_xlabel("V100 GPUs, 8 clips on each")
        axes.set_ylabel("training time (hours)")
        axes.set_title("Kinetics-400, predicted from the 6-GPU point", weight="bold")
        axes.grid(alpha=0.3, lw=0.6)
        axes.legend(frameon=False, fontsize=9)
        with atomic_file(path) as file:
            figure.savefig(file, format="png", dpi=150)


def main(arguments: list[str]) -> int:
    parser = ToolParser(__doc__)
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw the study")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write it as JSON")
    parser.add_argument("--json", action="store_true", help="print that, for programs")
    options = parser.parse_args(arguments)
    study = Study(Cluster())
    if options.plot:
        draw_study(study, options.plot)
    if options.output:
        write_json(options.output, study.to_json())
    print(simplejson.dumps(study.to_json(), indent=2) if options.json else study_text(study))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
