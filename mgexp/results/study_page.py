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
    sections_of,
    table,
    video_table,
)
from mgexp.text import counted

HEAD = """\
<!-- tools/study.py writes this page from study.yaml, runs.jsonl and prose.md: change those, not this file. -->"""

READING = """\
- The 95 % intervals of accuracies, differences and ratios are Student's t over seeds (for ratios, on the
  logarithms). They cover the choice of the seed, and not the choice of data. The interval of an accuracy is cut at
  0 and 100 %, and that of a difference at ±100 points, since nothing lies beyond.
- A pair is two runs with the same seed, precision and number of training videos. Seconds are compared only where
  both runs of a pair had the same device, threads and version of torch, and no other program kept the cores busy.
  Where study.yaml has `seconds_since`, earlier seconds do not count at all.
- A speed-up is the base's training seconds divided by the row's. Training seconds include the waiting for input
  and the first use of each shape. They do not include evaluation, precise BN, checkpoints and start-up.
- Training FLOPs = 2 × multiply-adds of the forward pass × 3 (forward and backward) × clips."""


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
    shown = {one.name: one.markdown for one in pictures}
    before, *sections = re.split(r"^(?=## )", prose, flags=re.MULTILINE)
    title, _, opening = before.partition("\n")
    if not title.startswith("# "):
        title, opening = f"# {results.study.folder.resolve().name}", before
    lines = [HEAD, "", title, "", *opening.strip().splitlines()]
    comparison = results.for_figures
    study = results.study
    orders, has_coarse = study.controls, COARSE_CONTROL in study.names
    parts: list[tuple[str, list[str]]] = [("What was claimed", list(_claim(results)))]
    if results.finished:
        parts += [
            ("Accuracy", [*(shown.get("gains") or shown.get("speed_up", [])), *_accuracy(results)]),
            (
                "Training time",
                [*shown.get("accuracy", []), *_speed_table(results), *_left_out_seconds(results)],
            ),
            ("Time to target", list(_target(results))),
            (
                "The baseline with the same budget",
                shown.get("equal_flops", []) + _budget_table(results),
            ),
            ("Video by video", _videos(results)),
            ("Controls", control_table(comparison, orders, has_coarse)),
        ]
    lines += sections_of(parts)
    for section in sections:
        lines += ["", *section.strip().splitlines()]
    parts = [("Schedules", shown.get("schedule", [])[:-1])]
    if results.finished:
        parts = [
            ("Where the time went", shown.get("seconds", []) + time_table(comparison.timed)),
            ("Classes", shown.get("confusion", []) + class_tables(comparison)),
            *parts,
            ("How the numbers were taken", [READING, *how(comparison.runs)]),
        ]
    parts.append(("To run it again", ["```bash", command, "```", "", *_left_out(results)]))
    return "\n".join([*lines, *sections_of(parts)]) + "\n"


# --- the claim


def _claim(results: StudyResults) -> Iterator[str]:
    """Say what was claimed before the runs, and how many of the runs there are."""
    study = results.study
    bases = dict.fromkeys(base for name in study.names if (base := study.base_of(name)))
    claim = "This study has one row, so it compares nothing."
    if bases:
        claim = (
            f"A row holds its claim if its accuracy is not worse than that of {' or '.join(bases)} by more than "
            f"{counted(study.margin, 'point')}."
        )
    yield (
        f"{claim} [study.yaml](study.yaml) names the rows, the seeds and the margin"
        + (f", and the target of {study.target:g} %" if study.target else "")
        + ". Its comments say what was known when it was written."
    )
    if results.num_folds:
        seeds, folds = study.num_seeds(study.baseline), results.num_folds
        each = counted(seeds / folds, "seed")
        yield f"{seeds} pairs are {folds} folds × {each}: seed N trains fold N mod {folds}."
    if results.finished:
        yield from ("", *data_text(results.for_figures))
    tasks = [task for task in study.tasks if not task.is_control]
    missing = [task for task in tasks if task.seed not in results.comparison.row(task.row).runs]
    if missing:
        yield ""
        verb = "is" if len(missing) == 1 else "are"
        num = f"{len(missing)} of {counted(len(tasks), 'run')}"
        yield f"**{num} {verb} missing, so these results are not final.**"


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


def _accuracy(results: StudyResults) -> Iterator[str]:
    """Yield the table of accuracies, and what its reader must know."""
    yield from _accuracy_table(results)
    if results.few_steps:
        yield from ("", f"**Few steps**: {results.few_steps}")
    if results.budget_pairs:
        where = "[table of their own](#the-baseline-with-the-same-budget)"
        yield from ("", f"The baselines with the same budget as a row have a {where}.")


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


def _left_out_seconds(results: StudyResults) -> Iterator[str]:
    """Name the runs whose seconds do not count."""
    if busy := results.comparison.busy:
        yield from ("", f"The seconds of busy runs do not count: {busy_text(busy)}")
    if since := results.study.since:
        ended = [run.finished_at for run in results.gathered.runs.values()]
        num = counted(sum(moment < since for moment in ended), "run")
        yield ""
        yield (
            f"The seconds of {num} that ended before {since:%Y-%m-%d %H:%M %Z} do not count, as "
            "[study.yaml](study.yaml) says. The accuracy of all runs counts."
        )


# --- time to target


def _target(results: StudyResults) -> Iterator[str]:
    """List how long each row trains until it first reaches the target, in seconds and in FLOPs."""
    target = results.study.target
    if target is None:
        return
    rows = results.finished
    firsts = (first_at(run, target) for row in rows for run in row.runs.values())
    numbers = sorted({one.num_videos for one in firsts if one})
    videos = " or ".join(f"{number:,}" for number in numbers)
    counts = sorted({len(run.curve) for row in rows for run in row.runs.values()})
    evaluations = " or ".join(map(str, counts))
    yield (
        f"What a run trains until an evaluation first reaches {target:g} %. A run that misses it counts as ∞, "
        f"also in the median.{f' The evaluations that reached it had {videos} videos.' if videos else ''} "
        f"A cost is rounded up to the run's next evaluation, and a run has {evaluations} of them."
    )
    runs = [(run, results.schedules.get(row.name)) for row in rows for run in row.runs.values()]
    every = {run.key: _flops_to(target, run, schedule) for run, schedule in runs}
    flops = {key: one for key, one in every.items() if one is not None}
    known = {row.name: row for row in rows if all(run.key in flops for run in row.runs.values())}
    if known:
        pairs = {pair.own.name: pair for pair in results.pairs if pair.base.name in known}
        yield from ("", "In training FLOPs, which do not depend on the machine, over all runs:", "")
        yield from _cost_table(
            results.study, [*known.values()], pairs, "10¹² FLOPs", lambda run: flops[run.key] / 1e12
        )
    if unknown := [row.name for row in rows if row.name not in known]:
        yield ""
        yield (
            f"The FLOPs of {', '.join(unknown)} at an evaluation are unknown: the schedule of the YAML has other "
            "steps or FLOPs than a run, or the number of training videos is unknown or differs between runs."
        )
    timed = (results.comparison.timed.row(row.name) for row in rows)
    if quiet := [row for row in timed if row.runs]:
        settings = {run.setting for row in rows for run in row.timed.runs.values()}
        where = " in the setting of most of them" if len(settings) > 1 else ""
        seeds = {row.name: row.runs for row in quiet}
        fair = {
            pair.own.name: pair.timed.only(seeds.get(pair.own.name, ())) for pair in results.pairs
        }
        yield from ("", f"In training seconds, over the runs whose seconds count{where}:", "")
        yield from _cost_table(results.study, quiet, fair, "s", lambda run: seconds_to(run, target))


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
    lines = video_table((name, compare_videos(pair)) for name, pair in named)
    verdict = "The seeds alone give the verdict: see [Accuracy](#accuracy)."
    return [*lines, "", verdict] if lines else []


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
