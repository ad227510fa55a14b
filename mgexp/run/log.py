"""Report steps as records in metrics.jsonl, as lines in the log, and as a progress bar on a terminal."""

from __future__ import annotations

import logging
import resource
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from mgexp.multigrid.schedule import StepPlan
from mgexp.run.files import append_jsonl

LOGGER = logging.getLogger("mgexp")
# On a terminal the bar shows the steps. In log.txt and elsewhere each reported step is a line.
STEP_LEVEL = logging.DEBUG


@dataclass(frozen=True)
class StepRecord:
    """What a finished step did. ``step_seconds`` includes the wait for input."""

    plan: StepPlan
    loss: float
    step_seconds: float
    input_wait_seconds: float

    def line(self) -> dict[str, float | int]:
        """Make a line of metrics.jsonl."""
        plan = self.plan
        return {
            "step": plan.step,
            "epoch": plan.epoch,
            "phase": plan.phase,
            "frames": plan.frames,
            "crop": plan.crop,
            "clips": plan.clips,
            "lr": plan.lr,
            "loss": self.loss,
            "step_seconds": self.step_seconds,
            "input_wait_seconds": self.input_wait_seconds,
            "clips_per_second": plan.clips / self.step_seconds,
            "max_memory_bytes": max_memory_bytes(),
        }


class Progress:
    """A reporter of every ``log_period``-th step: its own record, and means over the steps since the last report.

    ``path`` is metrics.jsonl on rank 0, and None on other ranks. ``tell`` gets each line.
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
        self._shapes: set[tuple[int, int, int]] = set()
        self._steady_steps, self._steady_seconds = 0, 0.0
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
        """Count one step, and report it if its turn has come."""
        plan = record.plan
        self._bar.update()
        self._window.append(record)
        # The first step of a shape takes longer once, and so says nothing about the steps to come.
        shape = (plan.frames, plan.crop, plan.clips)
        if shape in self._shapes:
            self._steady_steps += 1
            self._steady_seconds += record.step_seconds
        self._shapes.add(shape)
        num_steps = plan.step + 1
        if num_steps % self.log_period and num_steps != self.total_steps:
            return
        if self.path is not None:
            line = record.line()
            append_jsonl(self.path, line)
            self._tell(line)
            # Divide sums by sums. The steps of a cycle differ in seconds and clips, so the mean of the steps' own
            # rates would give short steps too much weight.
            seconds = sum(r.step_seconds for r in self._window)
            waiting = sum(r.input_wait_seconds for r in self._window) / seconds
            clips_per_second = sum(r.plan.clips for r in self._window) / seconds
            step_seconds = seconds / len(self._window)
            # All shapes cost about the same. So the mean since the start says more than the last few steps, of
            # which one may have waited.
            mean = self._steady_seconds / self._steady_steps if self._steady_steps else step_seconds
            # Evaluations and checkpoints come on top. What they take is not known before the first of them.
            eta = tqdm.format_interval((self.total_steps - num_steps) * mean)
            text = (
                f"epoch {plan.epoch:.2f}  {plan.clips}x{plan.frames}x{plan.crop}²  "
                f"loss {record.loss:.3f}  lr {plan.lr:.3g}  {1000 * step_seconds:.0f} ms  "
                f"{waiting:.0%} waiting  {clips_per_second:.0f} clips/s  training ETA {eta}"
            )
            self._bar.set_postfix_str(text)
            LOGGER.log(STEP_LEVEL, "step %d/%d  %s", num_steps, self.total_steps, text)
        self._window.clear()


LINE_SECONDS = 10.0
"""Without a terminal, a bar writes a line as often as this."""


def progress_bar(
    total: int | None,
    unit: str,
    items: Iterable[Any] | None = None,
    initial: int = 0,
    desc: str | None = None,
    is_shown: bool = True,
) -> tqdm[Any]:
    """Return a bar, over ``items`` if given. In a log file it writes a line every ten seconds."""
    is_terminal = sys.stderr.isatty()
    # The bar itself would be long in a log, so only its numbers are written.
    numbers = "{desc}{n_fmt}/{total_fmt}{unit} [{elapsed}<{remaining}]"
    return tqdm(
        items,
        total=total,
        initial=initial,
        desc=f"{desc}: " if desc else None,
        unit=unit,
        disable=not is_shown,
        file=sys.stderr if is_terminal else _Lines(),
        mininterval=0.1 if is_terminal else LINE_SECONDS,
        # 0 lets tqdm look at its clock at every update, so that a slow update is never left out.
        miniters=None if is_terminal else 0,
        bar_format=None if is_terminal else numbers,
        leave=is_terminal,
    )


class _Lines:
    """A file on standard error that ends each state of a bar with a line feed, where tqdm returns to the start."""

    def write(self, text: str) -> None:
        # tqdm also writes spaces, which clear the line of a terminal.
        if shown := text.strip():
            sys.stderr.write(f"{shown}\n")

    def flush(self) -> None:
        sys.stderr.flush()


def max_memory_bytes() -> int:
    """Return the peak memory of the GPU, or of this process on a CPU."""
    # A run on the CPU of a machine with a GPU has taken nothing of the GPU.
    of_gpu = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    # Linux gives this number in KiB.
    return of_gpu or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Log to ``path`` and to standard error; on a terminal, above the progress bar."""
    console = logging.StreamHandler(sys.stderr)
    console.setLevel(logging.INFO if sys.stderr.isatty() else STEP_LEVEL)
    handlers: list[logging.Handler] = [console, logging.FileHandler(path, encoding="utf-8")]
    for handler in handlers:
        handler.setFormatter(logging.Formatter("%(asctime)s  %(message)s", "%H:%M:%S"))
        LOGGER.addHandler(handler)
    LOGGER.setLevel(STEP_LEVEL)
    try:
        # A line that goes straight to the terminal would cut the bar in two.
        with logging_redirect_tqdm([LOGGER]):
            yield
    except Exception as error:
        # The caller prints the error on standard error, but the log file is closed by then.
        LOGGER.removeHandler(console)
        LOGGER.error("%s", error)
        raise
    finally:
        for handler in handlers:
            LOGGER.removeHandler(handler)
            # On a full disk, an earlier write has raised the error that ends the run.
            with suppress(OSError):
                handler.close()
