"""Write the page of a study, README.md beside study.yaml: every number on it comes from the stored runs."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean, median

from mgexp.config.study import SECONDS_NAME, Study
from mgexp.results.collect import Gathered
from mgexp.results.estimates import Estimate, estimate_mean, estimate_score
from mgexp.results.evidence import (
    compare_videos,
    first_at,
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
from mgexp.results.pages import figures_of, render_page
from mgexp.results.report import class_tables, control_table, data_text, how, time_table
from mgexp.results.schedules import RowSchedule
from mgexp.results.tables import (
    INTERVAL,
    NONE,
    busy_text,
    difference_text,
    interval_text,
    not_compared,
    plain_cell,
    table,
    video_table,
)
from mgexp.text import counted

HEAD = """\
<!-- tools/study.py writes this page from study.yaml, runs.jsonl and prose.md: change those, not this file. -->"""


@dataclass(frozen=True)
class StudyResults:
    """A study and its finished runs. ``num_folds`` is DATA.NUM_FOLDS of its baseline, and 0 without folds.

    ``few_steps`` names the rows whose schedule has too few steps, if there are any. ``schedules`` has the known
    schedules by row.
    """

    study: Study
    gathered: Gathered
    num_folds: int = 0
    few_steps: str = ""
    schedules: Mapping[str, RowSchedule] = field(default_factory=dict)

    @property
    def comparison(self) -> Comparison:
        """The rows and the shorter baselines."""
        return self.gathered.comparison

    @cached_property
    def for_figures(self) -> Comparison:
        """The comparison with the name of the baseline that figures know."""
        named = (replace(row, name=self.name_in_figures(row.name)) for row in self.comparison.rows)
        return replace(self.comparison, rows=tuple(named))

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
    study, has_runs = results.study, bool(results.finished)
    bases = dict.fromkeys(base for name in study.names if (base := study.base_of(name)))
    comparison, since = results.for_figures, study.since
    early = [run for run in results.gathered.runs.values() if since and run.finished_at < since]
    return render_page(
        "study.md.j2",
        head=HEAD,
        title=title,
        opening=opening.strip(),
        prose="\n\n".join(section.strip() for section in sections),
        figures=figures_of(pictures),
        has_runs=has_runs,
        bases=[*bases],
        margin=counted(study.margin, "point"),
        target_percent=f"{study.target:g}" if study.target else "",
        folds=_folds(results),
        data=[*data_text(comparison)] if has_runs else [],
        missing=_missing(results),
        accuracy=_accuracy_table(results),
        few_steps=results.few_steps,
        speed=_speed_table(results),
        busy=busy_text(results.comparison.busy) if results.comparison.busy else "",
        early=f"{counted(len(early), 'run')} that ended before {since:%Y-%m-%d %H:%M %Z}"
        if since
        else "",
        target=_target(results),
        budget=_budget_table(results),
        videos=_videos(results),
        controls=control_table(comparison, study.controls, COARSE_CONTROL in study.names),
        seconds=time_table(comparison.timed),
        classes=class_tables(comparison),
        how=[*how(comparison.runs)] if has_runs else [],
        command=command,
        left_out=[*_left_out(results)],
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


def _mean(one: Estimate | None, text: Callable[[float], str]) -> str:
    """Write a mean and its interval: "2.71 (2.60 to 2.80)". Leave out an interval that shows no width."""
    if one is None:
        return NONE
    low, high = map(text, one.interval or (one.mean, one.mean))
    ends = f" ({low} to {high})" if low != high else ""
    return f"{text(one.mean)}{ends}".replace("-", "−")


def _times(one: Estimate | None) -> str:
    return _mean(one, lambda value: f"{value:.2f}×")


def _label(study: Study, name: str) -> str:
    """Link the name of a row to its YAML."""
    path = study.yamls[name]
    # Path.relative_to does not go up, as ../quickstart/baseline.yaml must.
    return f"[{plain_cell(name)}]({os.path.relpath(path, study.folder)})"


def _accuracy_table(results: StudyResults) -> list[str]:
    """List the accuracy of each row, its difference to its base, and the verdict."""
    study, pairs = results.study, {pair.own.name: pair for pair in results.pairs}

    def of_pair(write: Callable[[Pair], str]) -> Callable[[Row], str]:
        return lambda row: write(pairs[row.name]) if row.name in pairs else ""

    return table(
        results.finished,
        [
            ("row", lambda row: _label(study, row.name)),
            ("seeds", lambda row: f"{len(row.runs)}"),
            (
                f"{results.comparison.metric} (%)",
                lambda row: _mean(estimate_score(row.scores), "{:.2f}".format),
            ),
            ("against", of_pair(lambda pair: plain_cell(pair.base.name))),
            ("pairs", of_pair(lambda pair: f"{len(pair.runs)}")),
            ("difference (points)", of_pair(lambda pair: difference_text(pair.difference))),
            ("95 % interval", of_pair(lambda pair: interval_text(pair.difference))),
            (
                f"not worse by {counted(study.margin, 'point')}",
                of_pair(lambda pair: judge_margin(pair.difference, study.margin)),
            ),
        ],
        ("against", f"not worse by {counted(study.margin, 'point')}"),
    )


def _speed_table(results: StudyResults) -> list[str]:
    """List the speed-ups of the rows over pairs whose seconds can be compared."""

    def seconds(row: Row) -> str:
        # Seconds of several machines have no mean.
        usual = results.comparison.timed.row(row.name).runs
        runs = [run.train_seconds for seed, run in row.runs.items() if seed in usual]
        return _mean(estimate_mean(runs), "{:,.0f}".format)

    return table(
        results.pairs,
        [
            ("row", lambda pair: _label(results.study, pair.own.name)),
            ("against", lambda pair: plain_cell(pair.base.name)),
            ("pairs with seconds", lambda pair: f"{len(pair.timed.runs)}"),
            ("training (s)", lambda pair: seconds(pair.timed.own)),
            ("base (s)", lambda pair: seconds(pair.timed.base)),
            ("speed-up, seconds", lambda pair: _times(pair.speed_up)),
            ("speed-up, FLOPs", lambda pair: _times(pair.flop_saving)),
            ("steps", lambda pair: f"{pair.own.mean(lambda run: run.steps):,.0f}"),
        ],
        ("against",),
    )


# --- time to target


def _target(results: StudyResults) -> dict[str, object] | None:
    """Compute how long each row trains until it first reaches the target. None without a target."""
    target = results.study.target
    if target is None:
        return None
    rows = results.finished
    firsts = (first_at(run, target) for row in rows for run in row.runs.values())
    numbers = sorted({one.num_videos for one in firsts if one})
    counts = sorted({len(run.curve) for row in rows for run in row.runs.values()})
    runs = [(run, results.schedules.get(row.name)) for row in rows for run in row.runs.values()]
    every = {run.key: _flops_to(target, run, schedule) for run, schedule in runs}
    flops = {key: one for key, one in every.items() if one is not None}
    known = {row.name: row for row in rows if all(run.key in flops for run in row.runs.values())}
    known_pairs = {pair.own.name: pair for pair in results.pairs if pair.base.name in known}
    timed = [
        row for row in map(results.comparison.timed.row, (row.name for row in rows)) if row.runs
    ]
    settings = {run.setting for row in rows for run in row.timed.runs.values()}
    seeds = {row.name: row.runs for row in timed}
    timed_pairs = {
        pair.own.name: pair.timed.only(seeds.get(pair.own.name, ())) for pair in results.pairs
    }
    return {
        "videos": " or ".join(f"{number:,}" for number in numbers),
        "evaluations": " or ".join(map(str, counts)),
        "flops": _cost_table(
            results.study,
            [*known.values()],
            known_pairs,
            "10¹² FLOPs",
            lambda run: flops[run.key] / 1e12,
        ),
        "unknown": [row.name for row in rows if row.name not in known],
        "seconds": _cost_table(
            results.study, timed, timed_pairs, "s", lambda run: seconds_to(run, target)
        ),
        "where": " in the setting of most of them" if len(settings) > 1 else "",
    }


def _flops_to(target: float, run: Run, schedule: RowSchedule | None) -> float | None:
    """Return the FLOPs until the score first reaches ``target``, ∞ for a miss. None if they are unknown."""
    first = first_at(run, target)
    if first is None:
        return math.inf
    return schedule.flops_at(run, first) if schedule else None


def _cost_table(
    study: Study,
    rows: Sequence[Row],
    pairs: Mapping[str, Pair],
    unit: str,
    cost: Callable[[Run], float],
) -> list[str]:
    """List what the runs of each row cost until they reach the target. ``pairs`` are compared, by row."""

    def text(value: float) -> str:
        return "∞" if math.isinf(value) else f"{value:,.1f}"

    def times(row: Row) -> str:
        found = speed_up_to(pairs[row.name], cost) if row.name in pairs else None
        return NONE if found is None else ("∞" if math.isinf(found) else f"{found:.2f}×")

    return table(
        rows,
        [
            ("row", lambda row: _label(study, row.name)),
            (
                "reached",
                lambda row: f"{sum(map(math.isfinite, row.each(cost)))} of {len(row.runs)}",
            ),
            (f"median ({unit})", lambda row: text(median(row.each(cost)))),
            (f"least ({unit})", lambda row: text(min(row.each(cost)))),
            ("speed-up, median over pairs", times),
        ],
    )


# --- the baseline with the same budget


def _budget_table(results: StudyResults) -> list[str]:
    """Compare each row with the baseline that trained with the same budget, its rate fully decayed."""

    def budget(pair: Pair) -> str:
        is_timed = pair.base.name == SECONDS_NAME.format(row=pair.own.name)
        return "seconds" if is_timed else "FLOPs"

    def flops(pair: Pair) -> str:
        return f"{pair.flop_saving.mean:.3f}×" if pair.flop_saving else NONE

    return table(
        results.budget_pairs,
        [
            ("row", lambda pair: _label(results.study, pair.own.name)),
            ("the same", budget),
            ("baseline", lambda pair: _label(results.study, pair.base.name)),
            ("its epochs", lambda pair: f"{pair.base.mean(lambda run: run.epochs):.2f}"),
            ("its seconds / the row's", lambda pair: _times(pair.speed_up)),
            ("its FLOPs / the row's", flops),
            ("pairs", lambda pair: f"{len(pair.runs)}"),
            (
                f"row, {results.comparison.metric} (%)",
                lambda pair: f"{fmean(run.score for run, _ in pair.runs):.2f}",
            ),
            ("baseline (%)", lambda pair: f"{fmean(base.score for _, base in pair.runs):.2f}"),
            ("row minus baseline", lambda pair: difference_text(pair.difference)),
            INTERVAL,
        ],
        ("the same", "baseline"),
    )


# --- single videos


def _videos(results: StudyResults) -> list[str]:
    """Compare the rows on single videos, with their bases and with the baselines of the same budget."""
    named = [(pair.own.name, pair) for pair in results.pairs]
    named += [(f"{pair.own.name}, against {pair.base.name}", pair) for pair in results.budget_pairs]
    return video_table((name, compare_videos(pair)) for name, pair in named)


def _left_out(results: StudyResults) -> Iterator[str]:
    """List the results that do not count."""
    if others := results.gathered.of_another_recipe:
        names = ", ".join(sorted({one.experiment for one in others}))
        num = counted(len(others), "stored run does", "stored runs do")
        yield f"{num} not count, because the YAML says something else now: {names}."
    for pair in results.pairs:
        yield from not_compared(pair, pair.base.name)
    for path, problems in results.gathered.refused.items():
        yield f"- {path.name} of {path.parent.name} does not count: {'; '.join(problems)}."
