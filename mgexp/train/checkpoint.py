"""The state of a run on disk: what cannot be computed again from the configuration and the step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mgexp.errors import TrainingError
from mgexp.record.clock import Clock
from mgexp.record.files import atomic_file
from mgexp.record.run_dir import RunDir

NUM_KEPT = 2


@dataclass
class State:
    """What training changes. ``step`` is the number of finished steps, ``epoch`` the epochs they drew.

    ``levels``: training clips that all processes loaded up to the last save, by level of the clip store, or
    "source". ``scaler`` of the loss: on for fp16 alone.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    clock: Clock
    step: int = 0
    epoch: float = 0.0
    unusable: dict[int, str] = field(default_factory=dict)
    levels: Counter[str] = field(default_factory=Counter)
    scaler: torch.amp.GradScaler = field(
        default_factory=partial(torch.amp.GradScaler, enabled=False)
    )

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values only, so that it loads with ``weights_only=True``."""
        return {
            "step": self.step,
            "epoch": self.epoch,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "clock": self.clock.state_dict(),
            "unusable": self.unusable,
            "levels": dict(self.levels),
            "scaler": self.scaler.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over a saved state."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.clock.load_state_dict(state["clock"])
        self.step, self.epoch = state["step"], state["epoch"]
        self.unusable = dict(state["unusable"])
        self.levels = Counter(state.get("levels", {}))  # checkpoints before clip stores have none
        if state.get("scaler"):  # neither have those before other precisions than fp32
            self.scaler.load_state_dict(state["scaler"])


def save_checkpoint(run_dir: RunDir, state: State) -> None:
    """Writes the checkpoint of ``state.step`` atomically, then deletes all but the last two."""
    save_torch(run_dir.checkpoint(state.step), state.state_dict())
    for step in run_dir.checkpoint_steps()[:-NUM_KEPT]:
        run_dir.checkpoint(step).unlink()


def load_checkpoint(run_dir: RunDir, state: State) -> bool:
    """Loads the last checkpoint into ``state``; False where there is none."""
    steps = run_dir.checkpoint_steps()
    if steps:
        state.load_state_dict(load_torch(run_dir.checkpoint(steps[-1])))
    return bool(steps)


def save_torch(path: Path, value: dict[str, Any]) -> None:
    """Writes ``value`` so that a kill leaves the old file or the new one."""
    with atomic_file(path) as file:
        torch.save(value, file)


def load_torch(path: Path) -> dict[str, Any]:
    """Reads tensors and plain values; never runs code from the file."""
    try:
        loaded: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise TrainingError(
            f"{path} cannot be read ({error}); remove it to go on from the checkpoint before"
        ) from error
    return loaded
