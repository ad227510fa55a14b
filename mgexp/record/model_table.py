"""A model as people and programs read it: its size, and what a clip costs at each shape of a schedule."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from mgexp.multigrid.schedule import Schedule
from mgexp.record.activations import activation_bytes
from mgexp.record.flops import macs_by_shape

MIB = 2**20


@dataclass(frozen=True)
class ShapeCost:
    """One clip of a shape, forward; ``clips`` make a mini-batch. ``activation_bytes``: kept for backward, fp32."""

    frames: int
    crop: int
    clips: int
    gmacs: float
    activation_bytes: int


def num_params(model: nn.Module) -> int:
    """Trained numbers of a model."""
    return sum(parameter.numel() for parameter in model.parameters())


def shape_costs(model: nn.Module, schedule: Schedule) -> list[ShapeCost]:
    """Every shape of the schedule, the smallest mini-batches last."""
    shapes = {(s.frames, s.crop): s for phase in schedule.phases for s in phase.cycle.shapes}
    macs = macs_by_shape(model, shapes)
    costs = [
        ShapeCost(
            frames,
            crop,
            clips=schedule.recipe.clips * shape.ratio,
            gmacs=macs[frames, crop] / 1e9,
            activation_bytes=activation_bytes(model, frames, crop),
        )
        for (frames, crop), shape in shapes.items()
    ]
    return sorted(costs, key=lambda cost: (-cost.clips, cost.frames))


def model_json(name: str, model: nn.Module, schedule: Schedule) -> dict[str, Any]:
    """The JSON of show_model.py."""
    costs = [asdict(cost) for cost in shape_costs(model, schedule)]
    return {"model": name, "params": num_params(model), "shapes": costs}


def model_table(name: str, model: nn.Module, schedule: Schedule) -> str:
    """The same for people."""
    lines = [
        f"{name}: {num_params(model):,} parameters",
        "",
        "           one clip                          a mini-batch",
        "   frames x pixels²      GMACs        MiB      clips      GMACs        GiB",
    ]
    for c in shape_costs(model, schedule):
        kept = c.activation_bytes / MIB
        lines.append(
            f"   {c.frames:6d} x {c.crop:d}²".ljust(23)
            + f"{c.gmacs:9.3f}  {kept:9.1f}  {c.clips:9d}  {c.gmacs * c.clips:9.1f}  {kept * c.clips / 1024:9.2f}"
        )
    lines += [
        "",
        "GMACs: multiply-accumulates of a forward pass, by fvcore; a training step takes about three times that.",
        "MiB, GiB: what backward needs of the forward pass, fp32; an estimate, without weights and workspace.",
    ]
    return "\n".join(lines)
