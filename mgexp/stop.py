"""Signals that ask a run to stop. The run stops as soon as nothing is lost, and all its processes stop together.

In training, the run stops after the current step and a save. Where there is nothing to save, as before the first
step and in an evaluation, it stops at once or after the current batch.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

import torch

from mgexp import dist
from mgexp.dist import Processes

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)
"""The signals of kill, of Ctrl-C, and of Slurm through submitit."""
ONE_CTRL_C_SECONDS = 1.0
"""A second Ctrl-C within this time is the first one again. The terminal sends Ctrl-C to every process, and then
torchrun passes it on to processes that already have it."""

Item = TypeVar("Item")


class Interrupted(BaseException):
    """A signal stopped the run where nothing is lost; ``signal_name`` says which.

    Like KeyboardInterrupt it is no Exception. So code that catches every error of a file does not catch it.
    """

    def __init__(self, signal_name: str) -> None:
        super().__init__(signal_name)
        self.signal_name = signal_name


class StopRequest:
    """Remember whether a signal came. A second Ctrl-C ends the process at once, without saving.

    After a signal of ``only_save`` the run saves and continues. The sender may still end the process.
    ``should_save`` says that such a signal came; whoever has saved sets it back.
    """

    def __init__(self, only_save: Collection[int] = ()) -> None:
        self.signal_name: str | None = None
        self.should_save = False
        self._only_save = only_save
        self._since = 0.0
        self._is_at_once = False
        self._process = 0

    @property
    def requested(self) -> bool:
        """Return True after the first signal that stops the run."""
        return self.signal_name is not None

    @contextmanager
    def listening(self) -> Iterator[StopRequest]:
        """Catch the signals inside the block, then restore what was there before."""
        self._process = os.getpid()
        before = {number: signal.signal(number, self._catch) for number in STOP_SIGNALS}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Raise Interrupted at a signal in the block, or at once if one came before. Nothing can be lost there."""
        with self._mode(is_at_once=True):
            self.check()
            yield
            # A library in the block may have caught Interrupted as an error of its own.
            self.check()

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Inside ``at_once``, return to the default for the block: a signal only sets ``signal_name``."""
        with self._mode(is_at_once=False):
            yield

    @contextmanager
    def _mode(self, is_at_once: bool) -> Iterator[None]:
        before, self._is_at_once = self._is_at_once, is_at_once
        try:
            yield
        finally:
            self._is_at_once = before

    def check(self) -> None:
        """Raise Interrupted where a signal came."""
        if self.signal_name is not None:
            raise Interrupted(self.signal_name)

    def watch(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items. After a signal, raise Interrupted in place of the next item."""
        for item in items:
            self.check()
            yield item

    def _catch(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            return  # a loader's worker that was just forked: it will soon ignore signals itself
        if number in self._only_save:
            self.should_save = True
        elif not self.requested:
            self.signal_name, self._since = signal.Signals(number).name, time.monotonic()
            if self._is_at_once:
                self.check()
        elif number == signal.SIGINT and time.monotonic() - self._since > ONE_CTRL_C_SECONDS:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


def watched_together(
    stop: StopRequest, items: Iterable[Item], processes: Processes, device: torch.device
) -> Iterator[Item]:
    """Yield the items. After a signal to one process, raise Interrupted in all in place of the next item.

    Every process must have the same number of items, since the processes wait for each other at each one.
    """
    for item in items:
        _leave_if_any(processes, stop.signal_name, device)
        yield item


@contextmanager
def leaving_together(processes: Processes, device: torch.device) -> Iterator[None]:
    """Raise Interrupted in all processes after the block if Interrupted ended the block in one of them.

    Inside the block no process may wait for another, since that one may have left. After it, they may exchange
    results.
    """
    name = None
    try:
        yield
    except Interrupted as error:
        name = error.signal_name
    _leave_if_any(processes, name, device)


def _leave_if_any(processes: Processes, signal_name: str | None, device: torch.device) -> None:
    (is_over,) = dist.any_true(processes, (signal_name is not None,), device)
    if is_over:
        raise Interrupted(signal_name or "a signal to another process")
