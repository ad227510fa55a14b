"""The processes of a run stand and fall together: where one fails, all end within seconds, with its message.

A process that waits for another in a collective learns of its end late (NCCL: after minutes) or without the
reason (gloo: a connection broke). So each process keeps a connection to the first one, over which it says why it
fails, and a farewell when it is done; a connection that closes without either is a process that was killed. The
first process passes on the first failure that it learns of. It takes RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
alone, which every launcher sets.
"""

from __future__ import annotations

import json
import os
import secrets
import selectors
import socket
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Protocol

from torch.distributed.rendezvous import rendezvous

from mgexp.dist import Processes
from mgexp.errors import InputError, TrainingError
from mgexp.run.log import LOGGER
from mgexp.stop import Interrupted

JOIN_SECONDS = 300.0
"""How long processes wait for each other at the start. Assumption: enough for imports from a cold network disk."""

FIRST = 0
"""The rank of the process that all others are connected to."""

_HELLO_SECONDS = 5.0
_ADDRESS = "mgexp_links"


class Store(Protocol):
    """What torch's processes have in common, by key."""

    def set(self, key: str, value: str) -> None:
        """Sets a value."""

    def get(self, key: str) -> bytes:
        """The value, once there is one."""


class Link:
    """A connection that carries one JSON object a line."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._buffer = b""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # A machine that is gone closes nothing: it is missed after 10 + 3 × 5 s. The names are Linux's.
        for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def send(self, message: dict[str, Any]) -> None:
        """Sends one; where the other end is gone there is nobody to tell."""
        try:
            self.socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            return

    def read(self) -> list[dict[str, Any]] | None:
        """The messages that came, after waiting for something; None at the end of the connection."""
        try:
            found = self.socket.recv(65536)
        except OSError:
            found = b""
        if not found:
            return None
        *lines, self._buffer = (self._buffer + found).split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Ends the connection, also for a thread that waits for it."""
        with suppress(OSError):  # the other end may be faster
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


def join(processes: Processes) -> tuple[dict[int, Link], Store]:
    """Connects all processes: the first one's links to all others by rank, or another's to the first.

    They meet at MASTER_ADDR and MASTER_PORT. Keep the store: there they meet again for collectives. Raises
    TrainingError where one does not come.
    """
    wait = timedelta(seconds=JOIN_SECONDS)
    try:
        store, _, _ = next(rendezvous("env://", processes.rank, processes.count, timeout=wait))
        if processes.rank == FIRST:
            return _accept(processes.count, store), store
        return {FIRST: _connect(processes.rank, store)}, store
    except (RuntimeError, OSError) as error:
        raise TrainingError(
            f"process {processes.rank} did not meet the other {processes.count - 1} within {JOIN_SECONDS:.0f} s "
            f"({error}): look at what those say, and whether MASTER_ADDR and MASTER_PORT are the same for all"
        ) from error


def _accept(count: int, store: Store) -> dict[int, Link]:
    """Of the first process: waits for all others, which know a word that no stranger does."""
    is_local = os.environ.get("LOCAL_WORLD_SIZE") == str(count)
    host = "127.0.0.1" if is_local else os.environ["MASTER_ADDR"]
    links: dict[int, Link] = {}
    end = time.monotonic() + JOIN_SECONDS
    with _listener(is_local) as server:
        word = secrets.token_hex()
        store.set(_ADDRESS, json.dumps([host, server.getsockname()[1], word]))
        while len(links) < count - 1:
            server.settimeout(max(0.01, end - time.monotonic()))
            connection, _ = server.accept()
            link = Link(connection)
            rank = _hear_rank(link, word)
            if rank is not None:
                links[rank] = link
    return links


def _connect(rank: int, store: Store) -> Link:
    host, port, word = json.loads(store.get(_ADDRESS))
    link = Link(socket.create_connection((host, port), timeout=JOIN_SECONDS))
    link.socket.settimeout(None)
    link.send({"word": word, "rank": rank})
    return link


def _hear_rank(link: Link, word: str) -> int | None:
    """Who is at the other end; None for a stranger."""
    link.socket.settimeout(_HELLO_SECONDS)
    try:
        hello = (link.read() or [{}])[0]
        rank = int(hello["rank"]) if secrets.compare_digest(hello["word"], word) else None
    except (ValueError, TypeError, KeyError):  # no JSON, or not ours
        return None
    link.socket.settimeout(None)
    return rank


def _listener(is_local: bool) -> socket.socket:
    if is_local:
        return socket.create_server(("127.0.0.1", 0))
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


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
