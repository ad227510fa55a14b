"""The part of a long evaluation that is done, on disk, so that one that was killed goes on."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mgexp.record.progress import LOGGER
from mgexp.record.torch_file import DamagedFileError, load_torch, save_torch
from mgexp.train.evaluate import Scores


@dataclass
class Partial:
    """Scores of this process after some of its batches.

    They are saved after a batch where ``save_seconds`` have passed since the last time, and when all is done;
    never where ``path`` is None, for an evaluation that is short.
    ``identity``: what must be the same for a saved part to be of use, such as the videos.
    ``num_batches`` and ``seconds``: of this evaluation so far, those of earlier starts included.
    """

    path: Path | None
    identity: str = ""
    save_seconds: float = 0.0
    num_batches: int = 0
    seconds: float = 0.0
    _since: float = field(default_factory=time.perf_counter)
    _last_save: float = field(default_factory=time.perf_counter)

    def read(self) -> dict[str, Any] | None:
        """The saved part, where there is one of the same evaluation; a damaged one is done again."""
        if self.path is None or not self.path.exists():
            return None
        try:
            saved = load_torch(self.path)
        except DamagedFileError as error:
            LOGGER.warning("%s; this part of the evaluation is done again", error)
            return None
        return saved if saved["identity"] == self.identity else None

    def go_on(self, scores: Scores) -> float:
        """Takes over a saved part, where there is one; the seconds that went into it."""
        saved = self.read()
        if saved is not None:
            scores.load_state_dict(saved["scores"])
            self.num_batches, self.seconds = saved["num_batches"], saved["seconds"]
        self._since = self._last_save = time.perf_counter()
        return self.seconds

    def count_batch(self, scores: Scores) -> None:
        """One more batch is in ``scores``."""
        self.num_batches += 1
        if time.perf_counter() - self._last_save >= self.save_seconds:
            self.save(scores)

    def save(self, scores: Scores) -> None:
        """Writes the part, in place of an earlier one."""
        if self.path is None:
            return
        now = time.perf_counter()
        self.path.parent.mkdir(exist_ok=True)
        state = {
            "identity": self.identity,
            "num_batches": self.num_batches,
            "seconds": self.seconds + now - self._since,
            "scores": scores.state_dict(),
        }
        save_torch(self.path, state)
        self._last_save = now

    def drop(self) -> None:
        """Forgets a saved part."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
