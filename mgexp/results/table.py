"""experiments/published.csv: what was published of each row, with its source; written by people."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from mgexp.config.check import differing_keys
from mgexp.config.load import from_yaml
from mgexp.errors import InputError
from mgexp.run.files import atomic_write_text, read_json, read_jsonl
from mgexp.run.folder import METRIC_NAMES, RunDir

LIST_KEYS = ("DATA.TRAIN_LIST", "DATA.VAL_LIST", "DATA.STORE", "DATA.QUARANTINE")
"""Keys that a YAML may leave to the command line, as those of Kinetics do: where the lists and the copies are."""


@dataclass(frozen=True)
class Result:
    """One line of results.csv; the fields are its columns, in order.

    Accuracies are percent, None where the task has another metric. `train_seconds` includes
    waiting for input and first use of each shape; `steady_seconds` leaves out the latter.
    """

    experiment: str
    row: str
    seed: int
    top1: float | None
    top5: float | None
    map: float | None
    steps: int
    epochs: float
    clips_seen: int
    train_flops: float
    train_seconds: float
    steady_seconds: float
    input_wait_seconds: float
    program_seconds: float
    device: str
    precision: str
    num_train_videos: int
    commit: str
    date: str

    @property
    def moment(self) -> datetime:
        """When it was finished."""
        return datetime.fromisoformat(self.date)

    @property
    def identity(self) -> tuple[str, ...]:
        """The cells that make two lines the same run."""
        return tuple(str(getattr(self, name)) for name in IDENTITY)


COLUMNS = tuple(field.name for field in fields(Result))
IDENTITY = ("experiment", "row", "seed", "commit", "date")
METRICS = tuple(METRIC_NAMES)
SECONDS = ("train", "steady", "input_wait", "program")


@dataclass(frozen=True)
class LeftOut:
    """A run that was not appended, and every reason why."""

    run: Path
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Collected:
    """What `append_results` did with each run folder; `skipped` were in results.csv already.

    `not_rows` were told other values than their YAML's on the command line or by a grid; `refused` are
    those with which something is wrong.
    """

    added: tuple[Path, ...]
    skipped: tuple[Path, ...]
    unfinished: tuple[Path, ...]
    not_rows: tuple[LeftOut, ...]
    refused: tuple[LeftOut, ...]


class _NotARowError(InputError):
    """What a run was told beside its YAML."""


def read_result(run: RunDir) -> Result:
    """The line of a finished run. Raises InputError where result.json lacks a value."""
    record = read_json(run.result_json)
    try:
        return _result(record)
    except KeyError as error:
        problem = f"{run.result_json}: lacks {error}; evaluate the run again with this version"
        raise InputError([problem]) from error


def _result(record: Mapping[str, Any]) -> Result:
    metrics = {name: record["metrics"].get(name) for name in METRICS}
    seconds = {f"{name}_seconds": record["seconds"][name] for name in SECONDS}
    rest = {name: record[name] for name in COLUMNS if name not in {*metrics, *seconds}}
    return Result(**metrics, **seconds, **rest)


def append_results(
    runs: Sequence[RunDir],
    results_csv: Path,
    experiments_root: Path,
    resolve: Callable[[str], Mapping[str, object]],
) -> Collected:
    """Append a line for each finished run that results.csv does not hold yet; atomic, re-runnable.

    `resolve` gives the flat configuration {"TRAIN.BATCH_SIZE": 8, ...} that the YAML of an
    experiment ("quickstart/baseline") means today; a run trained with another one is refused, or no row
    where that was asked for. Raises InputError where results.csv has other columns.
    """
    lines = _read_lines(results_csv)
    known = {tuple(line[name] for name in IDENTITY) for line in lines}
    added, skipped = [], []
    not_rows: list[LeftOut] = []
    refused: list[LeftOut] = []
    for run in (run for run in runs if run.result_json.exists()):
        try:
            result = read_result(run)
            if result.identity in known:
                skipped.append(run.root)
                continue
            _check_config(run, result, experiments_root, resolve)
        except InputError as error:
            left_out = not_rows if isinstance(error, _NotARowError) else refused
            left_out.append(LeftOut(run.root, error.problems))
            continue
        known.add(result.identity)
        lines.append(dict(zip(COLUMNS, map(_cell, astuple(result)), strict=True)))
        added.append(run.root)
    if added:
        _write_lines(results_csv, lines)
    unfinished = tuple(run.root for run in runs if not run.result_json.exists())
    return Collected(tuple(added), tuple(skipped), unfinished, tuple(not_rows), tuple(refused))


def _check_config(
    run: RunDir,
    result: Result,
    experiments_root: Path,
    resolve: Callable[[str], Mapping[str, object]],
) -> None:
    """Raise InputError with every key in which the run and its experiment's YAML differ.

    _NotARowError where the run was given the values of some of them beside the YAML.
    """
    experiment_yaml = experiments_root / f"{result.experiment}.yaml"
    if not experiment_yaml.exists():
        raise InputError([f"{experiment_yaml}: not found; results.csv holds only runs of a YAML"])
    saved, now = from_yaml(run.config_yaml), resolve(result.experiment)
    starts = read_jsonl(run.starts_jsonl)
    given = {key for start in starts for key in start.get("given", ())}
    told = [one for one in _differences(saved, now) if one[0] in given]
    if told:
        texts = (
            f"{key}: it was given {ours!r}, its YAML says {theirs!r}" for key, ours, theirs in told
        )
        raise _NotARowError([*texts])
    problems = tuple(differences(saved, now))
    if any(start["changes"] for start in starts):
        problems += (f"{run.starts_jsonl}: was gone on with by --override; train it again",)
    if problems:
        raise InputError(problems)


def differences(run: Mapping[str, object], experiment: Mapping[str, object]) -> Iterator[str]:
    """A sentence for each key that matters and differs."""
    for key, ours, theirs in _differences(run, experiment):
        yield f"{key}: the run had {ours!r}, its YAML now says {theirs!r}; train it again"


def _differences(
    run: Mapping[str, object], experiment: Mapping[str, object]
) -> Iterator[tuple[str, object, object]]:
    for key, ours, theirs in differing_keys(run, experiment):
        if key not in LIST_KEYS or theirs != "":
            yield key, ours, theirs


def _cell(value: object) -> str:
    """Text of a cell: empty for None; four decimals are 0.1 ms and a ten-thousandth of a percent."""
    if value is None:
        return ""
    return str(round(value, 4)) if isinstance(value, float) else str(value)


def read_results(results_csv: Path) -> tuple[Result, ...]:
    """Every line; none where there is no file. Raises InputError where a cell is not what its column holds."""
    results = []
    for number, line in enumerate(_read_lines(results_csv), start=2):
        try:
            cells = {
                field.name: _READ[str(field.type)](line[field.name]) for field in fields(Result)
            }
            datetime.fromisoformat(line["date"])
        except (TypeError, ValueError) as error:
            problem = f"{results_csv}, line {number}: {error}; restore it from git"
            raise InputError([problem]) from error
        results.append(Result(**cells))
    return tuple(results)


def _number_or_none(cell: str) -> float | None:
    return float(cell) if cell else None


_READ: Mapping[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "float | None": _number_or_none,
}


def _read_lines(results_csv: Path) -> list[dict[str, str]]:
    if not results_csv.exists():
        return []
    with results_csv.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        lines = list(reader)
    if tuple(reader.fieldnames or ()) != COLUMNS:
        expected = ",".join(COLUMNS)
        raise InputError([f"{results_csv}: first line is not {expected!r}; restore it from git"])
    return lines


def _write_lines(results_csv: Path, lines: Sequence[Mapping[str, str]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    atomic_write_text(results_csv, text.getvalue())


@dataclass(frozen=True)
class Published:
    """A line; the fields are its columns, in order. `value` is percent, as it was published."""

    experiment: str
    metric: str
    value: str
    source: str
    note: str


def read_published(published_csv: Path) -> tuple[Published, ...]:
    """Every line; none where there is no file. Raises InputError with all that is wrong."""
    if not published_csv.exists():
        return ()
    with published_csv.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, restkey="more", restval="")
        lines = list(reader)
    columns = [field.name for field in fields(Published)]
    if list(reader.fieldnames or ()) != columns:
        raise InputError([f"{published_csv}: its first line is not {','.join(columns)!r}"])
    problems = []
    for number, line in enumerate(lines, start=2):
        problems += [f"{published_csv}, line {number}: {text}" for text in _problems(line)]
    if problems:
        raise InputError(problems)
    return tuple(Published(**line) for line in lines)


def _problems(line: dict[str, str]) -> list[str]:
    problems = []
    if line.pop("more", None):
        problems.append("has too many cells; put text with a comma into quotes")
    if line["metric"] not in METRICS:
        problems.append(f"the metric {line['metric']!r} is none of {', '.join(METRICS)}")
    if not line["value"].replace(".", "", 1).isdecimal():
        problems.append(f"the value {line['value']!r} is no number of percent")
    if not line["source"]:
        problems.append("has no source")
    return problems
