"""Gather the finished runs of a study from runs.jsonl and from run folders, and store them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from mgexp.config.check import recipe_digest
from mgexp.config.load import file_values, flatten, load_config
from mgexp.config.study import BUDGET, Study
from mgexp.results.comparison import BASELINE, COARSE_CONTROL, Comparison, Pair, Row
from mgexp.results.runs import Run, read_run
from mgexp.results.store import (
    RESUMED_WITH_OVERRIDE,
    add_to_store,
    differences,
    has_override,
    read_stored,
)
from mgexp.run.folder import RunDir, RunsDir


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
