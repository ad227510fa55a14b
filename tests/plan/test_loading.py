"""What loading a schedule costs, from seconds by hand; ways to load that are timed in turns; the tables."""

import os
import time
from contextlib import contextmanager

import pytest
import torch
from tiny import tiny_config

from mgexp.data.clips import TrainingClips
from mgexp.data.records import VideoRecord
from mgexp.plan.loading import (
    LoadingCosts,
    clip_table,
    kinds_of,
    legs_of,
    loader_of,
    measure,
    medians,
    one_core,
    way_table,
)
from mgexp.train.setup import build_row_schedule
from mgexp.video.reader import VideoError


@pytest.fixture
def schedule(tmp_path):
    return build_row_schedule(tiny_config(tmp_path), 24)


def test_every_shape_of_the_schedule_is_a_kind_once(schedule):
    found = kinds_of(legs_of(schedule))
    assert len(set(found)) == len(found)
    assert {(frames, crop) for frames, crop, _ in found} == {
        (shape.frames, shape.crop) for phase in schedule.phases for shape in phase.cycle.shapes
    }


def test_legs_hold_all_steps_and_clips_of_the_phases(schedule):
    legs = legs_of(schedule)
    assert len(legs) == len({(leg.cycle, leg.stride_range) for leg in legs}) < len(schedule.phases)
    assert sum(leg.num_steps for leg in legs) == schedule.total_steps
    clips = sum(
        phase.num_steps * schedule.recipe.clips * shape.ratio / len(phase.cycle.shapes)
        for phase in schedule.phases
        for shape in phase.cycle.shapes
    )
    assert sum(leg.num_steps * leg.clips_per_step for leg in legs) == pytest.approx(clips)


def test_a_step_costs_its_clips_times_their_seconds(schedule):
    legs = legs_of(schedule)
    # Seconds of frames x crop^2: each step costs what the baseline's does, but for rounded crops (23 for 22.6).
    seconds = {kind: kind[0] * kind[1] ** 2 for kind in kinds_of(legs)}
    baseline = 4 * 8 * 32**2
    for leg in legs:
        assert leg.core_seconds_per_step(seconds) == pytest.approx(baseline, rel=0.05)
    costs = costs_of(legs, seconds)
    assert costs.unevenness("") < 1.05
    total = sum(leg.num_steps * leg.core_seconds_per_step(seconds) for leg in legs)
    assert costs.core_hours("") == pytest.approx(total / 3600)


def test_the_mean_clip_weighs_kinds_by_their_clips(schedule):
    legs = legs_of(schedule)
    dear = kinds_of(legs)[0]
    seconds = {kind: 1.0 if kind == dear else 0.0 for kind in kinds_of(legs)}
    share = sum(leg.num_steps * leg.clips_of().get(dear, 0.0) for leg in legs) / sum(
        leg.num_steps * leg.clips_per_step for leg in legs
    )
    assert 0 < share < 1
    assert costs_of(legs, seconds).ms_per_clip("") == pytest.approx([1000 * share])
    equal = dict.fromkeys(seconds, 0.25)
    assert costs_of(legs, equal).ms_per_clip("") == pytest.approx([250])


def costs_of(legs, seconds):
    return LoadingCosts(legs, {"": {kind: (value,) for kind, value in seconds.items()}})


def test_seconds_that_do_not_shrink_make_coarse_steps_dear(schedule):
    legs = legs_of(schedule)
    seconds = dict.fromkeys(kinds_of(legs), 1.0)
    coarse, fine = legs[0], legs[-1]
    assert coarse.core_seconds_per_step(seconds) == coarse.clips_per_step
    assert coarse.clips_per_step > 2 * fine.clips_per_step
    assert costs_of(legs, seconds).unevenness("") == coarse.clips_per_step / fine.clips_per_step


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


@pytest.mark.alone
def test_seconds_are_of_one_clip():
    timings = measure({"slow": lambda _: time.sleep(0.02)}, KINDS[:1], 3, 2)
    values = timings["slow"][KINDS[0]]
    assert len(values) == 2
    assert all(0.02 <= value < 0.04 for value in values)


@pytest.mark.alone
def test_repeats_go_on_while_another_fits_into_the_budget():
    timings = measure({"slow": lambda _: time.sleep(0.02)}, KINDS[:1], 1, budget_seconds=0.2)
    assert 3 <= len(timings["slow"][KINDS[0]]) <= 9


def test_the_median_is_over_repeats():
    seconds = {KINDS[0]: (1.0, 9.0, 2.0), KINDS[1]: (5.0, 3.0, 4.0)}
    assert medians(seconds) == {KINDS[0]: 2.0, KINDS[1]: 4.0}


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


def cells(table):
    return [line.split() for line in table.splitlines()]


def test_ratios_are_of_the_same_repeat(costs):
    assert costs.ms_per_clip("store") == pytest.approx([50, 100, 80])
    assert costs.times_less("store") == pytest.approx([6, 5, 5])
    assert costs.times_less("videos") == [1, 1, 1]


def test_a_line_per_leg_with_medians(costs):
    lines = cells(clip_table(costs))
    assert len(lines) == 2 + len(costs.legs)
    assert all(line[-2:] == ["400.00", "80.00"] for line in lines[2:])


def test_a_line_per_way_with_spread(costs):
    line = way_table(costs).splitlines()[2]
    assert line.startswith("store")
    assert "80.00 (50.00–100.00)" in line
    assert "5.0 (5.0–6.0)" in line
