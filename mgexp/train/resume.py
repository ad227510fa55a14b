"""Where a run goes on: after its last whole checkpoint, the same in every process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mgexp import dist
from mgexp.dist import Processes
from mgexp.errors import InputError, TrainingError
from mgexp.record.progress import LOGGER
from mgexp.record.run_dir import RunDir
from mgexp.record.torch_file import DamagedFileError, load_torch, read_seal
from mgexp.train.checkpoint import State
from mgexp.train.fingerprint import differences


@dataclass(frozen=True)
class Checkpoint:
    """One that was read: whole. ``seal`` tells it from others of its step; those of earlier versions have none."""

    step: int
    seal: str | None
    state: Mapping[str, Any]


@dataclass(frozen=True)
class Choice:
    """The checkpoint to go on after, None for a start from step 0; ``damaged``: later steps, and what is wrong."""

    checkpoint: Checkpoint | None = None
    damaged: tuple[tuple[int, str], ...] = ()


NO_CHOICE = Choice()


def choose_checkpoint(run_dir: RunDir) -> Choice:
    """The last whole one; changes nothing. Raises InputError where there are some, all damaged."""
    damaged: list[tuple[int, str]] = []
    for step in reversed(run_dir.checkpoint_steps()):
        try:
            return Choice(_read(run_dir, step), tuple(damaged))
        except DamagedFileError as error:
            damaged.append((step, str(error)))
    if damaged:
        raise InputError([*(problem for _, problem in damaged), _remedy(run_dir)])
    return Choice()


def schedule_problems(choice: Choice, schedule: Mapping[str, Any], override: bool) -> list[str]:
    """What the schedule does otherwise than the checkpoint's; raises InputError for that without ``override``.

    ``schedule``: its fingerprint. Checkpoints of earlier versions hold none, and are taken as they are.
    """
    saved = choice.checkpoint.state.get("schedule") if choice.checkpoint else None
    problems = differences(saved, schedule) if saved else []
    if problems and not override:
        remedy = "choose another --output, or add --override to go on under the new schedule"
        raise InputError([*problems, f"the run was begun under another schedule: {remedy}"])
    return problems


def set_aside(run_dir: RunDir, choice: Choice) -> None:
    """Renames the damaged checkpoints, with a warning: new ones of earlier steps would count as older."""
    for step, problem in choice.damaged:
        aside = run_dir.damaged_checkpoint(step)
        run_dir.checkpoint(step).replace(aside)
        LOGGER.warning("%s; it is kept as %s", problem, aside.name)
    if choice.damaged and choice.checkpoint:
        LOGGER.warning(
            "DAMAGED CHECKPOINT: going on after step %d instead of step %d; what came after is done again",
            *(choice.checkpoint.step, choice.damaged[0][0]),
        )


def take_over(run_dir: RunDir, state: State, choice: Choice, processes: Processes) -> None:
    """Loads what the main process chose, in every process; all must call it.

    The others read the same file of the shared run folder; ``choice`` is the main process's alone. Raises
    InputError in all where one has another file, or none.
    """
    own = choice.checkpoint
    wanted = dist.from_main(processes, (own.step, own.seal) if own else None)
    problem = _load(run_dir, state, own, wanted) if wanted else ""
    everyones = dist.merge(processes, {processes.rank: problem} if problem else {})
    if everyones:
        raise InputError([f"process {rank}: {text}" for rank, text in everyones.items()])


def _load(
    run_dir: RunDir, state: State, own: Checkpoint | None, wanted: tuple[int, str | None]
) -> str:
    """Loads the checkpoint; what is wrong with it here."""
    step, seal = wanted
    path = run_dir.checkpoint(step)
    try:
        found = own or _read(run_dir, step)
    except (OSError, TrainingError) as error:
        return f"{error}; the run folder must be the same for all processes"
    if found.seal != seal:
        return f"{path} is not the file that process 0 read: the run folder must be the same for all processes"
    try:
        state.load_state_dict(found.state)
    except (KeyError, RuntimeError, ValueError) as error:
        return f"{path} does not fit this configuration, choose another --output: {error}"
    return ""


def _read(run_dir: RunDir, step: int) -> Checkpoint:
    path = run_dir.checkpoint(step)
    return Checkpoint(step, read_seal(path), load_torch(path))


def _remedy(run_dir: RunDir) -> str:
    return (
        f"no checkpoint in {run_dir.checkpoints} is whole: restore one from a copy; or, to begin again at step 0, "
        "remove that folder or choose another --output"
    )
