"""From the configuration to who is told of a run."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from fvcore.common.config import CfgNode

from mgexp.config.load import flatten
from mgexp.record.environment import describe
from mgexp.record.files import read_jsonl
from mgexp.record.run_dir import RunDir
from mgexp.record.tracking.tensorboard import TensorBoard
from mgexp.record.tracking.tracker import NOBODY, Tracker, Trackers
from mgexp.record.tracking.wandb_run import WandbRun


def build_trackers(cfg: CfgNode, experiment: str, run_dir: RunDir, is_main: bool) -> Trackers:
    """Those that TENSORBOARD.ENABLE and WANDB.ENABLE ask for, not started; nobody but for the main process."""
    if not is_main or not (cfg.TENSORBOARD.ENABLE or cfg.WANDB.ENABLE):
        return NOBODY
    config, environment = dict(flatten(cfg)), describe()
    found: dict[str, Tracker] = {}
    if cfg.TENSORBOARD.ENABLE:
        log_dir = cfg.TENSORBOARD.LOG_DIR
        folder = run_dir.tensorboard_in(Path(log_dir)) if log_dir else run_dir.tensorboard
        evaluations = partial(read_jsonl, run_dir.evaluations_jsonl)
        found["TensorBoard"] = TensorBoard(folder, config, environment, evaluations)
    if cfg.WANDB.ENABLE:
        found["W&B"] = WandbRun(
            run_dir,
            name=f"{experiment}/seed{cfg.RNG_SEED}",
            project=cfg.WANDB.PROJECT,
            entity=cfg.WANDB.ENTITY,
            mode=cfg.WANDB.MODE,
            config={**config, "environment": environment},
        )
    return Trackers(found)


def tracking_problems(cfg: CfgNode) -> Iterator[str]:
    """A tracker that is asked for and cannot be started here."""
    for section, package in (("TENSORBOARD", "tensorboard"), ("WANDB", "wandb")):
        if cfg.TRAIN.ENABLE and cfg[section].ENABLE and importlib.util.find_spec(package) is None:
            yield (
                f"{section}.ENABLE = True needs the package {package}: pip install 'mgexp[{package}]' or "
                f"{package}, or set {section}.ENABLE False"
            )
        elif (
            section == "WANDB"
            and cfg.TRAIN.ENABLE
            and cfg.WANDB.ENABLE
            and not _may_send(cfg.WANDB.MODE)
        ):
            yield (
                "WANDB.MODE = online, but nobody is logged in at W&B: run `wandb login`, or set WANDB.MODE "
                "offline and send the run later with `wandb sync`"
            )


def _may_send(mode: str) -> bool:
    """Whether W&B will take the run: it asks for the account in the middle of a start otherwise."""
    if mode == "offline":
        return True
    import wandb

    try:
        return wandb.login(prompt=False, verify=False)
    except Exception:  # what it has for an account is none
        return False
