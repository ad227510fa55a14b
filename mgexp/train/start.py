"""The run folder at the start of a run: new, of the same run, or refused."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

import yaml

from mgexp.config.check import differing_keys
from mgexp.config.load import flatten, from_yaml
from mgexp.errors import InputError
from mgexp.models.weights import Fit
from mgexp.multigrid.schedule import Schedule
from mgexp.run.environment import describe
from mgexp.run.files import (
    append_jsonl,
    atomic_write_text,
    cut_jsonl,
    read_json,
    read_jsonl,
    write_json,
)
from mgexp.run.folder import RunDir
from mgexp.run.log import LOGGER
from mgexp.run.schedule_table import schedule_rows

Change = tuple[str, object, object]
"""A key, the run folder's value, and that of this start."""

SAME_STATE = {"lamb", "pmd_lamb"}
"""Optimizers that can go on from each other's moments."""


def check_folder(
    run_dir: RunDir, config_yaml: str, videos: Mapping[str, object], override: bool
) -> list[str]:
    """What changed since the folder was written; raises InputError for that without ``override``.

    That is another configuration or other videos; another optimizer is refused with it as well. Keys that cannot
    change the result may differ, and anything may before the first checkpoint: nothing of the folder is used then.
    """
    if not run_dir.checkpoint_steps() and not run_dir.result_json.exists():
        return []
    changed = _changed_keys(run_dir, config_yaml)
    problems = [*_told(changed), *_video_problems(run_dir, videos)]
    if run_dir.checkpoint_steps() and (strange := _state_problems(run_dir, changed)):
        raise InputError([*problems, *strange])
    if problems and not override:
        remedy = f"{run_dir.root}: choose another --output, or add --override to go on all the same"
        raise InputError([*problems, remedy])
    return problems


def write_folder(
    run_dir: RunDir,
    config_yaml: str,
    videos: Mapping[str, object],
    schedule: Schedule,
    changes: Sequence[str] = (),
    initial: Fit | None = None,
    given: Sequence[str] = (),
) -> None:
    """Records what is run, before the first step; ``changes`` as ``check_folder`` found them.

    ``initial``: the weights that it starts from, None where these are random or it goes on after a checkpoint.
    ``given``: the keys whose values were given beside the YAML.
    """
    _record_start(run_dir, changes, given)
    if changes:
        run_dir.drop_evaluation_parts()
    atomic_write_text(run_dir.config_yaml, config_yaml)
    write_json(run_dir.dataset_json, videos)
    text = io.StringIO()
    rows = schedule_rows(schedule)
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    atomic_write_text(run_dir.schedule_csv, text.getvalue())
    if initial:
        write_json(run_dir.init_weights_json, initial.record())
        LOGGER.info("%s", initial.summary())
    elif not run_dir.checkpoint_steps():
        run_dir.init_weights_json.unlink(missing_ok=True)


def _record_start(run_dir: RunDir, changes: Sequence[str], given: Sequence[str]) -> None:
    """Adds a line to the starts; warns where another environment may change the last bits of the result."""
    environment, steps = describe(), run_dir.checkpoint_steps()
    if steps and run_dir.environment_json.exists():
        earlier = read_json(run_dir.environment_json)
        for name in sorted(environment.keys() - {"date"}):
            if earlier.get(name) != environment[name]:
                was, now = earlier.get(name), environment[name]
                LOGGER.warning("%s was %s at the first start, now it is %s", name, was, now)
    else:
        write_json(run_dir.environment_json, environment)
    cut_jsonl(run_dir.starts_jsonl, lambda _: bool(steps))
    after_step = steps[-1] if steps else 0
    start = {"after_step": after_step, "changes": list(changes), "given": list(given)}
    append_jsonl(run_dir.starts_jsonl, {**environment, **start})


def cut_records(run_dir: RunDir, step: int) -> None:
    """Forgets the records of what is done again: later steps and evaluations, and the final one.

    What is done of a final evaluation after ``step`` is kept.
    """
    run_dir.drop_evaluation_parts(after_step=step)
    cut_jsonl(run_dir.metrics_jsonl, lambda line: bool(line["step"] < step))
    cut_jsonl(
        run_dir.evaluations_jsonl,
        lambda line: line["step"] <= step and not line["full_protocol"],
    )


def is_evaluated(run_dir: RunDir, step: int) -> bool:
    """Whether the evaluation after ``step`` steps is recorded."""
    return any(line["step"] == step for line in read_jsonl(run_dir.evaluations_jsonl))


def config_problems(run_dir: RunDir, config_yaml: str, ignored: tuple[str, ...] = ()) -> list[str]:
    """Every key that can change the result and differs from the folder's, but those that begin as ``ignored``."""
    changed = _changed_keys(run_dir, config_yaml)
    return _told([one for one in changed if not one[0].startswith(ignored)])


def _changed_keys(run_dir: RunDir, config_yaml: str) -> list[Change]:
    """Every key that can change the result and differs from the folder's, the seed too."""
    if not run_dir.config_yaml.exists():
        return []
    saved = from_yaml(run_dir.config_yaml)
    now = dict(flatten(yaml.safe_load(config_yaml)))
    found = [*differing_keys(saved, now)]
    if saved.get("RNG_SEED") != now["RNG_SEED"]:
        found.append(("RNG_SEED", saved.get("RNG_SEED"), now["RNG_SEED"]))
    return found


def _told(changes: Sequence[Change]) -> list[str]:
    return [f"{key}: the run folder has {old!r}, this start {new!r}" for key, old, new in changes]


def _state_problems(run_dir: RunDir, changes: Sequence[Change]) -> list[str]:
    """Another optimizer than that whose state the checkpoints hold: nothing can override that."""
    remedy = "which it cannot go on from: choose another --output"
    return [
        f"{key} {now}: the checkpoints of {run_dir.root} hold the state of {saved}, {remedy}"
        for key, saved, now in changes
        if key == "SOLVER.OPTIMIZING_METHOD" and {saved, now} != SAME_STATE
    ]


def _video_problems(run_dir: RunDir, videos: Mapping[str, object]) -> list[str]:
    if not run_dir.dataset_json.exists():
        return []
    saved = read_json(run_dir.dataset_json)
    return [
        f"{name} of the lists was {saved[name]!r}, now it is {value!r}"
        for name, value in videos.items()
        if name in saved and saved[name] != value
    ]
