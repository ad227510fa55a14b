"""Write the page of a study and the report on a folder of rows: values as text, and templates as Markdown.

Python computes the numbers. The templates hold the tables and the words, and name a function of ``FILTERS`` for
each value: ``{{ pair.difference | points }}``.
"""

from __future__ import annotations

import math
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from mgexp.results.comparison import (
    Comparison,
    Estimate,
    Pair,
    Row,
    estimate_mean,
    grouped_interval,
    judge_margin,
    wilson_interval,
)
from mgexp.results.store import StudyRuns
from mgexp.results.tables import shared_tables, time_to_target
from mgexp.run.other_programs import BUSY_CORES
from mgexp.text import counted

NONE = "–"
"""Stands for a number that is unknown, because a run is missing or cannot be compared."""

SPECIAL = re.compile(r"[\\`*|]|(?<![^\W_])_|_(?![^\W_])|\](?=[(\[])")
"""What Markdown takes for more than text: also an underscore at the edge of a word, and the end of a link text."""


def plain_cell(text: str) -> str:
    """Escape a name, which may come from a user's file, so that a cell shows it and nothing in it is Markdown."""
    return re.sub(SPECIAL, r"\\\g<0>", text).replace("&", "&amp;").replace("<", "&lt;")


# --- seeds and runs


def seeds_text(seeds: Iterable[int]) -> str:
    """List seeds: "seed 0", or "seeds 0, 1, 2". A bare 0 would read as if there were none."""
    names = [*map(str, seeds)]
    return f"seed{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else NONE


def busy_text(comparison: Comparison) -> str:
    """Name the busy runs, and say what makes a run busy: "long (seeds 1, 2), coarse (seed 0): …"."""
    seeds = defaultdict[str, list[int]](list)
    for row in comparison.all_rows:
        for run in row.runs.values():
            if run.is_busy:
                seeds[run.experiment].append(run.seed)
    names = ", ".join(f"{name} ({seeds_text(seeds[name])})" for name in sorted(seeds))
    why = f"other programs kept more than {BUSY_CORES:g} cores busy"
    return f"{names}: {why}." if names else ""


def not_compared(pair: Pair, base: str) -> Iterator[str]:
    """Name the seeds that cannot be compared with ``base``, because the settings of the two runs differ."""
    for run, other in pair.not_compared:
        why = f"because the settings differ: {run.score_setting} against {other.score_setting}"
        yield f"- {pair.own.name}, seed {run.seed}: not compared with {base}, {why}."


# --- numbers


def number_text(value: float | None, decimals: int = 0, unit: str = "") -> str:
    """Write a number, also the cost of a target that was missed: "1,000", "∞"."""
    if value is None:
        return NONE
    return "∞" if math.isinf(value) else f"{value:,.{decimals}f}{unit}"


def mean_text(values: Sequence[float], decimals: int = 0) -> str:
    """Write the mean, and the range of more than one value: "93.20 (92.90–93.50)"."""
    return _with_range(fmean(values), values, decimals) if values else NONE


def ratio_text(ratio: Estimate | None) -> str:
    """Write the geometric mean, and the range of more than one value: "2.71× (2.65–2.80)"."""
    return _with_range(ratio.mean, ratio.each, 2, "×") if ratio else NONE


def _with_range(center: float, values: Sequence[float], decimals: int, unit: str = "") -> str:
    # Compare the rounded texts and not the numbers. Two ends that look the same are not written as a range.
    low, high = (f"{value:,.{decimals}f}" for value in (min(values), max(values)))
    span = f" ({low}–{high})" if low != high else ""
    return f"{center:,.{decimals}f}{unit}{span}"


def share_text(row: Row, part: str, whole: str) -> str:
    """Write the mean share of one number of a run in another: "6.2 %". Each seed counts the same."""
    shares = [getattr(run, part) / getattr(run, whole) for run in row.runs.values()]
    return f"{100 * fmean(shares):.1f} %" if shares else NONE


def deviation_text(values: Sequence[float]) -> str:
    """Write the mean, and the standard deviation of more than one value: "96.83 ± 0.44"."""
    spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
    return f"{fmean(values):.2f}{spread}"


def half_width_text(values: Sequence[float]) -> str:
    """Write the mean and half its 95 % interval: "93.20 ± 0.44". One seed has no interval."""
    estimate = estimate_mean(values)
    if estimate is None or estimate.interval is None:
        return f"{fmean(values):.2f}, one seed"
    low, high = estimate.interval
    return f"{estimate.mean:.2f} ± {(high - low) / 2:.2f}"


def estimate_text(estimate: Estimate | None, decimals: int = 2, unit: str = "") -> str:
    """Write a mean and its 95 % interval: "2.71× (2.60× to 2.80×)". Leave out an interval that shows no width."""
    if estimate is None:
        return NONE
    ends = estimate.interval or (estimate.mean, estimate.mean)
    mean, low, high = (f"{value:,.{decimals}f}{unit}" for value in (estimate.mean, *ends))
    interval = f" ({low} to {high})" if low != high else ""
    return f"{mean}{interval}".replace("-", "−")


def points_text(value: float) -> str:
    """Write a signed difference of percentages: "−0.42"."""
    return f"{value:+.2f}".replace("-", "−")


def difference_text(difference: Estimate | None) -> str:
    return points_text(difference.mean) if difference else NONE


def interval_text(difference: Estimate | None) -> str:
    """Write the ends of the 95 % interval of a difference: "−1.28 to +0.41". No difference is beyond ±100."""
    return _ends(difference, lambda end: points_text(max(-100.0, min(end, 100.0))))


def times_text(ratio: Estimate | None) -> str:
    """Write the ends of the 95 % interval of a ratio: "2.41× to 2.93×"."""
    return _ends(ratio, "{:.2f}×".format)


def _ends(estimate: Estimate | None, write: Callable[[float], str]) -> str:
    if estimate is None:
        return NONE
    return " to ".join(map(write, estimate.interval)) if estimate.interval else "needs two seeds"


def test_interval_text(row: Row) -> str:
    """Write the interval of the mean accuracy, which covers the choice of the test videos and not of the seed."""
    runs = [*row.runs.values()]
    # Wilson's interval is that of a share of videos, as top-1 is, and mAP is not.
    if any(run.top1 is None or not run.num_test_videos for run in runs):
        return NONE
    # Each fold has a list of its own. Where no run has scores of single videos, the list is taken for one.
    lists = {run.videos.names_hash: run.videos.num_videos for run in runs if run.videos}
    if len(lists) == 1 and all(run.videos and run.videos.groups for run in runs):
        scores = [run.videos for run in runs if run.videos]
        correct = np.mean([each.correct for each in scores], axis=0)
        return "{:.1f} to {:.1f}".format(*grouped_interval(correct, scores[0].groups))
    num = sum(lists.values()) or runs[-1].num_test_videos or 0
    low, high = wilson_interval(row.mean("score"), num)
    return f"{low:.1f} to {high:.1f}"


# --- verdicts


def verdict(pair: Pair) -> str:
    """Say what a row gains or loses: "loses 1.17 points, which may be chance (−3.20 to +0.86), 2.76× faster".

    Something may be chance if its 95 % interval, which then follows in brackets, contains "no difference".
    """
    difference, speed_up, flop_saving = pair.difference, pair.speed_up, pair.flop_saving
    if difference is None or flop_saving is None:
        return "not compared: no run of its base with the same seed, precision and videos"
    points = f"{abs(difference.mean):.2f}"
    doubt = f", which may be chance ({interval_text(difference)})" if difference.holds(0.0) else ""
    if difference.is_constant:
        doubt = ", alike in all pairs, as with too few or too easy test videos"
    verb = "gains" if difference.mean > 0 else "loses"
    gain = "no difference seen" if points == "0.00" else f"{verb} {points} points{doubt}"
    # Without seconds that can be compared, FLOPs are the cost.
    if speed_up is None:
        cost = flops_text(flop_saving)
    else:
        doubt = f", which may be chance ({times_text(speed_up)})" if speed_up.holds(1.0) else ""
        timed = pair.timed_alike.seeds
        seeds = "" if timed == pair.seeds else f" ({seeds_text(timed)})"
        words = (f"faster{doubt}{seeds}", f"slower{doubt}{seeds}", f"as fast{seeds}")
        cost = _times(speed_up.mean, *words)
    return f"{gain}, {cost}{'; one seed' if len(pair.runs) == 1 else ''}"


def flops_text(saving: Estimate) -> str:
    return _times(saving.mean, "fewer FLOPs", "more FLOPs", "as many FLOPs")


def _times(ratio: float, above: str, below: str, same: str) -> str:
    if f"{ratio:.2f}" == "1.00":
        return same
    return f"{max(ratio, 1 / ratio):.2f}× {above if ratio > 1 else below}"


# --- templates


TEMPLATES = Path(__file__).parent / "templates"

NUMBER = r"−?[\d,.]+×?"
BRACKETS = re.compile(rf"\| {NUMBER} \({NUMBER}(–| to ){NUMBER}\) ")
"""A cell with a number and its range over the seeds or its interval in brackets."""
IN_BRACKETS = {
    "–": "In brackets: the lowest and the highest of the seeds.",
    " to ": "In brackets: the 95 % interval over the seeds.",
}

FILTERS: Mapping[str, Callable[..., str]] = {
    "lines": "\n".join,
    "cell": plain_cell,
    "counted": counted,
    # Below the heading "seeds": "seed 0", or "0, 1, 2".
    "seeds": lambda seeds: seeds_text(seeds).removeprefix("seeds "),
    "mean": mean_text,
    "deviation": deviation_text,
    "half_width": half_width_text,
    "ratio": ratio_text,
    "share": share_text,
    "estimate": estimate_text,
    "signed": points_text,
    "points": difference_text,
    "interval": interval_text,
    "times": times_text,
    "test_interval": test_interval_text,
    "verdict": verdict,
    "judge": judge_margin,
    "number": number_text,
    "flops": flops_text,
}
"""How the templates write a value: ``{{ pair.difference | points }}``."""


def section(heading: str, caller: Callable[[], str]) -> str:
    """Write a section around the contents of a call block. Without contents there is no section."""
    body = _without_gaps(caller())
    return "\n".join([f"## {heading}", "", *with_brackets(body.splitlines()), ""]) if body else ""


def with_brackets(lines: Sequence[str]) -> list[str]:
    """Say below the last table among ``lines`` what the brackets behind its numbers mean, if there are any."""
    brackets = next(filter(None, map(BRACKETS.search, lines)), None)
    end = max((n for n, line in enumerate(lines, start=1) if line.startswith("| ")), default=0)
    note = ["", IN_BRACKETS[brackets[1]]] if brackets else []
    return [*lines[:end], *note, *lines[end:]]


def _without_gaps(text: str) -> str:
    """Leave one empty line where a part that is empty would leave several."""
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n")


@dataclass(frozen=True)
class Picture:
    """A figure as the bytes of its files.

    `caption` is the text below it. `alt` replaces the figure for readers who cannot see it.
    """

    name: str
    alt: str
    caption: str
    png: bytes
    svg: bytes

    @property
    def link(self) -> str:
        """The path of the PNG file in the folder of the report."""
        return f"figures/{self.name}.png"

    @property
    def markdown(self) -> str:
        return f"![{self.alt}]({self.link})\n\n*{self.caption}*"


def render_page(template: Path, pictures: Sequence[Picture] = (), **values: object) -> str:
    """Render a template as Markdown. ``figures`` has the Markdown of each picture, or else ""."""
    environment = Environment(
        loader=FileSystemLoader(template.parent),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - the result is Markdown
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["section"] = section
    environment.filters.update(FILTERS)
    figures = defaultdict(str, {picture.name: picture.markdown for picture in pictures})
    text = environment.get_template(template.name).render(values, figures=figures)
    return _without_gaps(text) + "\n"


# --- the report on a folder of rows


def render_report(
    title: str,
    comparison: Comparison,
    pictures: Sequence[Picture] = (),
    expected_rows: Sequence[str] = (),
    mistakes: Sequence[object] = (),
    study: str = "",
) -> str:
    """Write the report as Markdown. Without a finished run, it shows only the schedules and what is missing.

    A row of ``expected_rows`` that has no run is listed. ``study`` is the folder of the study with the claims.
    """
    pairs = {pair.own.name: pair for pair in comparison.pairs}
    return render_page(
        TEMPLATES / "report.md.j2",
        pictures,
        title=title,
        study=study,
        comparison=comparison,
        pairs=pairs.values(),
        smoke=[row.name for row in comparison.finished if any(row.each("is_smoke"))],
        busy=busy_text(comparison),
        commands=[row.first.command for row in comparison.finished if row.first.command],
        mistakes=mistakes,
        missing=[*_missing(comparison, expected_rows)],
        **shared_tables(comparison, pairs),
    )


def _missing(comparison: Comparison, expected_rows: Sequence[str]) -> Iterator[str]:
    """List the rows and runs that are missing, and the runs that cannot be compared."""
    there = {row.name for row in comparison.rows}
    yield from (f"- {name}: not run." for name in expected_rows if name not in there)
    seeds = {seed for row in comparison.rows for seed in (*row.runs, *row.unfinished)}
    for row in comparison.rows:
        yield from (f"- {row.name}, seed {seed}: unfinished." for seed in row.unfinished)
        for seed in sorted(seeds - {*row.runs} - {*row.unfinished}):
            yield f"- {row.name}, seed {seed}: not run."
    for row in comparison.finished:
        yield from not_compared(comparison.pair(row), "the baseline")


# --- the page of a study

HEAD = """\
<!-- tools/study.py writes this page from study.yaml, runs.jsonl and prose.md: change those, not this file. -->"""


def render_study(
    gathered: StudyRuns,
    pictures: Sequence[Picture],
    prose: str,
    command: str,
    num_folds: int = 0,
) -> str:
    """Write README.md beside study.yaml: every number on it comes from the stored runs.

    ``prose`` may begin with a title. What stands before its first "## " opens the page. Its sections come after
    the results. ``command`` runs the study. ``num_folds`` is DATA.NUM_FOLDS of its baseline.
    """
    title, opening, sections = split_prose(prose)
    study, since = gathered.study, gathered.study.since
    timed = gathered.comparison.in_usual_setting
    early = [run for run in gathered.runs.values() if since and run.finished_at < since]
    tasks = [task for task in study.tasks if not task.is_control]
    pair_of = {pair.own.name: pair for pair in gathered.pairs}
    with_budgets = {f"{p.own.name}, against {p.base.name}": p for p in gathered.budget_pairs}
    return render_page(
        TEMPLATES / "study.md.j2",
        pictures,
        head=HEAD,
        title=title or f"# {study.folder.resolve().name}",
        opening=opening,
        prose=sections,
        gathered=gathered,
        study=study,
        pair_of=pair_of,
        # Path.relative_to does not go up, as ../quickstart/baseline.yaml must.
        link=lambda name: (
            f"[{plain_cell(name)}]({os.path.relpath(study.yamls[name], study.folder)})"
        ),
        bases=[*dict.fromkeys(base for name in study.names if (base := study.base_of(name)))],
        margin=counted(study.margin, "point"),
        num_folds=num_folds,
        num_runs=len(tasks),
        num_missing=sum((task.row, task.seed) not in gathered.runs for task in tasks),
        # Seconds of several machines have no mean.
        seconds=lambda row: estimate_mean(row.only(timed.row(row.name).runs).each("train_seconds")),
        busy=busy_text(gathered.comparison),
        num_early=len(early),
        target=time_to_target(gathered, study.target) if study.target else None,
        command=command,
        left_out=[*_left_out(gathered)],
        **shared_tables(gathered.for_figures, pair_of | with_budgets, study.controls),
    )


def split_prose(prose: str) -> tuple[str, str, str]:
    """Split what people wrote into the line of the title ("" without one), the opening, and the sections."""
    before, *sections = re.split(r"^(?=## )", prose, flags=re.MULTILINE)
    title, _, opening = before.partition("\n")
    if not title.startswith("# "):
        title, opening = "", before
    return title, opening.strip(), "\n\n".join(section.strip() for section in sections)


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
