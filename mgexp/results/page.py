"""experiments/README.md: a table per folder of rows, from results.csv and published.csv.

python -m mgexp.results.page [experiments]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean

from mgexp.errors import InputError
from mgexp.results.cells import (
    NONE,
    deviation_text,
    interval_text,
    markdown,
    points_text,
    ratio_text,
)
from mgexp.results.compare import COARSE_CONTROL, ROW_ORDER
from mgexp.results.counted import Measured, Versus, to_published, verdict
from mgexp.results.rows import Experiment, Line, Page, read_page
from mgexp.run.files import atomic_write_text
from mgexp.run.folder import METRIC_NAMES, ExperimentsDir

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


HEAD = """\
<!-- Written by tools/collect.py from results.csv, published.csv and the YAMLs: change those, not this file. -->

# Experiments

Every row: what was published, what was measured here, and what it is worth. The name of a row leads to its YAML.
`python tools/collect.py runs/` adds finished runs and writes this page. [How to read it](#how-to-read-it)."""

LEGEND = """\
- **Published**: percent, from [published.csv](published.csv), with the sources [above](#published-numbers);
  "unknown" where no source was at hand.
- **Ours**: percent, final evaluation; the mean over seeds ± their standard deviation. Top-5, steps, seconds and
  all else are in [results.csv](results.csv).
- **Points**: ours minus the baseline's, the mean over pairs of runs of the same seed, device, precision and number
  of training videos. A minus is a loss. The 95 % interval is Student's t over the seeds: it covers the seed, not
  the choice of data or recipe.
- **Speed-up**: the baseline's training seconds, or FLOPs, over the row's, of the same pairs: the geometric mean,
  and the range over the seeds in brackets. Below 1 the row is slower. The 95 % interval is Student's t on the
  logarithms. †: the two were run at different commits, or more than an hour (or than they took together) apart,
  and other code, or other work on the machine, may have its part in it; the verdict speaks of FLOPs then.
- **Verdict**: against the baseline. "Not resolved": the 95 % interval holds "no difference". A control is not a
  way to train.
- **The baseline of a row** is `baseline_<row>` beside it; else the `…baseline` beside it whose name begins as the
  row's does; else the row that is no more than the base file of both.
- **Which results count**: of the same row, seed, device, precision and number of training videos the newest by
  date. Results of several devices have a line each, and several commits are named with their seeds.
- **Commands**: `--seed N` trains another seed. Lists are `path label` lines; official files of Kinetics and
  Something-Something V2 want `DATA.FORMAT kinetics` or `ssv2`. As they stand they are one process; rows of real
  data sets want several GPUs: `torchrun --nproc-per-node 8 tools/run_net.py … --launcher torchrun`, or Slurm."""


def write_experiments_table(experiments: ExperimentsDir) -> None:
    """Write README.md. Raises InputError where a file that it is made from cannot be understood."""
    atomic_write_text(experiments.readme_md, render(experiments))


def render(experiments: ExperimentsDir) -> str:
    """The page as Markdown."""
    page = read_page(experiments)
    sections = [HEAD, *_index(page)]
    for folder in page.folders:
        sections += ["", *_section(page, folder)]
    sections += [*_sources(page), *_left_out(page), "", "## How to read it", "", LEGEND]
    return "\n".join(sections) + "\n"


def _index(page: Page) -> list[str]:
    lines = []
    for folder in page.folders:
        rows = page.experiments.table(folder)
        num_run = sum(page.was_run(row) for row in rows)
        link = f"[{folder}](#{_anchor(folder)})"
        run = str(num_run) if num_run else NOT_RUN
        lines.append([link, str(len(rows)), run, _of_long_short(page, folder)])
    headings = ("table", "rows", "run", "long+short")
    return ["", *markdown(headings, lines, ("long+short",))]


def _of_long_short(page: Page, folder: str) -> str:
    """The verdict on the default row of multigrid, where a table has one that was run."""
    rows = [row for row in page.experiments.table(folder) if row.file == ROW_ORDER[-1]]
    lines = [line for row in rows for line in page.lines_of(row)]
    return "<br>".join(
        f"{verdict(line.versus_baseline)} ({line.measured.setting[0]})"
        for line in lines
        if line.versus_baseline and line.measured
    )


def _section(page: Page, folder: str) -> Iterator[str]:
    lines = page.lines(folder)
    yield from [f"## {folder}", ""]
    if pages := _pages(page, folder):
        yield from [f"More: {', '.join(pages)}.", ""]
    yield from result_table(page, folder, lines)
    own = [line for line in lines if line.row.folder == folder]
    yield from difference_table(page, folder, own)
    yield from change_table(page, folder, own)
    commands = "\n".join(row.command for row in page.experiments.table(folder))
    yield from ["", "<details><summary>Commands</summary>", "", "```bash", commands, "```", ""]
    yield "</details>"


def _pages(page: Page, folder: str) -> list[str]:
    """Links to the pages on a table: beside its YAMLs, or above them."""
    places = [folder, folder.rpartition("/")[0]]
    paths = [f"{place}/{name}" for place in places if place for name in ("README.md", "report.md")]
    return [f"[{path}]({path})" for path in paths if (page.root / path).exists()]


# --- below the tables


def _sources(page: Page) -> list[str]:
    """Where the published numbers are from."""
    names = page.experiments.rows
    cells = [
        [
            f"[{one.experiment}]({names[one.experiment].name}.yaml)",
            *(METRIC_NAMES[one.metric], one.value),
            *(text.replace("|", "\\|") for text in (one.source, one.note)),
        ]
        for one in page.published
    ]
    headings = ("row", "metric", "value (%)", "source", "note")
    table = markdown(headings, cells, ("source", "note"))
    return ["", "## Published numbers", "", *(table or ["None are known."])]


def _left_out(page: Page) -> list[str]:
    """Lines of results.csv that are in no table, and why."""
    gone = dict.fromkeys(one.experiment for one in page.results)
    lines = [f"- {name}: its YAML is gone." for name in gone if name not in page.experiments.rows]
    for one in page.count.of_another_recipe:
        what = f"{one.steps:,} steps and {one.train_flops:.4g} FLOPs"
        where = f"{one.experiment}, seed {one.seed}, on {one.device}, {short_commit(one.commit)}"
        lines.append(f"- {where}: {what}, which the newest run of the row has not.")
    if page.count.older:
        lines.append(f"- Older results of runs that were made again: {len(page.count.older)}.")
    return ["", "## Results that do not count", "", *lines] if lines else []


def _anchor(heading: str) -> str:
    """Where GitHub puts a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def main(arguments: Sequence[str]) -> int:
    """Write the page of a folder, by default experiments."""
    experiments = ExperimentsDir(Path(arguments[0] if arguments else "experiments"))
    try:
        write_experiments_table(experiments)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(experiments.readme_md)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
