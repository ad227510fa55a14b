"""What a run says of its steps."""

import logging

import pytest
import torch

from mgexp.multigrid.schedule import StepPlan
from mgexp.run.files import read_jsonl
from mgexp.run.log import LOGGER, Progress, StepRecord, logging_to


def record(step, seconds=0.5, waited=0.1):
    plan = StepPlan(step, step / 4, 1, 0, 8, 32, (2, 2), 16, 16 * step, 0.05, 1.0, 2)
    return StepRecord(plan, 0.75, seconds, waited)


def test_every_nth_step_and_the_last_are_recorded(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with Progress(path, 0, 7, 3) as progress:
        for step in range(7):
            progress.report(record(step))
    assert [line["step"] for line in read_jsonl(path)] == [2, 5, 6]


def test_a_line_has_what_follows_from_the_record():
    line = record(3).line()
    assert line["clips_per_second"] == pytest.approx(32)
    assert line["max_memory_bytes"] > 10**6


def test_a_run_on_the_cpu_of_a_machine_with_a_gpu_has_its_own_memory(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 0)
    assert record(3).line()["max_memory_bytes"] > 10**6


def test_the_log_line_gives_means_since_the_last(tmp_path, caplog):
    caplog.set_level(logging.DEBUG, LOGGER.name)
    with Progress(tmp_path / "metrics.jsonl", 0, 12, 2) as progress:
        progress.report(record(0, seconds=0.3, waited=0.3))
        progress.report(record(1, seconds=0.5, waited=0.1))
    (text,) = caplog.messages
    # 0.4 s a step, 0.4 of 0.8 s waiting, 32 clips in 0.8 s, 10 steps left of the 0.5 s that the
    # second step took; the first step of the shape does not count
    assert text.endswith("400 ms  50% waiting  40 clips/s  training ETA 00:05")


def test_the_log_goes_to_the_file_and_to_standard_error(tmp_path, capsys):
    before = list(LOGGER.handlers)
    with logging_to(tmp_path / "log.txt"):
        LOGGER.info("a line")
    LOGGER.info("after")
    assert "a line" in capsys.readouterr().err
    assert (tmp_path / "log.txt").read_text().endswith("  a line\n")
    assert LOGGER.handlers == before
