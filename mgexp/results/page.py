"""Write experiments/README.md: a table for each folder of rows, from the stored runs and published.csv.

python -m mgexp.results.page [experiments]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean

from mgexp.errors import InputError
from mgexp.results.model import COARSE_CONTROL, ROW_ORDER, Pair, Row, Run
from mgexp.results.rows import Experiment, Page, Published, read_page
from mgexp.results.tables import (
    INTERVAL,
    SEEDS,
    deviation_text,
    difference_text,
    markdown,
    plain_cell,
    ratio_text,
    seeds_cell,
    seeds_text,
    table,
    timed_seeds,
    times_text,
    to_published,
    verdict,
)
from mgexp.run.files import atomic_write_text
from mgexp.run.folder import METRIC_NAMES, ExperimentsDir

NOT_RUN = "not run"

HEAD = """\
<!-- Written by tools/collect.py from runs.jsonl, published.csv and the YAMLs: change those, not this file. -->

# Experiments

This page shows for every row what was published, what we measured, and what the row gains or loses. The name of a
row links to its YAML. `python tools/collect.py runs/` adds finished runs and writes this page. The end of the
page says [how to read it](#how-to-read-it)."""

INDEX_WORDS = """\
The last column says what long+short does against the baseline of its table. "Loses 2 points" means that its
accuracy is 2 percentage points lower, on average over the seeds. "Which may be chance" means that the 95 %
interval in the brackets contains "no difference": these seeds cannot tell. A row that is faster and loses accuracy
has won nothing until the same baseline, trained for as short a time, is worse. [More on this](#how-to-read-it)."""

LEGEND = """\
- **Published**: percent, from [published.csv](published.csv). The sources are [above](#published-numbers).
  "unknown" means that we had no source.
- **Ours**: percent, from the final evaluation: the mean over the seeds ± their standard deviation.
  [results.csv](results.csv) has top-5, steps, seconds and everything else.
  [earlier_results.csv](earlier_results.csv) has runs of recipes that the rows no longer have.
- **Points**: ours minus the baseline's. This is the mean over pairs of runs with the same seed, precision and
  number of training videos. The devices of a pair may differ. We treat this difference as that of another seed.
  A minus is a loss. The 95 % interval is Student's t over the seeds. It covers the choice of the seed, but not
  the choice of data or recipe.
- **Speed-up**: the baseline's training seconds divided by the row's. Only pairs count whose two runs had the same
  device, threads and version of torch, beside which no other program kept the cores busy, and of which none ended
  before the `seconds_since` of its study. If these are not all pairs, their seeds are named. We show the geometric
  mean, with the range over the seeds in brackets. Below 1, the row is slower. The 95 % interval is
  Student's t on the logarithms. The speed-up in FLOPs is the same ratio over all pairs.
- **Verdict**: the row against the baseline. "May be chance" means that the 95 % interval, in brackets, contains
  "no difference". "One seed" has no interval. A control is not a way to train.
- **The baseline of a row** is the first of these that exists: `baseline_<row>` in the same folder; the
  `…baseline` in the same folder whose name begins like the row's; the row that adds nothing to the base file of
  both.
- **Which results count**: the newest run of each row and seed that is stored in a `runs.jsonl`, if it has the
  recipe, the precision and the number of training videos of the newest run of its row. If a line mixes several
  commits, it names them with their seeds.
- **Commands**: `--seed N` trains another seed. Lists have `path label` lines. Official files of Kinetics and
  Something-Something V2 need `DATA.FORMAT kinetics` or `ssv2`. The commands start one process. Rows of real data
  sets need several GPUs: `torchrun --nproc-per-node 8 tools/run_net.py … --launcher torchrun`, or Slurm."""


def write_page(experiments: ExperimentsDir) -> None:
    """Write README.md. Raises InputError if a file that it reads cannot be understood."""
    atomic_write_text(experiments.readme_md, render(experiments))


def render(experiments: ExperimentsDir) -> str:
    """Write the page as Markdown."""
    page = read_page(experiments)
    end = ["## Published numbers", "", *_sources(page)]
    if left_out := _left_out(page):
        end += ["", "## Results that do not count", "", *left_out]
    end += ["", "## How to read it", "", LEGEND]
    head = [HEAD, "", INDEX_WORDS, "", *_index(page)]
    sections = ["\n".join(_section(page, one)) for one in page.experiments.folders]
    return "\n\n".join(["\n".join(head), *sections, "\n".join(end)]) + "\n"


def anchor_of(folder: str) -> str:
    """Return the anchor of the section of a folder. GitHub makes it from the letters and digits of the heading."""
    return re.sub(r"[^\w\- ]", "", folder.lower()).replace(" ", "-")


def _index(page: Page) -> list[str]:
    """List all tables, those that were run first. Each has the verdict on long+short, multigrid's usual row."""
    cells = []
    for folder in page.experiments.folders:
        experiments = page.experiments.table(folder)
        num_run = sum(one.name in page.counted.rows for one in experiments)
        rows = [page.row(one) for one in experiments if one.file == ROW_ORDER[-1]]
        verdicts = [verdict(pair) for row in rows if (pair := page.against_baseline(row))]
        run = str(num_run) if num_run else NOT_RUN
        cells.append(
            [f"[{folder}](#{anchor_of(folder)})", str(len(experiments)), run, "<br>".join(verdicts)]
        )
    cells.sort(key=lambda one: one[2] == NOT_RUN)
    return markdown(("table", "rows", "with results", "long+short"), cells, ("long+short",))


def _section(page: Page, folder: str) -> Iterator[str]:
    """Write the section of a folder: its links, its tables and its commands."""
    yield from [f"## {folder}", ""]
    # A README or report is beside the YAMLs, or one folder above them.
    places = [folder, folder.rpartition("/")[0]]
    paths = [f"{place}/{name}" for place in places if place for name in ("README.md", "report.md")]
    if links := [f"[{path}]({path})" for path in paths if (page.root / path).exists()]:
        yield from [f"More: {', '.join(links)}.", ""]
    yield from _result_table(page, folder)

    def name(pair: Pair) -> str:
        return _link(page.experiments.rows[pair.own.name], folder)

    own = page.experiments.table(folder)
    rows = [page.row(experiment) for experiment in own]
    pairs = [pair for row in rows if (pair := page.against_baseline(row)) and pair.runs]
    if pairs:
        yield from ["", "Against the baseline:", "", *table(pairs, [("row", name), *PAIR_COLUMNS])]
    pairs = [pair for row in rows if (pair := page.against_parent(row)) and pair.runs]
    if pairs:
        yield from ["", "Against the row that each row changes:", ""]
        changed = ("changes", lambda pair: _link(page.experiments.rows[pair.base.name], folder))
        columns = [("row", name), changed, *PAIR_COLUMNS, ("verdict", verdict)]
        yield from table(pairs, columns, ("changes", "verdict"))
    commands = "\n".join(experiment.command for experiment in own)
    yield from ["", "<details><summary>Commands</summary>", "", "```bash", commands, "```", ""]
    yield "</details>"


# --- tables


def _result_table(page: Page, folder: str) -> list[str]:
    """Compare published scores with ours. Empty columns are left out."""
    rows = page.rows(folder)
    # A table shows one score for each row. results.csv also has top-5.
    ours = {"map" if run.top1 is None else "top1" for row in rows for run in row.runs.values()}
    names = {row.name for row in rows}
    published = {one.metric for one in page.published if one.experiment in names} - {"top5"}
    metrics = sorted(ours or published, reverse=True)
    unit = f", {' or '.join(METRIC_NAMES[metric] for metric in metrics)} (%)" if metrics else " (%)"
    headings = ("row", f"published{unit}", f"ours{unit}", "seeds", "measured on", "verdict")
    cells = []
    for row in rows:
        experiment = page.experiments.rows[row.name]
        goals = [one for one in page.published if one.experiment == row.name]
        goal = next((one.value for one in goals if one.metric in metrics), None)
        cells.append([_link(experiment, folder), goal or "unknown"])
        if not row.runs:
            cells[-1] += [NOT_RUN, "", "", ""]
            continue
        verdicts = [to_published(fmean(row.scores), goal)] if goal else []
        if experiment.file == COARSE_CONTROL:
            verdicts.append("control")
        alone = "baseline" if experiment.is_baseline else "no baseline to compare with"
        pair = page.against_baseline(row)
        verdicts.append(verdict(pair) if pair else alone)
        measured = f"{_setting(row)}, {_commits(row.runs.values())}"
        numbers = [deviation_text(row.scores), seeds_cell(row.runs)]
        cells[-1] += [*numbers, measured, "; ".join(verdicts)]
    # The rows of a folder that was not run have neither devices nor verdicts. Half of the table would be empty.
    kept = [n for n in range(len(headings)) if any(one[n] for one in cells)]
    lines = [[one[n] for n in kept] for one in cells]
    return markdown([headings[n] for n in kept], lines, ("measured on", "verdict"))


def _speed_up(pair: Pair) -> str:
    """Write the ratio of the seconds, and its seeds if they are not all."""
    return ratio_text(pair.speed_up) + (timed_seeds(pair) if pair.speed_up else "")


PAIR_COLUMNS = (
    SEEDS,
    ("points", lambda pair: difference_text(pair.difference)),
    INTERVAL,
    ("speed-up, wall-clock", _speed_up),
    ("95 % interval", lambda pair: times_text(pair.speed_up)),
    ("speed-up, FLOPs", lambda pair: ratio_text(pair.flop_saving)),
)


def _sources(page: Page) -> list[str]:
    """List the published numbers with their sources."""
    columns: list[tuple[str, Callable[[Published], str]]] = [
        ("row", lambda one: f"[{one.experiment}]({one.experiment}.yaml)"),
        ("metric", lambda one: METRIC_NAMES[one.metric]),
        ("value (%)", lambda one: one.value),
        ("source", lambda one: plain_cell(one.source)),
        ("note", lambda one: plain_cell(one.note)),
    ]
    return table(page.published, columns, ("source", "note")) or ["None are known."]


def _left_out(page: Page) -> list[str]:
    """List the stored runs that no table shows, with the reason."""
    gone = dict.fromkeys(one.experiment for one in page.results)
    lines = [f"- {name}: its YAML is gone." for name in gone if name not in page.experiments.rows]
    for one in page.counted.others:
        what = f"{one.steps:,} steps and {one.train_flops:.4g} FLOPs"
        where = f"{one.experiment}, seed {one.seed}, on {one.device}, {one.short_commit}"
        lines.append(
            f"- {where}: {what}. A newer run of the row has another recipe, precision or number of videos."
        )
    return lines


# --- cells


def _link(experiment: Experiment, folder: str) -> str:
    """Link to the YAML, and name its folder if that is another one."""
    where = "" if experiment.folder == folder else f" ({experiment.folder})"
    return f"[{plain_cell(experiment.label)}]({experiment.name}.yaml){where}"


def _setting(row: Row) -> str:
    """Name the devices and the precision."""
    devices = dict.fromkeys(run.device for run in row.runs.values())
    return f"{' and '.join(devices)}, {row.setting.precision}"


def _commits(runs: Iterable[Run]) -> str:
    """Name the commit of the runs. If there are several, name each with its seeds."""
    seeds: dict[str, list[int]] = {}
    for run in runs:
        seeds.setdefault(run.short_commit, []).append(run.seed)
    if len(seeds) == 1:
        return next(iter(seeds))
    return ", ".join(f"{commit} ({seeds_text(which)})" for commit, which in seeds.items())


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
