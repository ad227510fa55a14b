"""Write schedules as a table for people, as JSON for programs, and as rows of schedule.csv."""

from __future__ import annotations

from typing import Any

from mgexp.multigrid.phases import Phase
from mgexp.multigrid.schedule import Schedule
from mgexp.text import aligned

# What a line below the table says about the order of shapes.
ORDER_NOTES = {
    "coarse_to_fine": (),
    "random": ("the mini-batches of a phase come in another order in each turn of its cycle",),
}


def schedule_json(schedule: Schedule) -> dict[str, Any]:
    """Make the JSON of show_schedule.py. In epoch granularity, epochs are whole numbers."""
    return {
        "dataset_size": schedule.num_videos,
        "total_steps": schedule.total_steps,
        "total_epochs": _epoch(schedule, schedule.total_epochs),
        "baseline_steps": schedule.baseline_steps,
        "step_saving": schedule.step_saving,
        "flop_saving": schedule.flop_saving,
        "flop_saving_unit": _unit(schedule),
        "phases": [_phase_json(schedule, phase) for phase in schedule.phases],
        "shapes": _shapes_json(schedule),
    }


def _shapes_json(schedule: Schedule) -> list[dict[str, Any]]:
    """List each shape once, the largest mini-batches first, with the ratio of its clips.

    With ``exact_ratio`` a step would cost as much as one of the full shape. ``work``: its cost / that one.
    """
    recipe, cost = schedule.recipe, schedule.multigrid.clip_cost
    full = cost(recipe.frames, recipe.crop)
    shapes = dict.fromkeys(shape for phase in schedule.phases for shape in phase.cycle.shapes)
    return [
        {
            "frames": shape.frames,
            "crop": shape.crop,
            "clips": shape.clips,
            "ratio": shape.ratio,
            "exact_ratio": full / cost(shape.frames, shape.crop),
            "work": shape.ratio * cost(shape.frames, shape.crop) / full,
        }
        for shape in sorted(shapes, key=lambda shape: (-shape.ratio, shape.frames, shape.crop))
    ]


def _unit(schedule: Schedule) -> str:
    """Name what a step keeps constant, and so what ``flop_saving`` counts."""
    costs = schedule.multigrid.costs
    return costs.name if costs else "clips x frames x pixels"


def _phase_json(schedule: Schedule, phase: Phase) -> dict[str, Any]:
    low, high = phase.stride_range or (None, None)
    # Crops that are a share of the frame have no short side.
    shortest, longest = schedule.recipe.jitter or (None, None)
    return {
        "stage": phase.stage,
        "start_epoch": _epoch(schedule, phase.start_epoch),
        "end_epoch": _epoch(schedule, phase.end_epoch),
        "start_step": phase.start_step,
        "end_step": phase.end_step,
        "frames": phase.cycle.base.frames,
        "crop": phase.cycle.base.crop,
        "clips": phase.clips,
        "lr_factor": phase.lr_factor,
        "stride_min": low,
        "stride_max": high,
        "num_bn_groups": phase.num_bn_groups,
        "cycle": [
            {
                "frames": shape.frames,
                "crop": shape.crop,
                "clips": shape.clips,
                # The smallest short side shrinks with the crop; the largest stays, as in the released code.
                "min_jitter": shortest and round(shortest * shape.crop / schedule.recipe.crop),
                "max_jitter": longest,
            }
            for shape in phase.cycle.shapes
        ],
    }


def schedule_rows(schedule: Schedule) -> list[dict[str, Any]]:
    """Make a flat row per phase, for schedule.csv."""
    rows = []
    for phase in schedule_json(schedule)["phases"]:
        shapes = [f"{s['clips']}x{s['frames']}x{s['crop']}" for s in phase.pop("cycle")]
        rows.append({**phase, "cycle": " ".join(shapes)})
    return rows


def schedule_table(schedule: Schedule) -> str:
    """Make a readable table: a line per phase, what the schedule saves, and a line per shape."""
    names = "stage,epochs,steps,frames,crop,lr factor,stride,BN groups,mini-batches"
    head = names.split(",")
    rows = [head, *(_cells(phase) for phase in schedule.phases)]
    # The last column gets no width and so no padding: its cells differ much in length, and no column follows it.
    widths = [*(max(len(row[i]) for row in rows) for i in range(len(head) - 1)), 0]
    lines = [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    lines.append(
        f"{schedule.total_steps} steps, {schedule.total_epochs:.2f} epochs of {schedule.num_videos} videos; "
        f"baseline {schedule.baseline_steps} steps: {schedule.step_saving:.2f}x fewer steps, "
        f"{schedule.flop_saving:.2f}x fewer {_unit(schedule)}"
    )
    lines += ORDER_NOTES[schedule.multigrid.shape_order]
    if any(phase.weight_decay_factor != 1 for phase in schedule.phases):
        bases = [(phase.weight_decay_factor, phase.cycle.base) for phase in schedule.phases]
        factors = [f"{factor:g} at {base.frames}x{base.crop}²" for factor, base in bases]
        lines.append(f"the weight decay is multiplied by {', '.join(dict.fromkeys(factors))}")
    size = schedule.multigrid.bn_base_size
    if any(phase.clips < size for phase in schedule.phases):
        lines.append(
            f"mini-batches of fewer than {size} clips: batch normalisation is over all of them"
        )
    shapes = _shapes_json(schedule)
    if len(shapes) > 1:
        table = [("shape", "clips", "ratio", "exact", f"{_unit(schedule)} of a step")]
        for shape in shapes:
            name, clips = f"{shape['frames']}x{shape['crop']}²", f"{shape['clips']}"
            # The last cell is what a step costs more, or less, than one of the full shape.
            exact, off = f"{shape['exact_ratio']:.2f}", f"{shape['work'] - 1:+.1%}"
            table.append((name, clips, f"{shape['ratio']:g}", exact, off))
        lines += ["", aligned(table)]
    return "\n".join(lines)


def _cells(phase: Phase) -> list[str]:
    base = phase.cycle.base
    low, high = phase.stride_range or ("segments", "segments")
    shapes = " ".join(f"{s.clips}x{s.frames}x{s.crop}²" for s in phase.cycle.shapes)
    # A negative number, -n, stands for one group that spans the clips of n processes.
    groups = phase.num_bn_groups
    return [
        str(phase.stage),
        f"{phase.start_epoch:.2f}–{phase.end_epoch:.2f}",
        f"{phase.start_step}–{phase.end_step}",
        str(base.frames),
        str(base.crop),
        f"{phase.lr_factor:g}",
        str(low) if low == high else f"{low}–{high}",
        str(groups) if groups > 0 else f"1 over {-groups} processes",
        shapes,
    ]


def _epoch(schedule: Schedule, epoch: float) -> float | int:
    """Return a whole number in epoch granularity, where phases end at whole epochs."""
    return round(epoch) if schedule.multigrid.granularity == "epoch" else epoch
