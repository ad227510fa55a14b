"""The pool: every item once, and errors and deaths reach the caller, or ``failure`` where it is given."""

import multiprocessing
from concurrent.futures.process import BrokenProcessPool

import bad_checks
import pytest
from pebble import ProcessExpired

from mgexp.video import processes
from mgexp.video.processes import map_in_processes

ITEMS = [f"{number}" for number in range(9)]


@pytest.mark.parametrize("num_processes", [1, 2, 20])
def test_results_come_in_the_order_of_the_items(num_processes):
    assert list(map_in_processes(bad_checks.name, ITEMS, num_processes)) == ITEMS
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(("item", "error"), [("raise", MemoryError), ("segfault", ProcessExpired)])
def test_what_goes_wrong_is_raised_here_and_ends_the_pool(item, error):
    with pytest.raises(error):
        list(map_in_processes(bad_checks.name, [item, *ITEMS], 2))
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("num_items", [2, 10])
def test_processes_that_cannot_start_end_the_work(num_items, monkeypatch):
    """Two items were handed out before the pool is found broken. With ten, the next one is refused."""
    monkeypatch.setattr(processes, "start_process", bad_checks.die)
    with pytest.raises(BrokenProcessPool):
        list(map_in_processes(bad_checks.name, ITEMS[:1] * num_items, 1, failure=lambda *_: ""))
    assert multiprocessing.active_children() == []


def test_failure_gives_a_result_in_place_of_an_error():
    def failure(item, error):
        return f"{item}: {type(error).__name__}"

    items = ["raise", "leave", "hang", "0"]
    found = map_in_processes(bad_checks.name, items, 1, limit_seconds=1.0, failure=failure)
    assert sorted(found) == [
        "0",
        "hang: TimeoutError",
        "leave: ProcessExpired",
        "raise: MemoryError",
    ]
