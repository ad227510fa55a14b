"""Report steps: records in metrics.jsonl, lines in the log, a progress bar on a terminal."""

from __future__ import annotations

import logging
import resource
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from mgexp.run.files import append_jsonl, named
from mgexp.text import escaped

LOGGER = logging.getLogger("mgexp")
# On a terminal the bar shows the steps. In log.txt and elsewhere each reported step is a line.
STEP_LEVEL = logging.DEBUG


@dataclass(frozen=True)
class StepRecord:
    """A line of metrics.jsonl; ``clips`` is global, ``step_seconds`` includes the wait for input."""

    step: int
    epoch: float
    phase: int
    frames: int
    crop: int
    clips: int
    lr: float
    loss: float
    step_seconds: float
    input_wait_seconds: float

    def line(self) -> dict[str, float | int]:
        """Return the record with the numbers that follow from it."""
        return {
            **self.__dict__,
            "clips_per_second": self.clips / self.step_seconds,
            "max_memory_bytes": max_memory_bytes(),
        }


class Progress:
    """Report every ``log_period``-th step: its own record, and means over the steps since the last report.

    ``path`` is metrics.jsonl in the first process, and None in the others, which stay silent. ``tell`` is called
    with each line.
    """

    def __init__(
        self,
        path: Path | None,
        first_step: int,
        total_steps: int,
        log_period: int,
        tell: Callable[[Mapping[str, float | int]], None] = lambda line: None,
    ) -> None:
        self._tell = tell
        self.path = path
        self.total_steps = total_steps
        self.log_period = log_period
        self._window: list[StepRecord] = []
        self._bar = tqdm(
            total=total_steps,
            initial=first_step,
            unit="step",
            disable=path is None or not sys.stderr.isatty(),
            dynamic_ncols=True,
        )

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.close()

    def report(self, record: StepRecord) -> None:
        """Take note of one step; ``record.step`` is 0-based."""
        self._bar.update()
        self._window.append(record)
        if (record.step + 1) % self.log_period and record.step + 1 != self.total_steps:
            return
        if self.path is not None:
            line = record.line()
            append_jsonl(self.path, line)
            self._tell(line)
            # Sums before quotients: the steps of a cycle differ in length and clips, so a mean of the steps' own
            # clips per second would be wrong.
            seconds = sum(r.step_seconds for r in self._window)
            waiting = sum(r.input_wait_seconds for r in self._window) / seconds
            clips_per_second = sum(r.clips for r in self._window) / seconds
            step_seconds = seconds / len(self._window)
            eta = tqdm.format_interval((self.total_steps - record.step - 1) * step_seconds)
            text = (
                f"epoch {record.epoch:.2f}  {record.clips}x{record.frames}x{record.crop}²  "
                f"loss {record.loss:.3f}  lr {record.lr:.4f}  {1000 * step_seconds:.0f} ms  "
                f"{waiting:.0%} waiting  {clips_per_second:.0f} clips/s  ETA {eta}"
            )
            self._bar.set_postfix_str(text)
            LOGGER.log(STEP_LEVEL, "step %d/%d  %s", record.step + 1, self.total_steps, text)
        self._window.clear()


def max_memory_bytes() -> int:
    """Return the peak memory of the GPU, or of this process on a CPU."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB


class _LogFile(logging.FileHandler):
    """A log file whose write errors end the run: on a full disk a checkpoint could not be saved either."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        """Raise OSError that names the log; other errors are reported as logging does it."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            raise named(error, Path(self.baseFilename)) from error
        super().handleError(record)

    def close(self) -> None:
        """Close the file; an error was already reported by the write."""
        with suppress(OSError):
            super().close()


class _Printable(logging.Formatter):
    """Escape control characters: names of files and messages of libraries could steer a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(escaped(line) for line in super().format(record).split("\n"))


@contextmanager
def logging_to(path: Path | None) -> Iterator[None]:
    """Log to ``path`` and to standard error; on a terminal, above the progress bar."""
    console = logging.StreamHandler(sys.stderr)
    console.setLevel(logging.INFO if sys.stderr.isatty() else STEP_LEVEL)
    handlers: list[logging.Handler] = [console]
    if path is not None:
        handlers.append(_LogFile(path, encoding="utf-8"))
    for handler in handlers:
        handler.setFormatter(_Printable("%(asctime)s  %(message)s", "%H:%M:%S"))
        LOGGER.addHandler(handler)
    LOGGER.setLevel(STEP_LEVEL)
    try:
        # A line that goes straight to the terminal would cut the bar in two.
        with logging_redirect_tqdm([LOGGER]):
            yield
    except Exception as error:
        # The caller prints the error on standard error. The file would not have it without this.
        record = LOGGER.makeRecord(LOGGER.name, logging.ERROR, "", 0, "%s", (error,), None)
        for handler in handlers[1:]:
            handler.handle(record)
        raise
    finally:
        for handler in handlers:
            LOGGER.removeHandler(handler)
            handler.close()
