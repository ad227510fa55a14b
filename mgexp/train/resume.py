"""Start a run in its folder: begin, resume from a checkpoint, or refuse and list every difference.

The functions stand in the order in which a start calls them. First, nothing is written: compare configuration
and videos, choose a checkpoint, compare its network and its schedule. Then rank 0 sets damaged checkpoints aside
and mends the records, all processes load the checkpoint, and rank 0 writes what this start runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from torch import nn

from mgexp import dist
from mgexp.config.check import differing_keys
from mgexp.config.load import file_values, flatten
from mgexp.data.time_limit import read_failures
from mgexp.dist import Processes
from mgexp.errors import InputError, TrainingError, listed, raise_problems
from mgexp.models.weights import MAX_LISTED, Fit
from mgexp.multigrid.phases import Phase
from mgexp.multigrid.sampler import Stream
from mgexp.multigrid.schedule import Schedule
from mgexp.run.environment import describe
from mgexp.run.files import (
    append_jsonl,
    atomic_write_text,
    cut_jsonl,
    read_json,
    read_jsonl,
    understanding,
    write_json,
    write_rows,
)
from mgexp.run.folder import RunDir
from mgexp.run.log import LOGGER
from mgexp.run.remote import expected_sum, is_remote
from mgexp.run.schedule_table import schedule_rows
from mgexp.run.torch_file import DamagedFileError, load_torch, read_seal
from mgexp.train.checkpoint import State, best_step

SAME_STATE = {"lamb", "pmd_lamb"}
"""Two optimizers with the same state, so that each can resume from the other's checkpoints."""
NUM_DRAWS = 8
"""How many videos at the start of the stream to compare. We assume that other code, or another
torch, draws a different video at one of these places."""
MOST_CHANGES = 6
"""A message lists at most this many changed values. One more training video changes all phases."""

Values = Mapping[str, Any]


def check_folder(
    run_dir: RunDir, config_yaml: str, videos: Mapping[str, object], override: bool
) -> list[str]:
    """Return the changes of configuration and videos since the folder was written.

    Raises InputError for any change without ``override``, and always for another optimizer, because
    the checkpoints hold the optimizer's state, and for a complete run, which trains no more. Keys that
    cannot change the result may differ. Before the first checkpoint everything may differ, because nothing
    in the folder is used then.
    """
    steps, is_complete = run_dir.checkpoint_steps(), run_dir.result_json.exists()
    if not steps and not is_complete:
        return []
    problems = config_problems(run_dir, config_yaml)
    if run_dir.dataset_json.exists():
        saved = read_json(run_dir.dataset_json)
        problems += [
            _video_change(VIDEO_VALUES[name], saved[name], value)
            for name, value in videos.items()
            if name in saved and saved[name] != value
        ]
    has_other_state = any(
        key == "SOLVER.OPTIMIZING_METHOD" and {saved, now} != SAME_STATE
        for key, saved, now in _changed_keys(run_dir, config_yaml)
    )
    if is_complete:
        remedy = "this run is complete, so other keys or videos need another --output"
    # Before ``override``, which cannot make one optimizer's state that of another.
    elif has_other_state:
        remedy = "its checkpoints hold the state of another optimizer: choose another --output"
    elif override:
        return problems
    else:
        remedy = "choose another --output, or add --override to resume all the same"
    raise_problems([*problems, f"{run_dir.root}: {remedy}"] if problems else [])
    return problems


def _video_change(name: str, old: object, new: object) -> str:
    if isinstance(old, list) and isinstance(new, list):
        others = listed(sorted({*old} ^ {*new}), MAX_LISTED) or "their order"
        return f"{name}: {len(old)} at the first start, {len(new)} now; they differ in {others}"
    return f"{name}: {old} at the first start, {new} now"


VIDEO_VALUES = {
    "num_train_videos": "number of training videos",
    "train_sha256": "checksum of the training videos",
    "val_sha256": "checksum of the validation videos",
    "missing": "missing videos",
}
"""How messages name the values of dataset.json."""


def config_problems(run_dir: RunDir, config_yaml: str, ignored: tuple[str, ...] = ()) -> list[str]:
    """List the changed keys that can change the result, except keys that begin with one of ``ignored``."""
    return [
        f"{key}: the run folder has {old!r}, this start {new!r}"
        for key, old, new in _changed_keys(run_dir, config_yaml)
        if not key.startswith(ignored)
    ]


def _changed_keys(run_dir: RunDir, config_yaml: str) -> list[tuple[str, object, object]]:
    """List (key, the folder's value, the value now) of all changed keys that can change the result.

    The seed is one of them.
    """
    if not run_dir.config_yaml.exists():
        return []
    saved = file_values(run_dir.config_yaml)
    now = dict(flatten(yaml.safe_load(config_yaml)))
    changed = [*differing_keys(saved, now)]
    if saved.get("RNG_SEED") != now["RNG_SEED"]:
        changed.append(("RNG_SEED", saved.get("RNG_SEED"), now["RNG_SEED"]))
    return changed


@dataclass(frozen=True)
class Checkpoint:
    """An undamaged checkpoint. ``seal`` identifies its content."""

    step: int
    seal: str
    state: dict[str, Any]


@dataclass(frozen=True)
class Choice:
    """Choice of the checkpoint to resume from, which is None for a start at step 0.

    ``damaged`` holds (step, fault) of each later checkpoint, all of which are damaged. ``changes`` are the
    differences that --override allows.
    """

    checkpoint: Checkpoint | None = None
    damaged: tuple[tuple[int, str], ...] = ()
    changes: tuple[str, ...] = ()


def choose_checkpoint(run_dir: RunDir) -> Choice:
    """Choose the last undamaged checkpoint. Raises InputError if all are damaged.

    The folder stays as it is; ``set_aside`` renames the damaged files later.
    """
    damaged: list[tuple[int, str]] = []
    for step in reversed(run_dir.checkpoint_steps()):
        try:
            return Choice(_read(run_dir, step), tuple(damaged))
        except DamagedFileError as error:
            damaged.append((step, str(error)))
    if damaged:
        remedy = (
            f"no checkpoint in {run_dir.checkpoints} is whole: restore one from a copy; or, to begin again at "
            "step 0, remove that folder or choose another --output"
        )
        raise InputError([*(fault for _, fault in damaged), remedy])
    return Choice()


def _read(run_dir: RunDir, step: int) -> Checkpoint:
    path = run_dir.checkpoint(step)
    return Checkpoint(step, read_seal(path), load_torch(path))


def require_same_network(checkpoint: Checkpoint, model: nn.Module) -> None:
    """Raise InputError if the checkpoint is of another network than ``model``, even with --override."""
    saved, own = (
        {(name, tuple(tensor.shape)) for name, tensor in tensors.items()}
        for tensors in (checkpoint.state["model"], model.state_dict())
    )
    if strange := sorted({name for name, _ in saved ^ own}):
        # --override cannot help: load_state_dict would fail on these tensors.
        step, names = checkpoint.step, listed(strange, MAX_LISTED)
        problem = f"the checkpoint after step {step} is of another network ({names} differ)"
        raise InputError([f"{problem}: choose another --output"])


def schedule_problems(checkpoint: Checkpoint, schedule: Values, override: bool) -> list[str]:
    """List how the fingerprints of the schedules differ. Raises InputError for any without ``override``."""
    problems = differences(checkpoint.state["schedule"], schedule)
    if problems and not override:
        remedy = "choose another --output, or add --override to resume under the new schedule"
        raise InputError([*problems, f"the run was begun under another schedule: {remedy}"])
    return problems


def differences(saved: Values, now: Values) -> list[str]:
    """List the values of two fingerprints that differ, the first ones of many."""
    old, new = dict(_flat(saved)), dict(_flat(now))
    changes = [
        f"{name}: {old[name]} before, now {new.get(name, 'gone')}"
        # A value that an older checkpoint lacks cannot be compared, so it counts as equal.
        for name in old
        if not _is_same(old[name], new.get(name))
    ]
    return [f"schedule: {listed(changes, MOST_CHANGES, separator='; ')}"] if changes else []


def _flat(fingerprint: Values) -> Iterator[tuple[str, Any]]:
    for name, value in fingerprint.items():
        if name != "phases":
            yield name, value
    for number, phase in enumerate(fingerprint["phases"]):
        yield from ((f"phase {number}, {name}", value) for name, value in phase.items())


def _is_same(old: object, new: object) -> bool:
    # The last bits of a learning rate may differ: they are rounding.
    if isinstance(old, float) and isinstance(new, float):
        return math.isclose(old, new, rel_tol=1e-9)
    return old == new


def fingerprint(schedule: Schedule, seed: int, has_batchnorm: bool = True) -> dict[str, Any]:
    """Describe the schedule for checkpoints, in plain values with names that messages show.

    ``has_batchnorm`` says whether the network has batch normalisation. Without it, BN groups have no effect.
    """
    # The configuration alone does not tell: changed code can make another schedule or other draws from it.
    stream = Stream(schedule.num_videos, seed)
    return {
        "training videos": schedule.num_videos,
        "steps": schedule.total_steps,
        "first videos of the stream": [
            stream.index_at(position) for position in range(min(NUM_DRAWS, schedule.num_videos))
        ],
        "phases": [_phase_values(schedule, phase, has_batchnorm) for phase in schedule.phases],
    }


def _phase_values(schedule: Schedule, phase: Phase, has_batchnorm: bool) -> dict[str, Any]:
    # The number of processes may change. It changes num_bn_groups, but not the clips of a group, unless a group
    # is all clips of a process (MULTIGRID.BN_BASE_SIZE 0).
    share = phase.clips // schedule.num_processes
    groups = phase.num_bn_groups
    shapes = (f"{s.clips}x{s.frames}x{s.crop}²" for s in phase.turns.turn(0))
    strides = "segments" if phase.stride_range is None else "–".join(map(str, phase.stride_range))
    group = {"clips of a BN group": share // groups if groups > 0 else share * -groups}
    return {
        "steps": f"{phase.start_step}–{phase.end_step}",
        "stage": phase.stage,
        "first clip": phase.first_clip,
        "mini-batches": " ".join(shapes),
        "strides": strides,
        **(group if has_batchnorm else {}),
        "first learning rate": schedule.plan_at(phase.start_step).lr,
        "last learning rate": schedule.plan_at(phase.end_step - 1).lr,
    }


def set_aside(run_dir: RunDir, choice: Choice) -> None:
    # ``save_checkpoint`` keeps the checkpoints with the highest steps. Under its own name a damaged
    # file would count as one of them until training passes its step. New checkpoints of lower steps
    # would be deleted in its place.
    for step, fault in choice.damaged:
        aside = run_dir.damaged_checkpoint(step)
        run_dir.checkpoint(step).replace(aside)
        LOGGER.warning("%s; it is kept as %s", fault, aside.name)
    if choice.damaged and choice.checkpoint:
        LOGGER.warning(
            "DAMAGED CHECKPOINT: resuming after step %d instead of step %d; the steps between are done again",
            *(choice.checkpoint.step, choice.damaged[0][0]),
        )


def mend_records(run_dir: RunDir) -> None:
    """Remove a line that a kill tore off the end of a file, before another one is appended to it.

    `cut_records` does so too, for the records of the steps that a start will do again.
    """
    for path in (run_dir.evaluations_jsonl, run_dir.failures_jsonl):
        if path.exists() and not path.read_bytes().endswith(b"\n"):
            cut_jsonl(path, lambda line: True)


def forget_failures(run_dir: RunDir, check_unusable: Callable[[Sequence[str]], None]) -> None:
    """Forget failures of videos that stopped an earlier start because they were too many: they are tried again.

    ``check_unusable`` raises InputError if so many videos are too many.
    """
    failures = read_failures(run_dir.failures_jsonl)
    failed = {failure.path for failure in failures if failure.seed is not None}
    try:
        check_unusable(sorted(failed))
    except InputError:
        cut_jsonl(run_dir.failures_jsonl, lambda line: False)


def take_over(run_dir: RunDir, state: State, choice: Choice, processes: Processes) -> None:
    """Load rank 0's checkpoint in every process. All processes must call this.

    Only rank 0's ``choice`` matters. The other processes read the same file from the shared run
    folder. Raises InputError in all processes if one of them finds no file there, or a different
    file.
    """
    own = choice.checkpoint
    wanted = dist.from_main(processes, (own.step, own.seal) if own else None)
    fault = _load(run_dir, state, own, *wanted) if wanted else ""
    if faults := dist.merge(processes, {processes.rank: fault} if fault else {}):
        raise InputError([f"process {rank}: {text}" for rank, text in faults.items()])


def _load(run_dir: RunDir, state: State, own: Checkpoint | None, step: int, seal: str) -> str:
    """Load the checkpoint after ``step`` into ``state``; return the problem of this process, or ""."""
    path = run_dir.checkpoint(step)
    try:
        checkpoint = own or _read(run_dir, step)
    except (OSError, TrainingError) as error:
        return f"{error}; the run folder must be the same for all processes"
    if checkpoint.seal != seal:
        return f"{path} is not the file that process 0 read: the run folder must be the same for all processes"
    try:
        state.load_state_dict(checkpoint.state)
        # This copy would stay in memory for the whole run.
        checkpoint.state.clear()
    except (KeyError, RuntimeError, ValueError) as error:
        return f"{path} does not fit this configuration, choose another --output: {error}"
    return ""


def write_folder(
    run_dir: RunDir,
    config_yaml: str,
    videos: Mapping[str, object],
    schedule: Schedule,
    changes: Sequence[str] = (),
    given: Sequence[str] = (),
) -> None:
    """Record what this start runs, before its first step.

    ``changes`` come from ``check_folder``. ``given`` are the keys that the user gave on the command line.
    """
    environment, steps = describe(), run_dir.checkpoint_steps()
    # environment.json describes the machine of the first start, starts.jsonl the one of every
    # start.
    if steps and run_dir.environment_json.exists():
        # Another environment may change the last bits of the result. We warn, but do not refuse it.
        first = read_json(run_dir.environment_json)
        for name in sorted(environment.keys() - {"date"}):
            was, now = first.get(name), environment[name]
            if was != now:
                LOGGER.warning("%s was %s at the first start, now it is %s", name, was, now)
    else:
        write_json(run_dir.environment_json, environment)
    # Without a checkpoint the run begins anew. Earlier starts then contribute nothing to the
    # result, so we drop their lines.
    cut_jsonl(run_dir.starts_jsonl, lambda _: bool(steps))
    after_step = steps[-1] if steps else 0
    start = {"after_step": after_step, "changes": list(changes), "given": list(given)}
    append_jsonl(run_dir.starts_jsonl, {**environment, **start})
    if not steps and (replaced := config_problems(run_dir, config_yaml)):
        LOGGER.warning(
            "an earlier start left no checkpoint in %s, so the run begins anew with other keys: %s",
            *(run_dir.root, listed(replaced, separator="; ")),
        )
    atomic_write_text(run_dir.config_yaml, config_yaml)
    write_json(run_dir.dataset_json, videos)
    rows = schedule_rows(schedule)
    write_rows(run_dir.schedule_csv, [[*rows[0]], *([*row.values()] for row in rows)])


def write_initial(run_dir: RunDir, initial: Fit | None, address: str) -> None:
    """Record the first weights, of the file that ``address`` names.

    ``initial`` is None for random weights and after a checkpoint.
    """
    if initial:
        record = initial.record()
        write_json(run_dir.init_weights_json, record)
        LOGGER.info("%s", initial.summary())
        if is_remote(address) and not expected_sum(address):
            LOGGER.info("no checksum is known for this file; it has #sha256=%s", record["sha256"])
    elif not run_dir.checkpoint_steps():
        run_dir.init_weights_json.unlink(missing_ok=True)


def cut_records(run_dir: RunDir, step: int) -> None:
    """Drop the records of what a resume after ``step`` steps will do again: steps and evaluations."""
    # Steps are numbered from 0, so step number ``step`` is the first one that is done again. An
    # evaluation after ``step`` steps is done already, unless it is the final one.
    with understanding(run_dir.metrics_jsonl):
        cut_jsonl(run_dir.metrics_jsonl, lambda line: bool(line["step"] < step))
    with understanding(run_dir.evaluations_jsonl):
        cut_jsonl(
            run_dir.evaluations_jsonl,
            lambda line: line["step"] <= step and not line["full_protocol"],
        )
        # The next checkpoint reads the scores, when training goes on.
        best_step(run_dir)


def is_evaluated(run_dir: RunDir, step: int) -> bool:
    return any(line["step"] == step for line in read_jsonl(run_dir.evaluations_jsonl))
