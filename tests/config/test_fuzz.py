"""Thousands of mutated configurations: each is a schedule that keeps the rules, or one message."""

from __future__ import annotations

import contextlib
import io
import json
import re
import resource
import signal
from collections import Counter

import pytest
from cases import cases
from hypothesis import HealthCheck, Phase, given, settings
from schedule_rules import broken_rules
from tiny import ROWS, load_tool

from mgexp.config.check import cross_problems
from mgexp.config.keys import BY_NAME
from mgexp.config.load import flatten, load_config, read_config, smoke, to_yaml
from mgexp.run.schedule_table import schedule_rows, schedule_table
from mgexp.train.loop import milestones
from mgexp.train.setup import build_row_schedule

NUM_QUICK, NUM_SLOW = 100, 2500
MIN_VALID_SHARE = 0.3
MAX_SECONDS = 20  # of processor time; most take 20 ms
MAX_GROWTH_BYTES = 300 * 2**20
MAIN = load_tool("show_schedule").main


@contextlib.contextmanager
def time_limit(seconds):
    """An error where the block takes longer: a hang is a failure of the test, not of the suite."""

    def late(*_):
        raise TimeoutError(f"more than {seconds} s")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def call(arguments):
    """Exit code, standard output and standard error of the tool, called in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), time_limit(MAX_SECONDS):
        try:
            code = MAIN(arguments)
        except SystemExit as stopped:  # argparse
            code = stopped.code
    return code, out.getvalue(), err.getvalue()


def arguments_of(case, folder):
    """The command line of a case whose files are written to ``folder``."""
    for name, text in case.files.items():
        (folder / name).write_bytes(text.encode(errors="surrogatepass"))
    sizes = ["--num-gpus", str(case.num_gpus)]
    if case.num_videos is not None:
        sizes += ["--num-videos", str(case.num_videos)]
    return ["--cfg", str(folder / "row.yaml"), "--json", *sizes, *case.pairs]


def check(case, folder):
    """Whether the case is valid; fails where it is neither valid nor refused as it should be."""
    arguments = arguments_of(case, folder)
    code, out, err = call(arguments)
    if code == 0:
        check_valid(case, folder / "row.yaml", json.loads(out, parse_constant=refuse))
        return True
    assert code == 2, err
    assert out == ""
    if not err.startswith("usage:"):  # argparse's own message
        check_message(err, case, folder)
    return False


def refuse(name):
    """JSON has no NaN and no infinity."""
    raise AssertionError(name)


def check_message(err, case, folder):
    """One message, each problem of which names a key, a file or the words of the command line."""
    assert err.startswith("show_schedule.py: ")
    assert all(line.isprintable() for line in err.split("\n"))
    known = [*BY_NAME, "row.yaml", "link", "--num-", "KEY VALUE", "the command line"]
    problems = re.split(r"\n  - ", err)[1:]
    assert problems != []
    assert [problem for problem in problems if not any(name in problem for name in known)] == []


def check_valid(case, path, printed):
    """The configuration is frozen and is read back from what is written; the schedule keeps the rules."""
    cfg, problems = read_config(path, case.pairs)
    assert problems == []
    for _, value in flatten(cfg):
        hash(value)
    schedule = build_row_schedule(cfg, printed["dataset_size"], case.num_gpus)
    assert case.num_videos in {None, schedule.num_videos}
    assert broken_rules(schedule, case.num_gpus) == []
    assert printed["total_steps"] == schedule.total_steps
    assert (
        schedule_table(schedule).count("\n") >= len(schedule.phases) == len(schedule_rows(schedule))
    )
    ends = milestones(schedule, cfg.TRAIN.NUM_EVALUATIONS)
    assert list(ends) == sorted(set(ends))
    assert ends[-1] == schedule.total_steps
    copy = path.with_name("copy.yaml")
    copy.write_text(to_yaml(cfg), encoding="utf-8")
    assert load_config(copy) == cfg
    cross_problems(smoke(cfg))


def fuzz(num, folder):
    """Checks ``num`` cases, the same in each run; how many were (checked, valid)."""
    counts = Counter()

    @settings(
        max_examples=num,
        derandomize=True,
        database=None,
        deadline=None,  # each has time_limit
        suppress_health_check=[*HealthCheck],
        phases=[Phase.generate, Phase.shrink],
    )
    @given(cases())
    def one(case):
        counts["checked"] += 1
        counts["valid"] += check(case, folder)

    one()
    return counts["checked"], counts["valid"]


@pytest.mark.parametrize("num", [NUM_QUICK, pytest.param(NUM_SLOW, marks=pytest.mark.slow)])
def test_a_configuration_is_a_schedule_or_a_message(num, tmp_path, record_property):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    checked, valid = fuzz(num, tmp_path)
    record_property("valid_share", valid / checked)
    assert checked >= num
    assert valid >= MIN_VALID_SHARE * checked
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert grown < MAX_GROWTH_BYTES


# To count multiply-accumulates, each network runs at every shape.
@pytest.mark.parametrize("ratio", ["pixels", pytest.param("macs", marks=pytest.mark.slow)])
def test_the_rows_themselves_are_valid(ratio):
    rows = [cfg for cfg in map(load_config, ROWS.values()) if ratio == cfg.MULTIGRID.BATCH_RATIO]
    assert len(rows) >= 10
    for cfg in rows:
        assert broken_rules(build_row_schedule(cfg, 9000), 1) == [], cfg.ROW
