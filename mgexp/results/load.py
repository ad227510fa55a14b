"""Read runs from run folders and from runs.jsonl. Write runs.jsonl, and export it to results.csv.

runs.jsonl is the store of finished runs. It lies beside the YAMLs of its rows and keeps what their pages and
figures need: a few kilobytes for each run.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from mgexp.config.check import recipe_digest
from mgexp.config.load import file_values
from mgexp.config.study import BUDGET, SHORTER_ROWS, STUDY_YAML, read_study, row_yamls
from mgexp.errors import InputError, raise_problems
from mgexp.registry import OwnFile
from mgexp.results.model import (
    COLUMNS,
    Comparison,
    Evaluation,
    Row,
    Run,
    VideoScores,
    pack_videos,
    row_order,
)
from mgexp.run.confusion import Confusion, read_confusion
from mgexp.run.files import (
    atomic_write_text,
    json_line,
    lock_file,
    read_json,
    read_jsonl,
    short_path,
    understanding,
    write_rows,
)
from mgexp.run.folder import METRIC_NAMES, SMOKE_GIVEN, ExperimentsDir, RunDir, RunsDir

CLOCKS = (
    *("train", "steady", "input_wait"),
    *("evaluate", "precise_bn", "checkpoint", "shape_warmup", "program"),
)
"""The clocks of result.json and runs.jsonl. A Run has the field <clock>_seconds for each."""


def load_comparison(folder: Path) -> Comparison:
    """Read the rows of a folder, and of the folder ``BUDGET`` in it.

    `folder` holds run folders (runs/quickstart), or YAMLs with the runs that were stored beside them
    (experiments/quickstart), or only YAMLs. Raises InputError if it holds neither runs nor YAMLs, or if a file
    cannot be understood.
    """
    if RunDir(folder).starts_jsonl.exists():
        problem = "is the folder of one run: give the folder that holds its row"
        raise InputError([f"{folder} {problem}"])
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


# --- run folders


def load_runs(folder: Path) -> Comparison:
    """Read every <row>/seed<N> of `folder` and of its ``BUDGET``. Raises InputError as `load_comparison` does."""
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


def read_run(run_dir: RunDir) -> Run:
    """Read the folder of a finished run. Raises InputError if a file in it is not what a run writes."""
    result = read_json(run_dir.result_json)
    with understanding(run_dir.result_json):
        # A run has either top-1 and top-5 or mAP, so the other metrics may be absent. All other values must exist.
        columns = {name: result["metrics"].get(name) for name in METRIC_NAMES}
        columns |= _clock_fields(result["seconds"])
        columns |= {name: result[name] for name in COLUMNS if name not in columns}
        run = Run(**columns, other_cores=result["other_cores"])
    with understanding(run_dir.root):
        starts, values = read_jsonl(run_dir.starts_jsonl), file_values(run_dir.config_yaml)
        return replace(
            run,
            is_smoke=SMOKE_GIVEN in given_keys(starts),
            command=_command(run_dir, run.experiment, starts, values) if starts else "",
            environment=_environment(run_dir, starts),
            evaluations=tuple(map(_evaluation, read_jsonl(run_dir.evaluations_jsonl))),
            confusion=read_confusion(run_dir.confusion_csv),
            recipe=recipe_digest(values),
            videos=_videos(run_dir, run.top1),
        )


def _clock_fields(seconds: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{clock}_seconds": float(seconds[clock]) for clock in CLOCKS}


def given_keys(starts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the keys that the command lines or grids of ``starts`` gave, with SMOKE_GIVEN for a smoke run.

    ``starts`` are the lines of starts.jsonl.
    """
    return [key for start in starts for key in start.get("given", ())]


def _command(
    run_dir: RunDir,
    experiment: str,
    starts: Sequence[Mapping[str, Any]],
    values: Mapping[str, object],
) -> str:
    """Return the command that trained a run with the configuration ``values``."""
    given = given_keys(starts)
    keys = [key for key in dict.fromkeys(given) if key in values]
    words = ["python", "tools/run_net.py", "--cfg"]
    if "/" in experiment:
        words.append(f"experiments/{experiment}.yaml")
    else:
        # The place of a YAML outside experiments/ is unknown. Its copy in the run folder has all keys.
        words += [short_path(run_dir.config_yaml), "--output", short_path(run_dir.root)]
    for path in OwnFile.paths_in(starts[0].get("imports") or ""):
        words += ["--import", short_path(path)]
    if SMOKE_GIVEN in given:
        words.append("--smoke")
    if "RNG_SEED" in keys:
        words += ["--seed", str(values["RNG_SEED"])]
    for key in keys:
        if key != "RNG_SEED":
            words += [key, str(values[key])]
    return shlex.join(words)


def _environment(run_dir: RunDir, starts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Read the environment of all starts. A value that changed becomes "a, then b"."""
    environment = read_json(run_dir.environment_json)
    # A run may resume with other threads or on another machine. Then its seconds belong to no single setting. The
    # joined text equals no value of another run, so the run is compared with none.
    latest = dict(environment)
    for start in starts:
        for name, value in latest.items():
            now = start.get(name, value)
            if now != value:
                environment[name], latest[name] = f"{environment[name]}, then {now}", now
    return environment


def _evaluation(line: Mapping[str, Any]) -> Evaluation:
    """Take the fields of an Evaluation from a line of evaluations.jsonl, which has more fields."""
    # `Run.score` chooses in the same way.
    score = line["map"] if line.get("top1") is None else line["top1"]
    names = {field.name for field in fields(Evaluation)} - {"score", "train_flops"}
    values = {name: line[name] for name in names}
    return Evaluation(score=score, train_flops=line.get("train_flops"), **values)


@dataclass(frozen=True)
class Predictions:
    """The scores of the final evaluation: ``videos`` are absolute paths, and ``scores`` is (videos, classes)."""

    videos: tuple[str, ...]
    labels: np.ndarray[Any, np.dtype[np.int64]]
    scores: np.ndarray[Any, np.dtype[np.float32]]

    @property
    def predicted(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The class with the highest score of each video."""
        classes: np.ndarray[Any, np.dtype[np.int64]] = self.scores.argmax(axis=1)
        return classes


def read_predictions(run_dir: RunDir, top1: float | None) -> Predictions | None:
    """Read the file with the scores that gave the final top-1. Return None without one, or with several labels."""
    # A run may have been evaluated again with other views, so there may be several files.
    for path in sorted(run_dir.root.glob(run_dir.scores("*_forward").name)):
        with np.load(path, allow_pickle=False) as file:
            videos, labels, scores = file["videos"], file["labels"], file["scores"]
        if labels.ndim > 1:
            return None
        predictions = Predictions(tuple(map(str, videos)), labels, scores)
        accuracy = 100 * (predictions.predicted == labels).mean()
        if top1 is not None and abs(accuracy - top1) < 1e-6:
            return predictions
    return None


def _videos(run_dir: RunDir, top1: float | None) -> VideoScores | None:
    """Read which videos were classified correctly. Return None where `read_predictions` has nothing."""
    predictions = read_predictions(run_dir, top1)
    if predictions is None:
        return None
    correct = (predictions.predicted == predictions.labels).tolist()
    return pack_videos(dict(zip(predictions.videos, correct, strict=True)))


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
                "videos": run.videos and asdict(run.videos),
            }
            lines.append(json_line(line))
    atomic_write_text(path, "".join(lines))


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
                **{**line["result"], **_clock_fields(line["seconds"])},
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
