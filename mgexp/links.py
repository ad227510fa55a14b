"""Connections between the first process of a run and all others, which carry lines of JSON."""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any, Protocol

from torch.distributed.rendezvous import rendezvous

from mgexp.dist import Processes
from mgexp.errors import TrainingError

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
