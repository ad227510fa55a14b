"""Find the parts of a study that no longer fit its YAMLs, and say with which commands to put them away.

A part is a run folder, finished or not, the YAML of a shorter baseline, or the stored runs of a row.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mgexp.config.check import LIST_KEYS, differing_keys
from mgexp.config.load import flatten, from_yaml, load_config
from mgexp.config.study import BUDGET, Study, recipe_of, stale_budgets
from mgexp.errors import listed
from mgexp.results.collect import RESUMED_WITH_OVERRIDE
from mgexp.results.load import read_stored
from mgexp.run.files import free_path, read_jsonl, short_path
from mgexp.run.folder import RunDir, RunsDir
from mgexp.text import counted, shown

MOST_KEYS = 4
"""A line of the message names this many changed keys."""

RunDirs = Callable[[str, int], Iterable[RunDir]]
"""A function that lists the folders where the run of a row and seed may be."""


@dataclass(frozen=True)
class Part:
    """A run folder, a YAML or a file of stored runs that does not fit a row's YAML now, and why.

    ``recipes``: those of the stored runs.
    """

    row: str
    path: Path
    why: str
    recipes: tuple[str, ...] = ()


def changed_parts(
    study: Study,
    missing: Collection[tuple[str, int]],
    run_dirs: RunDirs,
    overrides: Sequence[str] = (),
) -> list[Part]:
    """List what stands in the way of the runs that are missing, which are pairs of a row and a seed.

    Every run of a shorter baseline is in the way if its YAML was written for other recipes. Stored runs of another
    recipe are in the way even if nothing is missing, because the file would be written without them.
    """
    stale = stale_budgets(study)
    parts = _stored_parts(study, stale)
    # The folders of these runs name the keys that changed.
    looked_at = {*stale, *(part.row for part in parts)}
    for row, path in study.yamls.items():
        if row in stale:
            made_for = f"{study.baseline} or {study.budget_rows[row]}"
            parts.append(Part(row, path, f"was written for another recipe of {made_for}"))
        for seed in range(study.num_seeds(row)) if path.exists() else ():
            if row not in looked_at and (row, seed) not in missing:
                continue
            for run_dir in run_dirs(row, seed):
                is_finished = run_dir.result_json.exists()
                # Before the first checkpoint a run uses nothing of its folder.
                if not (is_finished or run_dir.checkpoint_steps()):
                    continue
                now = dict(flatten(load_config(path, overrides)))
                why = _changes(run_dir, now, is_finished)
                if row in stale and not why:
                    why = f"was trained with {short_path(path)}"
                if why:
                    state = "finished" if is_finished else "not finished"
                    parts.append(Part(row, run_dir.root, f"({state}): {why}"))
    return parts


def _stored_parts(study: Study, stale: Collection[str]) -> list[Part]:
    """List the rows of which runs of another recipe are stored in the folder of the study."""
    parts = []
    for place in (study.folder, study.folder / BUDGET):
        path = RunsDir(place).stored_jsonl
        for row in read_stored(path).rows:
            if row.name not in study.yamls or not study.yamls[row.name].exists():
                continue
            now = recipe_of(study.yamls[row.name])
            old = [
                run.recipe for run in row.runs.values() if row.name in stale or run.recipe != now
            ]
            if old:
                why = f"holds {counted(len(old), 'run')} of {row.name} with an earlier recipe"
                parts.append(Part(row.name, path, why, tuple(dict.fromkeys(old))))
    return parts


def _changes(run_dir: RunDir, now: Mapping[str, object], is_finished: bool) -> str:
    """Name the keys in which a run differs from its row, with both values. "" if it fits."""
    saved = from_yaml(run_dir.config_yaml) if run_dir.config_yaml.exists() else now
    keys = [
        f"{key} was {shown(old)}, now {shown(new)}"
        for key, old, new in differing_keys(saved, now)
        # A finished run is not started again, so it does not matter where its lists were.
        if not (is_finished and key in LIST_KEYS)
    ]
    if not keys and any(start["changes"] for start in read_jsonl(run_dir.starts_jsonl)):
        return RESUMED_WITH_OVERRIDE
    return listed(keys, MOST_KEYS, "; ")


def changed_text(parts: Sequence[Part], place: Path) -> str:
    """Write what does not fit and the commands that move it out of ``place``, the folder of the study's runs."""
    aside = free_path(place, "before")
    # Run folders have the same names in all rows, so each row gets a folder. A YAML beside them would look like
    # the only row of that folder.
    moved: dict[Path, dict[Path, None]] = {}
    lines: dict[Path, list[str]] = {}
    for part in parts:
        folder = part.row
        if part.path.suffix:
            folder = BUDGET if part.path.parent.name == BUDGET else ""
        moved.setdefault(aside / folder, {})[part.path] = None
        for one in part.recipes:
            line = f'^{{"name": "{part.row}".*"recipe": "{one}"'
            lines.setdefault(part.path, []).append(f"-e{line}")
    commands = [shlex.join(["mkdir", "-p", *map(short_path, moved)])]
    for to, paths in moved.items():
        commands.append(shlex.join(["mv", *map(short_path, paths), short_path(to)]))
        commands += [
            f"{shlex.join(['grep', '-v', *lines[path], short_path(to / path.name)])} > "
            f"{shlex.quote(short_path(path))}"
            for path in paths
            if path in lines
        ]
    return "\n".join(
        [
            "these runs and YAMLs belong to an earlier configuration, and the study cannot go on with them:",
            *(f"  {short_path(part.path)} {part.why}" for part in parts),
            "Undo the change, or move them aside with these commands. Then start again, and they are made anew:",
            *(f"  {command}" for command in commands),
        ]
    )
