"""How processes leave an evaluation: all, or none."""

import pytest
import torch

from mgexp.dist import Processes
from mgexp.stop import Interrupted, StopRequest
from mgexp.train.scores import leaving_together, watched_together

CPU = torch.device("cpu")


def stopped():
    request = StopRequest()
    request.signal_name = "SIGTERM"
    return request


def others(monkeypatch, flag):
    """What another process says, in each round."""
    monkeypatch.setattr("mgexp.dist.any_true", lambda processes, flags, device: (flags[0] or flag,))


def test_nobody_leaves_where_none_was_asked_to(monkeypatch):
    others(monkeypatch, False)
    with leaving_together(Processes(0, 2), CPU):
        pass
    items = watched_together(StopRequest(), range(3), Processes(0, 2), CPU)
    assert list(items) == [0, 1, 2]


def test_a_process_leaves_behind_the_block_with_the_name_of_its_signal():
    with pytest.raises(Interrupted, match="SIGTERM"), leaving_together(Processes(), CPU):
        list(stopped().watch(range(3)))
    with pytest.raises(Interrupted, match="SIGTERM"):
        list(watched_together(stopped(), range(3), Processes(), CPU))


def test_the_others_leave_too(monkeypatch):
    others(monkeypatch, True)
    with (
        pytest.raises(Interrupted, match="a signal to another process"),
        leaving_together(Processes(1, 2), CPU),
    ):
        pass
    with pytest.raises(Interrupted, match="a signal to another process"):
        list(watched_together(StopRequest(), range(3), Processes(1, 2), CPU))


def test_a_signal_behind_the_last_item_lets_the_block_end():
    """What is done is done."""
    stop = StopRequest()
    with leaving_together(Processes(), CPU):
        for _ in stop.watch(range(3)):
            pass
        stop.signal_name = "SIGTERM"


def test_errors_stay_errors():
    with pytest.raises(ValueError, match="bug"), leaving_together(Processes(), CPU):
        raise ValueError("bug")
