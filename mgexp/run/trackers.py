"""Send the lines of a run to TensorBoard and W&B as the run writes them.

The run folder holds everything. So a tracker that fails causes one warning, and the run continues without it.
"""

from __future__ import annotations

import importlib.util
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import simplejson

from mgexp.run.files import read_json, write_json
from mgexp.run.folder import RunDir
from mgexp.run.log import LOGGER

Line = Mapping[str, Any]
"""A line of metrics.jsonl or evaluations.jsonl."""

TRAIN, EVALUATION, FINAL = "train/", "evaluation/", "final/"
"""The prefixes of the names of numbers: from logged steps, from evaluations, from the result."""


def numbers_of(line: Line) -> dict[str, float]:
    """Select the numbers of a line, but not its True and False."""
    # In Python a bool is an int.
    return {
        name: value
        for name, value in line.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def numbers_of_result(result: Line) -> dict[str, float]:
    """Select the numbers of result.json: metrics by their own names, seconds as train_seconds and so on."""
    seconds = {f"{name}_seconds": value for name, value in result["seconds"].items()}
    return {**numbers_of(result), **result["metrics"], **seconds}


@dataclass
class TensorBoard:
    """A tracker that writes scalars over ``step`` and the configuration as events for TensorBoard.

    At the start, the configuration is text. With the result, it is a table of hyper-parameters. Only this run
    writes into ``folder``. ``evaluations()`` gives the recorded evaluations. A start that resumes writes them
    again, because TensorBoard then drops everything that an earlier start wrote for ``first_step`` and later.
    """

    folder: Path
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    evaluations: Callable[[], Iterable[Line]]

    def start(self, first_step: int) -> None:
        # TensorBoard is optional, so import it only in a run that uses it.
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(self.folder), purge_step=first_step)
        for tag, values in (("configuration", self.config), ("environment", self.environment)):
            # Markdown shows indented lines unchanged, as a block of code.
            lines = [f"    {line}" for line in simplejson.dumps(values, indent=2).splitlines()]
            self._writer.add_text(tag, "\n".join(lines), first_step)
        for line in self.evaluations():
            if line["step"] >= first_step and not line["full_protocol"]:
                self.evaluation(line)

    def step(self, line: Line) -> None:
        self._scalars(TRAIN, line, line["step"])

    def evaluation(self, line: Line) -> None:
        self._scalars(EVALUATION, line, line["step"])

    def result(self, result: Line) -> None:
        from torch.utils.tensorboard.summary import hparams

        numbers = numbers_of_result(result)
        # Hyper-parameters are numbers or text there; a list is written as text.
        plain = {
            name: value if isinstance(value, bool | int | float | str) else str(value)
            for name, value in self.config.items()
        }
        final = {f"{FINAL}{name}": value for name, value in numbers.items()}
        # The writer's own add_hparams would open a second file.
        for summary in hparams(plain, final):  # type: ignore[no-untyped-call]
            self._writer.file_writer.add_summary(summary, result["steps"])
        self._scalars(FINAL, numbers, result["steps"])

    def close(self, failed: bool) -> None:
        self._writer.close()

    def _scalars(self, prefix: str, line: Line, step: int) -> None:
        for name, value in numbers_of(line).items():
            if name != "step":
                self._writer.add_scalar(f"{prefix}{name}", value, step)
        self._writer.flush()


FINISH_SECONDS = 600.0
"""The longest wait for uploads at the end of a run. `wandb sync` can send the rest later."""


@dataclass
class WandbRun:
    """A tracker that sends the run to W&B. Charts are over ``step``; W&B's own step is the number of `place_of`.

    ``name`` has experiment and seed. If a start did not reach a checkpoint, the next start is a new run at W&B,
    because it may have other settings.
    """

    run_dir: RunDir
    name: str
    project: str
    entity: str
    mode: str
    config: Mapping[str, Any]

    def start(self, first_step: int) -> None:
        # W&B is optional, so import it only in a run that uses it.
        import wandb

        file = self.run_dir.wandb_json
        if first_step == 0 or not file.exists():
            write_json(file, {"id": uuid.uuid4().hex[:12]})
        # W&B gets only what this file sends: no code, no name of the machine, no list of packages. Nothing is sent
        # of what the run prints, because log.txt has it.
        settings = wandb.Settings(
            console="off",
            silent=True,
            finish_timeout=FINISH_SECONDS,
            disable_code=True,
            disable_git=True,
            x_disable_meta=True,
            x_disable_machine_info=True,
            x_disable_stats=True,
            x_save_requirements=False,
            host="",
        )
        self._run = wandb.init(
            project=self.project,
            entity=self.entity or None,
            id=read_json(file)["id"],
            name=self.name,
            dir=str(self.run_dir.root),
            mode="offline" if self.mode == "offline" else "online",
            resume="allow",
            config=dict(self.config),
            allow_val_change=True,
            settings=settings,
        )
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def step(self, line: Line) -> None:
        self._log(TRAIN, line)

    def evaluation(self, line: Line) -> None:
        self._log(EVALUATION, line)

    def result(self, result: Line) -> None:
        numbers = numbers_of_result(result)
        self._run.summary.update({f"{FINAL}{name}": value for name, value in numbers.items()})

    def close(self, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))

    def _log(self, prefix: str, line: Line) -> None:
        numbers = {f"{prefix}{name}": value for name, value in numbers_of(line).items()}
        # A resumed run repeats steps that W&B already has. W&B ignores a place that does not rise.
        self._run.log(
            {"step": numbers.pop(f"{prefix}step"), **numbers}, step=place_of(prefix, line)
        )


def place_of(prefix: str, line: Line) -> int:
    """Return the number of a line for W&B, which needs numbers that rise.

    An evaluation after ``step`` steps comes just before the line of step ``step``, which is 0-based. The
    evaluation by the full protocol comes after all steps. So it takes the place of the line that would come next.
    """
    return 2 * int(line["step"]) + (prefix == TRAIN or bool(line.get("full_protocol")))


Tracker = TensorBoard | WandbRun


class Trackers:
    """All trackers of a run, by name. A tracker that fails is named in one warning and gets nothing more.

    ``start`` comes before the first line; a run that resumes sends the lines after ``first_step`` steps again.
    ``step`` takes a line of metrics.jsonl, in which steps are 0-based. ``evaluation`` takes a line of
    evaluations.jsonl, in which a step is the number of steps before it. As a context manager, this object closes
    all trackers at the end.
    """

    def __init__(self, trackers: Mapping[str, Tracker] | None = None) -> None:
        self._trackers = dict(trackers or {})
        self._is_started = False

    def start(self, first_step: int) -> None:
        self._is_started = True
        self._each("start", first_step)

    def step(self, line: Line) -> None:
        self._each("step", line)

    def evaluation(self, line: Line) -> None:
        self._each("evaluation", line)

    def result(self, result: Line) -> None:
        self._each("result", result)

    def __enter__(self) -> Trackers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if self._is_started:
            self._each("close", kind is not None)

    def _each(self, method: str, argument: object) -> None:
        # Iterate over a copy, because a tracker that fails is removed.
        for name, tracker in list(self._trackers.items()):
            try:
                getattr(tracker, method)(argument)
            except Exception as error:
                # Perhaps the disk is full or the network is gone. Days of training must not end for a curve.
                del self._trackers[name]
                LOGGER.warning(
                    "%s failed and gets no more lines of this run (%s: %s); the run folder has all",
                    *(name, type(error).__name__, error),
                )


NOBODY = Trackers()


def tracking_problems(uses_tensorboard: bool, wandb_mode: str | None) -> Iterator[str]:
    """Yield the reasons why TensorBoard or W&B cannot start here. ``wandb_mode`` is None if W&B is not wanted."""
    wanted = {"tensorboard": uses_tensorboard, "wandb": wandb_mode is not None}
    for package in (package for package, is_wanted in wanted.items() if is_wanted):
        if importlib.util.find_spec(package) is None:
            yield f"{package.upper()}.ENABLE = True needs the package {package}: pip install {package}"
        elif package == "wandb" and wandb_mode == "online":
            import wandb

            # Without an account W&B would ask for one in the middle of a start.
            if not wandb.login(prompt=False, verify=False):
                yield "WANDB.MODE = online, but nobody is logged in at W&B: run `wandb login`"
