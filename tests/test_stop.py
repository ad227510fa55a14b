"""Signals that ask a run to stop, and how its processes leave: all, or none."""

import os
import signal
import time
from multiprocessing import get_context

import pytest
import torch

from mgexp.dist import Processes
from mgexp.stop import Interrupted, StopRequest, leaving_together, watched_together


@pytest.mark.usefixtures("hangups_reach_us")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR2, signal.SIGHUP])
def test_a_signal_is_a_request(number):
    before = signal.getsignal(number)
    with StopRequest().listening() as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        assert stop.requested
        assert stop.signal_name == number.name
    assert signal.getsignal(number) is before


def test_under_nohup_the_end_of_the_terminal_is_no_request():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopRequest().listening() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.requested
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def interrupted_twice(first, seconds, pipe):
    """The second signal is a Ctrl-C."""
    with StopRequest().listening():
        os.kill(os.getpid(), first)
        time.sleep(seconds)
        os.kill(os.getpid(), signal.SIGINT)
        pipe.send("still there")


@pytest.mark.parametrize(
    ("first", "seconds", "code"),
    [(signal.SIGINT, 0.2, -signal.SIGINT), (signal.SIGINT, 0, 0), (signal.SIGTERM, 0.2, 0)],
)
def test_a_second_ctrl_c_ends_at_once_but_for_one_that_is_handed_on(
    first, seconds, code, monkeypatch
):
    monkeypatch.setattr("mgexp.stop.ONE_CTRL_C_SECONDS", 0.1)
    context = get_context("fork")  # without the seconds of an import
    reading, writing = context.Pipe(duplex=False)
    process = context.Process(target=interrupted_twice, args=(first, seconds, writing))
    process.start()
    process.join(60)
    assert process.exitcode == code
    assert reading.poll() == (code == 0)


def test_a_second_sigterm_waits_for_the_save():
    with StopRequest().listening() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGUSR2)
        assert stop.signal_name == "SIGTERM"


def test_where_nothing_is_lost_a_signal_ends_at_once():
    with StopRequest().listening() as stop:
        with pytest.raises(Interrupted, match="SIGTERM"), stop.at_once():
            os.kill(os.getpid(), signal.SIGTERM)
            pytest.fail("went on")
        with pytest.raises(Interrupted, match="SIGTERM"), stop.at_once():
            pytest.fail("began although a signal had come")


def test_behind_such_a_place_a_signal_is_a_request_again():
    with StopRequest().listening() as stop:
        with stop.at_once():
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested


def test_items_end_with_a_signal():
    taken = []
    with StopRequest().listening() as stop, pytest.raises(Interrupted):
        for item in watched_together(stop, range(5), Processes(), CPU):
            taken.append(item)
            if item == 2:
                os.kill(os.getpid(), signal.SIGTERM)
    assert taken == [0, 1, 2]


def test_an_interruption_is_no_error_that_one_catches():
    assert not issubclass(Interrupted, Exception)


def test_a_forked_child_leaves_signals_to_its_parent():
    with StopRequest().listening() as stop, stop.at_once():
        child = os.fork()
        if not child:
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            except BaseException:  # whatever it is, the child must not go on with the tests
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert not stop.requested


def test_a_signal_that_only_saves_does_not_stop():
    stop = StopRequest(only_save=(signal.SIGTERM,))
    with stop.listening():
        os.kill(os.getpid(), signal.SIGTERM)
        assert (stop.requested, stop.should_save) == (False, True)
        stop.should_save = False
        assert not stop.should_save
        os.kill(os.getpid(), signal.SIGUSR2)
        assert (stop.requested, stop.should_save) == (True, False)


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
        stopped().check()
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
        for _ in watched_together(stop, range(3), Processes(), CPU):
            pass
        stop.signal_name = "SIGTERM"


def test_errors_stay_errors():
    with pytest.raises(ValueError, match="bug"), leaving_together(Processes(), CPU):
        raise ValueError("bug")
