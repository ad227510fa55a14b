"""From the configuration to trackers."""

import importlib.util

import pytest
from tiny import tiny_config

from mgexp.run.folder import RunDir
from mgexp.run.trackers import NOBODY, build_trackers, tracking_problems

BOTH = {"TENSORBOARD.ENABLE": True, "WANDB.ENABLE": True}


@pytest.fixture
def without_packages(monkeypatch):
    """As where neither package is installed."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def test_nobody_is_told_by_default(tmp_path, without_packages):
    cfg = tiny_config(tmp_path)
    assert build_trackers(cfg, "tiny", RunDir(tmp_path), is_main=True) is NOBODY
    assert list(tracking_problems(cfg)) == []


def test_processes_but_the_first_tell_nobody(tmp_path):
    assert build_trackers(tiny_config(tmp_path, BOTH), "tiny", RunDir(tmp_path), False) is NOBODY


def test_a_missing_package_is_a_problem_with_its_remedy(tmp_path, without_packages):
    board, wandb = tracking_problems(tiny_config(tmp_path, BOTH))
    assert board == (
        "TENSORBOARD.ENABLE = True needs the package tensorboard: pip install 'mgexp[tensorboard]' or "
        "tensorboard, or set TENSORBOARD.ENABLE False"
    )
    assert wandb.startswith(
        "WANDB.ENABLE = True needs the package wandb: pip install 'mgexp[wandb]'"
    )


def test_nobody_logged_in_is_a_problem_with_its_remedy(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    for name in ("HOME", "WANDB_CONFIG_DIR", "NETRC"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    (problem,) = tracking_problems(tiny_config(tmp_path, {"WANDB.ENABLE": True}))
    assert problem.startswith(
        "WANDB.MODE = online, but nobody is logged in at W&B: run `wandb login`"
    )
    offline = tiny_config(tmp_path, {"WANDB.ENABLE": True, "WANDB.MODE": "offline"})
    assert list(tracking_problems(offline)) == []


def test_an_evaluation_alone_tells_nobody_and_needs_nothing(tmp_path, without_packages):
    cfg = tiny_config(tmp_path, {**BOTH, "TRAIN.ENABLE": False})
    assert list(tracking_problems(cfg)) == []


def test_runs_have_folders_of_their_own_in_one_for_many(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inside = RunDir(tmp_path / "runs/quickstart/long/seed1")
    assert inside.tensorboard_in(tmp_path / "all") == tmp_path / "all/quickstart/long/seed1"
    smoke = RunDir(tmp_path / "runs/smoke/quickstart/long/seed1")
    assert smoke.tensorboard_in(tmp_path / "all") == tmp_path / "all/smoke/quickstart/long/seed1"
    elsewhere = RunDir(tmp_path / "mine").tensorboard_in(tmp_path / "all")
    assert elsewhere == (tmp_path / "all").joinpath(*(tmp_path / "mine").resolve().parts[1:])
