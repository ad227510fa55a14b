"""What a network sees at each shape: the tiny run against a plain evaluation, and the advice by hand."""

import shlex
from dataclasses import replace

import pytest
import simplejson
import torch
from tiny import data_keys, tiny_config
from torch import nn

from mgexp.data.loader import build_view_loader
from mgexp.dist import Processes
from mgexp.multigrid.recipe import LONG_SHORT, Recipe
from mgexp.multigrid.schedule import StepShape
from mgexp.multigrid.shapes import long_cycle
from mgexp.plan.accuracy_by_shape import (
    build_evaluation,
    build_shape_findings,
    chance_of,
    leaving_finding,
    share_kept,
    strides,
)
from mgexp.run.folder import RunDir
from mgexp.train.evaluate import Evaluation
from mgexp.train.predict import build_predictor
from mgexp.train.setup import build_inputs

CPU = torch.device("cpu")
RECIPE = Recipe(8, 16, 64, 2, (64, 80), 0.1, (0, 2), 4)
SIZES = [(4, 32), (4, 45), (8, 32), (8, 45), (8, 64), (16, 32), (16, 45), (16, 64)]
"""All shapes of long+short with 16 frames of 64 pixels."""


@pytest.fixture(scope="module")
def run(tiny_data, finished_run, tmp_path_factory):
    """The configuration, the inputs and the model of a finished run."""
    cfg = tiny_config(tmp_path_factory.mktemp("row"), data_keys(tiny_data))
    return cfg, build_inputs(cfg, [], 1), build_predictor(cfg, RunDir(finished_run), CPU)


def test_at_the_full_shape_the_scores_are_those_of_the_finished_model(run):
    """Its statistics were computed from the same clips."""
    cfg, inputs, predictor = run
    views = build_view_loader(cfg, inputs.val, False, CPU, Processes(), inputs.opener)
    with torch.inference_mode():
        logits = [predictor.model(predictor.normalizer(batch.clips)) for batch in views]
    found = build_evaluation(cfg, inputs, predictor, (8, 32))
    torch.testing.assert_close(found.scores, torch.cat(logits).softmax(1), rtol=1e-4, atol=1e-5)


def test_a_network_that_predicts_is_exported_as_it_was_made(run):
    """The dilation that training sets on a CPU would go into the files of tools/export.py."""
    _, _, predictor = run
    convolutions = [one for one in predictor.model.modules() if isinstance(one, nn.Conv3d)]
    assert {one.dilation for one in convolutions} == {(1, 1, 1)}


def test_a_coarse_shape_has_statistics_of_its_own_and_the_model_keeps_its(run):
    """By hand: the clips of the shape set the statistics, and then the views of the shape are scored."""
    cfg, inputs, predictor = run
    before = {name: value.clone() for name, value in predictor.model.state_dict().items()}
    found = build_evaluation(cfg, inputs, predictor, (2, 23))
    keys = replace(cfg.DATA, NUM_FRAMES=2, TRAIN_CROP_SIZE=23, SAMPLING_RATE=4)
    coarse = replace(cfg, DATA=keys)
    views = build_view_loader(coarse, inputs.val, False, CPU, Processes(), inputs.opener)
    with torch.inference_mode():
        logits = [predictor.model(predictor.normalizer(batch.clips)) for batch in views]
    assert found.scores.shape == (8, 2)
    assert not torch.allclose(found.scores, torch.cat(logits).softmax(1), atol=1e-3)
    after = predictor.model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_every_shape_of_the_schedule_has_a_line_and_the_last_line_is_the_advice(
    run, finished_run, monkeypatch
):
    """90 % at the full shape, 60 % at all others; two classes of 4 videos each, so chance is 50 %."""
    cfg, inputs, _ = run

    def evaluation(_cfg, _inputs, _predictor, size):
        metrics = {"top1": 90.0 if size == (8, 32) else 60.0, "top5": 100.0}
        return Evaluation(metrics, 0.5, torch.zeros(8, 2), torch.tensor([0, 1] * 4))

    monkeypatch.setattr("mgexp.plan.accuracy_by_shape.build_evaluation", evaluation)
    seconds = {StepShape(2, 23, 32, 8): 0.64}
    *lines, advice = build_shape_findings(cfg, inputs, RunDir(finished_run), seconds)
    found = {(line.values["frames"], line.values["crop"]): line for line in lines}
    assert next(iter(found)) == (8, 32) and found.keys() == strides(inputs.schedule).keys()
    assert found[8, 32].values["kept"] == 1.0
    wanted = {"frames": 2, "crop": 23, "top1": 60.0, "kept": 0.25, "clip_seconds": 0.02}
    assert found[2, 23].values == wanted
    assert found[2, 23].found == (
        "top-1 60.0 %, keeps 25% of what is above chance; a training clip takes 0.02 s"
    )
    assert {line.status for size, line in found.items() if size != (8, 32)} == {"warning"}
    assert found[8, 32].status == "OK"
    assert advice.remedy == "train the baseline: without these shapes only its own is left"


def test_coarse_clips_show_as_much_time_as_full_ones(run):
    _, inputs, _ = run
    assert strides(inputs.schedule)[8, 32] == 1
    assert strides(inputs.schedule)[2, 23] == 4


def test_chance_is_the_most_frequent_class():
    assert chance_of(torch.tensor([0, 2, 2, 1])) == 0.5
    # Many labels: 3 of 4 and 1 of 4 videos; no video has the third class.
    labels = torch.tensor([[1.0, 0, 0], [1, 1, 0], [1, 0, 0], [0, 0, 0]])
    assert chance_of(labels) == 0.5


def test_the_share_kept_is_that_above_chance():
    assert share_kept(40.0, best=90.0, chance=10.0) == pytest.approx(30 / 80)
    assert share_kept(5.0, best=90.0, chance=10.0) == 0.0
    assert share_kept(50.0, best=10.0, chance=10.0) == 0.0


def kept_but(*lost):
    """A network that keeps too little at the ``lost`` sizes."""
    return {size: 0.4 if size in lost else 1.0 for size in SIZES}


SMALL = [(frames, 32) for frames in (4, 8, 16)]
MIDDLE = [(frames, 45) for frames in (4, 8, 16)]


@pytest.mark.parametrize(
    ("lost", "keys"),
    [
        ([(4, 45)], "LONG_CYCLE_FACTORS '[[0.5,0.70711],[0.5,1],[1,1]]'"),
        ([(4, 32)], "SHORT_CYCLE_FACTORS '[0.70711]'"),
        # Without the shape of 4 x 45 no phase has 4 frames, so the short cycle stays.
        ([(4, 45), (4, 32)], "LONG_CYCLE_FACTORS '[[0.5,0.70711],[0.5,1],[1,1]]'"),
        # 8 x 45 also comes from 8 x 64 by the short cycle.
        (
            [(8, 45)],
            "LONG_CYCLE_FACTORS '[[0.25,0.70711],[0.5,1],[1,1]]' MULTIGRID.SHORT_CYCLE_FACTORS '[0.5]'",
        ),
        (SMALL, "SHORT_CYCLE_FACTORS '[0.70711]'"),
        (SMALL + MIDDLE, "LONG_CYCLE_FACTORS '[[0.5,1],[1,1]]' MULTIGRID.SHORT_CYCLE False"),
        ([(4, 45), *MIDDLE[1:2], (8, 64)], "LONG_CYCLE False"),
    ],
)
def test_lost_shapes_are_left_out_of_the_keys(lost, keys):
    found = leaving_finding(RECIPE, LONG_SHORT, kept_but(*lost))
    assert (found.status, found.remedy) == ("warning", f"MULTIGRID.{keys}")
    assert ", ".join(f"{t} x {s}²" for t, s in sorted(lost)) in found.found


def test_crops_of_the_phase_are_left_out_too():
    """Half of the crop of 4 x 45 is 4 x 23."""
    multigrid = replace(LONG_SHORT, short_crops_of="phase")
    found = leaving_finding(RECIPE, multigrid, {**kept_but(), (4, 23): 0.0})
    assert found.remedy == "MULTIGRID.SHORT_CYCLE_FACTORS '[0.70711]'"


def test_keys_of_the_advice_make_a_schedule():
    """Without 8 x 45. The factor of the short cycle that gives it also gives 16 x 45."""
    words = shlex.split(leaving_finding(RECIPE, LONG_SHORT, kept_but((8, 45))).remedy)
    keys = {key: simplejson.loads(text) for key, text in zip(words[::2], words[1::2], strict=True)}
    longs, shorts = (keys[f"MULTIGRID.{name}_CYCLE_FACTORS"] for name in ("LONG", "SHORT"))
    cycles = long_cycle(RECIPE.frames, RECIPE.crop, longs, shorts)
    shapes = {(one.frames, one.crop) for cycle in cycles for one in cycle.shapes}
    assert shapes == {(4, 32), (4, 45), (8, 32), (8, 64), (16, 32), (16, 64)}


def test_thirds_of_the_frames_are_printed_with_all_digits():
    recipe = replace(RECIPE, frames=24)
    row = replace(
        LONG_SHORT, long_factors=((1 / 6, 1.0), (1 / 3, 1.0), (1.0, 1.0)), short_factors=()
    )
    kept = {(4, 64): 0.4, (8, 64): 1.0, (24, 64): 1.0}
    (_, text) = shlex.split(leaving_finding(recipe, row, kept).remedy)
    assert simplejson.loads(text) == [[1 / 3, 1], [1, 1]]


def test_nothing_is_left_out_of_what_is_seen():
    found = leaving_finding(RECIPE, LONG_SHORT, kept_but())
    assert (found.status, found.remedy) == ("OK", "")
    assert found.found == "the network keeps 50% or more at every shape"


def test_a_network_that_learned_nothing_says_nothing_of_shapes():
    found = leaving_finding(RECIPE, LONG_SHORT, dict.fromkeys(SIZES, 0.0))
    assert found.found == "at the full shape the network is not above chance"
