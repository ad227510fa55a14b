"""Estimates, pairs and controls, worked out by hand; the quantiles by integrating Student's density."""

import math

import numpy as np
import pytest
from fake_experiments import GPU, result

from mgexp.errors import InputError
from mgexp.results.comparison import (
    T_QUANTILES_95,
    Comparison,
    Pair,
    Row,
    estimate_mean,
    estimate_ratio,
    t_quantile_95,
)
from mgexp.results.confusion import Confusion
from mgexp.results.runs import Evaluation


@pytest.mark.parametrize("degrees", [1, 2, 5, 13, 30])
def test_quantiles_leave_2_5_percent_above(degrees):
    quantile = T_QUANTILES_95[degrees - 1]
    log_scale = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)
    scale = math.exp(log_scale) / math.sqrt(degrees * math.pi)
    x = np.linspace(0, quantile, 200_001)
    density = scale * (1 + x**2 / degrees) ** (-(degrees + 1) / 2)
    area = np.sum((density[1:] + density[:-1]) / 2 * np.diff(x))
    assert 0.5 + area == pytest.approx(0.975, abs=2e-5)


def test_interval_of_three_values():
    # Mean -1, standard deviation 1, error 1/sqrt(3) = 0.57735, times 4.303 for 2 degrees.
    difference = estimate_mean([-2.0, -1.0, 0.0])
    assert difference.mean == -1
    assert difference.interval == pytest.approx((-1 - 2.4843, -1 + 2.4843), abs=1e-4)
    assert difference.each == (-2.0, -1.0, 0.0)
    assert difference.holds(0.0)
    assert not difference.holds(2.0)


def test_one_value_has_no_interval_and_none_no_estimate():
    one = estimate_mean([-0.5])
    assert (one.mean, one.interval, one.holds(-0.5)) == (-0.5, None, False)
    assert estimate_mean([]) is None
    assert estimate_ratio([]) is None
    assert estimate_ratio([2.0]).interval is None


@pytest.mark.parametrize(
    ("degrees", "published"),
    [(31, 2.040), (40, 2.021), (50, 2.009), (60, 2.000), (80, 1.990), (100, 1.984), (1000, 1.962)],
)
def test_quantiles_beyond_the_table_are_those_of_the_handbook(degrees, published):
    # NIST/SEMATECH e-Handbook, section 1.3.6.7.2; the table in the code ends with 30.
    assert t_quantile_95(degrees) == pytest.approx(published, abs=5.1e-4)


def test_interval_of_three_ratios():
    # Logarithms 0, 1 and 2: mean 1, standard deviation 1, error 0.57735, times 4.303.
    ratio = estimate_ratio([1.0, math.e, math.e**2])
    low, high = ratio.interval
    assert ratio.mean == pytest.approx(math.e)
    assert math.log(low) == pytest.approx(1 - 4.303 / math.sqrt(3))
    assert math.log(high) == pytest.approx(1 + 4.303 / math.sqrt(3))


def row(name, *runs):
    return Row(name, {run.seed: run for run in runs})


def pair(base, own):
    return Pair(row("own", *own), row("base", *base))


def test_runs_of_the_same_seed_are_compared():
    base = [result("q/base", seed, 90.0 + seed, train_seconds=200.0) for seed in (0, 1, 2)]
    own = [result("q/own", seed, 89.0, train_seconds=100.0, train_flops=5e13) for seed in (1, 2, 3)]
    found = pair(base, own)
    assert found.seeds == (1, 2)
    assert found.difference.each == (-2.0, -3.0)
    assert found.difference.mean == -2.5
    assert found.speed_up.each == found.flop_saving.each == (2.0, 2.0)
    assert found.speed_up.interval == pytest.approx((2.0, 2.0))
    assert found.ratio("steady_seconds").each == (196 / 96, 196 / 96)


@pytest.mark.parametrize("other", [{"precision": "bf16"}, {"num_train_videos": 480}])
def test_runs_with_other_videos_or_precision_are_not_compared_and_are_told(other):
    same = {"environment": {"threads": 2}}
    base = [result("q/base", seed, **same) for seed in (0, 1)]
    own = [result("q/own", 0, **same), result("q/own", 1, **{**same, **other})]
    found = pair(base, own)
    assert found.seeds == (0,)
    assert found.not_compared == ((own[1], base[1]),)


@pytest.mark.parametrize(
    "other",
    [
        {"device": GPU},
        {"environment": {"threads": 1}},
        {"environment": {"threads": 2, "torch": "2.15.0"}},
        {"other_cores": 0.16},
        {"is_untimed": True},
        {"environment": {"threads": "2, then 16"}},
    ],
)
def test_runs_on_another_machine_compare_in_score_and_not_in_seconds(other):
    same = {"environment": {"threads": 2}}
    base = [result("q/base", seed, **same, train_seconds=100.0) for seed in (0, 1)]
    own = [
        result("q/own", 0, **same, train_seconds=50.0),
        result("q/own", 1, **{**same, **other}, train_seconds=10.0),
    ]
    found = pair(base, own)
    assert found.seeds == (0, 1)
    assert found.not_compared == ()
    assert found.speed_up.each == (2.0,)


def evaluation(score, frame_order="forward", *, full=True, views=3):
    return Evaluation(1000, 100.0, score, views, 1200 if full else 240, full, frame_order)


def test_a_control_is_compared_under_the_same_protocol():
    # The last evaluation in training, 1 view of 240 videos, must not be taken for the final one.
    during = evaluation(80.0, full=False, views=1)
    evaluations = (during, evaluation(97.0), evaluation(60.0, "shuffled"))
    run = result("q/base", evaluations=evaluations)
    changed, plain = run.control("shuffled")
    assert (changed.score, plain.score) == (60.0, 97.0)
    assert run.control("repeated") is None
    other_views = (evaluation(97.0), evaluation(60.0, "shuffled", views=1))
    assert result("q/base", evaluations=other_views).control("shuffled") is None


def test_names_of_classes_must_be_enough():
    confusion = Confusion(((2, 2, 4),))
    comparison = Comparison((row("baseline", result("q/baseline", confusion=confusion)),))
    with pytest.raises(InputError, match="runs: "):
        comparison.with_class_names(("open", "close"), "runs")
    assert comparison.with_class_names("abc", "runs").class_names == ("a", "b", "c")
    assert comparison.with_class_names((), "runs") == comparison


def test_seconds_are_those_of_the_machine_of_most_runs():
    runs = {seed: result("q/long", seed, device=name) for seed, name in enumerate("ABA")}
    assert [run.seed for run in Comparison((Row("long", runs),)).in_usual_setting.runs] == [0, 2]
