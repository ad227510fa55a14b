"""When a run is evaluated: evenly spaced by predicted cost, and at its end."""

from __future__ import annotations

import bisect

from mgexp.multigrid.schedule import Schedule


def milestones(schedule: Schedule, num_evaluations: int) -> tuple[int, ...]:
    """Numbers of finished steps after which to evaluate, ascending; the last is the schedule's end.

    Cost is clips × frames × crop², which is what a step's time follows.
    """
    total = schedule.cost_before(schedule.total_steps)
    steps = range(schedule.total_steps + 1)
    found = [
        bisect.bisect_left(steps, total * i / num_evaluations, key=schedule.cost_before)
        for i in range(1, num_evaluations)
    ]
    return tuple(sorted({step for step in found if step > 0} | {schedule.total_steps}))
