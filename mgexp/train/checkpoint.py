"""The state of a run, in memory and on disk. All else follows from configuration and step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mgexp.config.keys import Config
from mgexp.errors import InputError, TrainingError
from mgexp.models.build import build_model, on_device
from mgexp.models.weights import Fit
from mgexp.optim.build import build_optimizer
from mgexp.run.clock import Clock
from mgexp.run.files import read_json, read_jsonl, sync_file
from mgexp.run.folder import RunDir
from mgexp.run.torch_file import load_torch, save_torch
from mgexp.train.precision import Precision

CALMER = "a smaller SOLVER.BASE_LR or more SOLVER.WARMUP_EPOCHS may help, in another --output or with --override"
"""The remedy for a training whose numbers are not finite."""


class WeightAverage:
    """Average the floating-point tensors of a model's state_dict over the steps, with batch-norm statistics.

    Each step the average moves to the weights by 1 − decay.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        # The tensors of a state_dict are those of the model itself, so they follow the training.
        state = model.state_dict()
        # Counters of batches are whole numbers, which have no average.
        self._live = {name: value for name, value in state.items() if value.is_floating_point()}
        self.weights = {name: value.clone() for name, value in self._live.items()}

    @torch.no_grad()
    def update(self, num_steps: int) -> None:
        # A smaller decay at first, so that the average forgets the initial weights. Source: TensorFlow's
        # ExponentialMovingAverage with num_updates.
        decay = min(self.decay, (1 + num_steps) / (10 + num_steps))
        torch._foreach_lerp_([*self.weights.values()], [*self._live.values()], 1 - decay)

    @torch.no_grad()
    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Take saved weights. Raises ValueError if they belong to another model."""
        if saved.keys() != self.weights.keys():
            raise ValueError("the saved average of the weights has other tensors")
        for name, value in self.weights.items():
            value.copy_(saved[name])

    def load_into(self, model: nn.Module) -> None:
        """Copy the average into ``model``, a copy of the one that is averaged."""
        model.load_state_dict({**model.state_dict(), **self.weights})


@dataclass
class State:
    """Everything that training changes.

    ``step`` counts the finished steps, ``epoch`` the epochs drawn so far. ``unusable`` gives the
    reason why each video failed, by its index in the list. ``scaler`` scales the loss in fp16 and
    is off otherwise. ``average`` is that of the weights, if the run takes one.
    """

    # No random generator needs saving: torch is seeded in each step, and the draws of a clip follow
    # from its position in the stream.

    model: nn.Module
    optimizer: torch.optim.Optimizer
    clock: Clock
    step: int = 0
    epoch: float = 0.0
    unusable: dict[int, str] = field(default_factory=dict)
    scaler: torch.amp.GradScaler = field(
        default_factory=partial(torch.amp.GradScaler, enabled=False)
    )
    average: WeightAverage | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain values only, so that the file loads with ``weights_only=True``."""
        # torch numbers the parameters by their place in the groups. We store the optimizer's state
        # by the parameters' names instead, so that an optimizer with other groups can load it. The
        # settings of the groups always come from the configuration.
        names = {id(param): name for name, param in self.model.named_parameters()}
        return {
            "step": self.step,
            "epoch": self.epoch,
            "model": self.model.state_dict(),
            "optimizer": {names[id(p)]: values for p, values in self.optimizer.state.items()},
            "clock": self.clock.state_dict(),
            "unusable": self.unusable,
            "scaler": self.scaler.state_dict(),
            "average": self.average.weights if self.average else {},
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Load a saved state, and add its seconds to the clock.

        Raises KeyError, RuntimeError or ValueError if the state belongs to another model or optimizer.
        """
        self.model.load_state_dict(saved["model"])
        names = {id(param): name for name, param in self.model.named_parameters()}
        ordered = [names[id(p)] for group in self.optimizer.param_groups for p in group["params"]]
        learned = saved["optimizer"]
        if strange := sorted(learned.keys() - set(ordered)):
            raise ValueError(f"the saved optimizer has other parameters: {', '.join(strange)}")
        # Here the names become torch's numbers again, for the groups that the optimizer has now.
        own = self.optimizer.state_dict()
        own["state"] = {
            place: learned[name] for place, name in enumerate(ordered) if name in learned
        }
        self.optimizer.load_state_dict(own)
        self.clock.load_state_dict(saved["clock"])
        self.step, self.epoch = saved["step"], saved["epoch"]
        self.unusable = dict(saved["unusable"])
        # A scaler that is off saves an empty dict, and torch refuses to load such a dict into a
        # scaler that is on.
        if saved["scaler"]:
            self.scaler.load_state_dict(saved["scaler"])
        if self.average:
            self.average.load(saved["average"])


def build_first_state(
    cfg: Config, initial: Fit | None, precision: Precision, device: torch.device, clock: Clock
) -> State:
    """Build the state before the first step, with random weights or with the weights of ``initial``."""
    model = build_model(cfg)
    if initial:
        initial.load_into(model)
    model = on_device(model, device)
    decay = cfg.TRAIN.EMA_DECAY
    return State(
        model,
        build_optimizer(cfg, model),
        clock,
        scaler=precision.scaler(device),
        average=WeightAverage(model, decay) if decay else None,
    )


def build_trained_model(cfg: Config, run_dir: RunDir) -> nn.Module:
    """Build the model of a finished run. Raises InputError if its weights are missing or do not fit ``cfg``."""
    if not run_dir.model.is_file():
        raise InputError([f"{run_dir.model} does not exist: train the run to its end"])
    try:
        model = build_model(cfg)
        model.load_state_dict(load_torch(run_dir.model))
    except (TrainingError, RuntimeError, ValueError) as error:
        problem = f"{run_dir.model} is not the model of {run_dir.config_yaml}: {error}"
        raise InputError([problem]) from error
    return model


def build_last_state(cfg: Config, run_dir: RunDir, device: torch.device) -> State:
    """Build the state of a finished run, with the weights of its final evaluation."""
    result = read_json(run_dir.result_json)
    model = build_trained_model(cfg, run_dir)
    clock = Clock()
    clock.add("train", result["seconds"]["train"])
    state = State(on_device(model, device), build_optimizer(cfg, model), clock)
    state.step, state.epoch = result["steps"], result["epochs"]
    return state


def save_checkpoint(
    run_dir: RunDir,
    state: State,
    schedule: Mapping[str, Any] | None = None,
    num_kept: int = 2,
) -> None:
    """Write the checkpoint of ``state.step`` atomically, then delete older ones.

    The last ``num_kept`` checkpoints and the one of the best evaluation stay. ``schedule`` is the
    schedule's fingerprint: a resumed run must have the same one. Raises TrainingError if a weight or a
    statistic is not finite; then nothing is written or deleted.
    """
    # The update comes after the loss, so the last loss may be finite although the weights no longer
    # are. Nobody could resume from such a checkpoint, and a good one would be deleted for it.
    for name, values in state.model.state_dict().items():
        if not bool(torch.isfinite(values).all()):
            raise TrainingError(
                f"after step {state.step} the weights {name} are not finite, so no checkpoint was written; "
                f"{CALMER}"
            )
    for path in (run_dir.metrics_jsonl, run_dir.evaluations_jsonl):
        # The records reach the disk before the checkpoint. Otherwise a power cut could leave a
        # checkpoint without the records of its steps.
        sync_file(path)
    save_torch(run_dir.checkpoint(state.step), {**state.state_dict(), "schedule": schedule})
    # Old files go only now: a kill before this line leaves one file too many, and none too few.
    best = best_step(run_dir)
    for step in run_dir.checkpoint_steps()[:-num_kept]:
        if step != best:
            run_dir.checkpoint(step).unlink()


def best_step(run_dir: RunDir) -> int | None:
    """Return the step of the best evaluation during training; None before the first evaluation.

    The best evaluation has the highest mAP if videos have many labels, else the highest top-1. If
    two evaluations are equal, the later one counts.
    """
    scores = evaluated(run_dir)
    return max(scores)[1] if scores else None


def evaluated(run_dir: RunDir) -> list[tuple[float, int]]:
    """Return the metric and the step of each evaluation during training."""
    return [
        (line["map"] if "map" in line else line["top1"], int(line["step"]))
        for line in read_jsonl(run_dir.evaluations_jsonl)
        if not line["full_protocol"]
    ]


def is_out_of_patience(run_dir: RunDir, patience: int) -> bool:
    """Return whether the last ``patience`` evaluations were all below the best one before them; 0: never."""
    scores = evaluated(run_dir)
    _, best = max(scores, default=(0.0, 0))
    return 0 < patience <= sum(step > best for _, step in scores)
