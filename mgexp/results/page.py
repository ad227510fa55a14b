"""Write experiments/README.md: a table for each folder of rows, from the stored runs and published.csv.

python -m mgexp.results.page [experiments]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from mgexp.errors import InputError
from mgexp.results.model import COARSE_CONTROL, ROW_ORDER, Pair, Run
from mgexp.results.pages import render_page
from mgexp.results.rows import Experiment, Page, read_page
from mgexp.results.texts import plain_cell, to_published, verdict, with_seeds
from mgexp.run.files import atomic_write_text
from mgexp.run.folder import METRIC_NAMES, ExperimentsDir


def write_page(experiments: ExperimentsDir) -> None:
    """Write README.md. Raises InputError if a file that it reads cannot be understood."""
    atomic_write_text(experiments.readme_md, render(experiments))


def render(experiments: ExperimentsDir) -> str:
    """Write the page as Markdown."""
    page = read_page(experiments)
    index = [_index_line(page, folder) for folder in page.folders]
    return render_page(
        "experiments.md.j2",
        # Tables that were run come first.
        index=sorted(index, key=lambda line: line["num_run"] == 0),
        tables=[_section(page, folder) for folder in page.folders],
        published=page.published,
        metric_names=METRIC_NAMES,
        left_out=[*_left_out(page)],
    )


def _index_line(page: Page, folder: str) -> dict[str, object]:
    """Summarise a table, with the verdict on long+short, multigrid's usual row."""
    rows = page.table(folder)
    pairs = [page.against_baseline(row) for row in rows if row.file == ROW_ORDER[-1]]
    return {
        "folder": folder,
        # GitHub makes the anchor of a heading from its letters and digits.
        "anchor": re.sub(r"[^\w\- ]", "", folder.lower()).replace(" ", "-"),
        "num_rows": len(rows),
        "num_run": sum(bool(page.row(row).runs) for row in rows),
        "verdicts": [verdict(pair) for pair in pairs if pair],
    }


def _section(page: Page, folder: str) -> dict[str, object]:
    """Collect the links, the tables and the commands of a folder."""
    # A README or report is beside the YAMLs, or one folder above them.
    places = [folder, folder.rpartition("/")[0]]
    paths = [f"{place}/{name}" for place in places if place for name in ("README.md", "report.md")]
    rows, all_rows = page.table(folder), page.all_rows(folder)
    runs = [run for row in all_rows for run in page.row(row).runs.values()]
    names = {row.name for row in all_rows}
    # A table shows one score for each row. results.csv also has top-5.
    ours = {"map" if run.top1 is None else "top1" for run in runs}
    published = {each.metric for each in page.published if each.experiment in names} - {"top5"}
    metrics = sorted(ours or published, reverse=True)
    metric = " or ".join(METRIC_NAMES[metric] for metric in metrics)
    return {
        "folder": folder,
        "links": [f"[{path}]({path})" for path in paths if (page.root / path).exists()],
        "unit": f", {metric} (%)" if metric else " (%)",
        "has_runs": bool(runs),
        "results": [_result(page, folder, row, metrics) for row in all_rows],
        "baselines": _named(page, folder, map(page.against_baseline, rows)),
        "parents": _named(page, folder, map(page.against_parent, rows)),
        "commands": [row.command for row in rows],
    }


def _result(
    page: Page, folder: str, experiment: Experiment, metrics: Sequence[str]
) -> dict[str, object]:
    """Compare the published score of a row with ours."""
    row, pair = page.row(experiment), page.against_baseline(experiment)
    goals = [each for each in page.published if each.experiment == experiment.name]
    goal = next((each.value for each in goals if each.metric in metrics), None)
    runs = [*row.runs.values()]
    verdicts = []
    if runs:
        if goal:
            verdicts.append(to_published(row.mean("score"), goal))
        if experiment.file == COARSE_CONTROL:
            verdicts.append("control")
        alone = "baseline" if experiment.is_baseline else "no baseline to compare with"
        verdicts.append(verdict(pair) if pair else alone)
    return {
        "link": _link(experiment, folder),
        "published": goal or "unknown",
        "row": row,
        "devices": " and ".join(dict.fromkeys(run.device for run in runs)),
        "precision": row.first.precision if runs else "",
        "commits": _commits(runs),
        "verdict": "; ".join(verdicts),
    }


def _named(page: Page, folder: str, pairs: Iterable[Pair | None]) -> list[tuple[str, str, Pair]]:
    """Return (link of the row, link of its base, pair) for the pairs that can be compared."""
    rows = page.experiments
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
    commits = [(run.short_commit, run.seed) for run in runs]
    if len({commit for commit, _ in commits}) == 1:
        return commits[0][0]
    return with_seeds(commits)


def _left_out(page: Page) -> Iterator[str]:
    """List the stored runs that no table shows, with the reason."""
    for name in dict.fromkeys(run.experiment for run in page.results):
        if name not in page.experiments:
            yield f"- {name}: its YAML is gone."
    for run in page.counted[1]:
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
