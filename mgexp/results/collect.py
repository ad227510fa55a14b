"""Decide which finished runs are rows, append them to results.csv, and store them beside their YAMLs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mgexp.config.check import differing_keys
from mgexp.config.load import from_yaml
from mgexp.errors import InputError
from mgexp.results.load import (
    as_line,
    load_runs,
    read_lines,
    read_result,
    write_lines,
    write_stored,
)
from mgexp.run.files import read_jsonl
from mgexp.run.folder import RunDir, RunsDir

IDENTITY = ("experiment", "row", "seed", "commit", "date")
"""Two lines of results.csv with these cells equal are one run. The date lets a seed be trained again at the same
commit: that is a new line, and the page counts the newest."""
LIST_KEYS = ("DATA.TRAIN_LIST", "DATA.VAL_LIST", "DATA.STORE", "DATA.QUARANTINE")
"""Keys that say where lists and copies are. A YAML may leave them to the command line, as for Kinetics."""

Resolve = Callable[[str], Mapping[str, object]]
"""Takes the name of an experiment, such as "quickstart/baseline", and returns what its YAML means today, as a flat
configuration {"TRAIN.BATCH_SIZE": 8, ...}."""


@dataclass(frozen=True)
class LeftOut:
    """A run that was not appended, and every reason why."""

    run: Path
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Collected:
    """What `append_results` did with each run folder.

    `skipped` were in results.csv already. `not_rows` were given other values than their YAML's, on the command
    line or by a grid. `refused` have an error.
    """

    added: tuple[Path, ...]
    skipped: tuple[Path, ...]
    unfinished: tuple[Path, ...]
    not_rows: tuple[LeftOut, ...]
    refused: tuple[LeftOut, ...]


class _NotARowError(InputError):
    """The run was given other values than its YAML's."""


def append_results(
    runs: Sequence[RunDir], results_csv: Path, experiments_root: Path, resolve: Resolve
) -> Collected:
    """Append a line for each finished run that results.csv does not hold yet. May be called again at any time.

    A run whose configuration differs from its YAML is "not a row" if the command line asked for the difference,
    and refused otherwise. Raises InputError where results.csv has other columns.
    """
    lines = read_lines(results_csv)
    known = {tuple(line[name] for name in IDENTITY) for line in lines}
    added, skipped, unfinished = [], [], []
    not_rows, refused = [], []
    for run in runs:
        if not run.result_json.exists():
            unfinished.append(run.root)
            continue
        try:
            result = read_result(run)
            line = as_line(result)
            identity = tuple(line[name] for name in IDENTITY)
            if identity in known:
                skipped.append(run.root)
                continue
            _check_config(run, result.experiment, experiments_root, resolve)
        except _NotARowError as error:
            not_rows.append(LeftOut(run.root, error.problems))
            continue
        except InputError as error:
            refused.append(LeftOut(run.root, error.problems))
            continue
        known.add(identity)
        lines.append(line)
        added.append(run.root)
    if added:
        write_lines(results_csv, lines)
    return Collected(
        tuple(added), tuple(skipped), tuple(unfinished), tuple(not_rows), tuple(refused)
    )


def _check_config(run: RunDir, experiment: str, experiments_root: Path, resolve: Resolve) -> None:
    """Raise InputError with every key in which the run and its experiment's YAML differ.

    Raise _NotARowError where the command line or a grid set some of these keys.
    """
    experiment_yaml = experiments_root / f"{experiment}.yaml"
    if not experiment_yaml.exists():
        raise InputError([f"{experiment_yaml}: not found; results.csv holds only runs of a YAML"])
    # The table promises that each number comes from the YAML as it stands beside it. So the run is compared with
    # what the YAML says now, and not with what it said when the run started.
    saved, now = from_yaml(run.config_yaml), resolve(experiment)
    starts = read_jsonl(run.starts_jsonl)
    given = {key for start in starts for key in start.get("given", ())}
    texts = [
        f"{key}: it was given {ours!r}, its YAML says {theirs!r}"
        for key, ours, theirs in _differing(saved, now)
        if key in given
    ]
    if texts:
        raise _NotARowError(texts)
    problems = [*differences(saved, now)]
    # config.yaml has one set of values. After a resume with --override, some steps were trained with others.
    if any(start["changes"] for start in starts):
        problems.append(f"{run.starts_jsonl}: was resumed with --override; train it again")
    if problems:
        raise InputError(problems)


def differences(run: Mapping[str, object], experiment: Mapping[str, object]) -> Iterator[str]:
    """Write a sentence for each key that differs and can change a result. The configurations are flat."""
    for key, ours, theirs in _differing(run, experiment):
        yield f"{key}: the run had {ours!r}, its YAML now says {theirs!r}; train it again"


def _differing(
    run: Mapping[str, object], experiment: Mapping[str, object]
) -> Iterator[tuple[str, object, object]]:
    for key, ours, theirs in differing_keys(run, experiment):
        if key not in LIST_KEYS or theirs != "":
            yield key, ours, theirs


def store_runs(
    folder: RunsDir,
    known: Collection[Path],
    experiments_root: Path,
    resolve: Resolve,
    class_names: tuple[str, ...] = (),
) -> RunsDir:
    """Store finished runs of `folder` in a runs.jsonl beside their YAMLs. Return the folder of that file.

    `known` are the run folders that results.csv has. Only these are stored, so that figures and tables show the
    same runs. The file is replaced. Raises InputError where there is no such run, where a run was trained with
    other values than its YAML has now, or where the YAMLs lie in several folders.
    """
    run_dirs = {(name, seed): run for name, seed, run in folder.runs() if run.root in known}
    loaded = load_runs(folder.root)
    rows = tuple(
        replace(row, runs={s: run for s, run in row.runs.items() if (row.name, s) in run_dirs})
        for row in loaded.rows
    )
    kept = replace(loaded, rows=rows, class_names=class_names)
    groups = sorted({(experiments_root / run.experiment).parent for run in kept.runs})
    if len(groups) != 1:
        found = ", ".join(map(str, groups)) or "no YAML"
        raise InputError(
            [
                f"{folder.root}: its runs belong to {found}: only runs of one folder of rows are stored"
            ]
        )
    problems = [
        f"{run_dir.root} is not stored: {difference}"
        for (name, seed), run_dir in run_dirs.items()
        for difference in differences(
            from_yaml(run_dir.config_yaml), resolve(kept.row(name).runs[seed].experiment)
        )
    ]
    if problems:
        raise InputError(problems)
    place = RunsDir(groups[0])
    write_stored(place.stored_jsonl, kept)
    return place
