"""Moments of clips, against tables written by hand for a grid of 30 frames per second."""

import numpy as np
import pytest
from fakes import FakeRequest

from mgexp.data.clips import draw_times, segment_times
from mgexp.data.views import view_times

GRID = 1 / 30


def times_of(duration_seconds, frames, stride, rate, rng):
    request = FakeRequest(frames=frames, stride_range=(stride, stride))
    return draw_times(duration_seconds, request, rate, rng)


def starts_of_random_times(num_draws, *clip):
    rng = np.random.default_rng(0)
    return np.array([times_of(*clip, 30, rng)[0] for _ in range(num_draws)])


def distance_from_uniform(values, low, high):
    """Kolmogorov-Smirnov distance times sqrt(n): above 1.95 in one of 1,000 samples of a uniform draw."""
    n = len(values)
    expected = (np.sort(values) - low) / (high - low)
    distance = max(np.max(np.arange(1, n + 1) / n - expected), np.max(expected - np.arange(n) / n))
    return distance * np.sqrt(n)


def test_strides_are_uniform_whole_numbers_with_both_ends():
    request, rng = FakeRequest(frames=2, stride_range=(2, 8)), np.random.default_rng(0)
    drawn = [round(30 * np.diff(draw_times(9.0, request, 30, rng))[0]) for _ in range(7000)]
    strides, counts = np.unique(drawn, return_counts=True)
    assert strides.tolist() == [2, 3, 4, 5, 6, 7, 8]
    assert np.all(abs(counts - 1000) < 150)  # five standard deviations


@pytest.mark.parametrize("rate", [15, 30])
def test_times_are_a_stride_apart_in_frames_of_the_target_rate(rate):
    times = times_of(2.0, 4, 8, rate, np.random.default_rng(0))
    np.testing.assert_allclose(np.diff(times), [8 / rate, 8 / rate, 8 / rate])


def test_random_starts_are_uniform_over_those_with_all_moments_in_the_video():
    starts = starts_of_random_times(4000, 2.0, 4, 8)
    assert starts.min() >= 0
    assert starts.max() < 2.0 - 24 * GRID
    assert distance_from_uniform(starts, 0.0, 1.2) < 1.95


def test_every_frame_of_the_video_can_begin_a_clip_and_the_last_is_drawn_as_often():
    starts = starts_of_random_times(10_000, 10 * GRID, 3, 3)
    first_frames, counts = np.unique(np.floor(starts / GRID), return_counts=True)
    assert first_frames.tolist() == [0, 1, 2, 3]  # 10 frames, of which a clip spans 7
    assert np.all(abs(counts - 2500) < 220)


def test_a_clip_longer_than_the_video_starts_at_zero():
    times = times_of(1.0, 5, 8, 30, np.random.default_rng(0))
    np.testing.assert_allclose(times, [0, 8 * GRID, 16 * GRID, 24 * GRID, 32 * GRID])


def test_ten_views_of_ten_seconds_start_every_27_frames():
    # 300 grid frames - (7 * 8 + 1) = 243 = 9 * 27
    starts = [view_times(10.0, 8, 8, 30, view, 10)[0] for view in range(10)]
    np.testing.assert_allclose(
        starts, [0.0, 0.9, 1.8, 2.7, 3.6, 4.5, 5.4, 6.3, 7.2, 8.1], atol=1e-12
    )


def test_all_views_of_a_short_video_start_at_zero():
    starts = [view_times(0.5, 4, 8, 30, view, 10)[0] for view in range(10)]
    assert starts == [0.0] * 10


def test_random_segment_times_are_uniform_and_independent_within_their_segment():
    rng = np.random.default_rng(0)
    times = np.array([segment_times(2.0, 4, rng) for _ in range(2000)])
    within = times - [0.0, 0.5, 1.0, 1.5]
    for segment in within.T:
        assert distance_from_uniform(segment, 0.0, 0.5) < 1.95
    assert np.all(abs(np.corrcoef(within.T) - np.eye(4)) < 0.1)
