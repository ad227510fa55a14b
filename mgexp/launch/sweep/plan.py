"""What a sweep runs, checked before anything is written; and what it froze."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import yaml

from mgexp.config.load import flatten
from mgexp.dist import Processes
from mgexp.errors import InputError
from mgexp.launch.build import RunOptions, check_submission, frozen_yaml
from mgexp.launch.freeze import freeze_code
from mgexp.launch.resources import Resources
from mgexp.launch.sweep.grid import Point, SweepRun
from mgexp.record.environment import REPOSITORY, git_commit
from mgexp.record.files import atomic_write_text, read_json, write_json
from mgexp.record.results import differing_keys
from mgexp.record.sweep_dir import SweepDir


@dataclass(frozen=True)
class Sweep:
    """``experiments`` (name, YAML) × ``points`` × ``seeds``, with the KEY VALUE pairs ``overrides`` for all."""

    folder: SweepDir
    experiments: Mapping[str, Path]
    points: tuple[Point, ...]
    seeds: tuple[int, ...]
    overrides: tuple[str, ...] = ()
    is_smoke: bool = False

    @property
    def runs(self) -> tuple[SweepRun, ...]:
        """Seed by seed, so that every row has a result early."""
        return tuple(
            SweepRun(experiment, point, seed)
            for seed in self.seeds
            for point in self.points
            for experiment in self.experiments
        )

    def options(self, run: SweepRun) -> RunOptions:
        """Of a run, from the YAML as it is now."""
        return RunOptions(
            config=self.experiments[run.experiment],
            overrides=self._pairs(run),
            seed=run.seed,
            output=self.folder.run(run.name).root,
            is_smoke=self.is_smoke,
        )

    def frozen_options(self, run: SweepRun) -> RunOptions:
        """Of a run, from the frozen YAML; no path depends on the folder that it is started from."""
        return RunOptions(
            config=self.folder.config_yaml(run.point_name, run.experiment).absolute(),
            seed=run.seed,
            output=self.folder.run(run.name).root.absolute(),
            is_smoke=self.is_smoke,
            given=self._pairs(run),
        )

    def _pairs(self, run: SweepRun) -> tuple[str, ...]:
        return (*self.overrides, *(text for pair in run.point for text in pair))

    def working_directory(self) -> Path:
        """That of the first call: relative paths of the configurations mean the same in every later one."""
        if self.folder.sweep_json.exists():
            return Path(read_json(self.folder.sweep_json)["working_directory"])
        return Path.cwd()


def check_sweep(
    sweep: Sweep, resources: Resources, is_here: bool, problems: Sequence[str] = ()
) -> None:
    """Raises InputError with all that is wrong with any run, and with ``problems``; writes nothing."""
    processes = Processes(count=resources.num_processes, local_count=resources.tasks_per_node)
    found: defaultdict[str, list[str]] = defaultdict(list)
    checked = [run for run in sweep.runs if run.seed == sweep.seeds[0]]
    for run in checked:
        name = run.name.rpartition("/")[0]
        try:
            check_submission(sweep.options(run), processes, is_here, _conflicts(sweep, run))
        except InputError as error:
            for problem in error.problems:
                found[problem].append(name)
    texts = [
        problem if len(names) == len(checked) else f"{', '.join(names)}: {problem}"
        for problem, names in found.items()
    ]
    if problems or texts:
        raise InputError([*problems, *texts])


def _conflicts(sweep: Sweep, run: SweepRun) -> list[str]:
    """Where the sweep has frozen another configuration for the same run folder."""
    path = sweep.folder.config_yaml(run.point_name, run.experiment)
    if not path.exists():
        return []
    frozen = dict(flatten(yaml.safe_load(path.read_text(encoding="utf-8"))))
    now = dict(flatten(yaml.safe_load(frozen_yaml(sweep.options(run))[0])))
    return [
        f"{key}: the sweep in {sweep.folder.root} has {old!r} for it, this call {new!r}; choose another --output"
        for key, old, new in differing_keys(frozen, now)
    ]


def freeze(sweep: Sweep) -> None:
    """Copies the code and writes the YAMLs; what is frozen already stays as it is."""
    folder = sweep.folder
    folder.root.mkdir(parents=True, exist_ok=True)
    commit = freeze_code(folder.code)
    for run in sweep.runs:
        path = folder.config_yaml(run.point_name, run.experiment)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write_text(path, frozen_yaml(sweep.options(run))[0])
    record = {
        "commit": commit,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "working_directory": os.fspath(Path.cwd()),
        "runs": [],
        **(read_json(folder.sweep_json) if folder.sweep_json.exists() else {}),
    }
    record["runs"] = [*dict.fromkeys([*record["runs"], *(run.name for run in sweep.runs)])]
    write_json(folder.sweep_json, record)


def age_of_code(folder: SweepDir) -> str:
    """A sentence where the code of a sweep may not be that of the working tree; else nothing."""
    if not folder.code.exists():
        return ""
    frozen, now = git_commit(folder.code), git_commit(REPOSITORY)
    if frozen == now and not now.endswith("-dirty"):
        return ""
    return f"The code is that of the sweep's first call, commit {frozen}; another --output takes it as it is now."
