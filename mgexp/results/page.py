"""Write experiments/README.md: a table for each folder of rows, from the stored runs and published.csv.

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
from mgexp.results.pages import render_page
from mgexp.results.rows import Experiment, Page, read_page
from mgexp.results.texts import plain_cell, seeds_text, to_published, verdict
from mgexp.run.files import atomic_write_text
from mgexp.run.folder import METRIC_NAMES, ExperimentsDir


def write_page(experiments: ExperimentsDir) -> None:
    """Write README.md. Raises InputError if a file that it reads cannot be understood."""
    atomic_write_text(experiments.readme_md, render(experiments))


def render(experiments: ExperimentsDir) -> str:
    """Write the page as Markdown."""
    page = read_page(experiments)
    index = [_index_line(page, folder) for folder in page.experiments.folders]
    return render_page(
        "experiments.md.j2",
        # Tables that were run come first.
        index=sorted(index, key=lambda line: line["num_run"] == 0),
        tables=[_section(page, folder) for folder in page.experiments.folders],
        published=page.published,
        metric_names=METRIC_NAMES,
        left_out=[*_left_out(page)],
    )


def _index_line(page: Page, folder: str) -> dict[str, object]:
    """Summarise a table, with the verdict on long+short, multigrid's usual row."""
    experiments = page.experiments.table(folder)
    rows = [page.row(each) for each in experiments if each.file == ROW_ORDER[-1]]
    return {
        "folder": folder,
        # GitHub makes the anchor of a heading from its letters and digits.
        "anchor": re.sub(r"[^\w\- ]", "", folder.lower()).replace(" ", "-"),
        "num_rows": len(experiments),
        "num_run": sum(each.name in page.counted.rows for each in experiments),
        "verdicts": [verdict(pair) for row in rows if (pair := page.against_baseline(row))],
    }


def _section(page: Page, folder: str) -> dict[str, object]:
    """Collect the links, the tables and the commands of a folder."""
    # A README or report is beside the YAMLs, or one folder above them.
    places = [folder, folder.rpartition("/")[0]]
    paths = [f"{place}/{name}" for place in places if place for name in ("README.md", "report.md")]
    experiments = page.experiments.table(folder)
    rows = [page.row(experiment) for experiment in experiments]
    all_rows = page.rows(folder)
    names = {row.name for row in all_rows}
    # A table shows one score for each row. results.csv also has top-5.
    ours = {"map" if run.top1 is None else "top1" for row in all_rows for run in row.runs.values()}
    published = {each.metric for each in page.published if each.experiment in names} - {"top5"}
    metrics = sorted(ours or published, reverse=True)
    metric = " or ".join(METRIC_NAMES[metric] for metric in metrics)
    return {
        "folder": folder,
        "links": [f"[{path}]({path})" for path in paths if (page.root / path).exists()],
        "unit": f", {metric} (%)" if metric else " (%)",
        "has_runs": any(row.runs for row in all_rows),
        "results": [_result(page, folder, row.name, metrics) for row in all_rows],
        "baselines": _named(page, folder, map(page.against_baseline, rows)),
        "parents": _named(page, folder, map(page.against_parent, rows)),
        "commands": [experiment.command for experiment in experiments],
    }


def _result(page: Page, folder: str, name: str, metrics: Sequence[str]) -> dict[str, object]:
    """Compare the published score of a row with ours."""
    experiment = page.experiments.rows[name]
    row, pair = page.row(experiment), page.against_baseline(page.row(experiment))
    goals = [each for each in page.published if each.experiment == name]
    goal = next((each.value for each in goals if each.metric in metrics), None)
    runs = [*row.runs.values()]
    verdicts = []
    if runs:
        if goal:
            verdicts.append(to_published(fmean(row.scores), goal))
        if experiment.file == COARSE_CONTROL:
            verdicts.append("control")
        alone = "baseline" if experiment.is_baseline else "no baseline to compare with"
        verdicts.append(verdict(pair) if pair else alone)
    return {
        "link": _link(experiment, folder),
        "published": goal or "unknown",
        "row": row,
        "devices": " and ".join(dict.fromkeys(run.device for run in runs)),
        "precision": runs[0].precision if runs else "",
        "commits": _commits(runs),
        "verdict": "; ".join(verdicts),
    }


def _named(page: Page, folder: str, pairs: Iterable[Pair | None]) -> list[tuple[str, str, Pair]]:
    """Return (link of the row, link of its base, pair) for the pairs that can be compared."""
    rows = page.experiments.rows
    return [
        (_link(rows[pair.own.name], folder), _link(rows[pair.base.name], folder), pair)
        for pair in pairs
        if pair and pair.runs
    ]


def _link(experiment: Experiment, folder: str) -> str:
    """Link to the YAML, and name its folder if that is another one."""
    where = "" if experiment.folder == folder else f" ({experiment.folder})"
    return f"[{plain_cell(experiment.label)}]({experiment.name}.yaml){where}"


def _commits(runs: Iterable[Run]) -> str:
    """Name the commit of the runs. If there are several, name each with its seeds."""
    seeds: dict[str, list[int]] = {}
    for run in runs:
        seeds.setdefault(run.short_commit, []).append(run.seed)
    if len(seeds) == 1:
        return next(iter(seeds))
    return ", ".join(f"{commit} ({seeds_text(which)})" for commit, which in seeds.items())


def _left_out(page: Page) -> Iterator[str]:
    """List the stored runs that no table shows, with the reason."""
    for name in dict.fromkeys(run.experiment for run in page.results):
        if name not in page.experiments.rows:
            yield f"- {name}: its YAML is gone."
    for run in page.counted.others:
        what = f"{run.steps:,} steps and {run.train_flops:.4g} FLOPs"
        where = f"{run.experiment}, seed {run.seed}, on {run.device}, {run.short_commit}"
        why = "A newer run of the row has another recipe, precision or number of videos."
        yield f"- {where}: {what}. {why}"


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
