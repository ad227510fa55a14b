"""Read and write runs.jsonl, the store of finished runs, decide which runs it takes, and export it to results.csv.

runs.jsonl lies beside the YAMLs of its rows and keeps what their pages and figures need: a few kilobytes for each
run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from mgexp.config.check import PLACE_KEYS, differing_keys
from mgexp.config.load import file_values, flatten, load_config
from mgexp.config.study import BUDGET, SHORTER_ROWS, STUDY_YAML, read_study, row_yamls
from mgexp.errors import InputError, raise_problems
from mgexp.results.comparison import Comparison, Row, row_order
from mgexp.results.runs import (
    CLOCKS,
    COLUMNS,
    Evaluation,
    Run,
    VideoScores,
    clock_fields,
    given_keys,
    read_run,
)
from mgexp.run.confusion import Confusion
from mgexp.run.files import (
    atomic_write_text,
    json_line,
    lock_file,
    read_jsonl,
    understanding,
    write_rows,
)
from mgexp.run.folder import ExperimentsDir, RunDir, RunsDir

WITHOUT_TABLE = ("base", "own_data")
"""Folders of experiments/ that hold no rows: the shared base files, and files to copy for your own videos."""


def load_comparison(folder: Path) -> Comparison:
    """Read the rows of a folder, and of the folder ``BUDGET`` in it.

    `folder` holds run folders (runs/quickstart), or YAMLs with the runs that were stored beside them
    (experiments/quickstart), or only YAMLs. Raises InputError if it holds neither runs nor YAMLs, or if a file
    cannot be understood.
    """
    # The config.yaml of a run would look like the YAML of a row.
    if RunDir(folder).starts_jsonl.exists():
        raise InputError([f"{folder} is the folder of one run: give the folder of its row"])
    if row_yamls(folder):
        shorter = read_stored(RunsDir(folder / BUDGET).stored_jsonl).rows
        stored = replace(read_stored(RunsDir(folder).stored_jsonl), shorter=shorter)
        return stored.timed_since(_seconds_since(folder))
    comparison = load_runs(folder)
    if not comparison.rows:
        raise InputError([f"{folder}: holds neither runs nor the YAML of a row"])
    return comparison


def _seconds_since(folder: Path) -> datetime | None:
    return read_study(folder).since if (folder / STUDY_YAML).exists() else None


def load_runs(folder: Path) -> Comparison:
    """Read every <row>/seed<N> of `folder` and of its ``BUDGET``."""
    rows: list[Row] = []
    shorter = _load_rows(folder / BUDGET)
    # The shorter baselines of a study outside experiments/ are in the folder itself.
    beginnings = tuple(SHORTER_ROWS.values())
    for row in _load_rows(folder):
        is_shorter = any(run.row.startswith(beginnings) for run in row.runs.values())
        (shorter if is_shorter else rows).append(row)
    # Runs may keep the names of their classes. Where they differ, there are none.
    names = {run_dir.class_names() for _, _, run_dir in RunsDir(folder).runs()} - {()}
    return Comparison((*rows,), names.pop() if len(names) == 1 else (), (*shorter,))


def _load_rows(folder: Path) -> list[Row]:
    runs: defaultdict[str, dict[int, Run]] = defaultdict(dict)
    unfinished: defaultdict[str, dict[int, int | None]] = defaultdict(dict)
    problems = []
    for name, seed, run_dir in RunsDir(folder).runs():
        # A run writes result.json last. Without this file the run is still active, or it was stopped.
        if not run_dir.result_json.exists():
            lines = read_jsonl(run_dir.metrics_jsonl)
            with understanding(run_dir.metrics_jsonl):
                unfinished[name][seed] = int(lines[-1]["step"]) if lines else None
            continue
        run = read_run(run_dir)
        runs[name][seed] = run
        if run.seed != seed:
            # Someone copied or renamed a folder. Pairs of runs with equal seeds would then be wrong.
            problems.append(f"{run_dir.root}: its result.json has seed {run.seed}")
    raise_problems(problems)
    names = sorted({*runs, *unfinished}, key=row_order)
    return [Row(name, runs[name], unfinished[name]) for name in names]


# --- runs.jsonl


def write_stored(path: Path, comparison: Comparison) -> None:
    """Write runs.jsonl: first a line with the names of the classes, then a line for each finished run."""
    lines = [json_line({"class_names": comparison.class_names})]
    for row in comparison.rows:
        for run in row.runs.values():
            line = {
                "name": row.name,
                "result": {name: getattr(run, name) for name in COLUMNS},
                "seconds": {clock: getattr(run, f"{clock}_seconds") for clock in CLOCKS},
                "environment": run.environment,
                "evaluations": [asdict(evaluation) for evaluation in run.evaluations],
                "confusion": run.confusion and asdict(run.confusion),
                "other_cores": run.other_cores,
                "recipe": run.recipe,
                # Runs of mAP have none.
                "videos": run.videos and asdict(run.videos, dict_factory=_known),
            }
            lines.append(json_line(line))
    atomic_write_text(path, "".join(lines))


def _known(values: list[tuple[str, Any]]) -> dict[str, Any]:
    """Leave out the groups where none are known, as in the files of earlier versions."""
    return {name: value for name, value in values if name != "groups" or value}


def read_stored(path: Path) -> Comparison:
    """Read a file of `write_stored`, whose rows keep their order. Without a file there are no rows.

    Raises InputError for other contents.
    """
    if not path.exists():
        return Comparison(())
    rows: dict[str, dict[int, Run]] = {}
    with understanding(path):
        # The file is written as a whole. Without its end, it is not a line that a kill has torn.
        if not path.read_bytes().endswith(b"\n"):
            raise ValueError("its last line is not whole")
        head, *lines = read_jsonl(path)
        class_names = tuple(head["class_names"])
        for line in lines:
            confusion, videos = line["confusion"], line["videos"]
            run = Run(
                **{**line["result"], **clock_fields(line["seconds"])},
                environment=line["environment"],
                evaluations=tuple(Evaluation(**values) for values in line["evaluations"]),
                confusion=confusion and Confusion(tuple(map(tuple, confusion["counts"]))),
                other_cores=line["other_cores"],
                recipe=line["recipe"],
                videos=videos and VideoScores(**videos),
            )
            rows.setdefault(line["name"], {})[run.seed] = run
    return Comparison(tuple(Row(name, runs) for name, runs in rows.items()), class_names)


def add_to_store(path: Path, rows: Sequence[Row], class_names: Sequence[str] = ()) -> None:
    """Add runs to runs.jsonl. They replace the stored runs of the same row and seed, and all others stay.

    Without ``class_names`` the stored names stay.
    """
    with lock_file(path.with_name(f".{path.name}.lock"), waits=True):
        stored = read_stored(path)
        merged = {row.name: row for row in rows if row.runs}
        for row in stored.rows:
            runs = {**row.runs, **merged.get(row.name, row).runs}
            merged[row.name] = Row(row.name, dict(sorted(runs.items())))
        names = tuple(class_names) or stored.class_names
        write_stored(path, Comparison(tuple(merged.values()), names))


def stored_runs(root: Path) -> list[Run]:
    """List the runs that are stored below ``root``: the newest of each row and seed, by date."""
    newest: dict[tuple[str, int], tuple[datetime, bool, Run]] = {}
    for path in sorted(root.rglob(RunsDir(root).stored_jsonl.name)):
        study = path.parent.parent if path.parent.name == BUDGET else path.parent
        for run in read_stored(path).timed_since(_seconds_since(study)).runs:
            # A study also stores rows of other folders. Their own folder says which seconds count.
            is_home = (root / run.experiment).parent == path.parent
            rank = (run.finished_at, is_home)
            if run.key not in newest or rank > newest[run.key][:2]:
                newest[run.key] = (*rank, run)
    return [run for _, _, run in sorted(newest.values(), key=lambda ranked: ranked[0])]


def export_results(experiments: ExperimentsDir) -> None:
    """Write results.csv from the stored runs of all rows: a line of numbers for each."""
    lines: list[Sequence[object]] = [COLUMNS]
    for run in stored_runs(experiments.root):
        values = [getattr(run, name) for name in COLUMNS]
        # Four decimals keep 0.1 ms and 0.0001 percent.
        lines.append([round(v, 4) if isinstance(v, float) else v for v in values])
    write_rows(experiments.results_csv, lines)


# --- which runs are stored


RESUMED_WITH_OVERRIDE = "was resumed with --override"


@dataclass
class Collected:
    """The result of `store_runs`: what it did with each run folder.

    Runs of `own` belong to a YAML that is no row of experiments/, or are smoke runs; they get a report alone. Runs
    of `skipped` were stored already, or a newer run of their seed was. Runs of `not_rows` were given other values
    than their YAML has, by the command line or a grid. Runs of `refused` have an error.
    """

    added: list[Path] = field(default_factory=list)
    own: list[Path] = field(default_factory=list)
    skipped: list[Path] = field(default_factory=list)
    unfinished: list[Path] = field(default_factory=list)
    not_rows: dict[Path, list[str]] = field(default_factory=dict)
    refused: dict[Path, list[str]] = field(default_factory=dict)


def store_runs(run_dirs: Sequence[RunDir], experiments: ExperimentsDir) -> Collected:
    """Store each finished run of a row beside its YAML, and export results.csv. May be called again at any time.

    A run may have another configuration than its YAML. It is "not a row" if the command line or a grid asked for
    the difference, and it is refused otherwise.
    """
    done = Collected()
    new: defaultdict[Path, dict[str, dict[int, Run]]] = defaultdict(lambda: defaultdict(dict))
    for run_dir in run_dirs:
        if not run_dir.result_json.exists():
            done.unfinished.append(run_dir.root)
            continue
        try:
            run = read_run(run_dir)
            yaml = experiments.root / f"{run.experiment}.yaml"
            path = RunsDir(yaml.parent).stored_jsonl
            is_without_table = run.experiment.partition("/")[0] in WITHOUT_TABLE
            if run.is_smoke or is_without_table or not yaml.exists():
                done.own.append(run_dir.root)
                continue
            earlier = {**read_stored(path).row(yaml.stem).runs, **new[path][yaml.stem]}
            if run.seed in earlier and earlier[run.seed].finished_at >= run.finished_at:
                done.skipped.append(run_dir.root)
                continue
            # The table promises that each number comes from the YAML beside it. So compare the run with the YAML
            # of today, and not with that of the day on which the run started.
            values = dict(flatten(load_config(yaml)))
            differing = differences(file_values(run_dir.config_yaml), values)
            given = given_keys(read_jsonl(run_dir.starts_jsonl))
            asked_for = [differing[key] for key in differing if key in given]
            problems = [*differing.values()]
            if has_override(run_dir):
                problems.append(RESUMED_WITH_OVERRIDE)
        except InputError as error:
            done.refused[run_dir.root] = list(error.problems)
            continue
        # A difference that was asked for explains all others, so it comes before `problems`.
        if asked_for:
            done.not_rows[run_dir.root] = asked_for
        elif problems:
            done.refused[run_dir.root] = problems
        else:
            new[path][yaml.stem][run.seed] = run
            done.added.append(run_dir.root)
    if done.added:
        for path, rows in new.items():
            if any(rows.values()):
                add_to_store(path, [Row(name, runs) for name, runs in rows.items()])
        export_results(experiments)
    return done


def differences(run: Mapping[str, object], yaml: Mapping[str, object]) -> dict[str, str]:
    """Write a sentence for each key that differs and can change a result. The configurations are flat."""
    return {
        key: f"{key}: the run had {ours!r}, its YAML now says {theirs!r}"
        for key, ours, theirs in differing_keys(run, yaml)
        if key not in PLACE_KEYS or theirs != ""
    }


def has_override(run_dir: RunDir) -> bool:
    """Return whether a run has steps of several configurations. config.yaml has one set of values."""
    return any(start["changes"] for start in read_jsonl(run_dir.starts_jsonl))
