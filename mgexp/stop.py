"""Signals that ask a run to stop: it leaves as soon as nothing is lost.

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

STOP_SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGUSR2,
)  # kill, Ctrl-C, Slurm through submitit

ONE_CTRL_C_SECONDS = 1.0
"""A second Ctrl-C after less is the first one again, which torchrun hands on to processes that have got it."""

Item = TypeVar("Item")


class Interrupted(BaseException):
    """A signal stopped the run where nothing is lost; ``signal_name`` says which.

    As KeyboardInterrupt it is no Exception: nobody takes it for a file that cannot be read.
    """

    def __init__(self, signal_name: str) -> None:
        super().__init__(signal_name)
        self.signal_name = signal_name


class StopRequest:
    """Whether a signal came; a second Ctrl-C ends the process at once, without saving.

    After a signal of ``only_save`` the run saves and goes on: whoever sent it ends the process, or does not.
    """

    def __init__(self, only_save: Collection[int] = ()) -> None:
        self.signal_name: str | None = None
        self._since = 0.0
        self._is_at_once = False
        self._process = 0
        self.should_save = False
        self._only_save = only_save

    @property
    def requested(self) -> bool:
        """True after the first signal that stops the run."""
        return self.signal_name is not None

    def saved(self) -> None:
        """The run has saved: signals before this one are answered, but for those that stop it."""
        self.should_save = False

    @contextmanager
    def listening(self) -> Iterator[StopRequest]:
        """Catches the signals inside the block, then restores what was there before."""
        self._process = os.getpid()
        before = {number: signal.signal(number, self._catch) for number in STOP_SIGNALS}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Inside the block nothing can be lost: a signal, or one that came before, raises Interrupted in it.

        At its end too: a library may take what was raised in it for an error of its own.
        """
        with self._mode(is_at_once=True):
            self.check()
            yield
            self.check()

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Inside the block, as where nothing else is said, a signal is a request that somebody will look at."""
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
        """Raises Interrupted where a signal came."""
        if self.signal_name is not None:
            raise Interrupted(self.signal_name)

    def watch(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items, until a signal came: then raises Interrupted in place of the next one."""
        for item in items:
            self.check()
            yield item

    def _catch(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            return  # a loader's worker that has just been forked; it will ignore signals by itself
        if number in self._only_save:
            self.should_save = True
            return
        if self.requested:
            self._catch_again(number)
            return
        self.signal_name, self._since = signal.Signals(number).name, time.monotonic()
        if self._is_at_once:
            self.check()

    def _catch_again(self, number: int) -> None:
        if number == signal.SIGINT and time.monotonic() - self._since > ONE_CTRL_C_SECONDS:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
