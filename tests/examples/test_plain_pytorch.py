"""The plain loop learns along the schedule."""

import plain_pytorch
import torch
from bars import small_network


def test_it_learns_along_the_schedule():
    torch.manual_seed(0)
    done = list(plain_pytorch.train(small_network()))
    assert [plan.step for plan, _ in done] == list(range(48))
    plan = done[0][0]
    assert (plan.clips, plan.frames, plan.crop, plan.num_bn_groups) == (128, 2, 16, 8)
    plan = done[-1][0]
    assert (plan.clips, plan.frames, plan.crop, plan.num_bn_groups) == (16, 8, 23, 1)
    assert done[0][1] > 0.6
    assert sum(loss for _, loss in done[-5:]) / 5 < 0.1
