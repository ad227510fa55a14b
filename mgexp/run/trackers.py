"""Send the lines of a run to TensorBoard and W&B. If one fails, the run continues without it."""

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

FINISH_SECONDS = 600.0
"""The longest wait for uploads to W&B at the end of a run. `wandb sync` can send the rest later."""


def numbers_of(line: Line) -> dict[str, float]:
    """Select the numbers of a line, but not its True and False, which Python counts as integers."""
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
    """A tracker that writes scalars and the configuration into ``folder``, as events for TensorBoard."""

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
        # TensorBoard has dropped what an earlier start wrote for this step and later.
        for line in self.evaluations():
            if line["step"] >= first_step and not line["full_protocol"]:
                self.evaluation(line)

    def step(self, line: Line) -> None:
        self._scalars("train", line, line["step"])

    def evaluation(self, line: Line) -> None:
        self._scalars("evaluation", line, line["step"])

    def result(self, result: Line) -> None:
        from torch.utils.tensorboard.summary import hparams

        numbers = numbers_of_result(result)
        # Hyper-parameters are numbers or text there; a list is written as text.
        plain = {
            name: value if isinstance(value, bool | int | float | str) else str(value)
            for name, value in self.config.items()
        }
        final = {f"final/{name}": value for name, value in numbers.items()}
        # The writer's own add_hparams would open a second file.
        for summary in hparams(plain, final):  # type: ignore[no-untyped-call]
            self._writer.file_writer.add_summary(summary, result["steps"])
        self._scalars("final", numbers, result["steps"])

    def close(self, failed: bool) -> None:
        self._writer.close()

    def _scalars(self, group: str, line: Line, step: int) -> None:
        for name, value in numbers_of(line).items():
            if name != "step":
                self._writer.add_scalar(f"{group}/{name}", value, step)
        self._writer.flush()


@dataclass
class WandbRun:
    """A tracker that sends the run to W&B."""

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
        # A start without a checkpoint may have other settings than the one before it, so it is a new run at W&B.
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

    # W&B drops a line whose place is not higher than the last, such as a step that a resumed run repeats. An
    # evaluation after n steps comes before the line of step n, which is 0-based. The final evaluation, by the full
    # protocol, comes after all steps and takes the place of the line that would come next.

    def step(self, line: Line) -> None:
        self._log("train", line, place=2 * line["step"] + 1)

    def evaluation(self, line: Line) -> None:
        self._log("evaluation", line, place=2 * line["step"] + line["full_protocol"])

    def result(self, result: Line) -> None:
        numbers = numbers_of_result(result)
        self._run.summary.update({f"final/{name}": value for name, value in numbers.items()})

    def close(self, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))

    def _log(self, group: str, line: Line, place: int) -> None:
        numbers = {f"{group}/{name}": value for name, value in numbers_of(line).items()}
        self._run.log({"step": numbers.pop(f"{group}/step"), **numbers}, step=place)


Tracker = TensorBoard | WandbRun


class Trackers:
    """All trackers of a run, by name. A tracker that fails is named in one warning and gets nothing more."""

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
                LOGGER.warning("%s failed and gets no more lines of this run: %r", name, error)


NOBODY = Trackers()


def tracking_problems(uses_tensorboard: bool, wandb_mode: str | None) -> Iterator[str]:
    """Yield the reasons why TensorBoard or W&B cannot start here. ``wandb_mode`` is None if W&B is not wanted."""
    wanted = {"tensorboard": uses_tensorboard, "wandb": wandb_mode is not None}
    for package, is_wanted in wanted.items():
        if not is_wanted:
            continue
        if importlib.util.find_spec(package) is None:
            yield f"{package.upper()}.ENABLE = True: pip install {package}"
        elif package == "wandb" and wandb_mode == "online":
            import wandb

            # Without an account W&B would ask for one in the middle of a start.
            if not wandb.login(prompt=False, verify=False):
                yield "WANDB.MODE = online, but nobody is logged in: run `wandb login`"
