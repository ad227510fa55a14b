"""runs.jsonl: what reports and figures need of finished runs, a few kilobytes each, kept beside their YAMLs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from mgexp.config.load import from_yaml
from mgexp.errors import InputError
from mgexp.record.comparison import (
    Comparison,
    Evaluation,
    FinishedRun,
    Row,
    load_comparison,
    row_order,
)
from mgexp.record.confusion import Confusion
from mgexp.record.files import atomic_write_text, json_line, read_jsonl
from mgexp.record.results import Result, differences
from mgexp.record.run_dir import RunsDir


def store(
    folder: RunsDir,
    known: Collection[Path],
    experiments_root: Path,
    resolve: Callable[[str], Mapping[str, object]],
    class_names: Sequence[str] = (),
) -> RunsDir:
    """Keep the finished runs of `folder` beside their YAMLs, in the place of those kept before; says where.

    `known` are the run folders that results.csv has: no others are kept. `resolve` as in `append_results`. Raises
    InputError where there is none, one was trained with other values than its YAML has now, or their YAMLs lie in
    several folders.
    """
    comparison = load_comparison(folder.root)
    runs = {(name, seed): run for name, seed, run in folder.runs() if run.root in known}
    rows = tuple(
        replace(row, runs={s: run for s, run in row.runs.items() if (row.name, s) in runs})
        for row in comparison.rows
    )
    kept = replace(comparison, rows=rows, class_names=tuple(class_names))
    experiments = {run.result.experiment for row in kept.finished for run in row.runs.values()}
    groups = sorted({(experiments_root / one).parent for one in experiments})
    if len(groups) != 1:
        found = ", ".join(map(str, groups)) or "no YAML"
        problem = (
            f"{folder.root}: its runs are of {found}: only runs of one folder of rows are stored"
        )
        raise InputError([problem])
    problems = [
        f"{run.root} is not stored: {one}"
        for (name, seed), run in runs.items()
        for one in differences(
            from_yaml(run.config_yaml), resolve(kept.row(name).runs[seed].result.experiment)
        )
    ]
    if problems:
        raise InputError(problems)
    place = RunsDir(groups[0])
    write_stored(place.stored_jsonl, kept)
    return place


def write_stored(path: Path, comparison: Comparison) -> None:
    """Write the names of the classes and, a line each, the finished runs."""
    runs = (
        json_line({"name": row.name, **asdict(run)})
        for row in comparison.finished
        for run in row.runs.values()
    )
    atomic_write_text(path, json_line({"class_names": comparison.class_names}) + "".join(runs))


def read_stored(path: Path) -> Comparison:
    """What `write_stored` wrote; stored runs are finished ones. Raises InputError where it is something else."""
    head, *lines = read_jsonl(path) or [{}]
    rows: dict[str, dict[int, FinishedRun]] = {}
    try:
        class_names = tuple(head["class_names"])
        for line in lines:
            run = _run(line)
            rows.setdefault(line["name"], {})[run.result.seed] = run
    except (KeyError, TypeError) as error:
        problem = f"{path}: does not hold stored runs ({error!r})"
        raise InputError([f"{problem}: restore it from git, or store the runs again"]) from error
    names = sorted(rows, key=row_order)
    return Comparison(tuple(Row(name, rows[name], {}) for name in names), class_names)


def _run(line: Mapping[str, Any]) -> FinishedRun:
    confusion = line["confusion"]
    return FinishedRun(
        result=Result(**line["result"]),
        seconds=line["seconds"],
        environment=line["environment"],
        evaluations=tuple(Evaluation(**one) for one in line["evaluations"]),
        confusion=confusion and Confusion(tuple(tuple(count) for count in confusion["counts"])),
    )
