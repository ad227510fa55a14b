"""Trackers: which are made, what stops them, and what happens when some fail."""

import importlib.util
import logging

import pytest
from tiny import tiny_config
from tracked import RESULT, evaluation_line, step_line

from mgexp.errors import InputError
from mgexp.run.folder import RunDir
from mgexp.run.log import LOGGER
from mgexp.run.trackers import NOBODY, Trackers, tracking_problems
from mgexp.train.job import build_trackers
from mgexp.train.setup import build_inputs

BOTH = {"TENSORBOARD.ENABLE": True, "WANDB.ENABLE": True}


@pytest.fixture
def without_packages(monkeypatch):
    """As where neither package is installed."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def test_nobody_is_told_by_default(tmp_path, without_packages):
    cfg = tiny_config(tmp_path)
    assert build_trackers(cfg, "tiny", RunDir(tmp_path), is_main=True) is NOBODY
    assert list(tracking_problems(False, None)) == []
    # Nor is anybody by processes but the first.
    assert build_trackers(tiny_config(tmp_path, BOTH), "tiny", RunDir(tmp_path), False) is NOBODY


def test_nobody_logged_in_is_a_problem(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    for name in ("HOME", "WANDB_CONFIG_DIR", "NETRC"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    (problem,) = tracking_problems(False, "online")
    assert "wandb login" in problem
    assert list(tracking_problems(False, "offline")) == []


def test_an_evaluation_alone_needs_no_tracker(tmp_path, without_packages):
    pairs = {**BOTH, "TRAIN.ENABLE": False}
    with pytest.raises(InputError) as caught:
        build_inputs(tiny_config(tmp_path, pairs), ["stop here"], num_processes=1)
    assert "ENABLE" not in str(caught.value)
    with pytest.raises(InputError) as caught:
        build_inputs(tiny_config(tmp_path, BOTH), ["stop here"], num_processes=1)
    assert "pip install tensorboard" in str(caught.value)
    assert "pip install wandb" in str(caught.value)


class Keeper:
    """Keeps what it is told; fails from call number ``fails_at`` on."""

    def __init__(self, fails_at=99):
        self.told = []
        self.fails_at = fails_at

    def __getattr__(self, name):
        def tell(*given):
            if len(self.told) >= self.fails_at:
                raise OSError(28, "No space left on device")
            self.told.append((name, *given))

        return tell


WHOLE = [
    *(("start", 3), ("step", step_line(3)), ("evaluation", evaluation_line(4, 50.0))),
    *(("step", step_line(4)), ("result", RESULT), ("close", False)),
]


@pytest.mark.parametrize("fails_at", range(6))
def test_one_that_fails_is_warned_of_once_and_the_other_goes_on(fails_at, caplog):
    bad, good = Keeper(fails_at), Keeper()
    caplog.set_level(logging.WARNING, LOGGER.name)
    with Trackers({"bad": bad, "good": good}) as told:
        for name, given in WHOLE[:-1]:
            getattr(told, name)(given)
    assert bad.told == WHOLE[:fails_at]
    assert good.told == WHOLE
    (warning,) = caplog.messages
    assert warning.startswith("bad ")


def test_a_run_that_ends_by_an_error_is_closed_as_failed():
    keeper = Keeper()
    with pytest.raises(ValueError, match="loss"), Trackers({"one": keeper}) as told:
        told.start(0)
        raise ValueError("loss")
    assert keeper.told == [("start", 0), ("close", True)]
