"""How many videos of each kind were found: a table for people, an object for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mgexp.data.check import KINDS, USABLE_KINDS, VideoCheck

NUM_EXAMPLES = 3
"""Videos of each kind that the table names; all are in the file of lines."""


@dataclass(frozen=True)
class CheckSummary:
    """The checks of all videos of a call; ``num_known`` of them were made by an earlier one."""

    checks: Sequence[VideoCheck]
    num_known: int

    @cached_property
    def counts(self) -> dict[str, int]:
        """Videos of each kind that was found, in the order of KINDS."""
        found = Counter(check.kind for check in self.checks)
        return {kind: found[kind] for kind in KINDS if found[kind]}

    @property
    def num_unusable(self) -> int:
        """Videos that training cannot use."""
        return sum(num for kind, num in self.counts.items() if kind not in USABLE_KINDS)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "num_videos": len(self.checks),
            "num_unusable": self.num_unusable,
            "num_known": self.num_known,
            "kinds": self.counts,
            "video_seconds": sum(check.duration_seconds or 0.0 for check in self.checks),
        }

    def as_text(self) -> str:
        """A line for each kind, with its share and meaning; below it, the first videos that are not ok."""
        lines = [f"{'kind':<26}{'videos':>9}{'share':>9}  meaning"]
        for kind, num in self.counts.items():
            lines.append(f"{kind:<26}{num:>9,}{num / len(self.checks):>9.2%}  {KINDS[kind]}")
            lines += self._examples(kind)
        lines.append(
            f"{len(self.checks):,} videos, {self.num_unusable:,} unusable; "
            f"{self.num_known:,} were known from an earlier call"
        )
        return "\n".join(lines)

    def _examples(self, kind: str) -> list[str]:
        found = [check for check in self.checks if check.kind == kind and kind != "ok"]
        lines = [f"    {check.path}: {check.reason}" for check in found[:NUM_EXAMPLES]]
        more = len(found) - NUM_EXAMPLES
        return [*lines, f"    ... and {more:,} more"] if more > 0 else lines
