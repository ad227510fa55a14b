"""Store finished runs beside their YAMLs, then write the report of each folder of rows and experiments/README.md.

    python tools/collect.py runs
    python tools/collect.py runs/quickstart --json
    python tools/collect.py runs/quickstart --reports-only

A run is stored in runs.jsonl in the folder of its YAML, and results.csv has all runs. Runs of your own YAMLs
or videos, and smoke runs, are "own rows": they only get a report. If the runs below a folder differ in values, as
in a sweep, its report has a line for each value. A run of a row that was given other values than its YAML's is
reported as "not a row" and skipped. Exit 0; 2 if a run was refused because its YAML now says something else, or if
a file cannot be understood; 4 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import simplejson

from mgexp.config.study import BUDGET, row_yamls
from mgexp.config.values import EXPERIMENTS
from mgexp.data.classes import read_class_names
from mgexp.errors import InputError
from mgexp.figures.report_figures import report_with_figures
from mgexp.options import ToolParser, add_import_option, run_tool
from mgexp.results.report import write_value_report
from mgexp.results.store import Collected, store_runs
from mgexp.run.files import read_json
from mgexp.run.folder import RunsDir, find_row_folders, find_runs

# What writes the page of all experiments is beside them. A copy of the code for queued runs lacks it.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "experiments"))


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = ToolParser(__doc__)
    add_import_option(parser)
    parser.add_argument("runs", type=Path, help="folder that holds run folders at any depth")
    parser.add_argument("--reports-only", action="store_true", help="leave experiments/ as it is")
    text = "names of the classes, as DATA.CLASSES takes (default: those that the runs keep)"
    parser.add_argument("--classes", type=Path, help=text)
    parser.add_argument("--json", action="store_true", help="print for machines")
    return parser.parse_args(arguments)


WORDS = {
    "added": "added",
    "own": "own row",
    "skipped": "known",
    "unfinished": "unfinished",
    "not_rows": "not a row",
    "refused": "refused",
    "reports": "report",
}
"""What the lines for people say for each key of the JSON."""


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    names = read_class_names(options.classes) if options.classes else ()
    record = collect(options.runs, EXPERIMENTS, names, options.reports_only)
    print(simplejson.dumps(record, indent=2, default=str) if options.json else as_text(record))
    return 2 if record["refused"] else 0


def collect(
    runs: Path,
    experiments: Path,
    class_names: Sequence[str] = (),
    reports_only: bool = False,
) -> dict[str, Any]:
    """Store every finished run below `runs`. Write the report of every folder of rows, and the page of all.

    Return the paths of what was stored and written, for JSON. Raises InputError if there is no run, or if a file
    cannot be understood.
    """
    found = find_runs(runs)
    if not found:
        raise InputError([f"{runs}: holds no run folder"])
    done = Collected() if reports_only else store_runs(found, experiments)
    reports = write_reports(runs, experiments, class_names)
    # The page stays as it is for own rows alone.
    has_rows = done.added or done.skipped or done.not_rows or done.refused
    if has_rows:
        from overview import write_overview

        write_overview(experiments)
    return {
        "added": done.added,
        "own": done.own,
        "skipped": done.skipped,
        "unfinished": done.unfinished,
        "reports": reports,
        "not_rows": {str(run): problems for run, problems in done.not_rows.items()},
        "refused": {str(run): problems for run, problems in done.refused.items()},
        "tables": experiments / "README.md" if has_rows else None,
    }


def as_text(record: Mapping[str, Any]) -> str:
    """Write a line for each run and file, and an indented line for each problem."""
    lines = []
    for key, word in WORDS.items():
        for path in record[key]:
            problems = record[key][path] if key in ("not_rows", "refused") else ()
            lines.append("\n".join([f"{word:<12}{path}", *(f"  - {each}" for each in problems)]))
    if lines and not record["reports"]:
        why = "it compares rows: give the folder that holds the folders of the rows"
        lines.append(f"{'no report':<12}{why}")
    if record["tables"]:
        lines.append(f"{'tables':<12}{record['tables']}")
    return "\n".join(lines)


def write_reports(runs: Path, experiments: Path, class_names: Sequence[str]) -> list[Path]:
    """Write the report of every folder of rows below ``runs``, and of ``runs`` as a sweep. Return their paths."""
    folders = []
    for folder in find_row_folders(runs):
        # A folder ``BUDGET`` is a part of the report of the folder above it.
        above = RunsDir(folder.root.parent)
        is_part = folder.root.name == BUDGET and any(above.runs())
        folders.append(above if is_part else folder)
    folders = [*dict.fromkeys(folders)]
    for folder in folders:
        report_with_figures(folder.root, expected_rows(folder, experiments), class_names)
    if RunsDir(runs) not in folders and (values := write_value_report(runs)):
        folders.append(values)
    return [folder.report_md for folder in folders]


def expected_rows(folder: RunsDir, experiments: Path) -> list[str]:
    """List the rows of all experiment folders to which the finished runs of ``folder`` belong."""
    finished = [run.result_json for _, _, run in folder.runs() if run.result_json.exists()]
    groups = {(experiments / read_json(path)["experiment"]).parent for path in finished}
    return sorted({path.stem for group in groups for path in row_yamls(group)})


if __name__ == "__main__":
    sys.exit(run_tool(main))
