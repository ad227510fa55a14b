"""The state of a run on disk: what cannot be computed again from the configuration and the step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from mgexp.errors import TrainingError
from mgexp.run.clock import Clock
from mgexp.run.files import read_jsonl, sync_file
from mgexp.run.folder import RunDir
from mgexp.run.torch_file import save_torch

NUM_KEPT = 2


@dataclass
class State:
    """What training changes. ``step`` is the number of finished steps, ``epoch`` the epochs they drew.

    ``levels``: training clips that all processes loaded up to the last save, by level of the clip store, or
    "source". ``scaler`` of the loss: on for fp16 alone. No state of a random generator is in it: none goes on from
    one step to the next (torch is seeded in each, and a clip's draws follow from its position in the stream).
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
            "optimizer": self._optimizer_state(),
            "clock": self.clock.state_dict(),
            "unusable": self.unusable,
            "levels": dict(self.levels),
            "scaler": self.scaler.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a saved state; how the optimizer works is that of the configuration, not of the file."""
        self.model.load_state_dict(state["model"])
        self._load_optimizer_state(state["optimizer"])
        self.clock.load_state_dict(state["clock"])
        self.step, self.epoch = state["step"], state["epoch"]
        self.unusable = dict(state["unusable"])
        self.levels = Counter(state.get("levels", {}))  # checkpoints before clip stores have none
        if state.get("scaler"):  # neither have those before other precisions than fp32
            self.scaler.load_state_dict(state["scaler"])

    def _optimizer_state(self) -> dict[str, Any]:
        """By the names of parameters, however these are grouped, and without what the groups are set to."""
        names = self._names_by_id()
        return {names[id(param)]: values for param, values in self.optimizer.state.items()}

    def _load_optimizer_state(self, saved: Mapping[str, Any]) -> None:
        """What was learned of each parameter; how the optimizer works stays as the configuration has it."""
        names = self._names_by_id()
        ordered = [names[id(p)] for group in self.optimizer.param_groups for p in group["params"]]
        if strange := sorted(saved.keys() - set(ordered)):
            raise ValueError(f"the optimizer's state is of other parameters: {', '.join(strange)}")
        own = self.optimizer.state_dict()
        own["state"] = {place: saved[name] for place, name in enumerate(ordered) if name in saved}
        self.optimizer.load_state_dict(own)

    def _names_by_id(self) -> dict[int, str]:
        return {id(param): name for name, param in self.model.named_parameters()}


def save_checkpoint(
    run_dir: RunDir,
    state: State,
    schedule: Mapping[str, Any] | None = None,
    num_kept: int = NUM_KEPT,
) -> None:
    """Writes the checkpoint of ``state.step`` atomically, then deletes all but the last ``num_kept`` and the best.

    ``schedule``: its fingerprint, which a resumed run is compared with. Raises TrainingError where a weight is not
    finite: the checkpoints that there are stay good.
    """
    _require_finite(state)
    for path in (run_dir.metrics_jsonl, run_dir.evaluations_jsonl):
        sync_file(path)  # a checkpoint never outlives the records of the steps before it
    save_torch(run_dir.checkpoint(state.step), {**state.state_dict(), "schedule": schedule})
    best = best_step(run_dir)
    for step in run_dir.checkpoint_steps()[:-num_kept]:
        if step != best:
            run_dir.checkpoint(step).unlink()


def best_step(run_dir: RunDir) -> int | None:
    """The step of the best evaluation during training, the last of equals; None where there was none yet.

    The best is that of the highest mAP where videos have many labels, else of the highest top-1.
    """
    lines = read_jsonl(run_dir.evaluations_jsonl)
    scores = [
        (line["map"] if "map" in line else line["top1"], int(line["step"]))
        for line in lines
        if not line["full_protocol"]
    ]
    return max(scores)[1] if scores else None


def _require_finite(state: State) -> None:
    for name, weight in state.model.named_parameters():
        if not bool(torch.isfinite(weight).all()):
            raise TrainingError(
                f"after step {state.step} the weights {name} are not finite, so that no checkpoint was written; "
                "a smaller SOLVER.BASE_LR or more SOLVER.WARMUP_EPOCHS may help"
            )
