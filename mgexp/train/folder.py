"""The run folder at the start of a run: new, of the same run, or refused."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping

import yaml

from mgexp.errors import InputError
from mgexp.multigrid.schedule import Schedule
from mgexp.record.environment import describe
from mgexp.record.results import differing_keys, flatten
from mgexp.record.run_dir import (
    RunDir,
    atomic_write_text,
    cut_jsonl,
    read_json,
    read_jsonl,
    write_json,
)
from mgexp.record.schedule_table import schedule_rows


def check_folder(
    run_dir: RunDir, config_yaml: str, videos: Mapping[str, object], override: bool
) -> None:
    """Raises InputError in a folder of another configuration or of other training videos.

    ``override`` goes on all the same. Keys that cannot change the result may differ.
    """
    problems = [*config_problems(run_dir, config_yaml), *_video_problems(run_dir, videos)]
    if problems and not override:
        remedy = f"{run_dir.root}: choose another --output, or add --override to go on all the same"
        raise InputError([*problems, remedy])


def write_folder(
    run_dir: RunDir, config_yaml: str, videos: Mapping[str, object], schedule: Schedule
) -> None:
    """Records what is run, before the first step."""
    atomic_write_text(run_dir.config_yaml, config_yaml)
    write_json(run_dir.environment_json, describe())
    write_json(run_dir.dataset_json, videos)
    text = io.StringIO()
    rows = schedule_rows(schedule)
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    atomic_write_text(run_dir.schedule_csv, text.getvalue())


def cut_records(run_dir: RunDir, step: int) -> None:
    """Forgets the records of what is done again: later steps and evaluations, and the final one."""
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
    if not run_dir.config_yaml.exists():
        return []
    saved = dict(flatten(yaml.safe_load(run_dir.config_yaml.read_text(encoding="utf-8"))))
    now = dict(flatten(yaml.safe_load(config_yaml)))
    found = [*differing_keys(saved, now)]
    if saved.get("RNG_SEED") != now["RNG_SEED"]:
        found.append(("RNG_SEED", saved.get("RNG_SEED"), now["RNG_SEED"]))
    return [
        f"{key}: the run folder has {old!r}, this start {new!r}"
        for key, old, new in found
        if not key.startswith(ignored)
    ]


def _video_problems(run_dir: RunDir, videos: Mapping[str, object]) -> list[str]:
    if not run_dir.dataset_json.exists():
        return []
    saved = read_json(run_dir.dataset_json)
    return [
        f"{name} of the training list was {saved.get(name)!r}, now it is {value!r}"
        for name, value in videos.items()
        if saved.get(name) != value
    ]
