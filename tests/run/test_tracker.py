"""Several trackers, of which some fail."""

import logging

import pytest
from tracked import RESULT, evaluation_line, step_line

from mgexp.run.log import LOGGER
from mgexp.run.trackers import NOBODY, Trackers, numbers_of, numbers_of_result


class Keeper:
    """Keeps what it is told; fails from call number ``fails_at`` on."""

    def __init__(self, fails_at=99):
        self.told = []
        self.fails_at = fails_at

    def _tell(self, *what):
        if len(self.told) >= self.fails_at:
            raise OSError(28, "No space left on device")
        self.told.append(what)

    def start(self, first_step):
        self._tell("start", first_step)

    def step(self, line):
        self._tell("step", line["step"])

    def evaluation(self, line):
        self._tell("evaluation", line["step"])

    def result(self, result):
        self._tell("result", result["steps"])

    def close(self, failed):
        self._tell("close", failed)


def run(trackers):
    with trackers as told:
        told.start(3)
        told.step(step_line(3))
        told.evaluation(evaluation_line(4, 50.0))
        told.step(step_line(4))
        told.result(RESULT)


WHOLE = [("start", 3), ("step", 3), ("evaluation", 4), ("step", 4), ("result", 6), ("close", False)]


def test_each_is_told_of_everything():
    one, two = Keeper(), Keeper()
    run(Trackers({"one": one, "two": two}))
    assert one.told == two.told == WHOLE


@pytest.mark.parametrize("fails_at", range(6))
def test_one_that_fails_is_warned_of_once_and_the_other_goes_on(fails_at, caplog):
    bad, good = Keeper(fails_at), Keeper()
    caplog.set_level(logging.WARNING, LOGGER.name)
    run(Trackers({"bad": bad, "good": good}))
    assert bad.told == WHOLE[:fails_at]
    assert good.told == WHOLE
    (warning,) = caplog.messages
    assert warning.startswith("bad is told nothing more of this run (OSError: [Errno 28] No space")


def test_a_run_that_ends_by_an_error_is_closed_as_failed():
    keeper = Keeper()
    with pytest.raises(ValueError, match="loss"), Trackers({"one": keeper}) as told:
        told.start(0)
        raise ValueError("loss")
    assert keeper.told == [("start", 0), ("close", True)]


def test_what_was_not_started_is_not_closed():
    keeper = Keeper()
    with Trackers({"one": keeper}):
        pass
    assert keeper.told == []


def test_nobody_is_told_of_nothing():
    run(NOBODY)


def test_numbers_of_a_line_are_no_words_and_no_truth_values():
    assert numbers_of(evaluation_line(4, 50.0)) == {
        "step": 4,
        "epoch": 1.5,
        "train_seconds": 7.0,
        "top1": 50.0,
    }


def test_numbers_of_a_result_are_flat():
    assert numbers_of_result(RESULT) == {
        "steps": 6,
        "params": 1000,
        "top1": 75.0,
        "top5": 100.0,
        "train_seconds": 12.5,
        "program_seconds": 20.0,
    }
