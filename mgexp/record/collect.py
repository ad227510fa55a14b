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
from mgexp.record.stored import store


@dataclass(frozen=True)
class Summary:
    """What `collect` did; `reports` are the files report.md that it wrote, `stored` those of the runs it keeps."""

    collected: Collected
    reports: tuple[Path, ...]
    stored: tuple[Path, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """For machines: paths as text."""
        refused = {str(one.run): list(one.problems) for one in self.collected.refused}
        lists = {
            "added": self.collected.added,
            "skipped": self.collected.skipped,
            "unfinished": self.collected.unfinished,
            "reports": self.reports,
            "stored": self.stored,
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
        lines += [f"stored      {path}" for path in self.stored]
        return "\n".join(lines)


def collect(
    runs: Path,
    results_csv: Path,
    experiments_root: Path,
    resolve: Callable[[str], Mapping[str, object]],
    class_names: Sequence[str] = (),
    is_stored: bool = False,
) -> Summary:
    """Append every finished run below `runs` to results.csv and write the report of every folder.

    A report lists the rows that have a YAML beside those that were run. `resolve` as in
    `append_results`; `class_names` are those of the classes 0, 1, … in every report.
    `is_stored`: the runs that results.csv has are also kept beside their YAMLs, with a report of them there.
    Raises InputError where there is no run, or a file cannot be understood.
    """
    found = find_runs(runs)
    if not found:
        raise InputError([f"{runs}: holds no run folder; train one with tools/run_net.py"])
    collected = append_results(found, results_csv, experiments_root, resolve)
    folders = find_row_folders(runs)
    for folder in folders:
        write_report(folder.root, _expected_rows(folder, experiments_root), class_names)
    known = {*collected.added, *collected.skipped}
    kept = [
        store(one, known, experiments_root, resolve, class_names) for one in folders if is_stored
    ]
    for place in kept:
        write_report(place.root, _yamls(place.root))
    reports = tuple(folder.report_md for folder in (*folders, *kept))
    return Summary(collected, reports, tuple(place.stored_jsonl for place in kept))


def _expected_rows(folder: RunsDir, experiments_root: Path) -> tuple[str, ...]:
    """Names of the YAMLs beside those that the finished runs of a folder came from."""
    finished = (run for _, _, run in folder.runs() if run.result_json.exists())
    experiments = {read_json(run.result_json)["experiment"] for run in finished}
    groups = {(experiments_root / experiment).parent for experiment in experiments}
    return tuple(sorted({name for group in groups for name in _yamls(group)}))


def _yamls(group: Path) -> tuple[str, ...]:
    """The rows of a folder of experiments."""
    return tuple(sorted(path.stem for path in group.glob("*.yaml")))
