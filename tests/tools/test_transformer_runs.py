"""Runs of a transformer through all shapes: resumed in each phase, compiled, and checked before they start."""

from __future__ import annotations

import pytest
from run_files import assert_bit_identical, interrupt_in, losses, read_lines, refused
from tiny import VIT, command, data_keys, write_config

from mgexp.config.load import load_config
from mgexp.train.setup import build_row_schedule


@pytest.fixture(scope="module", params=["learned", "rotary"])
def vit_cfg(request, tiny_data, tmp_path_factory):
    keys = {**data_keys(tiny_data), **VIT, "VIT.POSITIONS": request.param}
    if request.param == "rotary":
        # More clips in a mini-batch need more epochs for as many steps.
        keys |= {"MULTIGRID.BATCH_RATIO": "macs", "MULTIGRID.BN_BASE_SIZE": 0}
        keys |= {"SOLVER.STEPS": [0, 9], "SOLVER.MAX_EPOCH": 12}
    return write_config(tmp_path_factory.mktemp("vit") / "tiny.yaml", keys)


@pytest.fixture(scope="module")
def whole(vit_cfg, tmp_path_factory):
    from tiny import run_net

    folder = tmp_path_factory.mktemp("whole") / "run"
    assert run_net().main(command(vit_cfg, folder)) == 0
    return folder


def test_a_run_that_stops_in_any_phase_ends_with_the_same_bits(
    vit_cfg, whole, tmp_path, main, monkeypatch
):
    phases = build_row_schedule(load_config(vit_cfg), 24).phases
    assert len(phases) >= 5
    shapes = {(line["frames"], line["crop"]) for line in read_lines(whole / "metrics.jsonl")}
    assert len(shapes) >= 6
    for phase in phases:
        run = tmp_path / f"{phase.start_step}"
        interrupt_in(phase.start_step, monkeypatch)
        assert main(command(vit_cfg, run)) == 4
        monkeypatch.undo()
        assert main(command(vit_cfg, run)) == 0
        assert_bit_identical(run, whole)
        assert losses(run) == losses(whole)


def test_a_crop_that_does_not_divide_is_refused_before_the_run(vit_cfg, tmp_path, main, capsys):
    message = refused(main, capsys, command(vit_cfg, tmp_path / "run", "VIT.TUBELET", "[2,8,8]"))
    assert "a clip of 2 x 20 x 20 does not divide into tubelets of 2 x 8 x 8" in message
