"""The processes of a run, alone and two of them over gloo."""

import pytest
import torch
from several_processes import in_processes

from mgexp import dist
from mgexp.dist import Processes, device_problems
from mgexp.errors import InputError

CPU = torch.device("cpu")
VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ((), Processes(0, 1, 0)),
        (("5", "8", "1", "4"), Processes(5, 8, 1, 4)),
        # Where nothing is said, all processes are of this machine.
        (("5", "8", "1"), Processes(5, 8, 1, 8)),
    ],
)
def test_torchrun_says_who_is_who(values, wanted, monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in zip(VARIABLES, values, strict=False):
        monkeypatch.setenv(name, value)
    assert dist.from_environment() == wanted


@pytest.mark.parametrize(
    ("rank", "count", "is_shared", "said"),
    [
        (None, None, False, None),
        ("0", "2", True, None),
        # A run of one process may be started by torchrun too.
        ("0", "1", False, None),
        (None, None, True, "no RANK is set"),
        ("1", "2", False, "2 processes were started (WORLD_SIZE), and each would train alone"),
    ],
)
def test_processes_that_would_train_alone_are_told(rank, count, is_shared, said, monkeypatch):
    for name, value in (("RANK", rank), ("WORLD_SIZE", count)):
        monkeypatch.delenv(name, raising=False)
        if value:
            monkeypatch.setenv(name, value)
    found = [*dist.launcher_problems(is_shared)]
    assert len(found) == bool(said)
    assert all(said in one for one in found)


def problem_of(processes, own):
    """What is said where ``own`` differs."""
    try:
        dist.check_same(processes, own, "the list")
    except InputError as error:
        return error.problems[0]
    return ""


def gradient(processes, rank, in_bf16):
    """The gradient that the processes share, if their own are 1 and 1 + 2⁻¹⁰."""
    layer = torch.nn.Linear(1, 1, bias=False)
    model = dist.shared(processes, layer, in_bf16=in_bf16)
    model(torch.tensor([[1 + rank * 2**-10]])).sum().backward()
    return layer.weight.grad.item()


def together(processes, folder):
    """What one of two processes finds."""
    rank = processes.rank
    layer = torch.nn.Linear(1, 1)
    torch.nn.init.constant_(layer.weight, 10.0 + rank)
    dist.shared(processes, layer)
    return (
        dist.sum_(processes, torch.tensor([1.0 + rank])).item(),
        dist.max_(processes, torch.tensor([1.0 + rank])).item(),
        dist.mean_(processes, torch.tensor([1.0 + rank])).item(),
        problem_of(processes, f"list {rank}"),
        problem_of(processes, "list 0"),
        dist.any_true(processes, (rank == 1, False, True), CPU),
        dist.merge(processes, {rank: f"from {rank}", 7: "from both"}),
        layer.weight.item(),
        *(gradient(processes, rank, in_bf16) for in_bf16 in (False, True)),
    )


@pytest.mark.slow
def test_two_processes_find_the_same(tmp_path):
    merged = {0: "from 0", 7: "from both", 1: "from 1"}
    differs = "the list of process 0 is list 0, of process 1 it is list 1"
    wanted = (
        *(3.0, 2.0, 1.5, differs, ""),
        # The mean of 1 and 1 + 2⁻¹⁰ is exact in fp32. In bf16, which has 8 bits, 1 + 2⁻¹⁰ is 1.
        *((True, False, True), merged, 10.0, 1 + 2**-11, 1.0),
    )
    assert in_processes(together, 2, tmp_path) == [wanted, wanted]


def test_a_gpu_that_was_asked_for_must_be_there():
    (problem,) = device_problems("cuda", 0)
    assert "DEVICE" in problem
    assert [*device_problems("cuda", 1), *device_problems("auto", 0)] == []


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_each_process_needs_a_gpu(device):
    (problem,) = device_problems(device, 2, num_processes=4)
    assert problem.startswith("4 processes need as many GPUs")
    fitting = ((device, 4), ("cpu", 2), ("auto", 0))
    assert [
        one for name, num in fitting for one in device_problems(name, num, num_processes=4)
    ] == []


def test_cuda_graphs_need_a_gpu():
    for device, num_gpus in (("auto", 0), ("cpu", 1)):
        (problem,) = device_problems(device, num_gpus, "cuda_graphs")
        assert problem.startswith("TRAIN.COMPILE = cuda_graphs, but the device is a CPU")
    assert [*device_problems("auto", 1, "cuda_graphs"), *device_problems("cpu", 1)] == []


def test_compiling_on_a_cpu_needs_a_compiler(monkeypatch):
    monkeypatch.setenv("CXX", "no_such_compiler")
    (problem,) = device_problems("cpu", 0, "default")
    assert problem.startswith("TRAIN.COMPILE")
    monkeypatch.setenv("CXX", "ls")
    assert [*device_problems("cpu", 0, "default")] == []
