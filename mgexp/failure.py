"""End all processes of a run within 30 seconds if one fails, and report why the first one failed.

A process that waits for another in a collective learns late that the other has ended (NCCL: after minutes), or
it learns no reason (gloo: "Connection closed by peer"). Launchers end the other processes, but do not pass on
messages. So the processes share a ``torch.distributed.Store``, in which one key holds the first failure. A thread
of each process reads that key once a second. The thread also counts the heart-beats of its process in the store.
If they stop, the other processes know that this process was killed. The store needs only RANK, WORLD_SIZE,
MASTER_ADDR and MASTER_PORT, which every launcher sets. torchrun's agent holds the store. Without torchrun,
process 0 holds it.
"""

from __future__ import annotations

import json
import os
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta

import torch.distributed
from torch.distributed.distributed_c10d import Store
from torch.distributed.elastic.multiprocessing.errors import get_error_handler
from torch.distributed.rendezvous import rendezvous

from mgexp.dist import Processes
from mgexp.errors import InputError, TrainingError
from mgexp.run.log import LOGGER
from mgexp.stop import Interrupted

JOIN_SECONDS = 300.0
"""How long processes wait for each other at the start. Assumption: enough for imports from a cold network disk."""

BEAT_SECONDS = 1.0
"""Time between two looks at the store."""

SILENT_BEATS = 15
"""A process that missed this many heart-beats counts as killed. Assumption: nothing holds Python's global lock for
longer. A process counts the missed beats of another by its own beats. So a job that was suspended as a whole
continues: nobody counted in the meantime."""

NEWS_SECONDS = 5.0
"""How long a process waits after an error for news of another failure, which may be the cause of the error. If the
error is a broken connection, and another process gives no heart-beat in this time, the other counts as killed."""

GRACE_SECONDS = 5.0
"""The time in which a process must end by itself after another failed. Later it is ended by force."""

KILLED = "it was killed, perhaps because memory ran out, or its machine is gone"
EXIT_CODES = {InputError: 2, Interrupted: 4}
"""The exit codes of a process that is ended by force. For all other errors the code is 1."""

_FAILURE_KEY = "mgexp/first failure"
_LEFT = "left"
_FIRST = 0
"""The rank of the process that writes the log and, without torchrun, holds the store."""

Explained = Callable[[], AbstractContextManager[None]]
"""Makes a block that replaces an error by its cause: the first failure of the run, perhaps in another process.
``failing_together`` does the same, but only after the log files are closed."""


@dataclass(frozen=True)
class Failure:
    """The reason why process ``rank`` ends the run: ``problems`` of the input, a signal, or a ``message``."""

    rank: int
    message: str
    problems: tuple[str, ...] = ()
    signal_name: str = ""

    @staticmethod
    def of(rank: int, error: BaseException) -> Failure:
        """Describe ``error``, with its traceback if mgexp did not raise it on purpose."""
        if isinstance(error, InputError):
            return Failure(rank, str(error), error.problems)
        if isinstance(error, TrainingError):
            return Failure(rank, str(error))
        if isinstance(error, Interrupted):
            return Failure(rank, str(error), signal_name=error.signal_name)
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        return Failure(rank, "".join(lines).rstrip())

    @staticmethod
    def from_json(text: bytes) -> Failure:
        """Read a failure from the store, which holds its fields as JSON."""
        values = json.loads(text)
        return Failure(**{**values, "problems": tuple(values["problems"])})

    def seen_from(self, rank: int) -> InputError | TrainingError | Interrupted:
        """Return the error with which process ``rank`` ends. Process 0 has the whole message, others one line."""
        if self.signal_name:
            return Interrupted(self.signal_name)
        who = f"process {self.rank}"
        last = self.message.splitlines()[-1]
        if self.problems:
            return InputError(self.problems if rank == _FIRST else [f"{who} failed: {last}"])
        return TrainingError(f"{who} failed: {self.message if rank == _FIRST else last}")


@contextmanager
def failing_together(
    processes: Processes, before_force: Callable[[str], object] | None = None
) -> Iterator[Explained]:
    """End all processes if an error in the block ends one of them.

    The block then raises the cause, which may be the InputError, TrainingError or Interrupted of another process.
    A process may not be able to leave the block, for example because it waits in a collective. After
    ``GRACE_SECONDS`` it is ended with exit code 1, or one of EXIT_CODES. Just before, ``before_force`` gets the
    name of the signal if a signal was the cause. Raises TrainingError if the processes do not meet. Does nothing
    for one process, or if the launcher did not say where the processes meet.
    """
    if processes.count == 1 or "MASTER_ADDR" not in os.environ:
        yield nullcontext
        return
    watch = Watch(processes.rank, processes.count, _meet(processes), before_force)
    try:
        with watch.explained():
            yield watch.explained
    finally:
        watch.leave()


def _meet(processes: Processes) -> Store:
    """Wait until all processes have reached the store that they share, and return it."""
    wait = timedelta(seconds=JOIN_SECONDS)
    try:
        store, _, _ = next(rendezvous("env://", processes.rank, processes.count, timeout=wait))
        # From here on each process has a heart-beat. So its key also says that the process has come.
        store.set(_beat_key(processes.rank), "0")
        store.wait([_beat_key(rank) for rank in range(processes.count)], wait)
    except (RuntimeError, OSError) as error:
        raise TrainingError(
            f"process {processes.rank} did not meet the other {processes.count - 1} within {JOIN_SECONDS:.0f} s "
            f"({error}): look at what those say, and whether MASTER_ADDR and MASTER_PORT are the same for all"
        ) from error
    found: Store = store
    return found


class Watch:
    """A watch over the other processes, for process ``rank`` of ``count``. A thread watches until ``leave``."""

    def __init__(
        self,
        rank: int,
        count: int,
        store: Store,
        before_force: Callable[[str], object] | None = None,
    ) -> None:
        self.rank = rank
        self.count = count
        self.failure: Failure | None = None
        self._store = store
        self._before_force = before_force
        self._num_beats = 0
        # Process 0 watches all others, and all others watch process 0. So the number of messages grows with the
        # number of processes, and not with its square.
        self._others = [*range(1, count)] if rank == _FIRST else [_FIRST]
        self._last: dict[int, str] = {}
        self._missed: Counter[int] = Counter()
        self._known = threading.Event()
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._look_until_the_end, daemon=True)
        self._thread.start()

    @contextmanager
    def explained(self) -> Iterator[None]:
        """End all processes if an error leaves the block. See ``Explained``."""
        try:
            yield
        except BaseException as error:
            first = self.fail(error)
            if first.rank != self.rank:
                raise first.seen_from(self.rank) from None
            # torchrun prints this file in its summary of what failed.
            if "TORCHELASTIC_ERROR_FILE" in os.environ:
                get_error_handler().record_exception(error)
            raise

    def fail(self, error: BaseException) -> Failure:
        """Tell the others that this process fails. Return the first failure of the run, perhaps of another."""
        cause = self._cause_of(error)
        if self.failure is None:
            self.failure = self._publish(cause)
        self._known.set()
        self._is_ending.set()
        return self.failure

    def leave(self) -> None:
        """Stop watching and being watched. Process 0 waits for the others, since it may hold the store."""
        self._is_ending.set()
        # After a failure the others only need the time to read it.
        end = time.monotonic() + (3 * BEAT_SECONDS if self.failure else 2 * GRACE_SECONDS)
        # A RuntimeError means that the store is gone.
        with suppress(RuntimeError):
            self._store.set(_beat_key(self.rank), _LEFT)
            while self.rank == _FIRST and time.monotonic() < end and self._beats(self._others):
                time.sleep(0.05)
        # A thread that still uses the store while Python ends may abort the process.
        self._thread.join(GRACE_SECONDS)

    def _cause_of(self, error: BaseException) -> Failure:
        """Return ``error`` as a failure, or else the kill of another process that caused it.

        Another process was killed if a connection broke and the heart-beat of that process stopped.
        """
        own = Failure.of(self.rank, error)
        if not isinstance(error, RuntimeError):
            return own
        # A broken collective raises a RuntimeError. Wait, because another process may soon report the cause.
        ranks = [rank for rank in range(self.count) if rank != self.rank]
        try:
            before = self._beats(ranks)
            self._known.wait(NEWS_SECONDS)
            silent = [rank for rank, beat in self._beats(ranks).items() if before[rank] == beat]
        # The store is gone.
        except RuntimeError:
            return Failure(_FIRST, KILLED)
        # Errors of gloo are plain RuntimeErrors, which only their text identifies.
        is_broken = isinstance(error, torch.distributed.DistError) or "gloo" in str(error)
        return Failure(silent[0], KILLED) if is_broken and silent else own

    def _publish(self, failure: Failure) -> Failure:
        """Store ``failure`` unless the store already has one. Return the stored failure."""
        # compare_set with "" writes only if the key does not exist, in one operation. So of two processes that
        # fail at the same time, one is the first for all.
        own = json.dumps(asdict(failure))
        try:
            return Failure.from_json(self._store.compare_set(_FAILURE_KEY, "", own))
        # The store is gone, and with it the process that held it: process 0 or torchrun.
        except RuntimeError:
            return failure

    def _beats(self, ranks: Sequence[int]) -> dict[int, str]:
        """Return the heart-beats of the ``ranks`` that have not left."""
        values = self._store.multi_get([_beat_key(rank) for rank in ranks])
        beats = dict(zip(ranks, map(bytes.decode, values), strict=True))
        return {rank: beat for rank, beat in beats.items() if beat != _LEFT}

    def _look_until_the_end(self) -> None:
        while self.failure is None:
            if self._is_ending.wait(BEAT_SECONDS):
                return
            self._look()
        self._known.set()
        if not self._is_ending.wait(GRACE_SECONDS):
            error = self.failure.seen_from(self.rank)
            # Any of these may fail, such as the log on a full disk. The process has to end all the same.
            try:
                LOGGER.error("%s", error)
                with suppress(RuntimeError):
                    self._store.set(_beat_key(self.rank), _LEFT)
                if self.failure.signal_name and self._before_force:
                    self._before_force(self.failure.signal_name)
            finally:
                # sys.exit would end only this thread. The main thread may wait in a collective for ever.
                os._exit(EXIT_CODES.get(type(error), 1))

    def _look(self) -> None:
        """Count a heart-beat. Look for a failure, and for processes whose heart-beats have stopped."""
        try:
            # Write a counter and not a time, because the clocks of two machines may differ by many seconds.
            self._num_beats += 1
            self._store.set(_beat_key(self.rank), str(self._num_beats))
            if self._store.check([_FAILURE_KEY]):
                self.failure = Failure.from_json(self._store.get(_FAILURE_KEY))
                return
            for rank, beat in self._beats(self._others).items():
                self._missed[rank] = self._missed[rank] + 1 if self._last.get(rank) == beat else 0
                self._last[rank] = beat
                if self._missed[rank] == SILENT_BEATS:
                    self.failure = self._publish(Failure(rank, KILLED))
                    return
        except RuntimeError:
            self.failure = Failure(_FIRST, KILLED)


def _beat_key(rank: int) -> str:
    return f"mgexp/beat of {rank}"
