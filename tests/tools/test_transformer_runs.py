"""Runs of a transformer through all shapes: resumed in each phase, compiled, and checked before they start."""

import json
import re

import pytest
import torch
from run_files import assert_same, read_lines, stop_in
from tiny import RECIPE_OF_TRANSFORMERS, VIT, command, data_keys, run_net, write_config

from mgexp.config.load import load_config
from mgexp.multigrid.schedule import step_counts
from mgexp.run.folder import RunDir
from mgexp.run.torch_file import load_torch
from mgexp.train.setup import build_row_schedule


@pytest.fixture(
    scope="module", params=[pytest.param("rotary", marks=pytest.mark.slow), "whole recipe"]
)
def vit_cfg(request, tiny_data, tmp_path_factory):
    keys = {**data_keys(tiny_data), **VIT}
    if request.param == "whole recipe":
        keys |= RECIPE_OF_TRANSFORMERS
        keys |= {"AUG.RANDAUGMENT_OPS": 2, "AUG.COLOR_JITTER": 0.4, "AUG.RE_PROB": 0.5}
    if request.param == "rotary":
        keys["VIT.POSITIONS"] = "rotary"
        # More clips in a mini-batch need more epochs for as many steps.
        keys |= {"MULTIGRID.BATCH_RATIO": "macs", "MULTIGRID.BN_BASE_SIZE": 0}
        keys |= {"SOLVER.STEPS": [0, 9], "SOLVER.MAX_EPOCH": 12}
    return write_config(tmp_path_factory.mktemp("vit") / "tiny.yaml", keys)


@pytest.fixture(scope="module")
def whole(vit_cfg, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert run_net().main(command(vit_cfg, folder)) == 0
    return folder


def test_a_run_that_stops_in_a_phase_ends_with_the_same_bits(vit_cfg, whole, tmp_path, main):
    """All phases: test_kills.py. Workers draw the same augmentation."""
    phases = build_row_schedule(load_config(vit_cfg), 24).phases
    assert len(phases) >= 5
    shapes = {(line["frames"], line["crop"]) for line in read_lines(whole / "metrics.jsonl")}
    assert len(shapes) >= 6
    phase = phases[len(phases) // 2]
    arguments = command(vit_cfg, tmp_path / "run", "DATA_LOADER.NUM_WORKERS", 2)
    stop_in((phase.start_step + phase.end_step) // 2, main, arguments)
    assert main(arguments) == 0
    assert_same(tmp_path / "run", whole)


def test_the_average_of_the_weights_is_evaluated_and_saved(vit_cfg, whole):
    (last,) = sorted(whole.glob("checkpoints/*.pt"))[-1:]
    saved, final = load_torch(last), load_torch(RunDir(whole).model)
    is_averaged = load_config(vit_cfg).TRAIN.EMA_DECAY > 0
    source, other = ("average", "model") if is_averaged else ("model", "model")
    name = "blocks.0.qkv.weight"
    assert torch.equal(final[name], saved[source][name])
    assert torch.equal(final[name], saved[other][name]) != is_averaged


@pytest.mark.slow
def test_a_compiled_run_has_a_graph_for_each_shape_and_says_the_seconds(
    tiny_data, tmp_path, main, caplog
):
    keys = {"VIT.DEPTH": 1, "VIT.POSITIONS": "rotary", "TRAIN.COMPILE": "default"}
    keys |= {"MULTIGRID.SHORT_CYCLE": False, "MULTIGRID.LONG_CYCLE_FACTORS": [[0.5, 0.7], [1, 1]]}
    cfg = write_config(tmp_path / "row.yaml", {**data_keys(tiny_data), **VIT, **keys})
    shapes = step_counts(build_row_schedule(load_config(cfg), 24))
    assert len(shapes) == 2
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    with caplog.at_level("INFO"):
        assert main(command(cfg, tmp_path / "run")) == 0
    assert counters["stats"]["unique_graphs"] == len(shapes)
    (said,) = re.findall(r"compiled the network for 2 shapes in ([\d.]+) seconds", caplog.text)
    recorded = json.loads((tmp_path / "run" / "result.json").read_text())["seconds"]
    assert 0 < float(said) <= recorded["shape_warmup"] + 0.1
    torch._dynamo.reset()
