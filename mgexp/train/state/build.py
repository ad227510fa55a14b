"""From the configuration to what training changes: at its start, and at its end."""

from __future__ import annotations

import torch
from fvcore.common.config import CfgNode

from mgexp.errors import InputError, listed
from mgexp.models.build import build_model, build_on_meta
from mgexp.models.weights import MAX_LISTED, Fit
from mgexp.optim.build import build_optimizer
from mgexp.record.clock import Clock
from mgexp.record.files import read_json
from mgexp.record.run_dir import RunDir
from mgexp.record.torch_file import load_torch
from mgexp.train.build import build_precision
from mgexp.train.checkpoint import State
from mgexp.train.resume import Choice


def build_first_state(
    cfg: CfgNode, initial: Fit | None, device: torch.device, clock: Clock
) -> State:
    """Before the first step: random weights, or those that ``initial`` gives."""
    model = build_model(cfg)
    if initial:
        initial.load_into(model)
    model = model.to(device)
    scaler = build_precision(cfg, device).scaler(device)
    return State(model, build_optimizer(cfg, model), clock, scaler=scaler)


def require_same_network(cfg: CfgNode, choice: Choice) -> None:
    """Raises InputError where the checkpoint is of another network than ``cfg``: nothing can override that."""
    if not choice.checkpoint:
        return
    saved, own = choice.checkpoint.state["model"], build_on_meta(cfg).state_dict()
    shapes = [{name: tuple(x.shape) for name, x in state.items()} for state in (saved, own)]
    strange = sorted({name for name, _ in shapes[0].items() ^ shapes[1].items()})
    if strange:
        step, names = choice.checkpoint.step, listed(strange, MAX_LISTED)
        remedy = "choose another --output"
        raise InputError(
            [f"the checkpoint after step {step} is of another network ({names} differ): {remedy}"]
        )


def build_last_state(cfg: CfgNode, run_dir: RunDir, device: torch.device) -> State:
    """After the last step of a finished run, with the weights that its final evaluation scored."""
    result = read_json(run_dir.result_json)
    model = build_model(cfg)
    model.load_state_dict(load_torch(run_dir.model))
    clock = Clock()
    clock.add("train", result["seconds"]["train"])
    state = State(model.to(device), build_optimizer(cfg, model), clock)
    state.step, state.epoch = result["steps"], result["epochs"]
    return state
