"""Which results count, and which pairs are made; by hand."""

from __future__ import annotations

import pytest
from fake_experiments import CPU, GPU, result

from mgexp.results.counted import Measured, Versus, count

SETTING = (CPU, "fp32", 960)


def scores(found):
    return {
        name: [(one.setting[0], dict(zip(one.runs, one.scores, strict=True))) for one in ones]
        for name, ones in found.measured.items()
    }


def test_of_the_same_row_seed_and_device_the_newest_counts_wherever_its_line_is():
    new = result("q/x", 0, 92.0, commit="b" * 40, date="2026-11-22T12:00:00+00:00")
    old = result("q/x", 0, 91.0, date="2026-11-21T12:00:00+00:00")
    found = count([new, old, result("q/x", 1, 93.0)])
    assert scores(found) == {"q/x": [(CPU, {0: 92.0, 1: 93.0})]}
    assert found.older == (old,)


def test_dates_are_compared_as_moments():
    early = result("q/x", 0, 91.0, date="2026-11-21T13:00:00+02:00")  # 11:00 UTC
    late = result("q/x", 0, 92.0, date="2026-11-21T12:00:00+00:00")
    assert scores(count([late, early])) == {"q/x": [(CPU, {0: 92.0})]}


def test_of_equally_new_results_the_last_line_counts():
    found = count([result("q/x", 0, 91.0), result("q/x", 0, 92.0)])
    assert scores(found) == {"q/x": [(CPU, {0: 92.0})]}


@pytest.mark.parametrize(
    "other", [{"device": GPU}, {"precision": "bf16"}, {"num_train_videos": 480}]
)
def test_other_settings_stand_beside_each_other(other):
    found = count([result("q/x", 0, 91.0), result("q/x", 0, 92.0, **other)])
    assert len(found.measured["q/x"]) == 2
    assert found.older == ()
    (changed,) = (one for one in found.measured["q/x"] if one.setting != SETTING)
    assert changed.scores == (92.0,)


def test_seeds_of_another_recipe_do_not_count():
    before = result("q/x", 1, 50.0, steps=1500, date="2026-11-20T12:00:00+00:00")
    found = count([before, result("q/x", 0, 48.0, steps=375)])
    assert scores(found) == {"q/x": [(CPU, {0: 48.0})]}
    assert found.of_another_recipe == (before,)


def test_a_row_in_a_setting_is_found():
    found = count([result("q/x", 0, 91.0)])
    assert found.of("q/x", SETTING).scores == (91.0,)
    assert found.of("q/x", (GPU, "fp32", 960)) is None
    assert found.of("q/y", SETTING) is None


def versus(base, own):
    both = count([*base, *own])
    (base_measured,), (own_measured,) = both.measured["q/base"], both.measured["q/own"]
    return Versus(base_measured, own_measured)


def test_runs_of_the_same_seed_are_pairs():
    base = [result("q/base", seed, 90.0 + seed, train_seconds=200.0) for seed in (0, 1, 2)]
    own = [result("q/own", seed, 89.0, train_seconds=100.0, train_flops=5e13) for seed in (1, 2, 3)]
    found = versus(base, own)
    assert found.seeds == (1, 2)
    assert found.difference.mean == pytest.approx((-2 - 3) / 2)
    assert found.time_ratios == (2.0, 2.0)
    assert found.flop_ratios == (2.0, 2.0)
    assert found.time_interval == pytest.approx((2.0, 2.0))
    assert found.is_one_sitting


def test_pairs_of_other_commits_are_known():
    base = [result("q/base", 0), result("q/base", 1)]
    own = [result("q/own", 0), result("q/own", 1, commit="d" * 40)]
    assert not versus(base, own).is_one_sitting


@pytest.mark.parametrize(
    ("train_seconds", "date", "is_one"),
    [
        # From the end at 12:00 to a start 125 s before the date.
        (100.0, "2026-11-21T13:02:05+00:00", True),
        (100.0, "2026-11-21T13:02:06+00:00", False),
        (100.0, "2026-11-21T10:57:55+00:00", True),  # run before its base
        (100.0, "2026-11-21T10:57:54+00:00", False),
        # 20,025 s each: the other may begin 40,050 s after the end.
        (20_000.0, "2026-11-22T04:41:15+00:00", True),
        (20_000.0, "2026-11-22T04:41:16+00:00", False),
    ],
)
def test_a_sitting_is_an_hour_or_as_long_as_the_runs(train_seconds, date, is_one):
    base = [result("q/base", 0, train_seconds=train_seconds)]
    own = [result("q/own", 0, train_seconds=train_seconds, date=date)]
    assert versus(base, own).is_one_sitting == is_one


def test_nothing_to_compare_is_no_pair():
    own = Measured(SETTING, count([result("q/own")]).measured["q/own"][0].runs)
    found = Versus(Measured(SETTING, {}), own)
    assert (found.pairs, found.difference, found.time_interval) == ((), None, None)
