"""What experiments/README.md says, before it is text: the rows of each table, and what each is held against."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mgexp.config.values import BASE_KEY, parse_yaml
from mgexp.errors import InputError
from mgexp.results.compare import BASELINE, row_order
from mgexp.results.counted import Count, Measured, Versus, count
from mgexp.results.table import Published, Result, read_published, read_results
from mgexp.run.folder import ExperimentsDir

BASES = "base"
WITHOUT_TABLE = (BASES, "own_data")
"""Folders that hold no rows: what rows share, and files to copy for own videos."""
NO_CHANGE = {BASE_KEY, "ROW", "EXPECTED"}
"""Keys that a row may have and still be no more than its base."""
COMMAND = re.compile(r"^# *(python tools/run_net\.py .*(?:(?<=\\)\n#.*)*)", re.MULTILINE)
"""The command in the comments of a YAML: lines that end in a backslash go on."""


@dataclass(frozen=True)
class Experiment:
    """A row. `name` is the path of its YAML below experiments/ without .yaml, such as quickstart/baseline.

    `label` is its ROW, else its file's name; `base` the name of what it is based on, "" for none;
    `is_plain`: it changes nothing of that; `command` trains it.
    """

    name: str
    label: str
    base: str
    is_plain: bool
    command: str

    @property
    def folder(self) -> str:
        """The name of its table."""
        return self.name.rpartition("/")[0]

    @property
    def file(self) -> str:
        """The last part of its name."""
        return self.name.rpartition("/")[2]

    @property
    def is_baseline(self) -> bool:
        """Whether others are held against it, and it against none."""
        return self.is_plain or self.file.endswith(BASELINE)


@dataclass(frozen=True)
class Experiments:
    """All rows by name."""

    rows: Mapping[str, Experiment]

    @cached_property
    def folders(self) -> tuple[str, ...]:
        """The tables, by name."""
        return tuple(sorted({row.folder for row in self.rows.values()}, key=_natural))

    def table(self, folder: str) -> tuple[Experiment, ...]:
        """The rows of a folder: each baseline before those that are held against it, as in the paper."""
        return tuple(sorted(self._inside(folder), key=self._order))

    def parent(self, row: Experiment) -> Experiment | None:
        """The row that it changes; None where it is over a base file."""
        return self.rows.get(row.base)

    def baseline(self, row: Experiment) -> Experiment | None:
        """The row that it is held against; None where it is a baseline, or has none.

        That is, in this order: baseline_<its name> beside it; the row beside it called <prefix>baseline, where
        <prefix> begins its own name (the longest); what changes nothing of its base file, beside it or in
        another table.
        """
        if row.is_baseline:
            return None
        beside = [one for one in self._inside(row.folder) if one != row]
        own = [one for one in beside if one.file == f"{BASELINE}_{row.file}"]
        named = [one for one in beside if one.file.endswith(BASELINE)]
        prefixed = [one for one in named if row.file.startswith(one.file[: -len(BASELINE)])]
        prefixed.sort(key=lambda one: -len(one.file))
        plain = [one for one in self.rows.values() if one.is_plain and one.base == self._root(row)]
        plain.sort(key=lambda one: (one.folder != row.folder, one.file != BASELINE, one.name))
        return next(iter([*own, *prefixed, *plain]), None)

    def _root(self, row: Experiment) -> str:
        """The base file below all rows that it is over; "" where there is none."""
        seen = {row.name}
        while (above := self.rows.get(row.base)) and above.name not in seen:
            seen.add(above.name)
            row = above
        return row.base

    def _inside(self, folder: str) -> Iterator[Experiment]:
        return (row for row in self.rows.values() if row.folder == folder)

    def _order(self, row: Experiment) -> tuple[object, ...]:
        baseline = self.baseline(row)
        first = baseline if baseline and baseline.folder == row.folder else row
        group = () if baseline and baseline != first else _natural(first.file)
        return group, baseline is not None, row_order(row.file)[0], _natural(row.file)


def _natural(name: str) -> tuple[tuple[float, str], ...]:
    """Sorts 8x before 16x, and 0.0025 before 0.01."""
    parts = re.findall(r"(\d+(?:\.\d+)?)|(\D+)", name)
    return tuple((float(number), "") if number else (float("inf"), text) for number, text in parts)


def read_experiments(root: Path) -> Experiments:
    """Every YAML below `root` that is a row. Raises InputError where one is no plain YAML."""
    paths = sorted(root.rglob("*.yaml"))
    found = (path for path in paths if path.relative_to(root).parts[0] not in WITHOUT_TABLE)
    rows = (_read(path, root) for path in found)
    return Experiments({row.name: row for row in rows})


def _read(path: Path, root: Path) -> Experiment:
    text = path.read_text(encoding="utf-8")
    try:
        values = parse_yaml(text)
    except ValueError as error:
        raise InputError([f"{path} is not a YAML file of configuration keys: {error}"]) from error
    values = values if isinstance(values, dict) else {}
    name = _name(path, root)
    given = re.search(COMMAND, text)
    return Experiment(
        name=name,
        label=str(values.get("ROW") or name.rpartition("/")[2]),
        base=_base(values.get(BASE_KEY), path, root),
        is_plain=BASE_KEY in values and not values.keys() - NO_CHANGE,
        command=_unfolded(given[1])
        if given
        else f"python tools/run_net.py --cfg {root.name}/{name}.yaml",
    )


def _unfolded(command: str) -> str:
    """Lines of a comment as lines of a shell."""
    return re.sub(r"\n# *", "\n    ", command).strip()


def _base(value: object, path: Path, root: Path) -> str:
    """The name of the (first) file that a YAML is over; "" where it is not below `root`."""
    first = value[0] if isinstance(value, list) and value else value
    if not isinstance(first, str):
        return ""
    base = (path.parent / first).resolve()
    return _name(base, root) if base.is_relative_to(root.resolve()) else ""


def _name(path: Path, root: Path) -> str:
    return path.resolve().relative_to(root.resolve()).as_posix().removesuffix(".yaml")


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
