#!/usr/bin/env python3
"""Train long+short in the Trainer of Hugging Face's transformers: python examples/transformers_trainer.py

Install transformers and accelerate first. The whole schedule is one epoch of the Trainer. Its learning rate is a
function of the step, so trainer.train(resume_from_checkpoint=...) continues it; the Trainer then skips the batches
that were trained without loading them. On several GPUs, also give build_schedule their number: num_processes=...
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from bars import RECIPE, Bars, small_network
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from mgexp.multigrid import (
    LONG_SHORT,
    Schedule,
    StepSampler,
    build_schedule,
    group_batchnorm,
    set_num_groups,
    share_statistics,
)


class WithLoss(nn.Module):
    """``network`` with the inputs and outputs that the Trainer expects."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = group_batchnorm(network)

    def forward(self, clips: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return the loss and the logits."""
        logits = self.network(clips)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class Groups(TrainerCallback):
    """Set the BN groups of each step, and share their statistics after it."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule

    def on_step_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module,
        **_: object,
    ) -> None:
        set_num_groups(model, self.schedule.plan_at(state.global_step).num_bn_groups)

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module,
        **_: object,
    ) -> None:
        share_statistics(model)


class MultigridTrainer(Trainer):
    """A Trainer whose mini-batches follow ``schedule``."""

    def __init__(
        self, network: nn.Module, videos: Bars, schedule: Schedule, args: TrainingArguments
    ) -> None:
        model = WithLoss(network)
        base_lr = schedule.recipe.base_lr
        optimizer = torch.optim.SGD(model.parameters(), lr=base_lr, momentum=0.9)

        def factor(step: int) -> float:
            return schedule.plan_at(min(step, schedule.total_steps - 1)).lr / base_lr

        self.schedule = schedule
        super().__init__(
            model,
            args,
            train_dataset=videos,
            optimizers=(optimizer, LambdaLR(optimizer, factor)),
            callbacks=[Groups(schedule)],
        )

    def get_train_dataloader(self) -> DataLoader[dict[str, Tensor]]:
        """Return a loader that is divided among the processes already: accelerate must not do it again."""
        if self.args.world_size != self.schedule.num_processes:
            raise ValueError(
                "build_schedule(..., num_processes=...) must be the number of processes"
            )
        sampler = StepSampler(self.schedule, self.args.seed, rank=self.args.process_index)
        return DataLoader(self.train_dataset, batch_sampler=sampler, collate_fn=collated)


def collated(batch: list[tuple[Tensor, int]]) -> dict[str, Tensor]:
    """Make a mini-batch with the names of the network's inputs."""
    clips, labels = zip(*batch, strict=True)
    return {"clips": torch.stack(clips), "labels": torch.tensor(labels)}


def arguments(schedule: Schedule, folder: Path, **more: object) -> TrainingArguments:
    """Return arguments with which the Trainer leaves rate, gradients and inputs to the schedule."""
    settings = {
        "max_steps": schedule.total_steps,
        "max_grad_norm": 0.0,
        "remove_unused_columns": False,
        "seed": 0,
    }
    return TrainingArguments(str(folder), report_to="none", **{**settings, **more})


if __name__ == "__main__":
    bars = Bars(RECIPE)
    schedule = build_schedule(RECIPE, LONG_SHORT, num_videos=len(bars))
    with tempfile.TemporaryDirectory() as folder:
        options = arguments(schedule, Path(folder), logging_steps=4, save_strategy="no")
        MultigridTrainer(small_network(), bars, schedule, options).train()
