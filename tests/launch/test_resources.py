"""Options of launchers: what they mean, which launcher takes them, what is wrong with them."""

from __future__ import annotations

import pytest

from mgexp.launch.resources import (
    Resources,
    add_resource_arguments,
    minutes_of,
    read_resources,
)
from mgexp.options import ToolParser


def read(launcher, *words):
    parser = ToolParser("", "")
    add_resource_arguments(parser)
    options = parser.parse_args(words)
    options.launcher = launcher
    return read_resources(options)


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("90", 90),
        ("90:30", 91),
        ("1:30:00", 90),
        ("0:0:1", 1),
        ("2-0", 2880),
        ("1-2:30", 1590),
        ("1-2:30:30", 1591),
    ],
)
def test_a_time_is_read_as_sbatch_reads_it(text, minutes):
    """By hand, from man sbatch."""
    assert minutes_of(text) == minutes


@pytest.mark.parametrize("text", ["", "4h", "1:2:3:4", "-5", "1-", "0", "0:00:00", "1.5"])
def test_no_time(text):
    with pytest.raises(ValueError, match=r"is (not a time|zero)"):
        minutes_of(text)


def test_nothing_given_is_one_process_for_four_hours():
    found, problems = read("slurm")
    assert (found, problems) == (Resources(minutes=240, warning_seconds=120), [])
    assert found.num_processes == 1


def test_a_process_for_each_gpu():
    found, problems = read("slurm", "--nodes", "2", "--gpus-per-node", "8")
    assert (found.num_processes, found.tasks_per_node, problems) == (16, 8, [])


def test_options_of_sbatch_are_kept_apart_from_each_other():
    words = (
        "--partition",
        "a b; rm",
        "--comment",
        "$(x)",
        "--sbatch",
        "gres=scratch:10G",
        "--sbatch",
        "exclusive",
    )
    found, problems = read("slurm", *words)
    assert problems == []
    assert found.sbatch == (
        ("partition", "a b; rm"),
        ("comment", "$(x)"),
        ("gres", "scratch:10G"),
        ("exclusive", True),
    )


@pytest.mark.parametrize(
    ("launcher", "words", "wanted"),
    [
        (
            "here",
            ("--partition", "p"),
            "--partition: --launcher here cannot use it, only slurm can",
        ),
        (
            "torchrun",
            ("--gpus-per-node", "2"),
            "--gpus-per-node: --launcher torchrun cannot use it",
        ),
        ("local", ("--nodes", "2"), "--nodes: --launcher local cannot use it"),
        ("local", ("--time-limit", "5"), "--time-limit: --launcher local cannot use it"),
        ("slurm", ("--nodes", "0"), "--nodes 0: it must be 1 or more"),
        ("slurm", ("--time-limit", "soon"), "--time-limit soon is not a time"),
        (
            "slurm",
            ("--time-limit", "1", "--warning-seconds", "60"),
            "less than the 60 of --time-limit",
        ),
        ("slurm", ("--gpus-per-node", "8", "--tasks-per-node", "4"), "--tasks-per-node 4"),
        ("slurm", ("--sbatch", "signal=KILL@5"), "the launcher sets signal itself"),
        ("slurm", ("--sbatch", "ntasks-per-node=4"), "the launcher sets ntasks-per-node itself"),
        ("slurm", ("--sbatch", "no-requeue"), "the launcher sets no-requeue itself"),
        ("slurm", ("--sbatch", "nodes=4"), "the launcher sets nodes itself"),
    ],
)
def test_an_option_that_cannot_be_is_a_problem(launcher, words, wanted):
    _, problems = read(launcher, *words)
    assert len(problems) == 1
    assert wanted in problems[0]
