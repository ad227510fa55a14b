"""Read runs from run folders and from runs.jsonl. Write runs.jsonl, and export it to results.csv.

runs.jsonl is the store of finished runs. It lies beside the YAMLs of its rows and keeps what their pages and
figures need: a few kilobytes for each run.
"""

from __future__ import annotations

import csv
import io
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from mgexp.config.check import recipe_digest
from mgexp.config.load import from_yaml
from mgexp.config.study import BUDGET, SHORTER_ROWS, STUDY_YAML, read_study, row_yamls
from mgexp.errors import InputError, raise_problems
from mgexp.registry import OwnFile
from mgexp.results.model import (
    COLUMNS,
    Comparison,
    Evaluation,
    Row,
    Run,
    RunKey,
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
)
from mgexp.run.folder import METRIC_NAMES, SMOKE_GIVEN, ExperimentsDir, RunDir, RunsDir

MAIN_SECONDS = ("train", "steady", "input_wait", "program")
"""The clocks of result.json that have a column of their own in results.csv."""
OTHER_SECONDS = ("evaluate", "precise_bn", "checkpoint", "shape_warmup")
"""The clocks that a Run holds by name."""
SECONDS = (*MAIN_SECONDS[:3], *OTHER_SECONDS, "program")
"""All clocks of result.json, in its order."""


def load_comparison(folder: Path) -> Comparison:
    """Read the rows of a folder, and of the folder ``BUDGET`` in it.

    `folder` holds run folders (runs/quickstart), or YAMLs with the runs that were stored beside them
    (experiments/quickstart), or only YAMLs. Raises InputError if it holds neither runs nor YAMLs, or if a file
    cannot be understood.
    """
    if RunDir(folder).starts_jsonl.exists():
        problem = f"{folder} is the folder of one run, and a report is about rows <row>/seed<N>"
        raise InputError([f"{problem}: give the folder that holds the folders of its rows"])
    if row_yamls(folder):
        shorter = read_stored(RunsDir(folder / BUDGET).stored_jsonl).rows
        stored = replace(read_stored(RunsDir(folder).stored_jsonl), shorter=shorter)
        has_study = (folder / STUDY_YAML).exists()
        return stored.timed_since(read_study(folder).since if has_study else None)
    comparison = load_runs(folder)
    if not comparison.rows:
        raise InputError([f"{folder}: holds neither runs nor the YAML of a row; give another"])
    return comparison


# --- run folders


def load_runs(folder: Path) -> Comparison:
    """Read every <row>/seed<N> of `folder` and of its ``BUDGET``. Raises InputError as `load_comparison` does.

    The shorter baselines of a study outside experiments/ are in ``folder`` itself.
    """
    rows: list[Row] = []
    shorter = [*_load_rows(folder / BUDGET)]
    for row in _load_rows(folder):
        labels = [run.row for run in row.runs.values()]
        is_shorter = any(one.startswith((*SHORTER_ROWS.values(),)) for one in labels)
        (shorter if is_shorter else rows).append(row)
    return Comparison((*rows,), _class_names(folder), (*shorter,))


def _class_names(folder: Path) -> tuple[str, ...]:
    """Return the names of the classes that the runs keep. Without names, or if they differ, there are none."""
    found = {names for _, _, run in RunsDir(folder).runs() if (names := run.class_names())}
    return found.pop() if len(found) == 1 else ()


def _load_rows(folder: Path) -> tuple[Row, ...]:
    runs: defaultdict[str, dict[int, Run]] = defaultdict(dict)
    unfinished: defaultdict[str, dict[int, int | None]] = defaultdict(dict)
    wrong = []
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
            wrong.append(
                f"{run_dir.root}: result.json has seed {run.seed}; name the folder after it"
            )
    raise_problems(wrong)
    names = sorted({*runs, *unfinished}, key=row_order)
    return tuple(Row(name, runs[name], unfinished[name]) for name in names)


def read_run(run_dir: RunDir) -> Run:
    """Read everything that a Run holds from the folder of a finished run. Raises InputError as `read_result`."""
    run = read_result(run_dir)
    with understanding(run_dir.root):
        is_smoke, command = _start(run_dir, run.experiment)
        return replace(
            run,
            is_smoke=is_smoke,
            command=command,
            environment=_environment(run_dir),
            evaluations=tuple(map(_evaluation, read_jsonl(run_dir.evaluations_jsonl))),
            confusion=read_confusion(run_dir.confusion_csv),
            recipe=recipe_digest(from_yaml(run_dir.config_yaml)),
            videos=_videos(run_dir, run.top1),
        )


@dataclass(frozen=True)
class Predictions:
    """The scores of the final evaluation: ``videos`` are absolute paths, and ``scores`` is (videos, classes)."""

    videos: tuple[str, ...]
    labels: np.ndarray[Any, np.dtype[np.int64]]
    scores: np.ndarray[Any, np.dtype[np.float32]]

    @property
    def predicted(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The class with the highest score of each video."""
        found: np.ndarray[Any, np.dtype[np.int64]] = self.scores.argmax(axis=1)
        return found


def read_predictions(run_dir: RunDir, top1: float | None) -> Predictions | None:
    """Read the file with the scores that gave the final top-1. Return None without one, or with several labels."""
    # A run may have been evaluated again with other views, so there may be several files.
    for path in sorted(run_dir.root.glob(run_dir.scores("*_forward").name)):
        with np.load(path, allow_pickle=False) as file:
            videos, labels, scores = file["videos"], file["labels"], file["scores"]
        if labels.ndim > 1:
            return None
        found = Predictions(tuple(map(str, videos)), labels, scores)
        if top1 is not None and abs(100 * (found.predicted == labels).mean() - top1) < 1e-6:
            return found
    return None


def _videos(run_dir: RunDir, top1: float | None) -> VideoScores | None:
    """Read which videos were classified correctly. Return None where `read_predictions` finds nothing."""
    found = read_predictions(run_dir, top1)
    if found is None:
        return None
    correct = found.predicted == found.labels
    return pack_videos({name: bool(one) for name, one in zip(found.videos, correct, strict=True)})


def given_keys(starts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the keys that the command lines or grids of ``starts`` gave, with SMOKE_GIVEN for a smoke run.

    ``starts`` are the lines of starts.jsonl.
    """
    return [key for start in starts for key in start.get("given", ())]


def _start(run_dir: RunDir, experiment: str) -> tuple[bool, str]:
    """Return whether the run is a smoke run, and the command that trained it, or "" if that is unknown."""
    starts = read_jsonl(run_dir.starts_jsonl)
    if not starts:
        return False, ""
    given = given_keys(starts)
    values = from_yaml(run_dir.config_yaml)
    keys = [key for key in dict.fromkeys(given) if key in values]
    words = ["python", "tools/run_net.py", "--cfg", _yaml_of(experiment, run_dir)]
    # A row of experiments/ has a run folder by default. A YAML of one's own would get another one there.
    words += [] if "/" in experiment else ["--output", short_path(run_dir.root)]
    files = OwnFile.paths_in(starts[0].get("imports") or "")
    words += [word for path in files for word in ("--import", short_path(path))]
    words += ["--smoke"] if SMOKE_GIVEN in given else []
    words += ["--seed", str(values["RNG_SEED"])] if "RNG_SEED" in keys else []
    words += [str(word) for key in keys if key != "RNG_SEED" for word in (key, values[key])]
    return SMOKE_GIVEN in given, shlex.join(words)


def _yaml_of(experiment: str, run_dir: RunDir) -> str:
    """Return the path of a YAML from the name of its experiment, which has a folder only in experiments/.

    The YAML of one's own is looked for above its run, as in PROJECT/runs/smoke/<row>/seed<N>. A YAML at another
    place is not found. Then the copy in the run folder, which has all keys, stands for it.
    """
    if "/" in experiment:
        return f"experiments/{experiment}.yaml"
    above = [place for folder in run_dir.root.parents[:4] for place in (folder, folder / BUDGET)]
    yamls = [*(place / f"{experiment}.yaml" for place in above), run_dir.config_yaml]
    return next(short_path(one) for one in yamls if one.exists())


def read_result(run_dir: RunDir) -> Run:
    """Read the numbers of a run from result.json. Raises InputError if it is not what a run writes."""
    record = read_json(run_dir.result_json)
    try:
        # A run has either top-1 and top-5 or mAP, so the other metrics may be absent. All other values must exist.
        metrics = {name: record["metrics"].get(name) for name in METRIC_NAMES}
        clocks = {name: float(record["seconds"][name]) for name in SECONDS}
        seconds: dict[str, Any] = {f"{name}_seconds": clocks[name] for name in MAIN_SECONDS}
        rest = {name: record[name] for name in COLUMNS if name not in {*metrics, *seconds}}
        _check_date(rest["date"])
        return Run(
            **metrics,
            **seconds,
            **rest,
            other_cores=record["other_cores"],
            other_seconds=_other_seconds(clocks),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        problem = f"{run_dir.result_json}: is not what a run writes ({error!r})"
        remedy = "remove it and start the run's command again, which evaluates its last checkpoint"
        raise InputError([f"{problem}; {remedy}"]) from error


def _check_date(date: str) -> None:
    """Raise ValueError if the end of a run is no moment with a time zone, with which others can be compared."""
    if datetime.fromisoformat(date).tzinfo is None:
        raise ValueError(f"the date {date} has no time zone")


def _other_seconds(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in seconds.items() if name not in MAIN_SECONDS}


def _environment(run_dir: RunDir) -> dict[str, Any]:
    """Read the environment of all starts. A value that changed becomes "a, then b"."""
    found = read_json(run_dir.environment_json)
    # A run may resume with other threads or on another machine. Then its seconds belong to no single setting. The
    # joined text equals no value of another run, so the run is compared with none.
    latest = dict(found)
    for start in read_jsonl(run_dir.starts_jsonl):
        for name, value in latest.items():
            now = start.get(name, value)
            if now != value:
                found[name], latest[name] = f"{found[name]}, then {now}", now
    return found


def _evaluation(line: Mapping[str, Any]) -> Evaluation:
    """Take the fields of an Evaluation from a line of evaluations.jsonl, which has more fields."""
    # `Run.score` chooses in the same way.
    score = line["map"] if line.get("top1") is None else line["top1"]
    others = {one.name: line[one.name] for one in fields(Evaluation) if one.name != "score"}
    return Evaluation(score=score, **others)


# --- runs.jsonl


def write_stored(path: Path, comparison: Comparison) -> None:
    """Write runs.jsonl: first a line with the names of the classes, then a line for each finished run."""
    lines = [json_line({"class_names": comparison.class_names})]
    for row in comparison.rows:
        for run in row.runs.values():
            main = {name: getattr(run, f"{name}_seconds") for name in MAIN_SECONDS}
            clocks = {**run.other_seconds, **main}
            line = {
                "name": row.name,
                "result": {name: getattr(run, name) for name in COLUMNS},
                "seconds": {name: clocks[name] for name in SECONDS},
                "environment": run.environment,
                "evaluations": [asdict(one) for one in run.evaluations],
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
    # The file is written as a whole. Without its end, it is not a line that a kill has torn.
    if (text := path.read_bytes()) and not text.endswith(b"\n"):
        raise InputError(
            [f"{path}: its last line is not whole; restore the file from git or a copy"]
        )
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
                other_cores=line["other_cores"],
                recipe=line["recipe"],
                videos=VideoScores(**line["videos"]) if line["videos"] else None,
            )
            _check_date(run.date)
            rows.setdefault(line["name"], {})[run.seed] = run
    except (KeyError, TypeError, ValueError) as error:
        problem = f"{path}: does not hold stored runs ({error!r})"
        raise InputError([f"{problem}: restore it from git, or store the runs again"]) from error
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
    newest: dict[RunKey, tuple[datetime, bool, Run]] = {}
    for path in sorted(root.rglob(RunsDir(root).stored_jsonl.name)):
        study = path.parent.parent if path.parent.name == BUDGET else path.parent
        since = read_study(study).since if (study / STUDY_YAML).exists() else None
        for run in read_stored(path).timed_since(since).runs:
            # A study also stores rows of other folders. Their own folder says which seconds count.
            is_home = (root / run.experiment).parent == path.parent
            rank = (run.finished_at, is_home)
            if run.key not in newest or rank > newest[run.key][:2]:
                newest[run.key] = (*rank, run)
    return [run for _, _, run in sorted(newest.values(), key=lambda ranked: ranked[0])]


def export_results(experiments: ExperimentsDir) -> None:
    """Write results.csv from the stored runs of all rows: a line of numbers for each."""
    text = io.StringIO(newline="")
    # The csv module ends lines with "\r\n" by default, and then git would show every line as changed.
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for run in stored_runs(experiments.root):
        values = (getattr(run, name) for name in COLUMNS)
        # Four decimals keep 0.1 ms and 0.0001 percent. The module writes None as "".
        writer.writerow(round(v, 4) if isinstance(v, float) else v for v in values)
    atomic_write_text(experiments.results_csv, text.getvalue())
