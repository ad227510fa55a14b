"""What loading a schedule costs, from seconds by hand; ways to load that are timed in turns; the tables."""

import os
import time

import pytest
import torch
from fakes import FakeReader, opener_of, training_clips_of
from tiny import tiny_config

from mgexp.data.records import VideoRecord
from mgexp.plan.loading import kinds_of, loader_of, measure, one_core, phase_loads
from mgexp.train.setup import build_row_schedule
from mgexp.video.reader import VideoError


@pytest.fixture
def schedule(tmp_path):
    return build_row_schedule(tiny_config(tmp_path), 24)


def test_every_shape_of_the_schedule_is_a_kind_once(schedule):
    found = kinds_of(phase_loads(schedule))
    assert len(set(found)) == len(found)
    assert {(frames, crop) for frames, crop, _ in found} == {
        (shape.frames, shape.crop) for phase in schedule.phases for shape in phase.cycle.shapes
    }


def test_the_loads_hold_all_steps_and_clips_of_the_phases(schedule):
    loads = phase_loads(schedule)
    assert (
        len(loads)
        == len({(load.cycle, load.stride_range) for load in loads})
        < len(schedule.phases)
    )
    assert sum(load.num_steps for load in loads) == schedule.total_steps
    clips = sum(
        phase.num_steps * schedule.recipe.clips * shape.ratio / len(phase.cycle.shapes)
        for phase in schedule.phases
        for shape in phase.cycle.shapes
    )
    assert sum(load.num_steps * load.clips_per_step for load in loads) == pytest.approx(clips)


def test_a_step_costs_its_clips_times_their_seconds(schedule):
    loads = phase_loads(schedule)
    # Seconds of frames x crop^2: each step costs what the baseline's does, but for rounded crops (23 for 22.6).
    seconds = {kind: kind[0] * kind[1] ** 2 for kind in kinds_of(loads)}
    baseline = 4 * 8 * 32**2
    for load in loads:
        assert load.core_seconds_per_step(seconds) == pytest.approx(baseline, rel=0.05)


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
    assert all(set(timing) == set(KINDS) for timing in timings.values())


def test_seconds_are_of_one_clip(monkeypatch):
    """Only loading takes time by this clock: 3 clips of 0.02 s in each of 2 repeats."""
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: sum(clock))
    timings = measure({"slow": lambda _: clock.append(0.02)}, KINDS[:1], 3, 2)
    assert timings == {"slow": {KINDS[0]: pytest.approx([0.02, 0.02])}}


def test_a_video_that_fails_cannot_be_measured():
    clips = training_clips_of([VideoRecord("a.mp4", 0)], opener_of(FakeReader(), ["a.mp4"]))
    with pytest.raises(VideoError, match="is broken"):
        measure({"ours": loader_of(clips)}, KINDS[:1], 1, 1)


def test_one_core_is_given_back():
    cores, threads = os.sched_getaffinity(0), torch.get_num_threads()
    with one_core():
        assert len(os.sched_getaffinity(0)) == torch.get_num_threads() == 1
    assert (os.sched_getaffinity(0), torch.get_num_threads()) == (cores, threads)
