"""Signals that ask a run to stop: it leaves as soon as nothing is lost, and all its processes leave together.

In training that is the next step boundary, after a save. Where there is nothing to save, as before the first step
and in an evaluation, the run leaves at once, or after the batch under way.
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
"""A second Ctrl-C after less is the first one again: torchrun passes it on to processes that have got it."""

Item = TypeVar("Item")


class Interrupted(BaseException):
    """A signal stopped the run where nothing is lost; ``signal_name`` says which.

    Like KeyboardInterrupt it is no Exception, so that nobody takes it for a file that cannot be read.
    """

    def __init__(self, signal_name: str) -> None:
        super().__init__(signal_name)
        self.signal_name = signal_name


class StopRequest:
    """Whether a signal came. A second Ctrl-C ends the process at once, without saving.

    After a signal of ``only_save`` the run saves and goes on: whoever sent it ends the process, or does not.
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
        """True after the first signal that stops the run."""
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
        """Inside the block nothing can be lost: a signal, or one that came before, raises Interrupted there.

        It is raised at the end of the block too: a library may take what was raised in it for an error of its own.
        """
        with self._mode(is_at_once=True):
            self.check()
            yield
            self.check()

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Inside the block, as outside ``at_once``, a signal is a request that somebody will look at."""
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
        """Give the items until a signal came, then raise Interrupted in place of the next one."""
        for item in items:
            self.check()
            yield item

    def _catch(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            return  # a loader's worker that has just been forked; it will ignore signals by itself
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
    """Give the items; after a signal to one process raise Interrupted in all, in place of the next item.

    Every process must have equally many items. Between them the processes may wait for each other.
    """
    for item in items:
        _leave_if_any(processes, stop.signal_name, device)
        yield item


@contextmanager
def leaving_together(processes: Processes, device: torch.device) -> Iterator[None]:
    """Raise Interrupted in all processes behind the block, where Interrupted ended it in one.

    Inside the block no process may wait for another. So the processes agree before they put together what each
    has found.
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
