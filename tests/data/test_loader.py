"""Loaders as a configuration asks for them, and what their workers do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from mgexp.config.load import load_config
from mgexp.data import loader as loaders
from mgexp.data.loader import EXIT_NOT_HANDED_ON, build_opener, build_time_limit, build_train_loader
from mgexp.data.time_limit import TimeLimit, VideoFailure, write_failure
from mgexp.video.frame_folder import FilesAndFolders
from mgexp.video.pyav import PyavReader

ROW = Path("experiments/quickstart/baseline.yaml")


class Niceness(Dataset[int]):
    """How nice the process is that loads the only item."""

    def __len__(self):
        return 1

    def __getitem__(self, item):
        return os.getpriority(os.PRIO_PROCESS, 0)


@pytest.mark.parametrize(("device", "expected"), [("cpu", 19), ("cuda", None)])
def test_workers_yield_to_training_threads_only_on_a_cpu(device, expected):
    own = os.getpriority(os.PRIO_PROCESS, 0)
    loader = build_train_loader(load_config(ROW, []), [], [], torch.device(device), PyavReader)
    probe = DataLoader(Niceness(), num_workers=1, worker_init_fn=loader.worker_init_fn)
    assert [value.item() for value in probe] == [own if expected is None else expected]


def test_folders_of_images_play_at_the_rate_of_the_configuration():
    cfg = load_config(ROW, ["DATA.FRAMES_FPS", "12"])
    assert build_opener(cfg) == FilesAndFolders(12.0)


class Unshared(Dataset[torch.Tensor]):
    """Its batches cannot be handed on, as where shared memory is full."""

    def __len__(self):
        return 1

    def __getitem__(self, item):
        return lambda: None  # which cannot be pickled


def test_a_worker_that_cannot_hand_on_a_batch_ends():
    """Without that, the run would wait for the batch for ever."""
    loader = build_train_loader(load_config(ROW, []), [], [], torch.device("cpu"), PyavReader)
    probe = DataLoader(
        Unshared(), num_workers=1, collate_fn=list, worker_init_fn=loader.worker_init_fn, timeout=60
    )
    with pytest.raises(RuntimeError, match="exited unexpectedly") as caught:
        list(probe)
    assert f"exit code {EXIT_NOT_HANDED_ON}" in str(caught.value.__cause__ or caught.value)


def test_the_limit_knows_the_time_outs_of_the_run(tmp_path):
    record = tmp_path / "failures.jsonl"
    write_failure(record, VideoFailure("a.mp4", (0, 3)))
    limit = build_time_limit(load_config(ROW, ["DATA.VIDEO_TIMEOUT_SECONDS", "7"]), record)
    assert limit == TimeLimit(7.0, record, frozenset([VideoFailure("a.mp4", (0, 3))]))


FAILS = """
import torch
from torch.utils.data import DataLoader
from mgexp.config.load import load_config
from mgexp.data.loader import build_train_loader
from mgexp.video.frame_folder import FilesAndFolders
from mgexp.video.pyav import PyavReader

class Endless(torch.utils.data.Dataset):
    def __len__(self): return 100
    def __getitem__(self, item): return item

cfg = load_config("experiments/quickstart/baseline.yaml", [])
options = build_train_loader(cfg, [], [], torch.device("cpu"), PyavReader)
batches = iter(DataLoader(Endless(), num_workers=4, worker_init_fn=options.worker_init_fn))
next(batches)
raise ValueError("a bug")
"""


def test_a_program_that_fails_does_not_wait_for_its_workers():
    """Python keeps the frames of the error, and with them the loader; its workers ignore SIGTERM."""
    done = subprocess.run(
        [sys.executable, "-c", FAILS], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 1
    # torch's handler of SIGCHLD would add an error about the workers that are killed at the end.
    assert done.stderr.splitlines()[-1] == "ValueError: a bug"


@pytest.mark.parametrize(
    ("given", "cores", "num_local", "of_slurm", "wanted"),
    [
        (3, 64, 4, "", 3),
        (0, 64, 1, "", 0),
        ("auto", 6, 1, "", 6),
        ("auto", 64, 1, "", 8),
        ("auto", 6, 4, "", 1),
        ("auto", 2, 4, "", 1),
        # Slurm gives each process cores of its own.
        ("auto", 6, 4, "6", 6),
    ],
)
def test_auto_takes_the_cores_of_a_process_up_to_eight(
    given, cores, num_local, of_slurm, wanted, monkeypatch
):
    monkeypatch.setattr(loaders, "num_cores", lambda: cores)
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    if of_slurm:
        monkeypatch.setenv("SLURM_CPUS_PER_TASK", of_slurm)
    assert loaders.worker_count(given, num_local) == wanted
