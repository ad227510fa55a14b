"""A run in TensorBoard: events in a file for each start, written at once and by this thread.

Not torch's SummaryWriter: its writer thread ends at a full disk, and who flushes then waits for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import simplejson

from mgexp.record.tracking.tracker import (
    EVALUATION,
    FINAL,
    TRAIN,
    Line,
    numbers_of,
    numbers_of_result,
)

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
