"""Write the evaluations during training as curves for HTML, which show their values under the cursor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

import simplejson

from mgexp.figures.scores import LEAST_POINTS, Scale, accuracy_scales
from mgexp.figures.style import row_label, row_styles
from mgexp.results.html import Block
from mgexp.results.model import Comparison, Row, Run
from mgexp.results.report import CURVES
from mgexp.results.schedules import RowSchedule

WORDS = (
    "Move over a point, or touch it, to read its value. Drag to enlarge a part, and click twice to see all. The "
    "last point of a line is the final evaluation, with all videos and views."
)


def curves_block(comparison: Comparison, rows: Sequence[RowSchedule]) -> Block | None:
    """Make the curves of every run, with a choice of rows and of the horizontal axis. None without a finished run.

    ``rows`` are the schedules, from which the FLOPs up to an evaluation are counted. Without them, FLOPs are no
    axis.
    """
    if not comparison.finished:
        return None
    scales = accuracy_scales(comparison, rows)[0 if rows else 1 :]
    styles = row_styles([row.name for row in comparison.rows])
    lines = [
        {
            "label": row_label(row.name),
            "seed": run.seed,
            "colour": styles[row.name].colour,
            **_points(scales, row, run),
        }
        for row in comparison.finished
        for run in row.runs.values()
    ]
    data = {
        "label": f"{comparison.metric} (%)",
        "axes": [scale.label for scale in scales],
        "lines": lines,
        "least_span": LEAST_POINTS,
    }
    # "<" could end the script element, for instance in the name of a row.
    text = simplejson.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return Block(CURVES, "\n".join(_html(comparison, scales, text)))


def _points(scales: Sequence[Scale], row: Row, run: Run) -> dict[str, object]:
    """Return the scores of a run, and their places on each axis. None stands for an unknown place."""
    during = [one for one in run.curve if not one.full_protocol]
    places = [[*(scale.at(row, run, one) for one in during), scale.end(run)] for scale in scales]
    scores = [*(one.score for one in during), run.score]
    return {
        "y": [round(score, 3) for score in scores],
        "x": [[None if x is None else float(f"{x:.6g}") for x in place] for place in places],
    }


def _html(comparison: Comparison, scales: Sequence[Scale], text: str) -> Iterator[str]:
    yield '<div class="curves"><div class="rows">'
    # The training time is what most people want to see first.
    options = (
        f'<option value="{place}"{" selected" if place == len(scales) - 1 else ""}>{escape(scale.label)}</option>'
        for place, scale in enumerate(scales)
    )
    yield f"<label>over <select>{''.join(options)}</select></label>"
    styles = row_styles([row.name for row in comparison.rows])
    for row in comparison.finished:
        label = escape(row_label(row.name))
        colour = styles[row.name].colour
        yield (
            f'<label><input type="checkbox" checked data-row="{label}"> '
            f'<span class="swatch" style="background:{colour}"></span> {label}</label>'
        )
    yield "</div>"
    yield f'<p class="values">{WORDS}</p><div class="chart"></div>'
    yield f'<script type="application/json">{text}</script></div>'
