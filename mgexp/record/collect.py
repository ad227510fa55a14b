"""Everything that is done with a folder of finished runs: results.csv, then the reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mgexp.errors import InputError
from mgexp.record.files import read_json
from mgexp.record.report import write_report
from mgexp.record.results import Collected, append_results
from mgexp.record.run_dir import RunsDir, find_row_folders, find_runs


@dataclass(frozen=True)
class Summary:
    """What `collect` did; `reports` are the files report.md that it wrote."""

    collected: Collected
    reports: tuple[Path, ...]

    def as_json(self) -> dict[str, Any]:
        """For machines: paths as text."""
        refused = {str(one.run): list(one.problems) for one in self.collected.refused}
        lists = {
            "added": self.collected.added,
            "skipped": self.collected.skipped,
            "unfinished": self.collected.unfinished,
            "reports": self.reports,
        }
        return {name: [str(path) for path in paths] for name, paths in lists.items()} | {
            "refused": refused
        }

    def as_text(self) -> str:
        """For people: a line for each run and report, an indented line for each problem."""
        done = self.collected
        lines = [f"added       {path}" for path in done.added]
        lines += [f"known       {path}" for path in done.skipped]
        lines += [f"unfinished  {path}" for path in done.unfinished]
        for refusal in done.refused:
            lines += [f"refused     {refusal.run}", *(f"  - {one}" for one in refusal.problems)]
        lines += [f"report      {path}" for path in self.reports]
        return "\n".join(lines)


def collect(
    runs: Path,
    results_csv: Path,
    experiments_root: Path,
    resolve: Callable[[str], Mapping[str, object]],
    class_names: Sequence[str] = (),
) -> Summary:
    """Append every finished run below `runs` to results.csv and write the report of every folder.

    A report lists the rows that have a YAML beside those that were run. `resolve` as in
    `append_results`; `class_names` are those of the classes 0, 1, … in every report.
    Raises InputError where there is no run, or a file cannot be understood.
    """
    found = find_runs(runs)
    if not found:
        raise InputError([f"{runs}: holds no run folder; train one with tools/run_net.py"])
    collected = append_results(found, results_csv, experiments_root, resolve)
    folders = find_row_folders(runs)
    for folder in folders:
        write_report(folder.root, _expected_rows(folder, experiments_root), class_names)
    return Summary(collected, tuple(folder.report_md for folder in folders))


def _expected_rows(folder: RunsDir, experiments_root: Path) -> tuple[str, ...]:
    """Names of the YAMLs beside those that the finished runs of a folder came from."""
    finished = (run for _, _, run in folder.runs() if run.result_json.exists())
    experiments = {read_json(run.result_json)["experiment"] for run in finished}
    groups = {(experiments_root / experiment).parent for experiment in experiments}
    return tuple(sorted({path.stem for group in groups for path in group.glob("*.yaml")}))
