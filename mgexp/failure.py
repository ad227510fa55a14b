"""Let every process of a run report why the first one failed.

A process whose connection breaks learns no reason (gloo: "Connection closed by peer"). So one key in a
``torch.distributed.Store``, of torchrun's agent or of process 0, holds the first failure. Processes that fail
later raise it in place of their own error.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import timedelta

from torch.distributed.distributed_c10d import Store
from torch.distributed.elastic.multiprocessing.errors import get_error_handler
from torch.distributed.rendezvous import rendezvous

from mgexp.dist import Processes
from mgexp.errors import InputError, TrainingError
from mgexp.stop import Interrupted

JOIN_SECONDS = 300.0
"""How long processes wait for each other at the start. Assumption: enough for imports from a cold network disk."""

_FAILURE_KEY = "mgexp/first failure"

Explained = Callable[[], AbstractContextManager[None]]
"""Makes a block that replaces an error by its cause: the first failure of the run, perhaps in another process.
``failing_together`` does the same, but only after the log files are closed."""


@dataclass(frozen=True)
class Failure:
    """The reason why process ``rank`` ended: ``problems`` of the input, a signal, or a ``message``."""

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
        return Failure(rank, "".join(traceback.format_exception(error)).rstrip())

    def as_error(self) -> InputError | TrainingError | Interrupted:
        if self.signal_name:
            return Interrupted(self.signal_name)
        if self.problems:
            return InputError(self.problems)
        return TrainingError(f"process {self.rank} failed: {self.message}")


@contextmanager
def failing_together(processes: Processes) -> Iterator[Explained]:
    """Replace an error in the block by the first failure of the run, if the launcher said where processes meet.

    Raises TrainingError if they do not meet.
    """
    if processes.count == 1 or "MASTER_ADDR" not in os.environ:
        yield nullcontext
        return
    wait = timedelta(seconds=JOIN_SECONDS)
    try:
        store, _, _ = next(rendezvous("env://", processes.rank, processes.count, timeout=wait))
    except (RuntimeError, OSError) as error:
        others = f"the other {processes.count - 1} within {JOIN_SECONDS:.0f} s"
        raise TrainingError(f"process {processes.rank} did not meet {others} ({error})") from error

    @contextmanager
    def explained() -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            first = first_failure(store, Failure.of(processes.rank, error))
            if first.rank != processes.rank:
                raise first.as_error() from None
            # torchrun prints this file in its summary of what failed.
            if "TORCHELASTIC_ERROR_FILE" in os.environ:
                get_error_handler().record_exception(error)
            raise

    with explained():
        yield explained


def first_failure(store: Store, failure: Failure) -> Failure:
    """Store ``failure`` unless the store already has one. Return the stored failure."""
    # compare_set with "" writes only if the key does not exist, in one operation. So of two processes that fail at
    # the same time, one is the first for all.
    try:
        values = json.loads(store.compare_set(_FAILURE_KEY, "", json.dumps(asdict(failure))))
    # The process that held the store is gone.
    except RuntimeError:
        return failure
    return Failure(**{**values, "problems": tuple(values["problems"])})
