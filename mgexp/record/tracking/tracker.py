"""Who is told of a run besides its folder, such as TensorBoard: a view of the files, which are the record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol

from mgexp.record.progress import LOGGER

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
