"""Read runs from run folders, from runs.jsonl and from results.csv, and write the last two.

results.csv has a line of numbers for each finished run of any row. runs.jsonl lies beside the YAMLs of its rows
and keeps all that their report and figures need: a few kilobytes for each run.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from mgexp.errors import InputError
from mgexp.results.model import COLUMN_TYPES, Comparison, Evaluation, Row, Run, row_order
from mgexp.run.confusion import Confusion, read_confusion
from mgexp.run.files import atomic_write_text, json_line, read_json, read_jsonl
from mgexp.run.folder import METRIC_NAMES, RunDir, RunsDir

SHORTER = "budget"
"""The folder beside the rows that holds the baseline for fewer epochs, see `Comparison.shorter`."""

MAIN_SECONDS = ("train", "steady", "input_wait", "program")
"""The clocks of result.json that have a column of their own in results.csv; a Run holds the others by name."""
SECONDS = (
    *("train", "steady", "input_wait", "evaluate", "precise_bn", "checkpoint", "shape_warmup"),
    "program",
)
"""All clocks of result.json, in its order."""


def load_comparison(folder: Path) -> Comparison:
    """Read the rows of a folder, and of the folder ``SHORTER`` in it.

    `folder` holds run folders (runs/quickstart), or YAMLs and the runs that were stored beside them
    (experiments/quickstart), or YAMLs alone. Raises InputError where it holds none of them, or where a file cannot
    be understood.
    """
    if any(folder.glob("*.yaml")):
        return replace(_read_stored_in(folder), shorter=_read_stored_in(folder / SHORTER).rows)
    comparison = load_runs(folder)
    if not comparison.rows:
        raise InputError([f"{folder}: holds neither runs nor the YAML of a row; give another"])
    return comparison


# --- run folders


def load_runs(folder: Path) -> Comparison:
    """Read every <row>/seed<N> of `folder` and of its ``SHORTER``. Raises InputError as `load_comparison` does."""
    return Comparison(_load_rows(folder), shorter=_load_rows(folder / SHORTER))


def _load_rows(folder: Path) -> tuple[Row, ...]:
    by_row: dict[str, dict[int, RunDir]] = {}
    for name, seed, run_dir in RunsDir(folder).runs():
        by_row.setdefault(name, {})[seed] = run_dir
    return tuple(_load_row(name, by_row[name]) for name in sorted(by_row, key=row_order))


def _load_row(name: str, run_dirs: Mapping[int, RunDir]) -> Row:
    runs: dict[int, Run] = {}
    unfinished: dict[int, int | None] = {}
    wrong = []
    for seed, run_dir in run_dirs.items():
        if not run_dir.result_json.exists():
            lines = read_jsonl(run_dir.metrics_jsonl)
            unfinished[seed] = int(lines[-1]["step"]) if lines else None
            continue
        runs[seed] = _load_run(run_dir)
        if runs[seed].seed != seed:
            wrong.append(f"{run_dir.root}: result.json has another seed")
    if wrong:
        raise InputError(wrong)
    return Row(name, runs, unfinished)


def _load_run(run_dir: RunDir) -> Run:
    """Read a run with its environment, its curve and what it confuses."""
    return replace(
        read_result(run_dir),
        environment=_environment(run_dir),
        evaluations=tuple(_evaluation(line) for line in read_jsonl(run_dir.evaluations_jsonl)),
        confusion=read_confusion(run_dir.confusion_csv),
    )


def read_result(run_dir: RunDir) -> Run:
    """Read what result.json says of a run. Raises InputError where it lacks a value."""
    record = read_json(run_dir.result_json)
    try:
        metrics = {name: record["metrics"].get(name) for name in METRIC_NAMES}
        seconds = {f"{name}_seconds": record["seconds"][name] for name in MAIN_SECONDS}
        rest = {name: record[name] for name in COLUMN_TYPES if name not in {*metrics, *seconds}}
    except KeyError as error:
        problem = f"{run_dir.result_json}: lacks {error}; evaluate the run again with this version"
        raise InputError([problem]) from error
    return Run(**metrics, **seconds, **rest, other_seconds=_other_seconds(record["seconds"]))


def _other_seconds(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in seconds.items() if name not in MAIN_SECONDS}


def _environment(run_dir: RunDir) -> dict[str, Any]:
    """Read the environment of all starts. A value that changed becomes "a, then b"."""
    found = read_json(run_dir.environment_json)
    # A run may go on with other threads or on another machine. Then it must not compare with runs of either.
    for start in read_jsonl(run_dir.starts_jsonl):
        for name, value in found.items():
            now = start.get(name, value)
            found[name] = value if now == value else f"{value}, then {now}"
    return found


def _evaluation(line: Mapping[str, Any]) -> Evaluation:
    return Evaluation(
        step=line["step"],
        train_seconds=line["train_seconds"],
        score=line["map"] if line.get("top1") is None else line["top1"],
        views=line["views"],
        num_videos=line["num_videos"],
        full_protocol=line["full_protocol"],
        frame_order=line["frame_order"],
    )


# --- runs.jsonl


def write_stored(path: Path, comparison: Comparison) -> None:
    """Write runs.jsonl: a line with the names of the classes, then a line for each finished run."""
    lines = [json_line({"class_names": comparison.class_names})]
    for row in comparison.rows:
        for run in row.runs.values():
            clocks = {
                **run.other_seconds,
                **{n: getattr(run, f"{n}_seconds") for n in MAIN_SECONDS},
            }
            line = {
                "name": row.name,
                "result": {name: getattr(run, name) for name in COLUMN_TYPES},
                "seconds": {name: clocks[name] for name in SECONDS},
                "environment": run.environment,
                "evaluations": [asdict(one) for one in run.evaluations],
                "confusion": run.confusion and asdict(run.confusion),
            }
            lines.append(json_line(line))
    atomic_write_text(path, "".join(lines))


def read_stored(path: Path) -> Comparison:
    """Read what `write_stored` wrote. Raises InputError where the file holds something else."""
    head, *lines = read_jsonl(path) or [{}]
    rows: dict[str, dict[int, Run]] = {}
    try:
        class_names = tuple(head["class_names"])
        for line in lines:
            confusion = line["confusion"]
            run = Run(
                **line["result"],
                other_seconds=_other_seconds(line["seconds"]),
                environment=line["environment"],
                evaluations=tuple(Evaluation(**one) for one in line["evaluations"]),
                confusion=confusion and Confusion(tuple(map(tuple, confusion["counts"]))),
            )
            rows.setdefault(line["name"], {})[run.seed] = run
    except (KeyError, TypeError) as error:
        problem = f"{path}: does not hold stored runs ({error!r})"
        raise InputError([f"{problem}: restore it from git, or store the runs again"]) from error
    names = sorted(rows, key=row_order)
    return Comparison(tuple(Row(name, rows[name]) for name in names), class_names)


def _read_stored_in(folder: Path) -> Comparison:
    path = RunsDir(folder).stored_jsonl
    return read_stored(path) if path.exists() else Comparison(())


# --- results.csv


def read_results(results_csv: Path) -> tuple[Run, ...]:
    """Read every line; none where there is no file. Raises InputError where a cell does not fit its column."""
    parse: dict[str, Callable[[str], Any]] = {
        "str": str,
        "int": int,
        "float": float,
        "float | None": lambda cell: float(cell) if cell else None,
    }
    runs = []
    for number, line in enumerate(read_lines(results_csv), start=2):
        try:
            cells = {name: parse[kind](line[name]) for name, kind in COLUMN_TYPES.items()}
            datetime.fromisoformat(line["date"])
        except (TypeError, ValueError) as error:
            problem = f"{results_csv}, line {number}: {error}; restore it from git"
            raise InputError([problem]) from error
        runs.append(Run(**cells))
    return tuple(runs)


def read_lines(results_csv: Path) -> list[dict[str, str]]:
    """Read the cells as text, as `write_lines` writes them back. Raises InputError for other columns."""
    if not results_csv.exists():
        return []
    with results_csv.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        lines = list(reader)
    if list(reader.fieldnames or ()) != [*COLUMN_TYPES]:
        expected = ",".join(COLUMN_TYPES)
        raise InputError([f"{results_csv}: first line is not {expected!r}; restore it from git"])
    return lines


def write_lines(results_csv: Path, lines: Sequence[Mapping[str, str]]) -> None:
    """Write all lines, atomically."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, [*COLUMN_TYPES], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    atomic_write_text(results_csv, text.getvalue())


def as_line(run: Run) -> dict[str, str]:
    """The cells of a run; empty for None. Four decimals are 0.1 ms and a ten-thousandth of a percent."""
    values = {name: getattr(run, name) for name in COLUMN_TYPES}
    return {
        name: "" if value is None else str(round(value, 4) if isinstance(value, float) else value)
        for name, value in values.items()
    }
