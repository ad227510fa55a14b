"""Store finished runs beside their YAMLs, then write the report of each folder of rows and all tables.

    python tools/collect.py runs
    python tools/collect.py runs/quickstart --json
    python tools/collect.py runs/quickstart --reports-only

A run is stored in runs.jsonl in the folder of its YAML. The tables are experiments/README.md, and results.csv has
the same runs. Runs of your own YAMLs or videos, and smoke runs, are "own rows": they only get a report. If the
runs below a folder differ in values, as in a sweep, its report has a line for each value. A run of a row that was
given other values than its YAML's is reported as "not a row" and skipped. Exit 0; 2 if a run was refused because
its YAML now says something else, or if a file cannot be understood; 4 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import simplejson

from mgexp.config.study import BUDGET, row_yamls
from mgexp.config.values import EXPERIMENTS
from mgexp.data.classes import read_class_names
from mgexp.errors import InputError
from mgexp.figures.report_figures import report_with_figures
from mgexp.options import ToolParser, add_import_option, run_tool
from mgexp.results.collect import Collected, store_runs
from mgexp.results.page import write_page
from mgexp.results.value_table import write_value_report
from mgexp.run.files import read_json
from mgexp.run.folder import ExperimentsDir, RunsDir, find_row_folders, find_runs


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = ToolParser(__doc__)
    add_import_option(parser)
    parser.add_argument("runs", type=Path, help="folder that holds run folders at any depth")
    parser.add_argument("--reports-only", action="store_true", help="leave experiments/ as it is")
    text = "names of the classes, as DATA.CLASSES takes (default: those that the runs keep)"
    parser.add_argument("--classes", type=Path, help=text)
    parser.add_argument("--json", action="store_true", help="print for machines")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Collect and print."""
    options = parse(arguments)
    names = read_class_names(options.classes) if options.classes else ()
    summary = collect(options.runs, EXPERIMENTS, names, options.reports_only)
    print(simplejson.dumps(summary.as_json(), indent=2) if options.json else summary.as_text())
    return 2 if summary.collected.refused else 0


class Summary(NamedTuple):
    """The result of `collect`: what it stored, and the report.md and the tables that it wrote.

    `tables` is None if experiments/README.md stayed as it was, as for own rows alone.
    """

    collected: Collected
    reports: tuple[Path, ...]
    tables: Path | None

    def as_json(self) -> dict[str, Any]:
        """Return lists and paths for ``--json``."""
        done = self.collected
        return {
            "added": [*map(str, done.added)],
            "own": [*map(str, done.own)],
            "skipped": [*map(str, done.skipped)],
            "unfinished": [*map(str, done.unfinished)],
            "reports": [*map(str, self.reports)],
            "not_rows": {str(run): problems for run, problems in done.not_rows.items()},
            "refused": {str(run): problems for run, problems in done.refused.items()},
            "tables": str(self.tables) if self.tables else None,
        }

    def as_text(self) -> str:
        """Write a line for each run and file, and an indented line for each problem."""
        done = self.collected
        lines: list[tuple[str, object]] = [("added", path) for path in done.added]
        lines += [("own row", path) for path in done.own]
        lines += [("known", path) for path in done.skipped]
        lines += [("unfinished", path) for path in done.unfinished]
        for word, runs in (("not a row", done.not_rows), ("refused", done.refused)):
            for run, problems in runs.items():
                lines.append((word, "\n".join([str(run), *(f"  - {p}" for p in problems)])))
        lines += [("report", path) for path in self.reports]
        if lines and not self.reports:
            lines += [
                (
                    "no report",
                    "it compares rows: give the folder that holds the folders of the rows",
                )
            ]
        lines += [("tables", self.tables)] if self.tables else []
        return "\n".join(f"{word:<12}{what}" for word, what in lines)


def collect(
    runs: Path,
    experiments_root: Path,
    class_names: Sequence[str] = (),
    reports_only: bool = False,
) -> Summary:
    """Store every finished run below `runs`. Write the report of every folder, and the tables.

    A report also lists the rows that have a YAML but were not run. The tables are not written for own rows alone.
    `class_names` names the classes 0, 1, … in every report. Raises InputError if there is no run, or if a file
    cannot be understood.
    """
    found = find_runs(runs)
    if not found:
        raise InputError([f"{runs}: holds no run folder; train one with tools/run_net.py"])
    experiments = ExperimentsDir(experiments_root)
    collected = Collected() if reports_only else store_runs(found, experiments)
    reported = folders_to_report(find_row_folders(runs))
    for folder in reported:
        report_with_figures(folder.root, expected_rows(folder, experiments_root), class_names)
    if runs not in [folder.root for folder in reported] and (values := write_value_report(runs)):
        reported = (*reported, values)
    has_rows = collected.added or collected.skipped or collected.not_rows or collected.refused
    if has_rows:
        write_page(experiments)
    return Summary(
        collected,
        tuple(folder.report_md for folder in reported),
        experiments.readme_md if has_rows else None,
    )


def folders_to_report(folders: Sequence[RunsDir]) -> tuple[RunsDir, ...]:
    """List the folders that get a report. A folder ``BUDGET`` is a part of the report of the folder above it."""
    found = []
    for folder in folders:
        above = RunsDir(folder.root.parent)
        is_part = folder.root.name == BUDGET and any(above.runs())
        found.append(above if is_part else folder)
    return tuple(dict.fromkeys(found))


def expected_rows(folder: RunsDir, experiments_root: Path) -> tuple[str, ...]:
    """List the rows of all experiment folders to which the finished runs of ``folder`` belong."""
    finished = [run.result_json for _, _, run in folder.runs() if run.result_json.exists()]
    experiments = {read_json(path)["experiment"] for path in finished}
    groups = {(experiments_root / experiment).parent for experiment in experiments}
    return tuple(sorted({path.stem for group in groups for path in row_yamls(group)}))


if __name__ == "__main__":
    sys.exit(run_tool(main))
