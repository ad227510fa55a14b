"""Signals that ask a run to stop: it saves at the next step boundary."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGUSR2,
)  # kill, Ctrl-C, Slurm through submitit


class StopRequest:
    """Whether a signal came; a second Ctrl-C ends at once, without saving.

    After a signal of ``only_save`` the run saves and goes on: whoever sent it ends the process, or does not.
    """

    def __init__(self, only_save: Collection[int] = ()) -> None:
        self.signal_name: str | None = None
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
        before = {number: signal.signal(number, self._catch) for number in STOP_SIGNALS}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        if number in self._only_save:
            self.should_save = True
            return
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal_name = signal.Signals(number).name
