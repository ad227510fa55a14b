"""Read study.yaml: which rows a study trains with which seeds, and what it claims before it trains them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, get_args, get_type_hints

import yaml

from mgexp.config.check import recipe_digest
from mgexp.config.keys import BY_NAME
from mgexp.config.load import experiment_name, flatten, load_config
from mgexp.config.values import as_lists, convert, read_mapping
from mgexp.errors import InputError, raise_problems
from mgexp.run.files import is_file, short_path
from mgexp.text import counted, shown

STUDY_YAML = "study.yaml"
BUDGET = "budget"
"""The folder beside the rows that holds the baseline for fewer epochs. tools/study.py writes its YAMLs."""
SHORTER_ROWS = {"FLOPs": "baseline, FLOPs of ", "seconds": "baseline, seconds of "}
"""How ROW begins in the YAML of a baseline with fewer epochs, by what it shares with a row."""
FLOPS_NAME, SECONDS_NAME = "as_{row}", "as_{row}_in_seconds"
"""Names of the baselines that take as many FLOPs, or as many seconds, as a row."""
OTHERS = "others"
"""The key of a mapping that stands for every row without a key of its own."""
CONTROLS = {*get_args(BY_NAME["TEST.FRAME_ORDER"].type)} - {"forward"}
"""The frame orders in which a trained baseline may be evaluated."""
MAX_SEEDS = 1000
EPOCH_KEYS = ("SOLVER.STEPS", "SOLVER.MAX_EPOCH", "SOLVER.WARMUP_EPOCHS")
"""The keys that a shorter baseline multiplies by one factor. So its rate decays fully, after the same shares."""


def row_yamls(folder: Path) -> list[Path]:
    """List the YAMLs of a folder that are rows, sorted: all but the file of its study."""
    return sorted(path for path in folder.glob("*.yaml") if path.name != STUDY_YAML)


@dataclass(frozen=True)
class Task:
    """One thing to do for a study: train ``row`` with ``seed``, or evaluate that run with another frame order."""

    row: str
    seed: int
    frame_order: str = "forward"

    @property
    def is_control(self) -> bool:
        return self.frame_order != "forward"


@dataclass(frozen=True)
class Study:
    """The contents of study.yaml in ``folder``.

    ``rows`` has names of files without .yaml, or paths such as ../quickstart/baseline, whose last part names the
    row. The claim about each row is that it is not worse than its base by more than ``margin`` points. ``target``
    is the percent of "time to target". ``compared_with`` names the base of a row; the default is ``baseline``.
    ``controls`` are frame orders in which the first ``control_seeds`` runs of the baseline are evaluated. For the
    rows of ``equal_flops`` and ``equal_seconds``, the baseline is also trained for as many FLOPs or seconds as the
    row; the seconds come from the first ``seconds_pairs`` pairs. The seconds of runs that ended before
    ``seconds_since`` do not count. ``classes`` is a file with the names of classes.
    """

    folder: Path
    rows: tuple[str, ...]
    seeds: Mapping[str, int]
    margin: float
    target: float | None = None
    baseline: str = "baseline"
    compared_with: Mapping[str, str] = field(default_factory=dict)
    controls: tuple[str, ...] = ()
    control_seeds: int = 3
    equal_flops: tuple[str, ...] = ()
    equal_seconds: tuple[str, ...] = ()
    seconds_pairs: int = 3
    seconds_since: str = ""
    classes: str = ""

    def __post_init__(self) -> None:
        raise_problems([f"{self.folder / STUDY_YAML}: {problem}" for problem in self._problems()])

    def _problems(self) -> list[str]:
        # `read_study` has checked the type of each value.
        names, problems = self.names, []
        if len(set(names)) < len(names) or not names:
            problems.append(f"rows = {list(self.rows)} is empty or has a name twice")
        for row, path in self.yamls.items():
            if row in names and not is_file(path):
                problems.append(f"rows: {path} does not exist")
        known = {*names, OTHERS}
        places: list[tuple[str, Sequence[str], set[str]]] = [
            ("baseline", [self.baseline], set(names)),
            ("equal_flops", self.equal_flops, set(names) - {self.baseline}),
            ("equal_seconds", self.equal_seconds, set(names) - {self.baseline}),
            ("seeds", [*self.seeds], known | set(self.budget_rows)),
            ("compared_with", [*self.compared_with], known),
            ("compared_with", [*self.compared_with.values()], set(names)),
            ("controls", self.controls, CONTROLS),
        ]
        for key, given, allowed in places:
            problems += [
                f"{key} names {name}, which is none of {', '.join(sorted(allowed))}"
                for name in given
                if name not in allowed
            ]
        problems += [
            f"compared_with: {row} is compared with {base}, which says nothing"
            for row, base in self.compared_with.items()
            if row in {base, self.baseline}
        ]
        missing = [name for name in names if not {name, OTHERS} & self.seeds.keys()]
        if missing:
            problems.append(f"seeds has no number for {', '.join(missing)}")
        is_legal = {
            "seeds": all(1 <= number <= MAX_SEEDS for number in self.seeds.values()),
            "margin": self.margin > 0,
            "target": self.target is None or 0 < self.target <= 100,
            # Such as 2026-11-26T02:05+00:00, with a time zone.
            "seconds_since": not self.seconds_since or self.since is not None,
            "seconds_pairs": self.seconds_pairs >= 1,
            "control_seeds": self.control_seeds >= 1,
        }
        problems += [
            f"{key} = {getattr(self, key)} is not allowed" for key in is_legal if not is_legal[key]
        ]
        # Without this check, a study would end with a shorter baseline whose seconds are never known.
        for row in self.equal_seconds if not problems else ():
            num = min(self.num_seeds(row), self.num_seeds(self.baseline))
            if num < self.seconds_pairs:
                pairs = f"{counted(num, 'pair')}, less than {self.seconds_pairs}"
                problems.append(f"equal_seconds names {row}, which has {pairs}")
        return problems

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the rows, in the order in which a seed of each is trained."""
        return tuple(Path(row).name for row in self.rows)

    @cached_property
    def since(self) -> datetime | None:
        """The moment ``seconds_since``, or None if the seconds of all runs count."""
        try:
            moment = datetime.fromisoformat(self.seconds_since)
        except ValueError:
            return None
        return moment if moment.tzinfo else None

    @cached_property
    def budget_rows(self) -> Mapping[str, str]:
        """The row whose budget each shorter baseline has, by the name of the shorter baseline."""
        flops = {FLOPS_NAME.format(row=row): row for row in self.equal_flops}
        return flops | {SECONDS_NAME.format(row=row): row for row in self.equal_seconds}

    def shared_budget(self, name: str) -> str:
        """Say what a shorter baseline shares with its row: "FLOPs" or "seconds"."""
        in_seconds = SECONDS_NAME.format(row=self.budget_rows[name])
        return "seconds" if name == in_seconds else "FLOPs"

    @cached_property
    def yamls(self) -> Mapping[str, Path]:
        """The YAML of each row and of each shorter baseline, by name. Those of the latter may not exist yet."""
        own = {
            Path(row).name: Path(os.path.normpath(self.folder / f"{row}.yaml")) for row in self.rows
        }
        return own | {name: self.folder / BUDGET / f"{name}.yaml" for name in self.budget_rows}

    def base_of(self, row: str) -> str | None:
        """Name the row that ``row`` is compared with. The baseline itself is compared with none."""
        base = self.compared_with.get(row, self.compared_with.get(OTHERS, self.baseline))
        base = self.baseline if base == row else base
        return None if row == self.baseline else base

    def num_seeds(self, row: str) -> int:
        """Return how many seeds a row is trained with. A shorter baseline has those of the row that it matches."""
        if row not in self.seeds and row in self.budget_rows:
            row = self.budget_rows[row]
        return self.seeds.get(row, self.seeds.get(OTHERS, 0))

    @property
    def tasks(self) -> tuple[Task, ...]:
        """List all tasks, seed by seed: every row once, then the shorter baselines, then the controls."""
        tasks = []
        for seed in range(max(map(self.num_seeds, self.yamls))):
            tasks += [Task(row, seed) for row in self.yamls if seed < self.num_seeds(row)]
            if seed < min(self.control_seeds, self.num_seeds(self.baseline)):
                tasks += [Task(self.baseline, seed, order) for order in self.controls]
        return tuple(tasks)


TYPES: Mapping[str, Any] = {
    name: float if name == "target" else kind
    for name, kind in get_type_hints(Study).items()
    if name != "folder"
}
"""The keys of study.yaml. ``seeds`` may also be one number, for all rows."""
NEEDED = ("rows", "seeds", "margin")


def read_study(folder: Path) -> Study:
    path = folder / STUDY_YAML
    if not is_file(path):
        raise InputError([f"{path} does not exist"])
    try:
        tree = read_mapping(path)
    except (OSError, ValueError) as error:
        raise InputError([f"{path} is not a YAML file of a study: {error}"]) from error
    problems = [f"{key} is missing" for key in NEEDED if key not in tree]
    values: dict[str, Any] = {}
    for key, given in tree.items():
        if key not in TYPES:
            problems.append(f"there is no key {shown(key)}: there are {', '.join(TYPES)}")
            continue
        try:
            if key == "seeds" and not isinstance(given, Mapping):
                values[key] = {OTHERS: convert(int, given)}
            else:
                values[key] = convert(TYPES[key], given)
        except ValueError as error:
            problems.append(f"{key} = {shown(given)} {error}")
    raise_problems([f"{path}: {problem}" for problem in problems])
    return Study(folder, **values)


def budget_text(study: Study, name: str, factor: float, source: str) -> str:
    """Write the YAML of a shorter baseline: all epochs of the baseline times ``factor``, from ``source``."""
    path, baseline = study.yamls[name], study.yamls[study.baseline]
    values = dict(flatten(load_config(baseline)))
    # Three digits after the point are a thousandth of an epoch: less than one step of most data sets.
    epochs = {key: _times(as_lists(values[key]), factor) for key in EPOCH_KEYS}
    if values["SOLVER.WARMUP_STEPS"]:
        epochs["SOLVER.WARMUP_STEPS"] = round(values["SOLVER.WARMUP_STEPS"] * factor)
    row, what = study.budget_rows[name], study.shared_budget(name)
    tree = {
        "_BASE_": os.path.relpath(baseline, path.parent),
        "ROW": f"{SHORTER_ROWS[what]}{row}",
        "SOLVER": {key.rpartition(".")[2]: value for key, value in epochs.items()},
    }
    experiment = experiment_name(path)
    shown_path = f"experiments/{experiment}.yaml" if "/" in experiment else short_path(path)
    text = yaml.safe_dump(tree, sort_keys=False, default_flow_style=None)
    return (
        f"# The baseline with the {what} of {row}: all epochs times {factor:.4g}.\n"
        f"# tools/study.py wrote this file, from {source}. Published: unknown.\n"
        f"# {_recipes(study, row)}\n"
        f"# python tools/run_net.py --cfg {shlex.quote(str(shown_path))}\n{text}"
    )


def recipe_of(path: Path) -> str:
    return recipe_digest(dict(flatten(load_config(path))))


def _recipes(study: Study, row: str) -> str:
    """Name the recipes of the baseline and of a row, in the words of the YAML of a shorter baseline."""
    digests = (recipe_of(study.yamls[name]) for name in (study.baseline, row))
    return f"It belongs to the recipes {' and '.join(digests)}."


def stale_budgets(study: Study) -> list[str]:
    """Name the shorter baselines whose YAML was written for another recipe of the baseline or of its row."""
    return [
        name
        for name, row in study.budget_rows.items()
        if (path := study.yamls[name]).exists()
        and _recipes(study, row) not in path.read_text(encoding="utf-8")
    ]


def _times(value: Any, factor: float) -> Any:
    if isinstance(value, list):
        return [_times(item, factor) for item in value]
    return round(value * factor, 3)
