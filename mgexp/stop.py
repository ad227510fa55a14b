"""Stop a run after a signal, as soon as nothing is lost. All processes of the run stop together.

In training, the run stops after the current step and a save. Before the first step there is nothing to save, so
it stops at once. In an evaluation it stops after the current batch, and the final one saves its scores.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import TypeVar

import torch

from mgexp import dist
from mgexp.dist import Processes

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2, signal.SIGHUP)
"""The signals that come from kill, Ctrl-C, Slurm through submitit, and a terminal that is closed."""
ONE_CTRL_C_SECONDS = 1.0
"""A second SIGINT within this time belongs to the same Ctrl-C. The terminal sends SIGINT to every process, and
then torchrun also sends it to processes that already have it."""

Item = TypeVar("Item")


class Interrupted(BaseException):
    """The stop of a run by a signal, where nothing is lost. It is no Exception, as KeyboardInterrupt is none."""

    def __init__(self, signal_name: str) -> None:
        super().__init__(signal_name)
        self.signal_name = signal_name


class StopRequest:
    """A record of the signals that came. After one of ``only_save`` the run saves and continues."""

    def __init__(self, only_save: Collection[int] = ()) -> None:
        self.signal_name: str | None = None
        self.should_save = False
        self._only_save = only_save
        self._first_ctrl_c = math.inf
        self._is_at_once = False
        self._process = 0

    @property
    def requested(self) -> bool:
        return self.signal_name is not None

    @contextmanager
    def listening(self) -> Iterator[StopRequest]:
        """Catch the signals inside the block, and restore the earlier handlers after it."""
        self._process = os.getpid()
        before = {
            number: signal.signal(number, self._catch)
            for number in STOP_SIGNALS
            # nohup ignores SIGHUP, so that the run continues without its terminal.
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
        }
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Raise Interrupted at a signal in the block, which can lose nothing, or at once if one came before."""
        with self._mode(is_at_once=True):
            self.check()
            yield
            # A library in the block may have caught Interrupted as an error of its own.
            self.check()

    def deferred(self) -> AbstractContextManager[None]:
        """Let a signal only set ``signal_name`` in a block inside ``at_once``."""
        return self._mode(is_at_once=False)

    @contextmanager
    def _mode(self, is_at_once: bool) -> Iterator[None]:
        before, self._is_at_once = self._is_at_once, is_at_once
        try:
            yield
        finally:
            self._is_at_once = before

    def check(self) -> None:
        if self.signal_name is not None:
            raise Interrupted(self.signal_name)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        # A worker of the loader inherits this handler when it is forked. Soon after that it ignores signals
        # itself.
        if os.getpid() != self._process:
            return
        now, first = time.monotonic(), self._first_ctrl_c
        if number == signal.SIGINT:
            self._first_ctrl_c = min(first, now)
        if number in self._only_save:
            self.should_save = True
        elif not self.requested:
            self.signal_name = signal.Signals(number).name
            if self._is_at_once:
                self.check()
        # A second Ctrl-C ends the process without saving.
        elif number == signal.SIGINT and now - first > ONE_CTRL_C_SECONDS:
            # SIG_DFL ends the process at once. Python's own handler would raise KeyboardInterrupt, and then
            # `finally` blocks would run.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


def watched_together(
    stop: StopRequest, items: Iterable[Item], processes: Processes, device: torch.device
) -> Iterator[Item]:
    """Yield the items, as many in every process. After a signal to one, raise Interrupted in all."""
    for item in items:
        _leave_if_any(processes, stop.signal_name, device)
        yield item


@contextmanager
def leaving_together(processes: Processes, device: torch.device) -> Iterator[None]:
    """Raise Interrupted in all processes after the block if Interrupted ended the block in one of them.

    Inside the block, no process may wait for another process, which may have left.
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
