"""Recipes and settings that have no meaning are refused, each with one message."""

import math
from dataclasses import replace

import pytest
from recipes import HALF_AREA, LONG, SHORT, TINY

from mgexp.multigrid.recipe import Multigrid


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clips": 0}, r"recipe\.clips = 0 is less than 1"),
        ({"crop": -8}, r"recipe\.crop = -8 is less than 1"),
        ({"warmup_epochs": math.nan}, r"recipe\.warmup_epochs = nan is not a finite number"),
        ({"base_lr": math.inf}, r"recipe\.base_lr = inf is not a finite number"),
        ({"stage_epochs": (0, math.nan)}, r"recipe\.stage_epochs = \(0, nan\) is not a finite"),
        ({"stride": 0}, r"recipe\.stride = 0 is less than 1"),
        ({"policy": "step"}, r"recipe\.policy = 'step' is none of steps_with_relative_lrs, cosine"),
    ],
)
def test_a_recipe_of_impossible_numbers_is_an_error(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(TINY, **changes)


@pytest.mark.parametrize("noise_scale", [None, 0.0])
def test_scaling_by_an_unknown_noise_is_an_error(noise_scale):
    with pytest.raises(ValueError, match=r"noise needs multigrid\.noise_scale"):
        Multigrid(lr_scaling="noise", noise_scale=noise_scale)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"granularity": "epochs"}, "granularity = 'epochs' is none of step, epoch"),
        ({"long_cycle_per": "run"}, "long_cycle_per = 'run' is none of stage, training"),
        ({"short_crops_of": "base"}, "short_crops_of = 'base' is none of full, phase"),
        ({"shape_order": "fine_to_coarse"}, "is none of coarse_to_fine, random"),
        ({"lr_scaling": "square"}, "lr_scaling = 'square' is none of linear, sqrt, noise, none"),
        (
            {"weight_decay_scaling": "noise"},
            "weight_decay_scaling = 'noise' is none of linear, sqrt, none",
        ),
        ({"long_factors": ()}, "long_factors is empty"),
        ({"epoch_factor": 0.0}, "epoch_factor = 0.0 is not a finite number above 0"),
        ({"epoch_factor": math.nan}, "epoch_factor = nan is not a finite number above 0"),
        ({"max_batch_ratio": 0}, "max_batch_ratio = 0 is less than 1"),
        ({"bn_base_size": -8}, "bn_base_size = -8 is less than 0"),
    ],
)
def test_settings_without_a_meaning_are_an_error(changes, message):
    with pytest.raises(ValueError, match=f"multigrid.*{message}"):
        Multigrid(**changes)


def test_long_cycle_with_fine_tuning_ends_with_the_full_shape():
    with pytest.raises(ValueError, match=rf"ends with the full shape.*{HALF_AREA}"):
        Multigrid(LONG[:2], SHORT, fine_tuning=True)


@pytest.mark.parametrize(
    ("stages", "message"),
    [((1, 2), "starts at epoch 0"), ((0, 2, 2), r"\(0, 2, 2, 4\)"), ((0, 4), r"\(0, 4, 4\)")],
)
def test_stages_that_are_not_in_order_are_an_error(stages, message):
    with pytest.raises(ValueError, match=message):
        replace(TINY, stage_epochs=stages)
