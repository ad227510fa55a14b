"""Numbers and names as text, and verdicts on results chosen by hand."""

import re
from dataclasses import replace

import pytest
from fake_experiments import result

from mgexp.results.comparison import Estimate, Pair, Row, estimate_ratio
from mgexp.results.render import (
    deviation_text,
    interval_text,
    mean_text,
    points_text,
    ratio_text,
    seeds_text,
    times_text,
    verdict,
)
from mgexp.results.report import to_html


def test_numbers_have_their_range():
    assert mean_text([]) == ratio_text(None) == seeds_text([]) == "–"
    assert mean_text([1000.0, 1000.2]) == "1,000"
    assert mean_text([93.5, 92.9], 2) == "93.20 (92.90–93.50)"
    # The geometric mean of 2, 2.5 and 10 is the third root of 50.
    assert ratio_text(estimate_ratio([2.0, 2.5, 10.0])) == "3.68× (2.00–10.00)"
    assert deviation_text([97.0]) == "97.00"
    assert deviation_text([96.0, 98.0]) == "97.00 ± 1.41"
    assert points_text(-0.4) == "−0.40"
    assert interval_text(None) == times_text(None) == "–"


def versus(base, own, **changes):
    """Scores of seeds 0, 1, …; the runs take 100 s, or as `changes` say."""
    return Pair(
        Row("own", {seed: result("q/own", seed, top1, **changes) for seed, top1 in enumerate(own)}),
        Row("base", {seed: result("q/base", seed, top1) for seed, top1 in enumerate(base)}),
    )


@pytest.mark.parametrize(
    ("base", "own", "seconds", "said"),
    [
        # Differences −1, −1.2, −0.8: mean −1, deviation 0.2, half a width of 0.5.
        ((90, 90, 90), (89.0, 88.8, 89.2), 50, "loses 1.00 points, 2.00× faster"),
        ((90, 90, 90), (91.0, 91.2, 90.8), 200, "gains 1.00 points, 2.00× slower"),
        ((90, 91), (90, 91), 100, "no difference seen, as fast"),
    ],
)
def test_losses_and_gains_are_said_alike(base, own, seconds, said):
    assert verdict(versus(base, own, train_seconds=seconds)).endswith(said)


def test_a_speed_up_that_varies_may_be_chance():
    # Ratios 2 and 0.8: logarithms 0.693 and −0.223; with 12.706 for one degree the interval holds 0.
    base = {seed: result("q/base", seed) for seed in (0, 1)}
    own = {seed: result("q/own", seed, train_seconds=s) for seed, s in enumerate((50.0, 125.0))}
    one = Pair(Row("own", own), Row("base", base))
    # The mean is √1.6. The error of the logarithms is 0.45815, half a width 5.8212, and e^6.0562 = 426.75.
    said = "no difference seen, 1.26× faster, which may be chance (0.00× to 426.75×)"
    assert verdict(one) == said


def test_an_interval_of_a_difference_ends_at_100_points():
    found = Estimate((-90.0, 10.0), -40.0, (-107.34, 21.84))
    assert interval_text(found) == "−100.00 to +21.84"
    assert interval_text(replace(found, interval=(-20.0, 120.0))) == "−20.00 to +100.00"


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "<b>bold</b>", "[a](javascript:alert(1))", "<http://a.b>"]
)
def test_names_stay_text(name):
    page = to_html(f"# runs\n\n- {name}: not run.\n\n{name}\n", [])
    body = page.split("<body>")[1].rpartition("<script>")[0]
    assert not re.search(r"<(script|b|a)\b", body)
