"""Write experiments/README.md: a table for each folder of rows, from the stored runs and published.csv.

python -m mgexp.results.page [experiments]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean

from mgexp.errors import InputError
from mgexp.results.model import COARSE_CONTROL, ROW_ORDER, Pair, Row, Run
from mgexp.results.pages import render_page
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


def write_page(experiments: ExperimentsDir) -> None:
    """Write README.md. Raises InputError if a file that it reads cannot be understood."""
    atomic_write_text(experiments.readme_md, render(experiments))


def render(experiments: ExperimentsDir) -> str:
    """Write the page as Markdown."""
    page = read_page(experiments)
    return render_page(
        "experiments.md.j2",
        index=_index(page),
        tables=[_section(page, folder) for folder in page.experiments.folders],
        published=_sources(page),
        left_out=_left_out(page),
    )


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


def _section(page: Page, folder: str) -> dict[str, object]:
    """Collect the links, the tables and the commands of a folder."""
    # A README or report is beside the YAMLs, or one folder above them.
    places = [folder, folder.rpartition("/")[0]]
    paths = [f"{place}/{name}" for place in places if place for name in ("README.md", "report.md")]

    def name(pair: Pair) -> str:
        return _link(page.experiments.rows[pair.own.name], folder)

    def base(pair: Pair) -> str:
        return _link(page.experiments.rows[pair.base.name], folder)

    own = page.experiments.table(folder)
    rows = [page.row(experiment) for experiment in own]
    baselines = [pair for row in rows if (pair := page.against_baseline(row)) and pair.runs]
    parents = [pair for row in rows if (pair := page.against_parent(row)) and pair.runs]
    columns = [("row", name), ("changes", base), *PAIR_COLUMNS, ("verdict", verdict)]
    return {
        "folder": folder,
        "links": [f"[{path}]({path})" for path in paths if (page.root / path).exists()],
        "results": _result_table(page, folder),
        "against_baseline": table(baselines, [("row", name), *PAIR_COLUMNS]),
        "against_parent": table(parents, columns, ("changes", "verdict")),
        "commands": [experiment.command for experiment in own],
    }


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
    return table(page.published, columns, ("source", "note"))


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
