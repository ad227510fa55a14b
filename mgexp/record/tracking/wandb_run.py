"""A run at W&B, under one id for all its starts; what a start does again is told once."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from mgexp.record.files import read_json, read_jsonl, write_json
from mgexp.record.run_dir import RunDir
from mgexp.record.tracking.tracker import (
    EVALUATION,
    FINAL,
    TRAIN,
    Line,
    numbers_of,
    numbers_of_result,
)

FINISH_SECONDS = 600.0
"""To wait at most, at the end of a run, for what is not uploaded yet; it stays on the disk for `wandb sync`."""
NOTHING_ELSE: dict[str, Any] = {
    "disable_code": True,
    "disable_git": True,
    "x_disable_meta": True,
    "x_disable_machine_info": True,
    "x_disable_stats": True,
    "x_save_requirements": False,
    "host": "",
}
"""W&B is told what this file tells it: no code, no name of the machine, no list of its packages."""


class WandbRun:
    """Lines at W&B. Its charts are over ``step``; its own count of steps is ``place_of`` a line.

    ``name``: experiment and seed. Starts that came to no checkpoint are runs of their own there: with other
    settings they may have been other runs.
    """

    def __init__(
        self,
        run_dir: RunDir,
        name: str,
        project: str,
        entity: str,
        mode: str,
        config: Mapping[str, Any],
    ) -> None:
        self._run_dir = run_dir
        self._name = name
        self._project = project
        self._entity = entity
        self._mode = mode
        self._config = config

    def start(self, first_step: int) -> None:
        """Starts the run, or goes on with it; see ``Tracker``."""
        import wandb

        run_id, self._told = self._identity(first_step)
        self._run = wandb.init(
            project=self._project,
            entity=self._entity or None,
            id=run_id,
            name=self._name,
            dir=str(self._run_dir.root),
            mode="offline" if self._mode == "offline" else "online",
            resume="allow",
            config=dict(self._config),
            allow_val_change=True,
            settings=wandb.Settings(
                console="off",  # log.txt has what a run prints
                silent=True,
                finish_timeout=FINISH_SECONDS,
                **NOTHING_ELSE,
            ),
        )
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def step(self, line: Line) -> None:
        """See ``Tracker``."""
        self._log(TRAIN, line, place_of_step(line["step"]))

    def evaluation(self, line: Line) -> None:
        """See ``Tracker``."""
        self._log(EVALUATION, line, place_of_evaluation(line["step"]))

    def result(self, result: Line) -> None:
        """See ``Tracker``."""
        numbers = numbers_of_result(result)
        self._run.summary.update({f"{FINAL}{name}": value for name, value in numbers.items()})

    def close(self, failed: bool) -> None:
        """See ``Tracker``."""
        self._run.finish(exit_code=int(failed))

    def _log(self, prefix: str, line: Line, place: int) -> None:
        if place <= self._told:
            return
        numbers = {f"{prefix}{name}": value for name, value in numbers_of(line).items()}
        self._run.log({"step": numbers.pop(f"{prefix}step"), **numbers}, step=place)

    def _identity(self, first_step: int) -> tuple[str, int]:
        """The id at W&B, and the place of the last line that it was told."""
        file = self._run_dir.wandb_json
        if first_step and file.exists():
            known = read_json(file)
            run_id, told = known["id"], max(known["told"], self._last_place())
        else:
            run_id, told = uuid.uuid4().hex[:12], -1
        write_json(file, {"id": run_id, "told": told})
        return run_id, told

    def _last_place(self) -> int:
        """Of the lines in the files, those included that are about to be cut."""
        steps = [place_of_step(line["step"]) for line in read_jsonl(self._run_dir.metrics_jsonl)]
        evaluations = read_jsonl(self._run_dir.evaluations_jsonl)
        return max([-1, *steps, *(place_of_evaluation(line["step"]) for line in evaluations)])


def place_of_evaluation(step: int) -> int:
    """Of an evaluation before ``step``: lines have numbers of their own at W&B, which must rise."""
    return 2 * step


def place_of_step(step: int) -> int:
    """Of a logged step, 0-based: after the evaluation before it."""
    return 2 * step + 1
