"""Ways to load are timed on the same clips, in turns."""

import os
import time
from contextlib import contextmanager

import pytest
import torch

from mgexp.data.clips import TrainingClips
from mgexp.data.records import VideoRecord
from mgexp.plan.loading import Timings, loader_of, measure, one_core
from mgexp.video.reader import VideoError

KINDS = [(8, 32, (2, 8)), (4, 16, None)]


def test_every_way_loads_the_same_clips_in_turns_that_alternate():
    calls = []
    ways = {name: lambda request, name=name: calls.append((name, request)) for name in "ab"}
    timings = measure(ways, KINDS, num_videos=2, num_repeats=2)
    warm, timed = calls[:4], calls[4:]
    assert [name for name, _ in warm] == list("aabb")
    order = [name for name, _ in timed]
    assert order == list("aabbaabb" + "bbaabbaa")
    by_way = {name: [request for other, request in timed if other == name] for name in "ab"}
    assert sorted(map(str, by_way["a"])) == sorted(map(str, by_way["b"]))
    assert len(set(map(str, by_way["a"]))) == 8  # 2 kinds x 2 videos x 2 repeats
    assert {(r.frames, r.crop, r.stride_range) for r in by_way["a"]} == set(KINDS)
    assert all(set(timing.by_kind) == set(KINDS) for timing in timings.values())


def test_seconds_are_of_one_clip():
    timings = measure({"slow": lambda _: time.sleep(0.02)}, KINDS[:1], 3, 2)
    values = timings["slow"].by_kind[KINDS[0]]
    assert len(values) == 2
    assert all(0.02 <= value < 0.04 for value in values)


def test_the_median_is_over_repeats():
    timings = Timings({KINDS[0]: (1.0, 9.0, 2.0), KINDS[1]: (5.0, 3.0, 4.0)})
    assert timings.median() == {KINDS[0]: 2.0, KINDS[1]: 4.0}
    assert timings.repeat(1) == {KINDS[0]: 9.0, KINDS[1]: 3.0}


def test_a_video_that_fails_cannot_be_measured():
    @contextmanager
    def opener(path):
        raise VideoError(path, "is broken")
        yield

    clips = TrainingClips(
        [VideoRecord("a.mp4", 0)], target_fps=30, jitter=(32, 40), full_crop=32,
        inverse_uniform=False, flip=False, opener=opener,
    )  # fmt: skip
    with pytest.raises(VideoError, match="is broken"):
        measure({"ours": loader_of(clips)}, KINDS[:1], 1, 1)


def test_one_core_is_given_back():
    cores, threads = os.sched_getaffinity(0), torch.get_num_threads()
    with one_core():
        assert len(os.sched_getaffinity(0)) == torch.get_num_threads() == 1
    assert (os.sched_getaffinity(0), torch.get_num_threads()) == (cores, threads)
