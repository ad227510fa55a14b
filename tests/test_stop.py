"""Signals that ask a run to stop."""

import os
import signal

import pytest

from mgexp.stop import StopRequest


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR2])
def test_a_signal_is_a_request(number):
    before = signal.getsignal(number)
    with StopRequest().listening() as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        assert stop.requested
        assert stop.signal_name == number.name
    assert signal.getsignal(number) is before


def test_a_second_ctrl_c_ends_at_once():
    with StopRequest().listening():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_second_sigterm_waits_for_the_save():
    with StopRequest().listening() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.signal_name == "SIGTERM"


def test_a_signal_that_only_saves_does_not_stop():
    stop = StopRequest(only_save=(signal.SIGTERM,))
    with stop.listening():
        os.kill(os.getpid(), signal.SIGTERM)
        assert (stop.requested, stop.should_save) == (False, True)
        stop.saved()
        assert not stop.should_save
        os.kill(os.getpid(), signal.SIGUSR2)
        assert (stop.requested, stop.should_save) == (True, False)
