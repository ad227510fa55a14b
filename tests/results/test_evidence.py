"""Margins, numbers of seeds, single videos and time to target, worked out by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
from fake_experiments import result

from mgexp.results.comparison import (
    Pair,
    Row,
    compare_videos,
    estimate_mean,
    estimate_score,
    grouped_interval,
    half_width,
    judge_margin,
    seconds_to,
    seeds_to_decide,
    speed_up_to,
    wilson_interval,
)
from mgexp.results.runs import Evaluation, pack_videos

# --- the interval of the test videos


@pytest.mark.parametrize(
    ("num_right", "num", "low", "high"),
    [(81, 263, 25.53, 36.62), (15, 148, 6.24, 16.05), (0, 20, 0.0, 16.11), (1, 29, 0.61, 17.18)],
)
def test_the_score_interval_is_that_of_newcombe(num_right, num, low, high):
    """R. G. Newcombe, Statistics in Medicine 17 (1998), Table I, method 3."""
    assert wilson_interval(100 * num_right / num, num) == pytest.approx((low, high), abs=0.005)


def test_the_interval_of_an_accuracy_ends_at_0_and_100():
    """98 ± 12.706·1 for two seeds that differ by 2 points; the mean and the seeds stay."""
    found = estimate_score([97.0, 99.0])
    assert found.interval == pytest.approx((85.294, 100.0))
    assert (found.mean, found.each) == (98.0, (97.0, 99.0))
    assert estimate_score([1.0, 3.0]).interval == pytest.approx((0.0, 14.706))


# --- margins


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        # Mean −0.2, standard deviation 0.1, t = 4.303 at 2 degrees: −0.2 ± 0.248.
        ([-0.1, -0.2, -0.3], "**holds**"),
        # −2 ± 2.484: from −4.48 to +0.48.
        ([-1.0, -2.0, -3.0], "open"),
        # −2 ± 0.248: below −1.
        ([-1.9, -2.0, -2.1], "**fails**"),
        # A whole interval above 0 is not worse either.
        ([1.9, 2.0, 2.1], "**holds**"),
        ([-0.1], "open"),
        # An interval without a width says nothing about the next seed.
        ([0.0, 0.0], "open"),
        ([-2.0, -2.0, -2.0], "open"),
        ([200 / 3 - 190 / 3, 190 / 3 - 60.0], "open"),
    ],
)
def test_verdicts_at_a_margin_of_one_point(differences, verdict):
    assert judge_margin(estimate_mean(differences), 1.0).startswith(verdict)


def test_alike_pairs_are_known_after_the_rounding_of_the_table():
    """66.667 to 63.333 and 63.333 to 60.0, each with four decimals in results.csv."""
    assert estimate_mean([63.3333 - 66.6667, 60.0 - 63.3333]).is_constant
    assert not estimate_mean([-3.333, -3.3335]).is_constant


@pytest.mark.parametrize(
    ("deviation", "distance", "num"),
    [
        # (t + 1.2816)·0.68/√n ≤ 0.5. n = 20: (2.093 + 1.2816)·0.68/4.4721 = 0.5131; n = 21: (2.086 + …) = 0.4997.
        (0.68, 0.5, 21),
        # n = 7: (2.447 + 1.2816)·0.68/2.6458 = 0.9583; n = 6: (2.571 + …)/2.4495 = 1.0695.
        (0.68, 1.0, 7),
        # A difference beyond the margin is decided against the claim by as many seeds.
        (0.68, -0.5, 21),
        (0.0, 0.5, 2),
        (5.0, 0.1, None),
        (1.0, 0.0, None),
    ],
)
def test_seeds_to_decide(deviation, distance, num):
    assert seeds_to_decide(deviation, distance) == num


def test_an_open_claim_says_how_many_seeds_would_decide():
    # Standard deviation 1, mean −0.5, so 0.5 from the margin: n = 45 gives (2.0154 + 1.2816)/√45 = 0.4915,
    # and n = 43 gives (2.0181 + 1.2816)/√43 = 0.5032; n = 44: (2.0167 + 1.2816)/√44 = 0.4972.
    assert "44 seeds" in judge_margin(estimate_mean([-1.5, -0.5, 0.5]), 1.0)
    assert judge_margin(None, 1.0).startswith("open")


# --- single videos


def scored(row, seed, correct, names=None):
    names = names or [f"video{n:03d}" for n in range(len(correct))]
    videos = pack_videos(zip(names, map(bool, correct), strict=True))
    return replace(result(f"study/{row}", seed), videos=videos)


def pair_of(own, base):
    return Pair(
        Row("long", {run.seed: run for run in own}),
        Row("baseline", {run.seed: run for run in base}),
    )


def compared(own, base):
    """Two rows by their seeds: of each, which videos are right."""
    return compare_videos(
        pair_of(
            [scored("long", seed, right) for seed, right in enumerate(own)],
            [scored("baseline", seed, right) for seed, right in enumerate(base)],
        )
    )


def test_the_interval_ends_where_no_difference_can_be():
    """Differences 1 and 0: 50 points, standard error √(0.25/2) = 35.355 points, and 50 + 69.3 is more than 100."""
    found = compared([[1, 1]], [[0, 1]])
    assert found.mean == 50.0
    assert found.interval == pytest.approx((50 - 1.96 * 35.355, 100.0), abs=0.01)
    assert (found.num_gained, found.num_lost, found.num_videos) == (1, 0, 2)


def test_the_interval_of_one_pair_is_that_of_its_videos():
    """30 videos gained and 10 lost of 100: 20 points, standard error √((0.4 − 0.04)/100) = 6 points."""
    own = [1] * 30 + [0] * 10 + [1] * 60
    base = [0] * 30 + [1] * 10 + [1] * 60
    found = compared([own], [base])
    assert found.mean == pytest.approx(20)
    assert found.interval == pytest.approx((20 - 1.96 * 6, 20 + 1.96 * 6), abs=0.01)


def test_rows_that_no_video_tells_apart_may_differ_on_three_of_as_many_videos():
    """By the rule of three, 0 of 60 videos means at most 5 %. Two seeds have the same 60 videos."""
    right = [1] * 59 + [0]
    found = compared([right, right], [right, right])
    assert (found.mean, found.interval) == (0.0, (-5.0, 5.0))


def test_seeds_that_agree_on_every_video_add_nothing_but_their_number():
    """The videos are the same, so equal seeds leave the interval of one seed."""
    own, base = [1] * 30 + [0] * 70, [0] * 100
    one, eight = (compared([own] * num, [base] * num) for num in (1, 8))
    assert eight.interval == pytest.approx(one.interval)
    assert (eight.num_videos, eight.num_gained) == (800, 240)


def test_seeds_that_differ_have_the_interval_of_student_s_t_beside_that_of_the_videos():
    """Four seeds gain 10, 30, 10 and 30 of the same 100 videos: 20 ± 3.182·11.547/√4 points over seeds."""
    own = [[1] * num + [0] * (100 - num) for num in (10, 30, 10, 30)]
    found = compared(own, [[0] * 100] * 4)
    # Ten videos have the mean 1 and twenty have ½: variance 0.1 + 0.05 − 0.04 = 0.11, standard error 3.317 points.
    half = math.hypot(3.182 * 11.547 / 2, 1.96 * 3.317)
    assert found.interval == pytest.approx((20 - half, 20 + half), abs=0.01)


def test_folds_have_lists_of_their_own():
    """The videos of two folds are drawn apart, so the error of their mean is 1/√2 of the error of one."""
    own, base = [1] * 30 + [0] * 70, [0] * 100
    other = [f"other{n:03d}" for n in range(100)]
    folds = pair_of(
        [scored("long", 0, own), scored("long", 1, own, other)],
        [scored("baseline", 0, base), scored("baseline", 1, base, other)],
    )
    low, high = compare_videos(folds).interval
    # Of one fold: √(0.3·0.7/100) = 4.58 points. The seeds do not differ.
    assert high - low == pytest.approx(2 * 1.96 * 4.583 / math.sqrt(2), abs=0.01)


def test_each_stretch_of_a_video_counts():
    listed = [("/v/b.mp4", True), ("/v/a.mp4", False), ("/v/b.mp4", False), ("/v/b.mp4", True)]
    packed = pack_videos(listed, {"/v/a.mp4": "one", "/v/b.mp4": "two"})
    assert packed.correct.tolist() == [False, True, False, True]
    assert (packed.num_videos, packed.groups) == (4, [0, 1, 1, 1])


def test_the_same_list_below_another_folder_is_the_same_list():
    one, other = (
        {f"{root}/val/{name}": name == "a/1.mp4" for name in ("a/1.mp4", "b/2.mp4")}
        for root in ("/x", "/y/z")
    )
    assert pack_videos(one.items()) == pack_videos(other.items())
    assert pack_videos([("/x/val/a/1.mp4", True)]).num_videos == 1


# --- groups of videos


TENS = [number // 10 for number in range(100)]
"""The groups of 100 videos: ten videos each."""


def test_the_interval_of_an_accuracy_counts_groups():
    """Four groups of 25 with 16, 18, 14 and 20 right: the squares of −1, 1, −3 and 3 are 20.

    √(4/3 · 20) / 100 = 5.164 points, times 3.182 (Student's t) is 16.43. Groups of one size have the interval of
    their means, 64, 72, 56 and 80 %.
    """
    num_right = (16, 18, 14, 20)
    correct = np.concatenate([np.arange(25) < num for num in num_right])
    found = grouped_interval(correct, [number // 25 for number in range(100)])
    assert found == pytest.approx((68 - 16.43, 68 + 16.43), abs=0.005)
    assert found == pytest.approx(estimate_mean([4 * num for num in num_right]).interval)


def test_groups_of_several_sizes_count_by_their_videos():
    """4 of 4, 1 of 2 and 0 of 2 right: 1.5² + 0.25² + 1.25² = 3.875, and √(1.5 · 3.875) / 8 is 0.3014."""
    correct, groups = np.array([1, 1, 1, 1, 1, 0, 0, 0]), [0, 0, 0, 0, 1, 1, 2, 2]
    assert half_width(correct, groups) == pytest.approx(4.303 * 0.30136, abs=1e-4)
    assert grouped_interval(correct, groups) == (0.0, 100.0)


def test_groups_that_are_all_right_are_as_many_videos():
    assert grouped_interval(np.ones(100), TENS) == wilson_interval(100.0, 10)
    assert grouped_interval(np.array([1, 0]), [0, 0]) == (
        0.0,
        100.0,
    )  # one group tells nothing of others


@pytest.mark.parametrize(
    ("num_gained", "half"),
    # Three groups of ten are gained: 3 · 7² + 7 · 3² = 210, √(10/9 · 210) / 100 = 15.275 points, times 2.262.
    [(30, 2.262 * 15.275), (0, 30.0)],
)
def test_the_interval_of_a_difference_counts_groups(num_gained, half):
    names = [f"video{number:03d}" for number in range(100)]
    groups = {name: f"group {name[5:7]}" for name in names}
    runs = []
    for row, num in (("long", num_gained), ("baseline", 0)):
        videos = pack_videos([(name, int(name[5:]) < num) for name in names], groups)
        assert videos.groups == TENS
        runs.append(replace(result(f"study/{row}"), videos=videos))
    found = compare_videos(pair_of(runs[:1], runs[1:]))
    assert found.interval == pytest.approx((num_gained - half, num_gained + half), abs=0.01)


def test_runs_with_other_videos_are_not_compared():
    own, base = scored("long", 0, [1, 0]), scored("baseline", 0, [1, 0], ["x", "y"])
    assert compare_videos(pair_of([own], [base])) is None
    assert compare_videos(pair_of([result("study/long")], [result("study/baseline")])) is None


# --- time to target


def timed(row, seed, *curve):
    evaluations = tuple(
        Evaluation(n, seconds, score, 1, 500, False, "forward")
        for n, (seconds, score) in enumerate(curve)
    )
    return result(f"study/{row}", seed, evaluations=evaluations)


def test_seconds_to_a_target_are_those_of_the_first_evaluation_that_reaches_it():
    run = timed("long", 0, (10.0, 50.0), (20.0, 80.0), (30.0, 79.0), (40.0, 85.0))
    assert seconds_to(run, 80.0) == 20.0
    assert seconds_to(run, 85.1) == math.inf


def test_a_miss_is_infinite_in_the_median_of_pairs():
    base = [timed("baseline", seed, (60.0, 90.0)) for seed in range(3)] + [timed("baseline", 3)]
    own = [timed("long", 0, (20.0, 90.0)), timed("long", 1, (30.0, 90.0))]
    own += [timed("long", seed) for seed in (2, 3)]
    # 60/20, 60/30, 60/∞; neither of seed 3 reaches it.

    def seconds(run):
        return seconds_to(run, 90.0)

    assert speed_up_to(pair_of(own, base), seconds) == 2.0
    assert speed_up_to(pair_of(own[2:3], base), seconds) == 0.0
    assert speed_up_to(pair_of(own[3:], base), seconds) is None


@pytest.mark.parametrize(
    ("own", "base", "wanted", "inverse"),
    [
        ((20.0, 30.0), (60.0, 60.0), math.sqrt(6), math.sqrt(1 / 6)),
        ((20.0, math.inf), (60.0, 60.0), 0.0, math.inf),
        ((20.0, 20.0), (60.0, math.inf), math.inf, 0.0),
        ((math.inf, 20.0), (60.0, math.inf), None, None),
    ],
)
def test_of_an_even_number_of_pairs_the_middle_two_have_their_geometric_mean(
    own, base, wanted, inverse
):
    """So the ratio of the base to the row is the inverse, also with a miss on one side."""

    def median(*rows):
        runs = [[result("q/x", n, train_seconds=one) for n, one in enumerate(row)] for row in rows]
        return speed_up_to(pair_of(*runs), lambda run: run.train_seconds)

    assert median(own, base) == pytest.approx(wanted)
    assert median(base, own) == pytest.approx(inverse)
