"""The scaling study of arXiv 1910.00932."""

from pathlib import Path

import pytest
from kinetics_in_15_minutes import (
    SLOWFAST_GMACS,
    Cluster,
    Study,
    value,
)

from mgexp.config.load import load_config
from mgexp.models.build import build_model
from mgexp.models.cost import macs_by_shape, num_params

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def study():
    return Study(Cluster())


def test_the_fit_meets_the_point_of_six_gpus(study):
    assert study.tsm_seconds(6, study.clip_seconds) == pytest.approx(49 * 3600 + 55 * 60)


def test_1536_gpus_are_predicted_within_15_percent(study):
    assert abs(study.error) < 0.15


def test_long_short_saves_on_any_number_of_gpus(study):
    for point in study.curve():
        ratio = point["slowfast_baseline_seconds"] / point["slowfast_long_short_seconds"]
        assert 3.2 < ratio < 3.6  # 3.42 times fewer steps


@pytest.fixture(scope="module")
def row():
    return load_config(ROOT / "experiments/main/k400_slowfast_8x8_r50/long_short.yaml")


@pytest.mark.slow
def test_the_constants_of_slowfast_are_those_of_its_model(row):
    model = build_model(row)
    assert num_params(model) == value("slowfast_params")
    macs = macs_by_shape(model, [(8, 112), (16, 158)])
    assert {shape: round(number / 1e9, 3) for shape, number in macs.items()} == {
        shape: SLOWFAST_GMACS[shape] for shape in macs
    }


@pytest.mark.slow
def test_the_constants_of_tsm_are_those_of_its_model(row):
    path = ROOT / "experiments/main/k400_slowfast_8x8_r50/baseline.yaml"
    model = build_model(load_config(path, ["MODEL.MODEL_NAME", "TSM"]))
    assert num_params(model) == value("tsm_params")
    macs = macs_by_shape(model, [(8, 224)])
    assert round(macs[8, 224] / 1e9, 3) == value("tsm_gmacs")
