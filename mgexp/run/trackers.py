"""From the configuration to who is told of a run."""

from __future__ import annotations

import importlib.util
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import simplejson

from mgexp.config.keys import Config
from mgexp.config.load import flatten
from mgexp.run.environment import describe
from mgexp.run.files import read_json, read_jsonl, write_json
from mgexp.run.folder import RunDir
from mgexp.run.log import LOGGER

Line = Mapping[str, Any]
"""A line of metrics.jsonl or evaluations.jsonl."""

TRAIN, EVALUATION, FINAL = "train/", "evaluation/", "final/"
"""What the names of numbers begin with, by where they are from."""


def numbers_of(line: Line) -> dict[str, float]:
    """The numbers of a line, truth values left out."""
    return {
        name: value
        for name, value in line.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def numbers_of_result(result: Line) -> dict[str, float]:
    """The numbers of result.json: metrics under their own names, seconds as train_seconds and so on."""
    seconds = {f"{name}_seconds": value for name, value in result["seconds"].items()}
    return {**numbers_of(result), **result["metrics"], **seconds}


class Tracker(Protocol):
    """Is told the lines of metrics.jsonl and evaluations.jsonl as they are written, and the result.

    ``step`` of a line of metrics is 0-based, that of an evaluation the number of steps before it. What a method
    raises ends the tracking, not the run.
    """

    def start(self, first_step: int) -> None:
        """Before the first line: the run goes on after ``first_step`` steps; lines from there on come again."""

    def step(self, line: Line) -> None:
        """A logged step."""

    def evaluation(self, line: Line) -> None:
        """An evaluation."""

    def result(self, result: Line) -> None:
        """What result.json holds."""

    def close(self, failed: bool) -> None:
        """The end of this start; it ``failed`` where it ends by an error."""


class Trackers:
    """All trackers of a run, by name. One that fails is warned of once, and told nothing more.

    Context manager: on leaving it all are closed.
    """

    def __init__(self, trackers: Mapping[str, Tracker] | None = None) -> None:
        self._trackers = dict(trackers or {})
        self._is_started = False

    def start(self, first_step: int) -> None:
        """See ``Tracker``."""
        self._is_started = True
        self._tell(lambda tracker: tracker.start(first_step))

    def step(self, line: Line) -> None:
        """See ``Tracker``."""
        self._tell(lambda tracker: tracker.step(line))

    def evaluation(self, line: Line) -> None:
        """See ``Tracker``."""
        self._tell(lambda tracker: tracker.evaluation(line))

    def result(self, result: Line) -> None:
        """See ``Tracker``."""
        self._tell(lambda tracker: tracker.result(result))

    def __enter__(self) -> Trackers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_started:
            self._tell(lambda tracker: tracker.close(failed=kind is not None))

    def _tell(self, what: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._trackers.items()):
            try:
                what(tracker)
            except Exception as error:  # a full disk or no network; the run is worth more
                del self._trackers[name]
                LOGGER.warning(
                    "%s is told nothing more of this run (%s: %s); its files have it all",
                    *(name, type(error).__name__, error),
                )


NOBODY = Trackers()


if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event

VERSION = "brain.Event:2"
"""First in each file of events."""


class TensorBoard:
    """Scalars over ``step``: of logged steps, of evaluations, and of the result; configuration as text, and as
    hyper-parameters once there is a result.

    ``folder`` is the run's alone. ``evaluations()`` are the recorded ones: what a start has that goes on after an
    evaluation. Readers drop events of an earlier start from the step on that this one starts at.
    """

    def __init__(
        self,
        folder: Path,
        config: Mapping[str, Any],
        environment: Mapping[str, Any],
        evaluations: Callable[[], Iterable[Line]],
    ) -> None:
        self._folder = folder
        self._config = config
        self._environment = environment
        self._evaluations = evaluations

    def start(self, first_step: int) -> None:
        """Opens the file; see ``Tracker``."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter
        from torch.utils.tensorboard.summary import text

        self._folder.mkdir(parents=True, exist_ok=True)
        seconds, nanoseconds = divmod(time.time_ns(), 10**9)
        name = f"events.out.tfevents.{seconds:010d}.{nanoseconds:09d}"
        self._records = RecordWriter((self._folder / name).open("xb"))
        self._write(Event(file_version=VERSION))
        self._write(Event(step=first_step, session_log=SessionLog(status=SessionLog.START)))
        for tag, values in (("configuration", self._config), ("environment", self._environment)):
            self._write(Event(step=first_step, summary=text(tag, _as_text(values))))  # type: ignore[no-untyped-call]
        for line in self._evaluations():
            if line["step"] >= first_step and not line["full_protocol"]:
                self.evaluation(line)
        self._records.flush()

    def step(self, line: Line) -> None:
        """See ``Tracker``."""
        self._scalars(TRAIN, line, line["step"])

    def evaluation(self, line: Line) -> None:
        """See ``Tracker``."""
        self._scalars(EVALUATION, line, line["step"])

    def result(self, result: Line) -> None:
        """See ``Tracker``."""
        from tensorboard.compat.proto.event_pb2 import Event
        from torch.utils.tensorboard.summary import hparams

        final = {f"{FINAL}{name}": value for name, value in numbers_of_result(result).items()}
        plain = {name: _plain(value) for name, value in self._config.items()}
        for summary in hparams(plain, final):  # type: ignore[no-untyped-call]  # torch has no types there
            self._write(Event(step=result["steps"], summary=summary))
        self._scalars(FINAL, numbers_of_result(result), result["steps"])

    def close(self, failed: bool) -> None:
        """See ``Tracker``."""
        self._records.close()

    def _scalars(self, prefix: str, line: Line, step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [
            Summary.Value(tag=f"{prefix}{name}", simple_value=value)
            for name, value in numbers_of(line).items()
            if name != "step"
        ]
        self._write(Event(step=step, summary=Summary(value=values)))
        self._records.flush()

    def _write(self, event: Event) -> None:
        event.wall_time = time.time()
        self._records.write(event.SerializeToString())


def _plain(value: object) -> bool | int | float | str:
    return value if isinstance(value, bool | int | float | str) else str(value)


def _as_text(values: Mapping[str, Any]) -> str:
    """As a block of code, which TensorBoard shows as it is."""
    return "\n".join(f"    {line}" for line in simplejson.dumps(values, indent=2).splitlines())


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


def build_trackers(cfg: Config, experiment: str, run_dir: RunDir, is_main: bool) -> Trackers:
    """Those that TENSORBOARD.ENABLE and WANDB.ENABLE ask for, not started; nobody but for the main process."""
    if not is_main or not (cfg.TENSORBOARD.ENABLE or cfg.WANDB.ENABLE):
        return NOBODY
    config, environment = dict(flatten(cfg)), describe()
    found: dict[str, Tracker] = {}
    if cfg.TENSORBOARD.ENABLE:
        log_dir = cfg.TENSORBOARD.LOG_DIR
        folder = run_dir.tensorboard_in(Path(log_dir)) if log_dir else run_dir.tensorboard
        evaluations = partial(read_jsonl, run_dir.evaluations_jsonl)
        found["TensorBoard"] = TensorBoard(folder, config, environment, evaluations)
    if cfg.WANDB.ENABLE:
        found["W&B"] = WandbRun(
            run_dir,
            name=f"{experiment}/seed{cfg.RNG_SEED}",
            project=cfg.WANDB.PROJECT,
            entity=cfg.WANDB.ENTITY,
            mode=cfg.WANDB.MODE,
            config={**config, "environment": environment},
        )
    return Trackers(found)


def tracking_problems(cfg: Config) -> Iterator[str]:
    """A tracker that is asked for and cannot be started here."""
    for section, package in (("TENSORBOARD", "tensorboard"), ("WANDB", "wandb")):
        if (
            cfg.TRAIN.ENABLE
            and getattr(cfg, section).ENABLE
            and importlib.util.find_spec(package) is None
        ):
            yield (
                f"{section}.ENABLE = True needs the package {package}: pip install 'mgexp[{package}]' or "
                f"{package}, or set {section}.ENABLE False"
            )
        elif (
            section == "WANDB"
            and cfg.TRAIN.ENABLE
            and cfg.WANDB.ENABLE
            and not _may_send(cfg.WANDB.MODE)
        ):
            yield (
                "WANDB.MODE = online, but nobody is logged in at W&B: run `wandb login`, or set WANDB.MODE "
                "offline and send the run later with `wandb sync`"
            )


def _may_send(mode: str) -> bool:
    """Whether W&B will take the run: it asks for the account in the middle of a start otherwise."""
    if mode == "offline":
        return True
    import wandb

    try:
        return wandb.login(prompt=False, verify=False)
    except Exception:  # what it has for an account is none
        return False
