"""What experiments/README.md says, before it is text: the rows of each table, and what each is held against."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mgexp.config.experiment_rows import Experiment, Experiments, read_experiments
from mgexp.errors import InputError
from mgexp.record.counted import Count, Measured, Versus, count
from mgexp.record.published import Published, read_published
from mgexp.record.results import Result, read_results
from mgexp.record.run_dir import ExperimentsDir

ORDER = ("main", "models", "pretraining", "one_gpu", "datasets", "ablations", "tsm", "large_batch")
LAST = ("beyond", "quickstart")
"""Folders of experiments/ in the order of their tables; others come between the two."""


@dataclass(frozen=True)
class Line:
    """A row in one setting; `measured` None where it was not run."""

    row: Experiment
    measured: Measured | None
    versus_baseline: Versus | None = None
    versus_parent: Versus | None = None


@dataclass(frozen=True)
class Page:
    """All that the page is made from. `root`: the folder experiments/."""

    root: Path
    experiments: Experiments
    published: tuple[Published, ...]
    results: tuple[Result, ...]

    @cached_property
    def count(self) -> Count:
        """Which results count."""
        return count(self.results)

    @cached_property
    def folders(self) -> tuple[str, ...]:
        """The tables in their order."""
        return tuple(sorted(self.experiments.folders, key=_place))

    def lines(self, folder: str) -> list[Line]:
        """Of a table; first the baselines and parents that lie in other folders."""
        inside = self.experiments.table(folder)
        others = [self.experiments.baseline(row) for row in inside]
        others += [self.experiments.parent(row) for row in inside]
        outside = [row for row in others if row and row.folder != folder]
        return [line for row in dict.fromkeys([*outside, *inside]) for line in self.lines_of(row)]

    def published_of(self, row: Experiment, metrics: Iterable[str]) -> str | None:
        """The number to hold against ours."""
        found = (one for one in self.published if one.experiment == row.name)
        return next((one.value for one in found if one.metric in metrics), None)

    def was_run(self, row: Experiment) -> bool:
        """Whether it has a result."""
        return row.name in self.count.measured

    def lines_of(self, row: Experiment) -> list[Line]:
        """A line for each setting that a row was run in, one where it was not run."""
        baseline, parent = self.experiments.baseline(row), self.experiments.parent(row)
        parent = None if parent == baseline else parent
        return [
            Line(row, one, self._versus(baseline, one), self._versus(parent, one))
            for one in self.count.measured.get(row.name, ())
        ] or [Line(row, None)]

    def _versus(self, base: Experiment | None, own: Measured) -> Versus | None:
        if base is None:
            return None
        return Versus(self.count.of(base.name, own.setting) or Measured(own.setting, {}), own)


def read_page(experiments: ExperimentsDir) -> Page:
    """From the files. Raises InputError where one cannot be understood, or names a row that is none."""
    page = Page(
        experiments.root,
        read_experiments(experiments.root),
        read_published(experiments.published_csv),
        read_results(experiments.results_csv),
    )
    names = dict.fromkeys(one.experiment for one in page.published)
    unknown = [name for name in names if name not in page.experiments.rows]
    if unknown:
        where = experiments.published_csv
        raise InputError([f"{where}: {name}.yaml is no row; correct its name" for name in unknown])
    return page


def _place(folder: str) -> tuple[int, int]:
    """Of a table in the page; a stable sort keeps those of a top folder in their order."""
    top = folder.split("/", maxsplit=1)[0]
    if top in LAST:
        return 2, LAST.index(top)
    return (0, ORDER.index(top)) if top in ORDER else (1, 0)
