"""Read finished runs, from their folders and from runs.jsonl, and decide which of them count.

runs.jsonl lies beside the YAMLs of its rows and keeps what their pages and figures need: a few kilobytes for each
run.
"""

from __future__ import annotations

import os
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mgexp.config.check import PLACE_KEYS, differing_keys, recipe_digest
from mgexp.config.load import file_values, flatten, load_config
from mgexp.config.study import BUDGET, SHORTER_ROWS, STUDY_YAML, Study, read_study, row_yamls
from mgexp.errors import InputError, raise_problems
from mgexp.registry import OwnFile
from mgexp.results.comparison import BASELINE, COARSE_CONTROL, Comparison, Pair, Row, row_order
from mgexp.results.confusion import Confusion, count_confusions
from mgexp.results.runs import COLUMNS, Evaluation, Run, VideoScores, pack_videos
from mgexp.run.clock import CLOCKS
from mgexp.run.files import (
    atomic_write_text,
    json_line,
    lock_file,
    read_json,
    read_jsonl,
    short_path,
    understanding,
)
from mgexp.run.folder import GROUPS, METRIC_NAMES, SMOKE_GIVEN, RunDir, RunsDir
from mgexp.video.paths import Root

WITHOUT_TABLE = ("base", "own_data")
"""Folders of experiments/ that hold no rows: the shared base files, and files to copy for your own videos."""


# --- the folder of a run


def _clock_fields(seconds: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a Run for its seconds: <clock>_seconds."""
    return {f"{clock}_seconds": float(seconds[clock]) for clock in CLOCKS}


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
        confusion = videos = None
        if predictions := read_predictions(run_dir, run.top1):
            confusion = count_confusions(
                predictions.labels.tolist(), predictions.predicted.tolist()
            )
            videos = pack_videos(predictions.correct, read_groups(values))
        return replace(
            run,
            is_smoke=SMOKE_GIVEN in given_keys(starts),
            command=_command(run_dir, run.experiment, starts, values) if starts else "",
            environment=_environment(run_dir, starts),
            evaluations=tuple(map(_evaluation, read_jsonl(run_dir.evaluations_jsonl))),
            confusion=confusion,
            recipe=recipe_digest(values),
            videos=videos,
        )


def read_groups(values: Mapping[str, Any]) -> dict[str, str]:
    """Read the groups of videos that tools/own_data.py writes beside its lists: absolute path → group."""
    path = Path(values.get("DATA.VAL_LIST") or ".").parent / GROUPS
    root = Root(Path(values.get("DATA.PATH_PREFIX") or "."))
    groups = read_json(path) if path.is_file() else {}
    return {os.path.join(root.folder, name): group for name, group in groups.items()}  # noqa: PTH118 (text)


def given_keys(starts: Iterable[Mapping[str, Any]]) -> list[str]:
    """List the keys that command lines or grids gave, with SMOKE_GIVEN for a smoke run, from starts.jsonl."""
    return [key for start in starts for key in start.get("given", ())]


def _command(
    run_dir: RunDir,
    experiment: str,
    starts: Sequence[Mapping[str, Any]],
    values: Mapping[str, object],
) -> str:
    """Return the command that trained a run with the configuration ``values``."""
    given = given_keys(starts)
    if "/" in experiment:
        words = ["--cfg", f"experiments/{experiment}.yaml"]
    else:
        # The place of a YAML outside experiments/ is unknown. Its copy in the run folder has all keys.
        words = ["--cfg", short_path(run_dir.config_yaml), "--output", short_path(run_dir.root)]
    for path in OwnFile.paths_in(starts[0].get("imports") or ""):
        words += ["--import", short_path(path)]
    if SMOKE_GIVEN in given:
        words.append("--smoke")
    if "RNG_SEED" in given:
        words += ["--seed", str(values["RNG_SEED"])]
    for key in dict.fromkeys(given):
        if key in values and key != "RNG_SEED":
            words += [key, str(values[key])]
    return shlex.join(["python", "tools/run_net.py", *words])


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
    names = {field.name for field in fields(Evaluation)} - {"score"}
    return Evaluation(score=score, **{name: line[name] for name in names})


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

    @property
    def correct(self) -> list[tuple[str, bool]]:
        return list(zip(self.videos, (self.predicted == self.labels).tolist(), strict=True))


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


# --- runs.jsonl and results.csv


def run_to_line(row: str, run: Run) -> dict[str, Any]:
    # Where no groups are known, there is no such key, as in the files of earlier versions.
    videos = run.videos and {
        name: value for name, value in asdict(run.videos).items() if name != "groups" or value
    }
    return {
        "name": row,
        "result": {name: getattr(run, name) for name in COLUMNS},
        "seconds": {clock: getattr(run, f"{clock}_seconds") for clock in CLOCKS},
        "environment": run.environment,
        "evaluations": [asdict(evaluation) for evaluation in run.evaluations],
        "confusion": run.confusion and asdict(run.confusion),
        "other_cores": run.other_cores,
        "recipe": run.recipe,
        "videos": videos,
    }


def run_from_line(line: Mapping[str, Any]) -> Run:
    confusion, videos = line["confusion"], line["videos"]
    return Run(
        **{**line["result"], **_clock_fields(line["seconds"])},
        environment=line["environment"],
        evaluations=tuple(Evaluation(**values) for values in line["evaluations"]),
        confusion=confusion and Confusion(tuple(map(tuple, confusion["counts"]))),
        other_cores=line["other_cores"],
        recipe=line["recipe"],
        videos=videos and VideoScores(**videos),
    )


def write_stored(path: Path, comparison: Comparison) -> None:
    """Write runs.jsonl: first a line with the names of the classes, then a line for each finished run."""
    lines = [json_line({"class_names": comparison.class_names})]
    for row in comparison.rows:
        lines += [json_line(run_to_line(row.name, run)) for run in row.runs.values()]
    atomic_write_text(path, "".join(lines))


def read_stored(path: Path) -> Comparison:
    """Read a file of `write_stored`, whose rows keep their order. Without a file there are no rows."""
    if not path.exists():
        return Comparison(())
    rows: defaultdict[str, dict[int, Run]] = defaultdict(dict)
    with understanding(path):
        # The file is written as a whole. Without its end, it is not a line that a kill has torn.
        if not path.read_bytes().endswith(b"\n"):
            raise ValueError("its last line is not whole")
        head, *lines = read_jsonl(path)
        class_names = tuple(head["class_names"])
        for line in lines:
            run = run_from_line(line)
            rows[line["name"]][run.seed] = run
    return Comparison(tuple(Row(name, runs) for name, runs in rows.items()), class_names)


def add_to_store(path: Path, rows: Sequence[Row], class_names: Sequence[str] = ()) -> None:
    """Add runs to runs.jsonl, which replace those of the same row and seed. Without names the stored ones stay."""
    with lock_file(path.with_name(f".{path.name}.lock"), waits=True):
        stored = read_stored(path)
        merged = {row.name: row for row in rows if row.runs}
        for row in stored.rows:
            runs = {**row.runs, **merged.get(row.name, row).runs}
            merged[row.name] = Row(row.name, dict(sorted(runs.items())))
        names = tuple(class_names) or stored.class_names
        write_stored(path, Comparison(tuple(merged.values()), names))


# --- the rows of a folder


def load_comparison(folder: Path) -> Comparison:
    """Read the rows of a folder, and of the folder ``BUDGET`` in it.

    `folder` holds run folders (runs/quickstart), or YAMLs with the runs that were stored beside them
    (experiments/quickstart), or only YAMLs.
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
    unfinished: defaultdict[str, list[int]] = defaultdict(list)
    problems = []
    for name, seed, run_dir in RunsDir(folder).runs():
        # A run writes result.json last. Without this file the run is still active, or it was stopped.
        if not run_dir.result_json.exists():
            unfinished[name].append(seed)
            continue
        runs[name][seed] = run = read_run(run_dir)
        if run.seed != seed:
            # Someone copied or renamed a folder. Pairs of runs with equal seeds would then be wrong.
            problems.append(f"{run_dir.root}: its result.json has seed {run.seed}")
    raise_problems(problems)
    names = sorted({*runs, *unfinished}, key=row_order)
    return [Row(name, runs[name], tuple(unfinished[name])) for name in names]


# --- the runs of a study


RunDirs = Callable[[str, int], Iterable[RunDir]]
"""A function that lists the folders where the run of a row and seed may be."""


@dataclass(frozen=True)
class StudyRuns:
    """A study with its finished runs.

    ``of_another_recipe`` are stored runs that do not count, because their YAML says something else now.
    ``refused`` are finished run folders that do not count, with the reasons.
    """

    study: Study
    comparison: Comparison
    of_another_recipe: tuple[Run, ...] = ()
    refused: Mapping[Path, Sequence[str]] = field(default_factory=dict)

    @property
    def runs(self) -> Mapping[tuple[str, int], Run]:
        """Every finished run by row and seed, also those of shorter baselines."""
        rows = self.comparison.all_rows
        return {(row.name, seed): run for row in rows for seed, run in row.runs.items()}

    @property
    def finished(self) -> tuple[Row, ...]:
        """The rows with a run, in the order of study.yaml, without the control: it claims nothing."""
        return tuple(row for row in self.comparison.finished if row.name != COARSE_CONTROL)

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """Every finished row that has a base, with it."""
        return tuple(
            Pair(row, self.comparison.row(base))
            for row in self.finished
            if (base := self.study.base_of(row.name))
        )

    @cached_property
    def budget_pairs(self) -> tuple[Pair, ...]:
        """Every row paired with each of its shorter baselines, if they share a seed."""
        row_of, rows = self.comparison.row, self.study.budget_rows.items()
        pairs = (Pair(row_of(row), row_of(name)) for name, row in rows)
        return tuple(pair for pair in pairs if pair.runs)

    @cached_property
    def for_figures(self) -> Comparison:
        """The comparison with the name of the baseline that figures know."""
        rows = self.comparison.rows
        named = tuple(replace(row, name=self.name_in_figures(row.name)) for row in rows)
        return replace(self.comparison, rows=named)

    def name_in_figures(self, row: str) -> str:
        if row == self.study.baseline:
            return BASELINE
        return f"row {row}" if row == BASELINE else row


def gather_runs(study: Study, run_dirs: RunDirs) -> StudyRuns:
    """Gather the runs of a study from runs.jsonl and run folders: of a seed the newest that fits its YAML now."""
    others: list[Run] = []
    refused: dict[Path, Sequence[str]] = {}
    rows = {name: Row(name) for name in study.yamls}
    read = cache(read_stored)
    for name, path in study.yamls.items():
        # The YAML of a shorter baseline is written when its row has been measured.
        if not path.exists():
            continue
        values = dict(flatten(load_config(path)))
        recipe, seeds = recipe_digest(values), range(study.num_seeds(name))
        candidates: list[Run] = []
        # A row of another folder may be stored there, by a study of that folder, and here.
        for place in dict.fromkeys((path.parent, study.folder)):
            stored = read(RunsDir(place).stored_jsonl).row(name).runs.values()
            others += [run for run in stored if run.recipe != recipe]
            candidates += [run for run in stored if run.recipe == recipe and run.seed in seeds]
        for seed in seeds:
            for run_dir in run_dirs(name, seed):
                if run_dir.result_json.exists():
                    run = read_run(run_dir)
                    if problems := _problems(run_dir, run, seed, values):
                        refused[run_dir.root] = problems
                    else:
                        candidates.append(run)
        # If a run is stored and has a folder, the folder comes later and says more.
        candidates.sort(key=lambda run: run.finished_at)
        runs = {run.seed: run for run in candidates}
        rows[name] = Row(name, dict(sorted(runs.items())))
    comparison = Comparison(
        tuple(rows[name] for name in study.names),
        shorter=tuple(rows[name] for name in study.budget_rows),
    )
    return StudyRuns(study, comparison.timed_since(study.since), tuple(others), refused)


def _problems(run_dir: RunDir, run: Run, seed: int, values: Mapping[str, object]) -> Sequence[str]:
    """List why a finished run is not that of ``seed`` of the YAML with ``values``."""
    # Without its evaluations, a run would count as one that never reaches the target. Controls add evaluations.
    if not run_dir.evaluations_jsonl.exists():
        return [f"{run_dir.evaluations_jsonl} is gone"]
    problems = []
    if run.seed != seed:
        problems.append(f"its result.json has seed {run.seed}, not {seed}")
    if run.recipe != recipe_digest(values):
        problems += differences(file_values(run_dir.config_yaml), values).values()
    if has_override(run_dir):
        problems.append(RESUMED_WITH_OVERRIDE)
    return problems


def store_gathered(gathered: StudyRuns, class_names: tuple[str, ...]) -> StudyRuns:
    """Write the runs of a study into runs.jsonl beside study.yaml, and those of shorter baselines into budget/.

    A run that is only in the file stays there, also that of a seed or a row which the study no longer has. Without
    ``class_names`` the stored names stay. Return the runs of the study with the names.
    """
    study = gathered.study
    place = RunsDir(study.folder).stored_jsonl
    names = class_names or read_stored(place).class_names
    # Names that do not fit must not reach the file, which the next call reads.
    where = study.classes if class_names else place
    named = gathered.comparison.with_class_names(names, where)
    budget = RunsDir(study.folder / BUDGET).stored_jsonl
    for path, rows in ((place, named.rows), (budget, named.shorter)):
        if any(row.runs for row in rows):
            add_to_store(path, rows, names)
    return replace(gathered, comparison=named)


# --- a run against its YAML


RESUMED_WITH_OVERRIDE = "was resumed with --override"


def has_override(run_dir: RunDir) -> bool:
    """Return whether a run has steps of several configurations. config.yaml has one set of values."""
    return any(start["changes"] for start in read_jsonl(run_dir.starts_jsonl))


def differences(run: Mapping[str, object], yaml: Mapping[str, object]) -> dict[str, str]:
    """Write a sentence for each key that differs and can change a result. The configurations are flat."""
    return {
        key: f"{key}: the run had {ours!r}, its YAML now says {theirs!r}"
        for key, ours, theirs in differing_keys(run, yaml)
        if key not in PLACE_KEYS or theirs != ""
    }


@dataclass
class Collected:
    """What `store_runs` did with each run folder.

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


def store_runs(run_dirs: Sequence[RunDir], root: Path) -> Collected:
    """Store each finished run of a row below ``root``, the folder of all rows, beside its YAML.

    A run may have another configuration than its YAML. It is "not a row" if the command line or a grid asked for
    the difference, and it is refused otherwise.
    """
    done = Collected()
    new: defaultdict[Path, defaultdict[str, dict[int, Run]]]
    new = defaultdict(lambda: defaultdict(dict))
    for run_dir in run_dirs:
        if not run_dir.result_json.exists():
            done.unfinished.append(run_dir.root)
            continue
        try:
            run = read_run(run_dir)
            yaml = root / f"{run.experiment}.yaml"
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
            problems = differences(file_values(run_dir.config_yaml), values)
            given = given_keys(read_jsonl(run_dir.starts_jsonl))
            asked_for = [problems[key] for key in problems if key in given]
            if has_override(run_dir):
                problems["--override"] = RESUMED_WITH_OVERRIDE
        except InputError as error:
            done.refused[run_dir.root] = list(error.problems)
            continue
        # A difference that was asked for explains all others, so it comes before `problems`.
        if asked_for:
            done.not_rows[run_dir.root] = asked_for
        elif problems:
            done.refused[run_dir.root] = [*problems.values()]
        else:
            new[path][yaml.stem][run.seed] = run
            done.added.append(run_dir.root)
    for path, rows in new.items():
        if any(rows.values()):
            add_to_store(path, [Row(name, runs) for name, runs in rows.items()])
    return done
