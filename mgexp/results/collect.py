"""Decide which finished runs are rows, store them, and gather the runs of a study."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from mgexp.config.check import PLACE_KEYS, differing_keys, recipe_digest
from mgexp.config.load import file_values, flatten, load_config
from mgexp.config.study import BUDGET, Study
from mgexp.errors import InputError
from mgexp.results.load import add_to_store, export_results, given_keys, read_run, read_stored
from mgexp.results.model import BASELINE, COARSE_CONTROL, Comparison, Pair, Row, Run
from mgexp.results.rows import WITHOUT_TABLE
from mgexp.run.files import read_jsonl
from mgexp.run.folder import ExperimentsDir, RunDir, RunsDir

RESUMED_WITH_OVERRIDE = "was resumed with --override; train it again"


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
            asked_for = _asked_for(run_dir, values)
            problems = differences(file_values(run_dir.config_yaml), values) + _overrides(run_dir)
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


def _asked_for(run_dir: RunDir, yaml: Mapping[str, object]) -> list[str]:
    """List the differences to the YAML that the command line or a grid asked for."""
    given = given_keys(read_jsonl(run_dir.starts_jsonl))
    return [
        f"{key}: it was given {ours!r}, its YAML says {theirs!r}"
        for key, ours, theirs in _differing(file_values(run_dir.config_yaml), yaml)
        if key in given
    ]


def _differing(
    run: Mapping[str, object], experiment: Mapping[str, object]
) -> list[tuple[str, object, object]]:
    """List (key, value of the run, value of the YAML) for each key that can change a result."""
    return [
        (key, ours, theirs)
        for key, ours, theirs in differing_keys(run, experiment)
        if key not in PLACE_KEYS or theirs != ""
    ]


def differences(run: Mapping[str, object], experiment: Mapping[str, object]) -> list[str]:
    """Write a sentence for each key that differs and can change a result. The configurations are flat."""
    return [
        f"{key}: the run had {ours!r}, its YAML now says {theirs!r}; train it again"
        for key, ours, theirs in _differing(run, experiment)
    ]


def _overrides(run_dir: RunDir) -> list[str]:
    """Say whether a run has steps of several configurations. config.yaml has one set of values."""
    starts = read_jsonl(run_dir.starts_jsonl)
    has_changed = any(start["changes"] for start in starts)
    return [f"{run_dir.starts_jsonl}: {RESUMED_WITH_OVERRIDE}"] if has_changed else []


# --- the runs of a study


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


RunDirs = Callable[[str, int], Iterable[RunDir]]
"""A function that lists the folders where the run of a row and seed may be."""


def gather_runs(study: Study, run_dirs: RunDirs) -> StudyRuns:
    """Gather the finished runs of a study, from runs.jsonl and from run folders. The newest run of a seed counts.

    A run counts only if its configuration is that of its YAML now.
    """
    others: list[Run] = []
    refused: dict[Path, Sequence[str]] = {}
    rows = {}
    for name, path in study.yamls.items():
        # The YAML of a shorter baseline is written when its row has been measured.
        if not path.exists():
            rows[name] = Row(name)
            continue
        values = dict(flatten(load_config(path)))
        recipe, seeds = recipe_digest(values), range(study.num_seeds(name))
        candidates: list[tuple[int, Run]] = []
        # A row of another folder may be stored there, by a study of that folder, and here.
        for place in dict.fromkeys((path.parent, study.folder)):
            for seed, run in read_stored(RunsDir(place).stored_jsonl).row(name).runs.items():
                if run.recipe != recipe:
                    others.append(run)
                elif seed in seeds:
                    candidates.append((seed, run))
        for seed in seeds:
            for run_dir in run_dirs(name, seed):
                if run_dir.result_json.exists():
                    run = read_run(run_dir)
                    problems = _problems(run_dir, run, seed, values)
                    if problems:
                        refused[run_dir.root] = problems
                    else:
                        candidates.append((seed, run))
        # If a run is stored and has a folder, the folder comes later and says more.
        candidates.sort(key=lambda candidate: candidate[1].finished_at)
        rows[name] = Row(name, dict(sorted(dict(candidates).items())))
    comparison = Comparison(
        tuple(rows[name] for name in study.names),
        shorter=tuple(rows[name] for name in study.budget_rows),
    )
    return StudyRuns(study, comparison.timed_since(study.since), tuple(others), refused)


def _problems(run_dir: RunDir, run: Run, seed: int, values: Mapping[str, object]) -> Sequence[str]:
    """List why a finished run is not that of ``seed`` of its YAML, which has the configuration ``values``."""
    # Without its evaluations, a run would count as one that never reaches the target. Controls add evaluations.
    if not run_dir.evaluations_jsonl.exists():
        return [f"{run_dir.evaluations_jsonl} is gone"]
    problems = []
    if run.seed != seed:
        problems.append(f"its result.json has seed {run.seed}, not {seed}")
    if run.recipe != recipe_digest(values):
        problems += differences(file_values(run_dir.config_yaml), values)
    return problems + _overrides(run_dir)


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
