"""The verdict on a run, its seconds and its FLOPs."""

import logging

import pytest
import torch
from tiny import tiny_config
from torch import nn

from mgexp.errors import InputError
from mgexp.models.build import build_model
from mgexp.models.cost import macs_by_shape, train_flops
from mgexp.run.log import LOGGER
from mgexp.train.result import flops_counter, judge
from mgexp.train.setup import build_row_schedule


@pytest.mark.parametrize(
    ("expected", "verdict"),
    [
        ((), "nothing expected"),
        ((("top1", 74.0, 1.0),), "met"),
        ((("top1", 76.5, 1.0),), "missed"),
        ((("top1", 73.5, 1.0),), "missed"),
        ((("top1", 75.0, 1.0), ("top5", 80.0, 1.0)), "missed"),
        ((("top1", 75.0, 1.0), ("top5", 92.0, 0.0)), "met"),
    ],
)
def test_every_expectation_must_hold(expected, verdict):
    assert judge({"top1": 75.0, "top5": 92.0}, expected) == verdict


class Untraceable(nn.Module):
    """A network that a tracer cannot follow, as one with a compiled function."""

    def __init__(self, network, is_broken=False):
        super().__init__()
        self.network, self.is_broken = network, is_broken

    def forward(self, clips):
        if torch.jit.is_tracing() or self.is_broken:
            raise RuntimeError("cannot be traced")
        return self.network(clips)


def test_a_network_that_cannot_be_traced_is_counted_all_the_same(tmp_path, caplog):
    cfg = tiny_config(tmp_path, {"MULTIGRID.LONG_CYCLE": False})
    schedule, network = build_row_schedule(cfg, 24), build_model(cfg)
    caplog.set_level(logging.WARNING, LOGGER.name)
    wanted = train_flops(schedule, macs_by_shape(network, schedule.sizes))
    # fvcore also counts batch norm and pools, which are a larger share of a tiny network.
    count = flops_counter(Untraceable(network), schedule)
    assert count(schedule.total_steps) == pytest.approx(wanted, rel=0.1)
    assert "fvcore cannot count this network, so torch does" in caplog.text
    with pytest.raises(InputError, match="the FLOPs of a run cannot be counted: a clip of 8 x 16²"):
        flops_counter(Untraceable(network, is_broken=True), schedule)
