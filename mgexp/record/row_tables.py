"""The tables of a folder of rows in experiments/README.md: results, then differences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from statistics import fmean

from mgexp.config.experiment_rows import Experiment
from mgexp.record.comparison import COARSE_CONTROL
from mgexp.record.counted import Measured, Versus
from mgexp.record.experiments_page import Line, Page
from mgexp.record.results import METRIC_NAMES
from mgexp.record.tables import (
    NONE,
    deviation_text,
    interval_text,
    markdown,
    points_text,
    ratio_text,
)
from mgexp.record.verdict import to_published, verdict

NOT_RUN = "not run"
OTHER_SITTING = " †"


def result_table(page: Page, folder: str, lines: Sequence[Line]) -> list[str]:
    """What was published, what was measured, the verdict; without the columns that are empty."""
    metrics = _metrics(page, lines)
    names = " or ".join(METRIC_NAMES[metric] for metric in metrics)
    unit = f", {names} (%)" if names else " (%)"
    headings = ("row", f"published{unit}", f"ours{unit}", "seeds", "measured on", "verdict")
    cells = [_result_cells(page, folder, line, metrics) for line in lines]
    empty = {heading for heading, *column in zip(headings, *cells, strict=True) if not any(column)}
    kept = [number for number, heading in enumerate(headings) if heading not in empty]
    table = [[one[number] for number in kept] for one in cells]
    return markdown([headings[n] for n in kept], table, ("measured on", "verdict"))


def _result_cells(
    page: Page, folder: str, line: Line, metrics: Sequence[str]
) -> tuple[str, str, str, str, str, str]:
    published = page.published_of(line.row, metrics)
    name = _name(line.row, folder)
    if line.measured is None:
        return name, published or "unknown", NOT_RUN, "", "", ""
    where = f"{_setting(line, page)}, {_commits(line.measured)}"
    seeds, ours = _seeds(line.measured.runs), deviation_text(line.measured.scores)
    return name, published or "unknown", ours, seeds, where, _verdict(line, published)


def difference_table(page: Page, folder: str, lines: Sequence[Line]) -> list[str]:
    """Each row against its baseline; nothing where no pair was run."""
    found = [(line, line.versus_baseline) for line in lines if line.versus_baseline]
    headings = ("row", *_VERSUS_HEADINGS)
    cells = [
        [_name(line.row, folder, line, page), *_versus_cells(versus)]
        for line, versus in found
        if versus.pairs
    ]
    return ["", "Against the baseline:", "", *markdown(headings, cells)] if cells else []


def change_table(page: Page, folder: str, lines: Sequence[Line]) -> list[str]:
    """Each row against the row that it is over, where that is not its baseline; nothing where no pair was run."""
    found = [(line, line.versus_parent) for line in lines if line.versus_parent]
    headings = ("row", "changes", *_VERSUS_HEADINGS, "verdict")
    cells = []
    for line, versus in found:
        parent = page.experiments.parent(line.row)
        if versus.pairs and parent:
            names = [_name(line.row, folder, line, page), _name(parent, folder)]
            cells.append([*names, *_versus_cells(versus), verdict(versus)])
    if not cells:
        return []
    table = markdown(headings, cells, ("changes", "verdict"))
    return ["", "Against the row that each one changes:", "", *table]


_VERSUS_HEADINGS = (
    *("seeds", "points", "95 % interval"),
    *("speed-up, wall-clock", "95 % interval", "speed-up, FLOPs"),
)


def _versus_cells(versus: Versus) -> list[str]:
    """Under _VERSUS_HEADINGS, of at least a pair."""
    difference, interval = versus.difference, versus.time_interval
    mark = "" if versus.is_one_sitting else OTHER_SITTING
    return [
        _seeds(versus.seeds),
        points_text(difference.mean) if difference else NONE,
        interval_text(difference),
        ratio_text(versus.time_ratios) + mark,
        f"{interval[0]:.2f}–{interval[1]:.2f}×" if interval else interval_text(None),
        ratio_text(versus.flop_ratios),
    ]


# --- cells


def _name(row: Experiment, folder: str, line: Line | None = None, page: Page | None = None) -> str:
    """Linked; with its folder where that is another one, with its setting where it has several."""
    label = row.label.replace("|", "\\|")
    where = "" if row.folder == folder else f" ({row.folder})"
    several = line and page and len(page.count.measured[row.name]) > 1
    setting = f" on {_setting(line, page)}" if line and page and several else ""
    return f"[{label}]({row.name}.yaml){where}{setting}"


def _setting(line: Line, page: Page) -> str:
    """Device and precision; the number of videos where the row was run with several."""
    assert line.measured is not None
    device, precision, num_videos = line.measured.setting
    numbers = {one.setting[2] for one in page.count.measured[line.row.name]}
    videos = f", {num_videos:,} videos" if len(numbers) > 1 else ""
    return f"{device}, {precision}{videos}"


def _commits(measured: Measured) -> str:
    """The commit; of several, each with its seeds."""
    seeds: dict[str, list[int]] = {}
    for result in measured.results:
        seeds.setdefault(short_commit(result.commit), []).append(result.seed)
    if len(seeds) == 1:
        return next(iter(seeds))
    return ", ".join(f"{commit} (seeds {_seeds(which)})" for commit, which in seeds.items())


def short_commit(commit: str) -> str:
    """The first seven digits of a commit, and whether files had changed."""
    return re.sub(r"^([0-9a-f]{7})[0-9a-f]{33}", r"\1", commit)


def _seeds(seeds: Iterable[int]) -> str:
    return ", ".join(map(str, seeds))


def _verdict(line: Line, published: str | None) -> str:
    assert line.measured is not None
    scores = line.measured.scores
    parts = [to_published(fmean(scores), published)] if published else []
    if line.row.file == COARSE_CONTROL:
        parts.append("control")
    alone = "baseline" if line.row.is_baseline else "no baseline to be held against"
    parts.append(verdict(line.versus_baseline) if line.versus_baseline else alone)
    return "; ".join(parts)


def _metrics(page: Page, lines: Sequence[Line]) -> list[str]:
    """Of our scores; where nothing was run, of the published ones."""
    results = [one for line in lines if line.measured for one in line.measured.results]
    ours = {"map" if one.top1 is None else "top1" for one in results}
    names = {line.row.name for line in lines}
    known = {one.metric for one in page.published if one.experiment in names} - {"top5"}
    return sorted(ours or known, reverse=True)
