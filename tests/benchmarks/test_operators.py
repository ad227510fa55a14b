"""Which operators a step runs, and how they are listed."""

import torch
from operators import operator_times

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
