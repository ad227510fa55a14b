"""From the configuration to what training changes: at its start, and at its end."""

from __future__ import annotations

import torch
from fvcore.common.config import CfgNode

from mgexp.models.build import build_model
from mgexp.models.weights import Fit
from mgexp.optim.build import build_optimizer
from mgexp.record.clock import Clock
from mgexp.record.files import read_json
from mgexp.record.run_dir import RunDir
from mgexp.record.torch_file import load_torch
from mgexp.train.build import build_precision
from mgexp.train.checkpoint import State


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
