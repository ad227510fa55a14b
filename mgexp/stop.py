"""Signals that ask a run to stop: it saves at the next step boundary."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGUSR2,
)  # kill, Ctrl-C, Slurm through submitit


class StopRequest:
    """Whether a signal came; a second Ctrl-C ends at once, without saving."""

    def __init__(self) -> None:
        self.signal_name: str | None = None

    @property
    def requested(self) -> bool:
        """True after the first signal."""
        return self.signal_name is not None

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
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal_name = signal.Signals(number).name
