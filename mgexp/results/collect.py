"""Everything that is done with a folder of finished runs: results.csv, the reports, the tables of all rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mgexp.errors import InputError
from mgexp.results.compare import SHORTER, store
from mgexp.results.page import write_experiments_table
from mgexp.results.report import write_report
from mgexp.results.table import Collected, append_results
from mgexp.run.files import read_json
from mgexp.run.folder import ExperimentsDir, RunsDir, find_row_folders, find_runs


@dataclass(frozen=True)
class Summary:
    """What `collect` did; `reports` are the files report.md that it wrote, `stored` those of the runs it keeps.

    `tables` is the page of all rows; None where it is of another results.csv, and stays as it was.
    """

    collected: Collected
    reports: tuple[Path, ...]
    stored: tuple[Path, ...]
    tables: Path | None

    def as_json(self) -> dict[str, Any]:
        """For machines: paths as text."""
        left_out = {"not_rows": self.collected.not_rows, "refused": self.collected.refused}
        lists = {
            "added": self.collected.added,
            "skipped": self.collected.skipped,
            "unfinished": self.collected.unfinished,
            "reports": self.reports,
            "stored": self.stored,
        }
        return {
            **{name: [str(path) for path in paths] for name, paths in lists.items()},
            **{
                name: {str(one.run): list(one.problems) for one in runs}
                for name, runs in left_out.items()
            },
            "tables": str(self.tables) if self.tables else None,
        }

    def as_text(self) -> str:
        """For people: a line for each run and report, an indented line for each problem."""
        done = self.collected
        lines = [f"added       {path}" for path in done.added]
        lines += [f"known       {path}" for path in done.skipped]
        lines += [f"unfinished  {path}" for path in done.unfinished]
        for word, runs in (("not a row ", done.not_rows), ("refused   ", done.refused)):
            for run in runs:
                lines += [f"{word}  {run.run}", *(f"  - {problem}" for problem in run.problems)]
        lines += [f"report      {path}" for path in self.reports]
        lines += [f"stored      {path}" for path in self.stored]
        lines += [f"tables      {self.tables}"] if self.tables else []
        return "\n".join(lines)


def collect(
    runs: Path,
    results_csv: Path,
    experiments_root: Path,
    resolve: Callable[[str], Mapping[str, object]],
    class_names: Sequence[str] = (),
    is_stored: bool = False,
) -> Summary:
    """Append every finished run below `runs` to results.csv, write the report of every folder, and the tables.

    The tables are written where results.csv is that of `experiments_root`.
    A report lists the rows that have a YAML beside those that were run; what a folder ``SHORTER`` holds is in that
    of the rows beside it. `resolve` as in
    `append_results`; `class_names` are those of the classes 0, 1, … in every report.
    `is_stored`: the runs that results.csv has are also kept beside their YAMLs, with a report of them there.
    Raises InputError where there is no run, or a file cannot be understood.
    """
    found = find_runs(runs)
    if not found:
        raise InputError([f"{runs}: holds no run folder; train one with tools/run_net.py"])
    collected = append_results(found, results_csv, experiments_root, resolve)
    folders = find_row_folders(runs)
    reported = _reported(folders)
    for folder in reported:
        write_report(folder.root, _expected_rows(folder, experiments_root), class_names)
    known = {*collected.added, *collected.skipped}
    kept = [
        store(one, known, experiments_root, resolve, class_names) for one in folders if is_stored
    ]
    retold = _reported(kept)
    for place in retold:
        write_report(place.root, _yamls(place.root))
    reports = tuple(folder.report_md for folder in (*reported, *retold))
    stored = tuple(place.stored_jsonl for place in kept)
    return Summary(collected, reports, stored, _write_tables(results_csv, experiments_root))


def _reported(folders: Sequence[RunsDir]) -> tuple[RunsDir, ...]:
    """Those with a report of their own: a folder ``SHORTER`` is told of in that of the rows beside it."""
    found = []
    for folder in folders:
        above = RunsDir(folder.root.parent)
        is_told_there = above.stored_jsonl.exists() or any(above.runs())
        found.append(above if folder.root.name == SHORTER and is_told_there else folder)
    return tuple(dict.fromkeys(found))


def _write_tables(results_csv: Path, experiments_root: Path) -> Path | None:
    """The page of all rows, where ``results_csv`` is the one that it is of."""
    experiments = ExperimentsDir(experiments_root)
    if results_csv.resolve() != experiments.results_csv.resolve():
        return None
    write_experiments_table(experiments)
    return experiments.readme_md


def _expected_rows(folder: RunsDir, experiments_root: Path) -> tuple[str, ...]:
    """Names of the YAMLs beside those that the finished runs of a folder came from."""
    finished = (run for _, _, run in folder.runs() if run.result_json.exists())
    experiments = {read_json(run.result_json)["experiment"] for run in finished}
    groups = {(experiments_root / experiment).parent for experiment in experiments}
    return tuple(sorted({name for group in groups for name in _yamls(group)}))


def _yamls(group: Path) -> tuple[str, ...]:
    """The rows of a folder of experiments."""
    return tuple(sorted(path.stem for path in group.glob("*.yaml")))
