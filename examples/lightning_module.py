#!/usr/bin/env python3
"""Train long+short in Lightning: python examples/lightning_module.py (after pip install lightning)

The whole schedule is one epoch of Lightning. If a run was stopped, trainer.fit(module, ckpt_path=...) continues it
at its step. On several GPUs, also give build_schedule their number: num_processes=...

The loader receives the sampler as an iterator, which has no length, and max_steps ends the run. With a length,
Lightning (2.6) would count the steps before a resume as batches of the loader. It would then end its epoch early
and start the loader again.

The sampler gives the shape of each step. Before a step, the module sets the learning rate and the BN groups that
belong to this shape. After a step, share_statistics gives all processes the running statistics of the whole
mini-batch.
"""

from __future__ import annotations

import lightning
import torch
import torch.nn.functional as F
from bars import RECIPE, Bars, small_network
from torch import Tensor, nn
from torch.utils.data import DataLoader

from mgexp.multigrid import (
    LONG_SHORT,
    Schedule,
    StepSampler,
    build_schedule,
    group_batchnorm,
    set_num_groups,
    share_statistics,
)

Batch = tuple[Tensor, Tensor]


class MultigridModule(lightning.LightningModule):
    """A module that trains ``model`` along ``schedule``. Each step has its shape, rate and number of BN groups."""

    def __init__(self, model: nn.Module, videos: Bars, schedule: Schedule) -> None:
        super().__init__()
        self.model, self.videos, self.schedule = group_batchnorm(model), videos, schedule

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=self.schedule.recipe.base_lr, momentum=0.9)

    def train_dataloader(self) -> DataLoader[Batch]:
        if self.trainer.world_size != self.schedule.num_processes:
            raise ValueError("build_schedule(..., num_processes=...) must be the number of devices")
        sampler = StepSampler(self.schedule, 0, self.global_step, self.trainer.global_rank)
        return DataLoader(self.videos, batch_sampler=iter(sampler))

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        plan = self.schedule.plan_at(self.global_step)
        for group in self.optimizers().param_groups:
            group["lr"] = plan.lr
        set_num_groups(self.model, plan.num_bn_groups)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return F.cross_entropy(self.model(batch[0]), batch[1])

    def on_train_batch_end(self, outputs: object, batch: Batch, batch_idx: int) -> None:
        share_statistics(self.model)


if __name__ == "__main__":
    bars = Bars(RECIPE)
    schedule = build_schedule(RECIPE, LONG_SHORT, num_videos=len(bars))
    # StepSampler already divides each mini-batch among the processes, so Lightning must not do it again.
    trainer = lightning.Trainer(
        max_steps=schedule.total_steps,
        use_distributed_sampler=False,
        devices=1,
        # The default would write a folder lightning_logs where the program runs.
        logger=False,
        enable_checkpointing=False,
    )
    trainer.fit(MultigridModule(small_network(), bars, schedule))
