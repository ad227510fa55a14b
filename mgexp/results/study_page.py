"""Write the page of a study, README.md beside study.yaml: every number on it comes from the stored runs."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median

from mgexp.config.study import Study
from mgexp.results.comparison import (
    COARSE_CONTROL,
    Pair,
    Row,
    compare_videos,
    first_at,
    flops_to,
    seconds_to,
    speed_up_to,
)
from mgexp.results.estimates import Estimate, estimate_mean
from mgexp.results.render import (
    NONE,
    Picture,
    busy_text,
    not_compared,
    plain_cell,
    render_page,
    split_prose,
)
from mgexp.results.report import shared_tables
from mgexp.results.runs import Run
from mgexp.results.study_runs import StudyRuns
from mgexp.text import counted

HEAD = """\
<!-- tools/study.py writes this page from study.yaml, runs.jsonl and prose.md: change those, not this file. -->"""


def render_study(
    gathered: StudyRuns,
    pictures: Sequence[Picture],
    prose: str,
    command: str,
    num_folds: int = 0,
    few_steps: str = "",
) -> str:
    """Write the page as Markdown.

    ``prose`` may begin with a title. What stands before its first "## " opens the page. Its sections come after
    the results. ``command`` runs the study. ``num_folds`` is DATA.NUM_FOLDS of its baseline. ``few_steps`` names
    the rows whose schedule has too few steps.
    """
    title, opening, sections = split_prose(prose)
    study, since = gathered.study, gathered.study.since
    early = [run for run in gathered.runs.values() if since and run.finished_at < since]
    tasks = [task for task in study.tasks if not task.is_control]
    videos = [(pair.own.name, compare_videos(pair)) for pair in gathered.pairs]
    videos += [
        (f"{pair.own.name}, against {pair.base.name}", compare_videos(pair))
        for pair in gathered.budget_pairs
    ]
    return render_page(
        "study.md.j2",
        pictures,
        head=HEAD,
        title=title or f"# {study.folder.resolve().name}",
        opening=opening,
        prose=sections,
        gathered=gathered,
        study=study,
        pair_of={pair.own.name: pair for pair in gathered.pairs},
        link=partial(_link, study),
        bases=[*dict.fromkeys(base for name in study.names if (base := study.base_of(name)))],
        margin=counted(study.margin, "point"),
        num_folds=num_folds,
        num_runs=len(tasks),
        num_missing=sum((task.row, task.seed) not in gathered.runs for task in tasks),
        few_steps=few_steps,
        speeds=[_speed(gathered, pair) for pair in gathered.pairs],
        busy=busy_text(gathered.comparison.busy),
        num_early=len(early),
        target=_target(gathered, study.target) if study.target else None,
        command=command,
        left_out=[*_left_out(gathered)],
        **shared_tables(
            gathered.for_figures, videos, study.controls, COARSE_CONTROL in study.names
        ),
    )


# --- accuracy and seconds


def _link(study: Study, name: str) -> str:
    """Link the name of a row to its YAML."""
    path = study.yamls[name]
    # Path.relative_to does not go up, as ../quickstart/baseline.yaml must.
    return f"[{plain_cell(name)}]({os.path.relpath(path, study.folder)})"


def _speed(gathered: StudyRuns, pair: Pair) -> dict[str, object]:
    """Return a pair with the mean seconds of both rows, over the seeds whose seconds can be compared."""

    def seconds(row: Row) -> Estimate | None:
        # Seconds of several machines have no mean.
        usual = gathered.comparison.timed.row(row.name).runs
        return estimate_mean(row.only(usual).each("train_seconds"))

    return {
        "pair": pair,
        "seconds": seconds(pair.timed.own),
        "base_seconds": seconds(pair.timed.base),
    }


# --- time to target


def _target(gathered: StudyRuns, target: float) -> dict[str, object]:
    """Compute how long each row trains until it first reaches the target."""
    rows, timed = gathered.finished, gathered.comparison.timed
    runs = [run for row in rows for run in row.runs.values()]
    firsts = [first for run in runs if (first := first_at(run, target))]
    videos = sorted({first.num_videos for first in firsts})
    unknown = [
        row.name for row in rows if None in [flops_to(run, target) for run in row.runs.values()]
    ]
    known = [row for row in rows if row.name not in unknown]
    pairs = {pair.own.name: pair for pair in gathered.pairs if pair.base.name not in unknown}
    timed_pairs = {
        pair.own.name: pair.timed.only(timed.row(pair.own.name).runs) for pair in gathered.pairs
    }
    settings = {run.setting for run in runs if run.is_timed}

    def teraflops(run: Run) -> float:
        flops = flops_to(run, target)
        assert flops is not None
        return flops / 1e12

    def seconds(run: Run) -> float:
        return seconds_to(run, target)

    return {
        "videos": " or ".join(f"{num:,}" for num in videos),
        "evaluations": " or ".join(map(str, sorted({len(run.curve) for run in runs}))),
        "flops": [_cost(row, pairs.get(row.name), teraflops) for row in known],
        "unknown": unknown,
        "seconds": [
            _cost(row, timed_pairs.get(row.name), seconds)
            for row in (timed.row(row.name) for row in rows)
            if row.runs
        ],
        "where": " in the setting of most of them" if len(settings) > 1 else "",
    }


def _cost(row: Row, pair: Pair | None, cost: Callable[[Run], float]) -> dict[str, object]:
    """Return what the runs of a row cost until they reach the target. ``pair`` is the row with its base."""
    costs = [cost(run) for run in row.runs.values()]
    speed_up = speed_up_to(pair, cost) if pair else None
    return {
        "name": row.name,
        "reached": f"{sum(map(math.isfinite, costs))} of {len(costs)}",
        "median": _finite(median(costs), "{:,.1f}"),
        "least": _finite(min(costs), "{:,.1f}"),
        "speed_up": NONE if speed_up is None else _finite(speed_up, "{:.2f}×"),
    }


def _finite(value: float, form: str) -> str:
    return "∞" if math.isinf(value) else form.format(value)


def _left_out(gathered: StudyRuns) -> Iterator[str]:
    """List the results that do not count."""
    if others := gathered.of_another_recipe:
        names = ", ".join(sorted({run.experiment for run in others}))
        num = counted(len(others), "stored run does", "stored runs do")
        yield f"{num} not count, because the YAML says something else now: {names}."
    for pair in gathered.pairs:
        yield from not_compared(pair, pair.base.name)
    for path, problems in gathered.refused.items():
        yield f"- {path.name} of {path.parent.name} does not count: {'; '.join(problems)}."
