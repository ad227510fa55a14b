"""The schedule of a row whose shapes alone are of interest, not how many steps each takes."""

from __future__ import annotations

from collections.abc import Iterable

from fvcore.common.config import CfgNode

from mgexp.config.check import cross_problems
from mgexp.models.build import model_problems
from mgexp.multigrid.schedule import Schedule
from mgexp.record.flops import schedule_shapes
from mgexp.train.build import try_schedule
from mgexp.train.inputs import raise_problems

NUM_VIDEOS = 10**6
"""Any number gives the same shapes, if it is large enough for a step of each."""


def build_shapes(cfg: CfgNode, problems: Iterable[str], num_processes: int = 1) -> Schedule:
    """The schedule in ``num_processes``, of shapes that the model takes; any number of videos would do.

    Raises InputError with ``problems``, those of reading ``cfg`` and of the command line, and all others.
    """
    schedule, impossible = try_schedule(cfg, NUM_VIDEOS, num_processes)
    raise_problems([*problems, *cross_problems(cfg), *impossible])
    assert schedule is not None  # it had no problem
    raise_problems(model_problems(cfg, schedule_shapes(schedule)))
    return schedule
