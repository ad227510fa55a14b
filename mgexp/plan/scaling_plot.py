"""The scaling study as a picture."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from mgexp.plan.plan_table import duration
from mgexp.plan.scaling_study import GPU_COUNTS, Study, value
from mgexp.record.figures.style import COLOURS, OTHER_COLOURS, STYLE
from mgexp.record.files import atomic_file

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
