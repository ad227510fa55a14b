"""experiments/README.md: a table for each folder of rows, from results.csv and published.csv.

python -m mgexp.results.page [experiments]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean

from mgexp.errors import InputError
from mgexp.results.model import COARSE_CONTROL, ROW_ORDER, Pair, Run
from mgexp.results.rows import Experiment, Line, Page, read_page
from mgexp.results.tables import (
    deviation_text,
    difference_text,
    interval_text,
    markdown,
    plain_cell,
    ratio_text,
    seeds_text,
    to_published,
    verdict,
)
from mgexp.run.files import atomic_write_text
from mgexp.run.folder import METRIC_NAMES, ExperimentsDir

NOT_RUN = "not run"
OTHER_SITTING = " †"

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


def write_page(experiments: ExperimentsDir) -> None:
    """Write README.md. Raises InputError where a file that it is made from cannot be understood."""
    atomic_write_text(experiments.readme_md, render(experiments))


def render(experiments: ExperimentsDir) -> str:
    """Write the page as Markdown."""
    page = read_page(experiments)
    sections = [HEAD, "", *_index(page)]
    for folder in page.experiments.folders:
        sections += ["", *_section(page, folder)]
    sections += ["", "## Published numbers", "", *_sources(page)]
    if left_out := _left_out(page):
        sections += ["", "## Results that do not count", "", *left_out]
    sections += ["", "## How to read it", "", LEGEND]
    return "\n".join(sections) + "\n"


def _index(page: Page) -> list[str]:
    """A table of all tables, with the verdict on long+short, the default row of multigrid."""
    cells = []
    for folder in page.experiments.folders:
        rows = page.experiments.table(folder)
        num_run = sum(row.name in page.counted.rows for row in rows)
        long_short = [row for row in rows if row.file == ROW_ORDER[-1]]
        verdicts = [
            f"{verdict(line.against_baseline)} ({line.setting.device})"
            for row in long_short
            for line in page.lines_of(row)
            if line.against_baseline and line.setting
        ]
        # GitHub makes the anchor of a heading from its letters and digits.
        anchor = re.sub(r"[^\w\- ]", "", folder.lower()).replace(" ", "-")
        run = str(num_run) if num_run else NOT_RUN
        cells.append([f"[{folder}](#{anchor})", str(len(rows)), run, "<br>".join(verdicts)])
    return markdown(("table", "rows", "run", "long+short"), cells, ("long+short",))


def _section(page: Page, folder: str) -> Iterator[str]:
    """A table with all that belongs to it."""
    lines = page.lines(folder)
    yield from [f"## {folder}", ""]
    places = [folder, folder.rpartition("/")[0]]  # beside its YAMLs, or above them
    paths = [f"{place}/{name}" for place in places if place for name in ("README.md", "report.md")]
    if links := [f"[{path}]({path})" for path in paths if (page.root / path).exists()]:
        yield from [f"More: {', '.join(links)}.", ""]
    yield from _result_table(page, folder, lines)
    own = [line for line in lines if line.experiment.folder == folder]
    if table := _difference_table(page, folder, own):
        yield from ["", "Against the baseline:", "", *table]
    if table := _change_table(page, folder, own):
        yield from ["", "Against the row that each one changes:", "", *table]
    commands = "\n".join(row.command for row in page.experiments.table(folder))
    yield from ["", "<details><summary>Commands</summary>", "", "```bash", commands, "```", ""]
    yield "</details>"


# --- tables


def _result_table(page: Page, folder: str, lines: Sequence[Line]) -> list[str]:
    """What was published, what was measured, the verdict; without the columns that are empty."""
    runs = [run for line in lines if line.row for run in line.row.runs.values()]
    ours = {"map" if run.top1 is None else "top1" for run in runs}
    names = {line.experiment.name for line in lines}
    published = {one.metric for one in page.published if one.experiment in names} - {"top5"}
    metrics = sorted(ours or published, reverse=True)
    unit = f", {' or '.join(METRIC_NAMES[metric] for metric in metrics)} (%)" if metrics else " (%)"
    headings = ("row", f"published{unit}", f"ours{unit}", "seeds", "measured on", "verdict")
    cells = [_result_cells(page, folder, line, metrics) for line in lines]
    kept = [n for n in range(len(headings)) if any(one[n] for one in cells)]
    table = [[one[n] for n in kept] for one in cells]
    return markdown([headings[n] for n in kept], table, ("measured on", "verdict"))


def _result_cells(page: Page, folder: str, line: Line, metrics: Sequence[str]) -> list[str]:
    published = page.published_of(line.experiment, metrics)
    cells = [_name(line.experiment, folder), published or "unknown"]
    if line.row is None:
        return [*cells, NOT_RUN, "", "", ""]
    verdicts = [to_published(fmean(line.row.scores), published)] if published else []
    if line.experiment.file == COARSE_CONTROL:
        verdicts.append("control")
    alone = "baseline" if line.experiment.is_baseline else "no baseline to be held against"
    verdicts.append(verdict(line.against_baseline) if line.against_baseline else alone)
    return [
        *cells,
        deviation_text(line.row.scores),
        seeds_text(line.row.runs),
        f"{_setting(line, page)}, {_commits(line.row.runs.values())}",
        "; ".join(verdicts),
    ]


PAIR_HEADINGS = (
    *("seeds", "points", "95 % interval"),
    *("speed-up, wall-clock", "95 % interval", "speed-up, FLOPs"),
)


def _pair_cells(pair: Pair) -> list[str]:
    """The cells under PAIR_HEADINGS."""
    ends = pair.speed_up and pair.speed_up.interval
    return [
        seeds_text(pair.seeds),
        difference_text(pair.difference),
        interval_text(pair.difference),
        ratio_text(pair.speed_up) + (OTHER_SITTING if pair.seeds_apart else ""),
        f"{ends[0]:.2f}–{ends[1]:.2f}×" if ends else interval_text(None),
        ratio_text(pair.flop_saving),
    ]


def _difference_table(page: Page, folder: str, lines: Sequence[Line]) -> list[str]:
    """Each row against its baseline, where they have seeds to compare."""
    cells = [
        [_name(line.experiment, folder, line, page), *_pair_cells(line.against_baseline)]
        for line in lines
        if line.against_baseline and line.against_baseline.runs
    ]
    return markdown(("row", *PAIR_HEADINGS), cells)


def _change_table(page: Page, folder: str, lines: Sequence[Line]) -> list[str]:
    """Each row against the row that it is over, where that is not its baseline and they have seeds to compare."""
    cells = []
    for line in lines:
        pair, parent = line.against_parent, page.experiments.parent(line.experiment)
        if pair and pair.runs and parent:
            names = [_name(line.experiment, folder, line, page), _name(parent, folder)]
            cells.append([*names, *_pair_cells(pair), verdict(pair)])
    return markdown(("row", "changes", *PAIR_HEADINGS, "verdict"), cells, ("changes", "verdict"))


def _sources(page: Page) -> list[str]:
    """Where the published numbers are from."""
    cells = [
        [
            f"[{one.experiment}]({one.experiment}.yaml)",
            *(METRIC_NAMES[one.metric], one.value),
            *(plain_cell(one.source), plain_cell(one.note)),
        ]
        for one in page.published
    ]
    headings = ("row", "metric", "value (%)", "source", "note")
    return markdown(headings, cells, ("source", "note")) or ["None are known."]


def _left_out(page: Page) -> list[str]:
    """Lines of results.csv that are in no table, and why."""
    gone = dict.fromkeys(one.experiment for one in page.results)
    lines = [f"- {name}: its YAML is gone." for name in gone if name not in page.experiments.rows]
    for one in page.counted.of_another_recipe:
        what = f"{one.steps:,} steps and {one.train_flops:.4g} FLOPs"
        where = f"{one.experiment}, seed {one.seed}, on {one.device}, {_short_commit(one)}"
        lines.append(f"- {where}: {what}, which the newest run of the row has not.")
    if page.counted.older:
        lines.append(f"- Older results of runs that were made again: {len(page.counted.older)}.")
    return lines


# --- cells


def _name(
    experiment: Experiment, folder: str, line: Line | None = None, page: Page | None = None
) -> str:
    """A link; with its folder where that is another one, with its setting where it has several."""
    where = "" if experiment.folder == folder else f" ({experiment.folder})"
    several = line and page and len(page.counted.rows[experiment.name]) > 1
    setting = f" on {_setting(line, page)}" if line and page and several else ""
    return f"[{plain_cell(experiment.label)}]({experiment.name}.yaml){where}{setting}"


def _setting(line: Line, page: Page) -> str:
    """Device and precision; the number of videos where the row was run with several."""
    assert line.setting is not None  # the line was run
    settings = page.counted.rows[line.experiment.name]
    several = len({one.num_train_videos for one in settings}) > 1
    videos = f", {line.setting.num_train_videos:,} videos" if several else ""
    return f"{line.setting.device}, {line.setting.precision}{videos}"


def _commits(runs: Iterable[Run]) -> str:
    """The commit; of several commits, each with its seeds."""
    seeds: dict[str, list[int]] = {}
    for run in runs:
        seeds.setdefault(_short_commit(run), []).append(run.seed)
    if len(seeds) == 1:
        return next(iter(seeds))
    return ", ".join(f"{commit} (seeds {seeds_text(which)})" for commit, which in seeds.items())


def _short_commit(run: Run) -> str:
    """The first seven digits of its commit, and whether files had changed."""
    return re.sub(r"^([0-9a-f]{7})[0-9a-f]{33}", r"\1", run.commit)


def main(arguments: Sequence[str]) -> int:
    """Write the page of a folder, by default experiments."""
    experiments = ExperimentsDir(Path(arguments[0] if arguments else "experiments"))
    try:
        write_page(experiments)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(experiments.readme_md)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
