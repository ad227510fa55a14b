"""From the configuration to what training changes: at its start, and at its end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch

from mgexp import dist
from mgexp.config.keys import Config
from mgexp.dist import Processes
from mgexp.errors import InputError, TrainingError, listed
from mgexp.models.build import build_model, build_on_meta
from mgexp.models.weights import MAX_LISTED, Fit
from mgexp.multigrid.phases import Phase
from mgexp.multigrid.sampler import Stream
from mgexp.multigrid.schedule import Schedule
from mgexp.optim.build import build_optimizer
from mgexp.run.clock import Clock
from mgexp.run.files import read_json
from mgexp.run.folder import RunDir
from mgexp.run.log import LOGGER
from mgexp.run.torch_file import DamagedFileError, load_torch, read_seal
from mgexp.train.checkpoint import State
from mgexp.train.setup import build_precision

NUM_DRAWS = 8
"""Videos of the stream that are compared. Assumption: other code, or another torch, draws others among them."""
MOST_PHASES = 6
"""Phases whose changes are told in full: one video more changes them all."""

Values = Mapping[str, Any]


def fingerprint(schedule: Schedule, seed: int) -> dict[str, Any]:
    """Numbers, texts and lists of these, named in words."""
    stream = Stream(schedule.num_videos, seed)
    return {
        "training videos": schedule.num_videos,
        "steps": schedule.total_steps,
        "first videos of the stream": [
            stream.index_at(position) for position in range(min(NUM_DRAWS, schedule.num_videos))
        ],
        "phases": [_phase_values(schedule, phase) for phase in schedule.phases],
    }


def _phase_values(schedule: Schedule, phase: Phase) -> dict[str, Any]:
    share = phase.clips // schedule.num_processes
    groups = phase.num_bn_groups
    shapes = (
        f"{schedule.recipe.clips * s.ratio}x{s.frames}x{s.crop}²" for s in phase.turns.turn(0)
    )
    return {
        "steps": f"{phase.start_step}–{phase.end_step}",
        "stage": phase.stage,
        "first clip": phase.first_clip,
        "mini-batches": " ".join(shapes),
        "strides": "segments"
        if phase.stride_range is None
        else "–".join(map(str, phase.stride_range)),
        "clips of a BN group": share // groups if groups > 0 else share * -groups,
        "first learning rate": schedule.plan_at(phase.start_step).lr,
        "last learning rate": schedule.plan_at(phase.end_step - 1).lr,
    }


def differences(saved: Values, now: Values) -> list[str]:
    """A sentence for each difference, none where both do the same."""
    own = {name: value for name, value in now.items() if name != "phases"}
    sentences = [f"schedule: {text}" for text in _changes(saved, own)]
    pairs = zip_longest(saved["phases"], now["phases"])
    phases = [
        _phase_sentence(number, old, new)
        for number, (old, new) in enumerate(pairs)
        if old is None or new is None or [*_changes(old, new)]
    ]
    if phases:
        sentences.append(f"schedule: {listed(phases, MOST_PHASES, separator='; ')}")
    return sentences


def _phase_sentence(number: int, old: Values | None, new: Values | None) -> str:
    if new is None:
        return f"phase {number} is gone"
    if old is None:
        return f"phase {number} is new"
    return f"phase {number}: {', '.join(_changes(old, new))}"


def _changes(old: Values, new: Values) -> Iterator[str]:
    for name, value in new.items():
        if name in old and not _is_same(old[name], value):
            yield f"{name}: {old[name]} before, now {value}"


def _is_same(old: object, new: object) -> bool:
    if isinstance(old, float) and isinstance(new, float):
        return math.isclose(
            old, new, rel_tol=1e-9
        )  # the last bits of a learning rate are its rounding
    return old == new


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


def build_first_state(
    cfg: Config, initial: Fit | None, device: torch.device, clock: Clock
) -> State:
    """Before the first step: random weights, or those that ``initial`` gives."""
    model = build_model(cfg)
    if initial:
        initial.load_into(model)
    model = model.to(device)
    scaler = build_precision(cfg, device).scaler(device)
    return State(model, build_optimizer(cfg, model), clock, scaler=scaler)


def require_same_network(cfg: Config, choice: Choice) -> None:
    """Raises InputError where the checkpoint is of another network than ``cfg``: nothing can override that."""
    if not choice.checkpoint:
        return
    saved, own = choice.checkpoint.state["model"], build_on_meta(cfg).state_dict()
    shapes = [{name: tuple(x.shape) for name, x in state.items()} for state in (saved, own)]
    strange = sorted({name for name, _ in shapes[0].items() ^ shapes[1].items()})
    if strange:
        step, names = choice.checkpoint.step, listed(strange, MAX_LISTED)
        remedy = "choose another --output"
        raise InputError(
            [f"the checkpoint after step {step} is of another network ({names} differ): {remedy}"]
        )


def build_last_state(cfg: Config, run_dir: RunDir, device: torch.device) -> State:
    """After the last step of a finished run, with the weights that its final evaluation scored."""
    result = read_json(run_dir.result_json)
    model = build_model(cfg)
    model.load_state_dict(load_torch(run_dir.model))
    clock = Clock()
    clock.add("train", result["seconds"]["train"])
    state = State(model.to(device), build_optimizer(cfg, model), clock)
    state.step, state.epoch = result["steps"], result["epochs"]
    return state
