"""Loaders as a configuration asks for them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from mgexp.config.load import load_config
from mgexp.data.build import build_train_loader

ROW = Path("experiments/quickstart/baseline.yaml")


class Niceness(Dataset[int]):
    """How nice the process is that loads the only item."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, item: int) -> int:
        return os.getpriority(os.PRIO_PROCESS, 0)


@pytest.mark.parametrize(("device", "expected"), [("cpu", 19), ("cuda", None)])
def test_workers_yield_to_training_threads_only_on_a_cpu(device: str, expected: int | None) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    loader = build_train_loader(load_config(ROW, []), [], [], torch.device(device))
    probe = DataLoader(Niceness(), num_workers=1, worker_init_fn=loader.worker_init_fn)
    assert [value.item() for value in probe] == [own if expected is None else expected]
