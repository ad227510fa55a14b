"""Decide which finished runs are rows, append them to results.csv, and store them beside their YAMLs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
"""Two lines of results.csv are the same run if these cells are equal. The date is one of them, so a seed can be
trained again at the same commit. That gives a new line, and the page counts the newest."""
LIST_KEYS = ("DATA.TRAIN_LIST", "DATA.VAL_LIST", "DATA.STORE", "DATA.QUARANTINE")
"""Keys that say where lists and copies are. A YAML may leave them empty for the command line, as for Kinetics."""

Resolve = Callable[[str], Mapping[str, object]]
"""A function that takes the name of an experiment, such as "quickstart/baseline". It returns the configuration
that the YAML gives today, with dotted names: {"TRAIN.BATCH_SIZE": 8, ...}."""


@dataclass
class Collected:
    """The result of `append_results`: what it did with each run folder.

    Runs of `skipped` were in results.csv already. Runs of `not_rows` had other values than their YAML, from the
    command line or a grid. Runs of `refused` have an error. `not_rows` and `refused` list all reasons for a run.
    """

    added: list[Path] = field(default_factory=list)
    skipped: list[Path] = field(default_factory=list)
    unfinished: list[Path] = field(default_factory=list)
    not_rows: dict[Path, list[str]] = field(default_factory=dict)
    refused: dict[Path, list[str]] = field(default_factory=dict)


def append_results(
    runs: Sequence[RunDir], results_csv: Path, experiments_root: Path, resolve: Resolve
) -> Collected:
    """Append a line for each finished run that results.csv does not hold yet. May be called again at any time.

    A run may have another configuration than its YAML. It is "not a row" if the command line or a grid asked for
    the difference, and it is refused otherwise. Raises InputError if results.csv has other columns.
    """
    lines = read_lines(results_csv)
    known = {tuple(line[name] for name in IDENTITY) for line in lines}
    done = Collected()
    for run in runs:
        if not run.result_json.exists():
            done.unfinished.append(run.root)
            continue
        try:
            result = read_result(run)
            line = as_line(result)
            identity = tuple(line[name] for name in IDENTITY)
            if identity in known:
                done.skipped.append(run.root)
                continue
            asked_for, problems = _differences(run, result.experiment, experiments_root, resolve)
        except InputError as error:
            done.refused[run.root] = list(error.problems)
            continue
        # A difference that was asked for explains all others, so it comes before `problems`.
        if asked_for:
            done.not_rows[run.root] = asked_for
        elif problems:
            done.refused[run.root] = problems
        else:
            known.add(identity)
            lines.append(line)
            done.added.append(run.root)
    if done.added:
        write_lines(results_csv, lines)
    return done


def _differences(
    run: RunDir, experiment: str, experiments_root: Path, resolve: Resolve
) -> tuple[list[str], list[str]]:
    """Compare a run with its experiment's YAML. Return the differences that were asked for, and every problem.

    The command line or a grid asks for a difference. Raises InputError if there is no YAML.
    """
    experiment_yaml = experiments_root / f"{experiment}.yaml"
    if not experiment_yaml.exists():
        raise InputError([f"{experiment_yaml}: not found; results.csv holds only runs of a YAML"])
    # The table promises that each number comes from the YAML beside it. So compare the run with the YAML of today,
    # and not with the YAML of the day on which the run started.
    saved, now = from_yaml(run.config_yaml), resolve(experiment)
    starts = read_jsonl(run.starts_jsonl)
    given = {key for start in starts for key in start.get("given", ())}
    asked_for = [
        f"{key}: it was given {ours!r}, its YAML says {theirs!r}"
        for key, ours, theirs in _differing(saved, now)
        if key in given
    ]
    problems = differences(saved, now)
    # config.yaml has one set of values. After a resume with --override, some steps were trained with others.
    if any(start["changes"] for start in starts):
        problems.append(f"{run.starts_jsonl}: was resumed with --override; train it again")
    return asked_for, problems


def differences(run: Mapping[str, object], experiment: Mapping[str, object]) -> list[str]:
    """Write a sentence for each key that differs and can change a result. The configurations are flat."""
    return [
        f"{key}: the run had {ours!r}, its YAML now says {theirs!r}; train it again"
        for key, ours, theirs in _differing(run, experiment)
    ]


def _differing(
    run: Mapping[str, object], experiment: Mapping[str, object]
) -> Iterator[tuple[str, object, object]]:
    """Yield (key, value of the run, value of the YAML) for each key that can change a result."""
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
    same runs. The file is replaced. Raises InputError if there is no such run, if a run was trained with other
    values than its YAML has now, or if the YAMLs are in several folders.
    """
    # A figure from runs that the table refused would contradict the table.
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
