"""Which operators a step runs, and how they are listed."""

import torch
from operators import OperatorTime, operator_table, operator_times

CPU = torch.device("cpu")


def test_operators_are_those_of_one_step_and_the_slowest_is_first():
    large, small = torch.randn(300, 300), torch.randn(3, 3)

    def step():
        for _ in range(3):
            large.mm(large)
        small.exp()

    found = operator_times(step, CPU)
    calls = {one.name: one.calls for one in found}
    assert (calls["aten::mm"], calls["aten::exp"]) == (3, 1)
    assert found[0].name == "aten::mm"
    assert found[0].milliseconds > 0


def test_the_table_has_the_slowest_operators_and_the_sum_of_all():
    times = (
        OperatorTime("a" * 100, 3.0, 1),
        OperatorTime("b", 1.25, 2000),
        OperatorTime("c", 1, 1),
    )
    lines = operator_table(times, num_lines=2).splitlines()
    assert [line.split() for line in lines] == [
        ["operator", "ms", "calls"],
        ["a" * 80, "3.0", "1"],
        ["b", "1.2", "2,000"],
        ["all", "3", "5.2", "2,002"],
    ]
