"""The scaling study of arXiv 1910.00932."""

import pytest
from kinetics_in_15_minutes import Cluster, Study


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
