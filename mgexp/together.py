"""The processes of a run stand and fall together: where one fails, all end within seconds, with its message.

A process that waits for another in a collective learns of its end late (NCCL: after minutes) or without the
reason (gloo: a connection broke). So each process keeps a connection to the first one, over which it says why it
fails, and a farewell when it is done; a connection that closes without either is a process that was killed. The
first process passes on the first failure that it learns of. It takes RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
alone, which every launcher sets.
"""

from __future__ import annotations

import os
import selectors
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

from mgexp.dist import Processes
from mgexp.errors import InputError, TrainingError
from mgexp.links import FIRST, Link, join
from mgexp.record.progress import LOGGER
from mgexp.stop import Interrupted

GRACE_SECONDS = 5.0
"""How long a process has to end by itself once another failed; then it is ended, whatever it waits for."""

NEWS_SECONDS = 3.0
"""How long an error waits for the news that another process failed first, which may be its cause."""

EXIT_CODES = {InputError: 2, Interrupted: 4}
"""Of a process that does not end by itself; 1 for all else."""


@dataclass(frozen=True)
class Failure:
    """Why process ``rank`` ends the run: ``problems`` of bad input, a signal, or a ``message``."""

    rank: int
    message: str
    problems: tuple[str, ...] = ()
    signal_name: str = ""

    @staticmethod
    def of(rank: int, error: BaseException) -> Failure:
        """What to tell of ``error``: with its traceback where it is not one of ours."""
        if isinstance(error, InputError):
            return Failure(rank, str(error), error.problems)
        if isinstance(error, TrainingError):
            return Failure(rank, str(error))
        if isinstance(error, Interrupted):
            return Failure(rank, str(error), signal_name=error.signal_name)
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        return Failure(rank, "".join(lines).rstrip())

    def seen_from(self, rank: int) -> InputError | TrainingError | Interrupted:
        """What process ``rank`` ends with: the first one with the whole message, the others with a line."""
        if self.signal_name:
            return Interrupted(self.signal_name)
        who = f"process {self.rank}"
        last = self.message.splitlines()[-1]
        if self.problems:
            return InputError(self.problems if rank == FIRST else [f"{who} failed: {last}"])
        return TrainingError(f"{who} failed: {self.message if rank == FIRST else last}")


Explained = Callable[[], AbstractContextManager[None]]
"""Makes a block that an error leaves as what it follows from: as the InputError or TrainingError of another
process that failed first. ``together`` does so too, but only when log files are closed."""


@contextmanager
def together(processes: Processes) -> Iterator[Explained]:
    """Inside, an error in any process ends all: in each it leaves as InputError, TrainingError or Interrupted.

    That of another process takes the place of one's own that follows from it. Who does not leave within
    ``GRACE_SECONDS``, since it waits in a collective, is ended with exit code 1, or 2 for bad input. Raises
    TrainingError where the processes do not find each other. One process alone, or several whose launcher
    does not say where they meet, are left as they are.
    """
    if processes.count == 1 or "MASTER_ADDR" not in os.environ:
        yield nullcontext
        return
    links, store = join(processes)
    lifeline = Lifeline(processes.rank, links, store)
    with lifeline.explained():
        yield lifeline.explained
    lifeline.leave()


class Lifeline:
    """The connections of process ``rank``: the first one's to all others by their rank, another's to the first."""

    def __init__(self, rank: int, links: dict[int, Link], store: object) -> None:
        self.rank = rank
        self.failure: Failure | None = None
        self._links = links
        self._store = store  # kept, since the others still use it
        self._lock = threading.Lock()
        self._known, self._gone = threading.Event(), threading.Event()
        self._selector = selectors.DefaultSelector()
        for other, link in links.items():
            self._selector.register(link.socket, selectors.EVENT_READ, other)
        _close_in_children(self)
        threading.Thread(target=self._watch, name="lifeline", daemon=True).start()

    def leave(self) -> None:
        """All is done here: what becomes of the others is no longer of interest."""
        self._gone.set()
        self._send({"farewell": True})
        self.close()

    @contextmanager
    def explained(self) -> Iterator[None]:
        """An error that leaves the block ends all processes; see ``Explained``."""
        try:
            yield
        except BaseException as error:
            first = self.fail(error)
            if first.rank != self.rank:
                raise first.seen_from(self.rank) from None
            _tell_torchrun(error)
            raise

    def fail(self, error: BaseException) -> Failure:
        """Tells the others; gives the first failure of the run, which may be another's."""
        if isinstance(error, RuntimeError):  # such as a broken collective
            self._known.wait(NEWS_SECONDS)
        own = Failure.of(self.rank, error)
        if self.rank == FIRST:
            self._learn(own)
        elif not self._known.is_set():
            self._send(asdict(own))
            self._known.wait(NEWS_SECONDS)  # the first process answers with what it learned first
        self._gone.set()
        return self.failure or own

    def close(self) -> None:
        """Gives the connections back."""
        for link in self._links.values():
            link.close()

    def forget(self) -> None:
        """In a forked process: leaves the connections to the one that was forked."""
        for link in self._links.values():
            link.socket.close()

    def _watch(self) -> None:
        with self._selector as selector:
            while selector.get_map() and not self._gone.is_set():
                for key, _ in selector.select():
                    if not self._read(key.data):
                        selector.unregister(key.fileobj)

    def _read(self, rank: int) -> bool:
        """Takes in what came from process ``rank``; False once nothing more will come."""
        messages = self._links[rank].read()
        if messages is None:
            self._learn(
                Failure(rank, "it was killed, perhaps for want of memory, or its machine is gone")
            )
            return False
        for message in messages:
            if "farewell" in message:
                return False
            self._learn(Failure(**{**message, "problems": tuple(message["problems"])}))
        return True

    def _learn(self, failure: Failure) -> None:
        with self._lock:
            if self.failure is not None or self._gone.is_set():
                return
            self.failure = failure
        if self.rank == FIRST:
            self._send(asdict(failure))
        self._known.set()
        if failure.rank != self.rank:
            threading.Thread(target=self._end, args=(failure,), daemon=True).start()

    def _end(self, failure: Failure) -> None:
        """Ends this process where it does not end by itself."""
        if self._gone.wait(GRACE_SECONDS):
            return
        error = failure.seen_from(self.rank)
        LOGGER.error("%s", error)
        os._exit(EXIT_CODES.get(type(error), 1))

    def _send(self, message: dict[str, Any]) -> None:
        for link in self._links.values():
            link.send(message)


def _close_in_children(lifeline: Lifeline) -> None:
    """A forked loader worker, which may live on for seconds, must not keep the connections of a killed process."""
    reference = weakref.ref(lifeline)

    def close() -> None:
        if (found := reference()) is not None:
            found.forget()

    os.register_at_fork(after_in_child=close)


def _tell_torchrun(error: BaseException) -> None:
    """For its summary of what failed."""
    if "TORCHELASTIC_ERROR_FILE" in os.environ:
        from torch.distributed.elastic.multiprocessing.errors import get_error_handler

        get_error_handler().record_exception(error)
