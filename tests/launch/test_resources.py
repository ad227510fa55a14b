"""Options of launchers: what they mean, which launcher takes them, what is wrong with them."""

import pytest

from mgexp.launch.resources import Resources, add_resource_arguments, minutes_of, read_resources
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
        *(("90", 90), ("90:30", 91), ("1:30:00", 90), ("0:0:1", 1)),
        *(("2-0", 2880), ("1-2:30", 1590), ("1-2:30:30", 1591)),
    ],
)
def test_a_time_is_read_as_sbatch_reads_it(text, minutes):
    """By hand, from man sbatch."""
    assert minutes_of(text) == minutes


@pytest.mark.parametrize("text", ["", "4h", "1:2:3:4", "-5", "1-", "0", "0:00:00", "1.5"])
def test_no_time(text):
    with pytest.raises(ValueError, match=r"is (not a time|zero)"):
        minutes_of(text)


def test_nothing_given_is_one_process_for_four_hours_and_gpus_have_one_each():
    found, problems = read("slurm")
    assert (found, problems) == (Resources(minutes=240, warning_seconds=120), [])
    assert found.num_processes == 1
    found, problems = read("slurm", "--nodes", "2", "--gpus-per-node", "8")
    assert (found.num_processes, found.tasks_per_node, problems) == (16, 8, [])


@pytest.mark.parametrize(
    ("launcher", "words", "wanted"),
    [
        ("here", "--partition p", "--partition"),
        ("torchrun", "--gpus-per-node 2", "--gpus-per-node"),
        ("local", "--nodes 2", "--nodes"),
        ("local", "--time-limit 5", "--time-limit"),
        ("slurm", "--nodes 0", "--nodes 0"),
        ("slurm", "--time-limit soon", "--time-limit soon"),
        ("slurm", "--time-limit 1 --warning-seconds 60", "--time-limit"),
        ("slurm", "--gpus-per-node 8 --tasks-per-node 4", "--tasks-per-node 4"),
        ("slurm", "--sbatch signal=KILL@5", "signal"),
        ("slurm", "--sbatch ntasks-per-node=4", "ntasks-per-node"),
        ("slurm", "--sbatch no-requeue", "no-requeue"),
        ("slurm", "--sbatch nodes=4", "nodes"),
    ],
)
def test_an_option_that_cannot_be_is_a_problem(launcher, words, wanted):
    _, (problem,) = read(launcher, *words.split())
    assert wanted in problem
