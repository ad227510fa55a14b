"""Collect the contents of experiments/README.md: the rows of each table, and the row to compare each row with."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

from mgexp.config.study import STUDY_YAML
from mgexp.config.values import BASE_KEY, parse_yaml
from mgexp.errors import InputError, raise_problems
from mgexp.results.load import stored_runs
from mgexp.results.model import BASELINE, Pair, Row, Run, row_order
from mgexp.run.files import understanding
from mgexp.run.folder import METRIC_NAMES, ExperimentsDir

WITHOUT_TABLE = ("base", "own_data")
"""Folders of experiments/ that hold no rows: the shared base files, and files to copy for your own videos."""
NO_CHANGE = {BASE_KEY, "ROW", "EXPECTED"}
"""Keys that do not change the recipe. A YAML with only these keys is its base under another name."""
COMMAND = re.compile(r"^# *(python tools/run_net\.py .*(?:(?<=\\)\n#.*)*)", re.MULTILINE)
"""The command in the comments of a YAML. A line that ends with a backslash continues in the next line."""
FIRST = ("main", "models", "pretraining", "one_gpu", "datasets", "ablations", "tsm", "large_batch")
LAST = ("beyond", "quickstart")
"""Folders of experiments/ in the order of their tables. Other folders come between FIRST and LAST."""


# --- the YAMLs


@dataclass(frozen=True)
class Experiment:
    """A YAML that is a row. `name` is its path below experiments/ without .yaml, such as quickstart/baseline.

    `label` is its ROW key, or else the name of its file. `base` is the name of the YAML in its `_BASE_` key, or
    "". `is_plain` says that the YAML changes nothing of its base. `command` trains the row.
    """

    name: str
    label: str
    base: str
    is_plain: bool
    command: str

    @property
    def folder(self) -> str:
        return self.name.rpartition("/")[0]

    @property
    def file(self) -> str:
        return self.name.rpartition("/")[2]

    @property
    def is_baseline(self) -> bool:
        """Whether this row is a baseline: other rows are compared with it, and it is compared with none."""
        return self.is_plain or self.file.endswith(BASELINE)


def _natural(name: str) -> tuple[tuple[float, str], ...]:
    """Make a sort key that puts 8x before 16x, and 0.0025 before 0.01."""
    parts = re.findall(r"(\d+(?:\.\d+)?)|(\D+)", name)
    return tuple((float(number), "") if number else (float("inf"), text) for number, text in parts)


def read_experiments(root: Path) -> dict[str, Experiment]:
    """Read every YAML below `root` that is a row, by name. Raises InputError if one is not a plain YAML."""
    rows = {}
    for path in sorted(root.rglob("*.yaml")):
        is_in_table = path.relative_to(root).parts[0] not in WITHOUT_TABLE
        if is_in_table and path.name != STUDY_YAML:
            row = _read_row(path, root)
            rows[row.name] = row
    return rows


def _read_row(path: Path, root: Path) -> Experiment:
    with understanding(path):
        text = path.read_text(encoding="utf-8")
        try:
            tree = parse_yaml(text)
        except ValueError as error:
            raise InputError([f"{path} is not a YAML file: {error}"]) from error
        values = tree if isinstance(tree, dict) else {}
        name = _name(path, root)
        # A YAML may have several bases. The first is the one that it changes.
        base = values.get(BASE_KEY, [])
        bases = [base] if isinstance(base, str) else base
        command = re.search(COMMAND, text)
        return Experiment(
            name=name,
            label=str(values.get("ROW") or name.rpartition("/")[2]),
            base=_name(path.parent / bases[0], root) if bases else "",
            is_plain=BASE_KEY in values and not values.keys() - NO_CHANGE,
            # The command may have several lines of comment. Make them lines of a shell.
            command=re.sub(r"\n# *", "\n    ", command[1]).strip()
            if command
            else f"python tools/run_net.py --cfg {root.name}/{name}.yaml",
        )


def _name(path: Path, root: Path) -> str:
    """Return the path of a YAML below ``root`` without .yaml. "" if it lies elsewhere."""
    path, root = path.resolve(), root.resolve()
    if not path.is_relative_to(root):
        return ""
    return path.relative_to(root).as_posix().removesuffix(".yaml")


# --- published.csv


@dataclass(frozen=True)
class Published:
    """A line of published.csv; the fields are its columns. `value` is percent, as it was published."""

    experiment: str
    metric: str
    value: str
    source: str
    note: str


def read_published(published_csv: Path) -> tuple[Published, ...]:
    """Read the published scores of the rows with their sources. Without the file there are none.

    People write this file by hand, so the InputError lists every problem at once.
    """
    if not published_csv.exists():
        return ()
    with published_csv.open(encoding="utf-8", newline="") as file, understanding(published_csv):
        columns, *lines = list(csv.reader(file)) or [[]]
    names = [field.name for field in fields(Published)]
    if columns != names:
        raise InputError([f"{published_csv}: its first line is not {','.join(names)!r}"])
    published, problems = [], []
    for number, cells in enumerate(lines, start=2):
        where = f"{published_csv}, line {number}:"
        if len(cells) != len(names):
            # Perhaps a text with a comma has no quotes.
            problems.append(f"{where} has {len(cells)} cells, not {len(names)}")
            continue
        line = Published(*cells)
        if line.metric not in METRIC_NAMES:
            problems.append(f"{where} the metric {line.metric!r} is unknown")
        if not line.value.replace(".", "", 1).isdecimal():
            problems.append(f"{where} the value {line.value!r} is not a percentage, such as 76.8")
        if not line.source:
            problems.append(f"{where} has no source")
        published.append(line)
    raise_problems(problems)
    return tuple(published)


# --- the page


def count_results(runs: Iterable[Run]) -> tuple[dict[str, Row], tuple[Run, ...]]:
    """Return the runs of each experiment that count, by its name, and all other runs.

    Those count that have the recipe, precision and number of videos of the newest run of their experiment.
    """
    groups: defaultdict[str, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.finished_at):
        groups[run.experiment].append(run)
    rows, others = {}, []
    for experiment, group in sorted(groups.items()):
        # A mean over two recipes describes neither.
        recipe = (group[-1].recipe, group[-1].score_setting)
        same = [run for run in group if (run.recipe, run.score_setting) == recipe]
        counts = {run.seed: run for run in sorted(same, key=lambda run: run.seed)}
        rows[experiment] = Row(experiment, counts)
        others += [run for run in group if run is not counts.get(run.seed)]
    return rows, tuple(others)


@dataclass(frozen=True)
class Page:
    """Everything that the page shows. `root` is the folder experiments/, with all its rows by name."""

    root: Path
    experiments: Mapping[str, Experiment]
    published: tuple[Published, ...] = ()
    results: tuple[Run, ...] = ()

    @cached_property
    def counted(self) -> tuple[dict[str, Row], tuple[Run, ...]]:
        return count_results(self.results)

    @cached_property
    def folders(self) -> tuple[str, ...]:
        """The tables, in the order of the page."""

        def place(folder: str) -> tuple[object, ...]:
            top = folder.split("/", maxsplit=1)[0]
            if top in LAST:
                return 2, LAST.index(top), _natural(folder)
            return *((0, FIRST.index(top)) if top in FIRST else (1, 0)), _natural(folder)

        return tuple(sorted({row.folder for row in self.experiments.values()}, key=place))

    def table(self, folder: str) -> tuple[Experiment, ...]:
        """List the rows of a folder. As in the paper, each baseline comes before the rows that belong to it."""

        def order(row: Experiment) -> tuple[object, ...]:
            baseline = self.baseline(row)
            first = baseline if baseline and baseline.folder == row.folder else row
            group = () if baseline and baseline != first else _natural(first.file)
            return group, baseline is not None, row_order(row.file)[0], _natural(row.file)

        inside = (row for row in self.experiments.values() if row.folder == folder)
        return tuple(sorted(inside, key=order))

    def parent(self, row: Experiment) -> Experiment | None:
        """Return the row that the `_BASE_` key of ``row`` names, or None if the key names a base file."""
        return self.experiments.get(row.base)

    def baseline(self, row: Experiment) -> Experiment | None:
        """Find the row to compare ``row`` with. Return None if there is none, as for a baseline.

        It is the first of these that exists: the row baseline_<name of the row> in the same folder; a row called
        <prefix>baseline in the same folder, where the name of the row begins with <prefix> (the longest prefix
        wins); a row in any table that changes nothing of the base file.
        """
        if row.is_baseline:
            return None
        rows = self.experiments.values()
        beside = [other for other in rows if other.folder == row.folder and other != row]
        own = [other for other in beside if other.file == f"{BASELINE}_{row.file}"]
        prefixed = [
            other
            for other in beside
            if other.file.endswith(BASELINE) and row.file.startswith(other.file[: -len(BASELINE)])
        ]
        # In a folder with baseline and imagenet_baseline, the row imagenet_long belongs to the second.
        prefixed.sort(key=lambda other: -len(other.file))
        # Follow the `_BASE_` keys to the last file. A file that is its own base ends there too.
        seen, base_file = {row.name}, row.base
        while base_file in self.experiments and base_file not in seen:
            seen.add(base_file)
            base_file = self.experiments[base_file].base
        plain = [other for other in rows if other.is_plain and other.base == base_file]
        plain.sort(
            key=lambda other: (other.folder != row.folder, other.file != BASELINE, other.name)
        )
        return next(iter([*own, *prefixed, *plain]), None)

    def all_rows(self, folder: str) -> list[Experiment]:
        """List the rows of a table. Baselines and parents from other folders come first."""
        inside = self.table(folder)
        others = [self.baseline(row) for row in inside] + [self.parent(row) for row in inside]
        outside = [row for row in others if row and row.folder != folder]
        return list(dict.fromkeys([*outside, *inside]))

    def row(self, experiment: Experiment) -> Row:
        """Return the runs of an experiment that count, or an empty Row."""
        return self.counted[0].get(experiment.name, Row(experiment.name))

    def against_baseline(self, row: Experiment) -> Pair | None:
        """Pair a row with its baseline. Return None if it has no baseline or was not run."""
        return self._pair(row, self.baseline(row))

    def against_parent(self, row: Experiment) -> Pair | None:
        """Pair a row with the row that its YAML changes. Return None if this is also its baseline."""
        parent = self.parent(row)
        return self._pair(row, parent if parent != self.baseline(row) else None)

    def _pair(self, row: Experiment, base: Experiment | None) -> Pair | None:
        own = self.row(row)
        return Pair(own, self.row(base)) if base and own.runs else None


def read_page(experiments: ExperimentsDir) -> Page:
    """Read all files. Raises InputError if one cannot be understood or names a row that does not exist."""
    page = Page(
        experiments.root,
        read_experiments(experiments.root),
        read_published(experiments.published_csv),
        tuple(stored_runs(experiments.root)),
    )
    unknown = [
        line.experiment for line in page.published if line.experiment not in page.experiments
    ]
    raise_problems([f"{experiments.published_csv}: {name}.yaml is not a row" for name in unknown])
    return page
