"""bench_step.py: what it measures of a tiny row, and its exit codes."""

from functools import partial

import pytest
import simplejson
import torch
from peak import Peak
from tiny import load_tool, write_config


@pytest.fixture
def bench(monkeypatch):
    module = load_tool("bench_step")
    quick = partial(module.measure_peak, min_seconds=0, num_repeats=1)
    monkeypatch.setattr(module, "measure_peak", quick)
    return module


@pytest.fixture
def arguments(tmp_path):
    cfg = write_config(tmp_path / "tiny.yaml", {})
    small = ("--steps", "2", "--warmup", "1")
    return lambda *others: ["--cfg", str(cfg), *small, *map(str, others)]


@pytest.mark.slow
def test_it_measures_every_way_at_the_base_shapes(bench, arguments, tmp_path):
    output = tmp_path / "steps.json"
    assert bench.main(arguments("--base-shapes", "--output", output)) == 0
    found = simplejson.loads(output.read_text())
    shapes = [(s["clips"], s["frames"], s["crop"], s["num_bn_groups"]) for s in found["shapes"]]
    assert shapes == [(32, 2, 23, 8), (16, 4, 23, 4), (8, 4, 32, 2), (4, 8, 32, 1)]
    for shape in found["shapes"]:
        assert list(shape["ways"]) == ["ours", "plain", "one_group"]
        assert all(len(way["seconds"]) == 2 for way in shape["ways"].values())
        assert shape["bytes_per_step"] > 10**6
    assert found["environment"]["commit"]
    assert found["batch_size"] == 4


def test_the_json_is_printed_alone_and_the_batch_size_is_ours(bench, arguments, capsys):
    ways = ("--batch-size", 8, "--ways", "ours", "--operators", "--json")
    assert bench.main(arguments("MULTIGRID.LONG_CYCLE", "False", *ways)) == 0
    found = simplejson.loads(capsys.readouterr().out)
    # The short cycle of the full shape, with BN groups of 4 clips of its own.
    assert [s["clips"] for s in found["shapes"]] == [32, 16, 8]
    assert [s["is_base"] for s in found["shapes"]] == [False, False, True]
    for shape in found["shapes"]:
        assert list(shape["ways"]) == ["ours"]
        calls = {one["name"]: one["calls"] for one in shape["operators"]}
        assert calls["aten::max_pool3d_with_indices"] == 2  # one in each pathway


def test_it_measures_in_the_precision_of_the_row(bench, arguments, monkeypatch):
    types = []  # the peak itself takes minutes on a CPU without bf16
    monkeypatch.setattr(
        bench, "measure_peak", lambda _, dtype: types.append(dtype) or Peak(1e12, 1e12, 1e11)
    )
    ways = ("--ways", "ours", "--shapes", "2x23", "TRAIN.PRECISION", "bf16")
    assert bench.main(arguments(*ways)) == 0
    assert types == [torch.bfloat16] * 2


def test_flops_are_three_forward_passes_of_every_clip(bench, arguments, monkeypatch):
    monkeypatch.setattr(bench, "count_macs", lambda _, shapes: dict.fromkeys(shapes, 7))
    cfg, schedule = bench.read(bench.parse(arguments()))
    shape = bench.base_shapes(schedule)[0]
    costs = bench.costs_of(cfg, (shape,))
    assert costs["flops"] == {shape: 32 * 7 * 2 * 3}
