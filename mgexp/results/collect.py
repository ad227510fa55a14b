"""Decide which finished runs are rows, store them, and gather the runs of a study."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from mgexp.config.check import PLACE_KEYS, differing_keys, recipe_digest
from mgexp.config.load import flatten, from_yaml, load_config
from mgexp.config.study import BUDGET, Study
from mgexp.errors import InputError
from mgexp.results.load import (
    add_to_store,
    export_results,
    given_keys,
    read_run,
    read_stored,
)
from mgexp.results.model import Comparison, Row, Run
from mgexp.results.rows import WITHOUT_TABLE
from mgexp.run.files import read_jsonl
from mgexp.run.folder import SMOKE_GIVEN, ExperimentsDir, RunDir, RunsDir

RESUMED_WITH_OVERRIDE = "was resumed with --override; train it again"


@dataclass
class Collected:
    """The result of `store_runs`: what it did with each run folder.

    Runs of `own` belong to a YAML that is no row of experiments/, or are smoke runs; they get a report alone. Runs
    of `skipped` were stored already, or a newer run of their seed was. Runs of `not_rows` had other values than
    their YAML, from the command line or a grid. Runs of `refused` have an error. `not_rows` and `refused` list all
    reasons for a run.
    """

    added: list[Path] = field(default_factory=list)
    own: list[Path] = field(default_factory=list)
    skipped: list[Path] = field(default_factory=list)
    unfinished: list[Path] = field(default_factory=list)
    not_rows: dict[Path, list[str]] = field(default_factory=dict)
    refused: dict[Path, list[str]] = field(default_factory=dict)


def store_runs(runs: Sequence[RunDir], experiments: ExperimentsDir) -> Collected:
    """Store each finished run of a row beside its YAML, and export results.csv. May be called again at any time.

    A run may have another configuration than its YAML. It is "not a row" if the command line or a grid asked for
    the difference, and it is refused otherwise.
    """
    done = Collected()
    new: defaultdict[Path, dict[str, dict[int, Run]]] = defaultdict(lambda: defaultdict(dict))
    for run_dir in runs:
        if not run_dir.result_json.exists():
            done.unfinished.append(run_dir.root)
            continue
        try:
            run = read_run(run_dir)
            if is_own(run_dir, run.experiment, experiments.root):
                done.own.append(run_dir.root)
                continue
            yaml = experiments.root / f"{run.experiment}.yaml"
            path = RunsDir(yaml.parent).stored_jsonl
            earlier = {**read_stored(path).row(yaml.stem).runs, **new[path][yaml.stem]}
            if run.seed in earlier and earlier[run.seed].finished_at >= run.finished_at:
                done.skipped.append(run_dir.root)
                continue
            asked_for, problems = _differences(run_dir, yaml)
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
                add_to_store(path, [Row(name, found) for name, found in rows.items()])
        export_results(experiments)
    return done


def is_own(run: RunDir, experiment: str, experiments_root: Path) -> bool:
    """Return whether a run is of a user's own YAML or videos, or a smoke run. No table has such runs."""
    if experiment.partition("/")[0] in WITHOUT_TABLE:
        return True
    if not (experiments_root / f"{experiment}.yaml").exists():
        return True
    return SMOKE_GIVEN in given_keys(read_jsonl(run.starts_jsonl))


def _differences(run: RunDir, path: Path) -> tuple[list[str], list[str]]:
    """Compare a run with its YAML. Return the differences that were asked for, and every problem.

    The command line or a grid asks for a difference.
    """
    # The table promises that each number comes from the YAML beside it. So compare the run with the YAML of today,
    # and not with the YAML of the day on which the run started.
    saved, now = from_yaml(run.config_yaml), dict(flatten(load_config(path)))
    starts = read_jsonl(run.starts_jsonl)
    given = {*given_keys(starts)}
    asked_for = [
        f"{key}: it was given {ours!r}, its YAML says {theirs!r}"
        for key, ours, theirs in _differing(saved, now)
        if key in given
    ]
    problems = differences(saved, now)
    # config.yaml has one set of values. After a resume with --override, some steps were trained with others.
    if any(start["changes"] for start in starts):
        problems.append(f"{run.starts_jsonl}: {RESUMED_WITH_OVERRIDE}")
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
        if key not in PLACE_KEYS or theirs != "":
            yield key, ours, theirs


# --- the runs of a study


@dataclass(frozen=True)
class Gathered:
    """The finished runs of a study, in one comparison.

    ``of_another_recipe`` are stored runs that do not count, because their YAML says something else now.
    ``refused`` are finished run folders that do not count, with the reasons.
    """

    comparison: Comparison
    of_another_recipe: tuple[Run, ...] = ()
    refused: Mapping[Path, Sequence[str]] = field(default_factory=dict)

    @property
    def runs(self) -> Mapping[tuple[str, int], Run]:
        """Every finished run by row and seed, also those of shorter baselines."""
        rows = (*self.comparison.rows, *self.comparison.shorter)
        return {(row.name, seed): run for row in rows for seed, run in row.runs.items()}


def gather_runs(study: Study, run_dirs: Callable[[str, int], Iterable[RunDir]]) -> Gathered:
    """Gather the finished runs of a study, from runs.jsonl and from run folders. The newest run of a seed counts.

    ``run_dirs`` lists the folders where the run of a row and seed may be. A run counts only if its configuration
    is that of its YAML now. Raises InputError if a YAML or a file of results cannot be understood.
    """
    others: list[Run] = []
    refused: dict[Path, Sequence[str]] = {}
    rows = []
    for name, path in study.yamls.items():
        # The YAML of a shorter baseline is written when its row has been measured.
        if not path.exists():
            rows.append(Row(name))
            continue
        values = dict(flatten(load_config(path)))
        recipe = recipe_digest(values)
        runs: dict[int, Run] = {}
        # A row of another folder may be stored there, by a study of that folder, and here.
        for place in dict.fromkeys((path.parent, study.folder)):
            for seed, run in read_stored(RunsDir(place).stored_jsonl).row(name).runs.items():
                if run.recipe != recipe:
                    others.append(run)
                elif seed < study.num_seeds(name):
                    runs[seed] = _newest(run, runs.get(seed))
        for seed in range(study.num_seeds(name)):
            for run_dir in run_dirs(name, seed):
                if not run_dir.result_json.exists():
                    continue
                if not run_dir.evaluations_jsonl.exists():
                    lost = f"{run_dir.evaluations_jsonl} is gone: restore it, or remove the folder"
                    refused[run_dir.root] = [lost]
                    continue
                # A control adds an evaluation to a finished run.
                files = (run_dir.result_json, run_dir.evaluations_jsonl)
                run = _read_once(run_dir.root, *(path.stat().st_mtime_ns for path in files))
                if problems := _problems(run_dir, run, seed, recipe, values):
                    refused[run_dir.root] = problems
                else:
                    runs[seed] = _newest(run, runs.get(seed))
        rows.append(Row(name, dict(sorted(runs.items()))))
    own, shorter = (
        tuple(row for row in rows if row.name in names)
        for names in (study.names, study.budget_rows)
    )
    comparison = Comparison(own, shorter=shorter).timed_since(study.since)
    return Gathered(comparison, tuple(others), refused)


def _newest(one: Run, other: Run | None) -> Run:
    """Choose the newer of two runs of a seed. Of a run that is stored and has a folder, the folder says more."""
    return one if other is None or one.finished_at >= other.finished_at else other


@cache
def _read_once(root: Path, *_stamps: int) -> Run:
    """Read a run folder again only if its files have changed. A study looks at all of them after each run."""
    return read_run(RunDir(root))


def _problems(
    run_dir: RunDir, run: Run, seed: int, recipe: str, values: Mapping[str, object]
) -> Sequence[str]:
    """List why a finished run is not that of ``seed`` of its YAML, which has the configuration ``values``."""
    problems = []
    if run.seed != seed:
        problems.append(f"it is a copy: its result.json has seed {run.seed}, not {seed}; remove it")
    if run.recipe != recipe:
        problems += differences(from_yaml(run_dir.config_yaml), values)
    if any(start["changes"] for start in read_jsonl(run_dir.starts_jsonl)):
        problems.append(f"{run_dir.starts_jsonl}: {RESUMED_WITH_OVERRIDE}")
    return problems


def store_gathered(study: Study, gathered: Gathered, class_names: tuple[str, ...]) -> Gathered:
    """Write the runs of a study into runs.jsonl beside study.yaml, and those of shorter baselines into budget/.

    A run that is only in the file stays there, also that of a seed or a row which the study no longer has. Without
    ``class_names`` the stored names stay. Return the runs of the study with the names.
    """
    place = RunsDir(study.folder).stored_jsonl
    names = class_names or read_stored(place).class_names
    budget = RunsDir(study.folder / BUDGET).stored_jsonl
    # Names that do not fit must not reach the file, which the next call reads.
    where = study.classes if class_names else place
    found = gathered.comparison.with_class_names(names, where)
    for path, rows in ((place, found.rows), (budget, found.shorter)):
        if any(row.runs for row in rows):
            add_to_store(path, rows, names)
    return replace(gathered, comparison=found)
