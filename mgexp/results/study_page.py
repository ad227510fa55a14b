"""Write the page of a study, README.md beside study.yaml: every number on it comes from the stored runs."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

from mgexp.config.study import SECONDS_NAME, Study
from mgexp.results.collect import Gathered
from mgexp.results.estimates import estimate_mean, estimate_score
from mgexp.results.evidence import (
    compare_videos,
    first_at,
    flops_to,
    judge_margin,
    seconds_to,
    speed_up_to,
)
from mgexp.results.html import Picture
from mgexp.results.model import (
    BASELINE,
    COARSE_CONTROL,
    Comparison,
    Pair,
    Row,
    Run,
)
from mgexp.results.pages import render_page
from mgexp.results.report import shared_tables
from mgexp.results.texts import NONE, busy_text, not_compared, plain_cell
from mgexp.text import counted

HEAD = """\
<!-- tools/study.py writes this page from study.yaml, runs.jsonl and prose.md: change those, not this file. -->"""


@dataclass(frozen=True)
class StudyResults:
    """A study and its finished runs. ``num_folds`` is DATA.NUM_FOLDS of its baseline, and 0 without folds.

    ``few_steps`` names the rows whose schedule has too few steps, if there are any.
    """

    study: Study
    gathered: Gathered
    num_folds: int = 0
    few_steps: str = ""

    @property
    def comparison(self) -> Comparison:
        """The rows and the shorter baselines."""
        return self.gathered.comparison

    @cached_property
    def for_figures(self) -> Comparison:
        """The comparison with the name of the baseline that figures know."""
        rows = self.comparison.rows
        named = tuple(replace(row, name=self.name_in_figures(row.name)) for row in rows)
        return replace(self.comparison, rows=named)

    def name_in_figures(self, row: str) -> str:
        """Return the name of a row in figures, where the study's baseline is called baseline."""
        if row == self.study.baseline:
            return BASELINE
        return f"row {row}" if row == BASELINE else row

    @property
    def finished(self) -> tuple[Row, ...]:
        """The rows with a run, in the order of study.yaml, without the control: it claims nothing."""
        names = [name for name in self.study.names if name != COARSE_CONTROL]
        return tuple(row for name in names if (row := self.comparison.row(name)).runs)

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """Every finished row that has a base, with it, in the order of study.yaml."""
        return tuple(
            Pair(row, self.comparison.row(base))
            for row in self.finished
            if (base := self.study.base_of(row.name))
        )

    @cached_property
    def budget_pairs(self) -> tuple[Pair, ...]:
        """Every row paired with each of its shorter baselines, if they share a seed."""
        row_of, rows = self.comparison.row, self.study.budget_rows.items()
        pairs = (Pair(row_of(row), row_of(name)) for name, row in rows)
        return tuple(pair for pair in pairs if pair.runs)


def render_study(
    results: StudyResults, pictures: Sequence[Picture], prose: str, command: str
) -> str:
    """Write the page as Markdown.

    ``prose`` may begin with a title. What stands before its first "## " opens the page. Its sections come after
    the results. ``command`` runs the study.
    """
    before, *sections = re.split(r"^(?=## )", prose, flags=re.MULTILINE)
    title, _, opening = before.partition("\n")
    if not title.startswith("# "):
        title, opening = f"# {results.study.folder.resolve().name}", before
    study, comparison, since = results.study, results.for_figures, results.study.since
    early = [run for run in results.gathered.runs.values() if since and run.finished_at < since]
    pairs = results.pairs + results.budget_pairs
    names = [pair.own.name for pair in results.pairs]
    names += [f"{pair.own.name}, against {pair.base.name}" for pair in results.budget_pairs]
    videos = [(name, compare_videos(pair)) for name, pair in zip(names, pairs, strict=True)]
    busy = results.comparison.busy
    return render_page(
        "study.md.j2",
        pictures,
        head=HEAD,
        title=title,
        opening=opening.strip(),
        prose="\n\n".join(section.strip() for section in sections),
        has_runs=bool(results.finished),
        bases=[*dict.fromkeys(base for name in study.names if (base := study.base_of(name)))],
        margin=counted(study.margin, "point"),
        target_percent=f"{study.target:g}" if study.target else "",
        folds=_folds(results),
        missing=_missing(results),
        rows=[_row(results, row) for row in results.finished],
        few_steps=results.few_steps,
        pairs=[_speed(results, pair) for pair in results.pairs],
        busy=busy_text(busy) if busy else "",
        early=f"{counted(len(early), 'run')} that ended before {since:%Y-%m-%d %H:%M %Z}"
        if since
        else "",
        target=_target(results),
        budget=[_budget(results, pair) for pair in results.budget_pairs],
        command=command,
        left_out=[*_left_out(results)],
        **shared_tables(comparison, videos, study.controls, COARSE_CONTROL in study.names),
    )


def _folds(results: StudyResults) -> str:
    """Say which fold a seed trains; "" without folds."""
    if not results.num_folds:
        return ""
    seeds, folds = results.study.num_seeds(results.study.baseline), results.num_folds
    each = counted(seeds / folds, "seed")
    return f"{seeds} pairs are {folds} folds × {each}: seed N trains fold N mod {folds}."


def _missing(results: StudyResults) -> str:
    """Count the runs that are missing: "3 of 12 runs are"; "" if all are there."""
    tasks = [task for task in results.study.tasks if not task.is_control]
    row_of = results.comparison.row
    num = sum(task.seed not in row_of(task.row).runs for task in tasks)
    return f"{num} of {counted(len(tasks), 'run')} {'is' if num == 1 else 'are'}" if num else ""


# --- accuracy and seconds


def _link(study: Study, name: str) -> str:
    """Link the name of a row to its YAML."""
    path = study.yamls[name]
    # Path.relative_to does not go up, as ../quickstart/baseline.yaml must.
    return f"[{plain_cell(name)}]({os.path.relpath(path, study.folder)})"


def _row(results: StudyResults, row: Row) -> dict[str, object]:
    """Return the accuracy of a row, and the verdict on its difference to its base, if it has one."""
    pair = next((pair for pair in results.pairs if pair.own.name == row.name), None)
    return {
        "link": _link(results.study, row.name),
        "runs": row.runs,
        "score": estimate_score(row.scores),
        "pair": pair,
        "verdict": judge_margin(pair.difference, results.study.margin) if pair else "",
    }


def _speed(results: StudyResults, pair: Pair) -> dict[str, object]:
    """Return the speed-up of a row over pairs whose seconds can be compared."""

    def seconds(row: Row) -> Sequence[float]:
        # Seconds of several machines have no mean.
        usual = results.comparison.timed.row(row.name).runs
        return [run.train_seconds for seed, run in row.runs.items() if seed in usual]

    return {
        "link": _link(results.study, pair.own.name),
        "pair": pair,
        "num_timed": len(pair.timed.runs),
        "seconds": estimate_mean(seconds(pair.timed.own)),
        "base_seconds": estimate_mean(seconds(pair.timed.base)),
    }


# --- time to target


def _target(results: StudyResults) -> dict[str, object] | None:
    """Compute how long each row trains until it first reaches the target. None without a target."""
    target = results.study.target
    if target is None:
        return None
    rows, timed = results.finished, results.comparison.timed
    runs = [run for row in rows for run in row.runs.values()]
    firsts = [first for run in runs if (first := first_at(run, target))]
    num_videos = sorted({first.num_videos for first in firsts})
    unknown = {run.key for run in runs if flops_to(run, target) is None}
    known = [row for row in rows if not any(run.key in unknown for run in row.runs.values())]
    timed_pairs = [pair.timed.only(timed.row(pair.own.name).runs) for pair in results.pairs]
    settings = {run.setting for run in runs if run.is_timed}

    def teraflops(run: Run) -> float:
        flops = flops_to(run, target)
        assert flops is not None
        return flops / 1e12

    def seconds(run: Run) -> float:
        return seconds_to(run, target)

    names = {row.name for row in known}
    known_pairs = [pair for pair in results.pairs if names >= {pair.own.name, pair.base.name}]
    return {
        "videos": " or ".join(f"{num:,}" for num in num_videos),
        "evaluations": " or ".join(map(str, sorted({len(run.curve) for run in runs}))),
        "flops": [_cost(results.study, row, known_pairs, teraflops) for row in known],
        "unknown": [row.name for row in rows if row not in known],
        "seconds": [
            _cost(results.study, row, timed_pairs, seconds)
            for row in (timed.row(row.name) for row in rows)
            if row.runs
        ],
        "where": " in the setting of most of them" if len(settings) > 1 else "",
    }


def _cost(
    study: Study, row: Row, pairs: Sequence[Pair], cost: Callable[[Run], float]
) -> dict[str, object]:
    """Return what the runs of a row cost until they reach the target. ``pairs`` has its pair, if it has one."""
    costs = [cost(run) for run in row.runs.values()]
    pair = next((pair for pair in pairs if pair.own.name == row.name), None)
    speed_up = speed_up_to(pair, cost) if pair else None
    return {
        "link": _link(study, row.name),
        "reached": f"{sum(map(math.isfinite, costs))} of {len(costs)}",
        "median": _finite(median(costs), "{:,.1f}"),
        "least": _finite(min(costs), "{:,.1f}"),
        "speed_up": NONE if speed_up is None else _finite(speed_up, "{:.2f}×"),
    }


def _finite(value: float, form: str) -> str:
    return "∞" if math.isinf(value) else form.format(value)


# --- the baseline with the same budget


def _budget(results: StudyResults, pair: Pair) -> dict[str, object]:
    """Compare a row with the baseline that trained with the same budget, its rate fully decayed."""
    is_timed = pair.base.name == SECONDS_NAME.format(row=pair.own.name)
    return {
        "link": _link(results.study, pair.own.name),
        "same": "seconds" if is_timed else "FLOPs",
        "base_link": _link(results.study, pair.base.name),
        "pair": pair,
        "epochs": pair.base.mean("epochs"),
        "scores": pair.only(pair.seeds),
    }


def _left_out(results: StudyResults) -> Iterator[str]:
    """List the results that do not count."""
    if others := results.gathered.of_another_recipe:
        names = ", ".join(sorted({run.experiment for run in others}))
        num = counted(len(others), "stored run does", "stored runs do")
        yield f"{num} not count, because the YAML says something else now: {names}."
    for pair in results.pairs:
        yield from not_compared(pair, pair.base.name)
    for path, problems in results.gathered.refused.items():
        yield f"- {path.name} of {path.parent.name} does not count: {'; '.join(problems)}."
