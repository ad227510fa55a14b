"""The rows of large batches: what varies between them, and that nothing else does."""

from pathlib import Path

import pytest

from mgexp.config.load import flatten, load_config

FOLDER = Path(__file__).parents[2] / "experiments" / "large_batch"
METHODS = ("sgd", "lars", "lamb", "pmd_lamb")


def values(name):
    """Every key of a row."""
    return dict(flatten(load_config(FOLDER / f"{name}.yaml")))


def changed(name, parent):
    """Keys, and their values, in which a row differs from another, but for its name."""
    found, before = values(name), values(parent)
    return {key: found[key] for key in found if key != "ROW" and found[key] != before[key]}


def test_the_row_of_sgd_is_the_quickstart():
    assert changed("sgd_1x", "../quickstart/baseline") == {}


@pytest.mark.parametrize("method", METHODS)
def test_the_rate_is_linear_in_the_clips_up_to_8_times(method):
    rate = values(f"{method}_1x")["SOLVER.BASE_LR"]
    assert changed(f"{method}_8x", f"{method}_1x") == {
        "TRAIN.BATCH_SIZE": 64,
        "SOLVER.BASE_LR": pytest.approx(8 * rate),
    }
    assert changed(f"{method}_16x", f"{method}_8x") == {"TRAIN.BATCH_SIZE": 128}


@pytest.mark.parametrize("times", [8, 16])
def test_or_by_the_square_root_for_lamb(times):
    rate = values("lamb_1x")["SOLVER.BASE_LR"]
    found = changed(f"lamb_{times}x_sqrt", f"lamb_{times}x")
    assert found == {"SOLVER.BASE_LR": pytest.approx(times**0.5 * rate)}


@pytest.mark.parametrize("times", [1, 8, 16])
def test_pmd_lamb_differs_from_lamb_in_that_alone(times):
    found = changed(f"pmd_lamb_{times}x", f"lamb_{times}x")
    assert found == {"SOLVER.OPTIMIZING_METHOD": "pmd_lamb"}


@pytest.mark.parametrize(("times", "period"), [(8, 25), (16, 13)])
def test_a_period_has_as_many_clips_as_200_steps_of_8(times, period):
    found = changed(f"pmd_lamb_{times}x_period{period}", f"pmd_lamb_{times}x")
    assert found == {"SOLVER.PMD_PERIOD": period}
    assert period == -(-200 // times)


def test_every_row_is_tested():
    rows = {f"{method}_{times}x" for method in METHODS for times in (1, 8, 16)}
    rows |= {"pmd_lamb_8x_period25", "pmd_lamb_16x_period13", "lamb_8x_sqrt", "lamb_16x_sqrt"}
    assert {path.stem for path in FOLDER.glob("*.yaml")} == rows
