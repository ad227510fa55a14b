"""What loading a schedule costs, from seconds per clip that are given by hand."""

from contextlib import contextmanager

import pytest
from tiny import tiny_config

from mgexp.data.clips import TrainingClips
from mgexp.data.decode import VideoError
from mgexp.data.records import VideoRecord
from mgexp.train.build import schedule_of
from mgexp.train.loading_cost import kinds, loading_table, measure_clips, phase_costs


@pytest.fixture
def schedule(tmp_path):
    return schedule_of(tiny_config(tmp_path), 24)


def test_every_shape_of_the_schedule_is_a_kind_once(schedule):
    found = kinds(schedule)
    assert len(set(found)) == len(found)
    assert {(frames, crop) for frames, crop, _ in found} == {
        (shape.frames, shape.crop) for phase in schedule.phases for shape in phase.cycle.shapes
    }


def test_a_phase_costs_its_clips_times_their_seconds(schedule):
    costs = phase_costs(schedule, {kind: kind[0] * kind[1] ** 2 for kind in kinds(schedule)})
    # Seconds of frames x crop^2: each step costs what the baseline's does, but for rounded crops (23 for 22.6).
    baseline = 4 * 8 * 32**2
    for cost in costs:
        assert cost.core_seconds_per_step == pytest.approx(baseline, rel=0.05)
        assert cost.core_seconds == cost.core_seconds_per_step * cost.phase.num_steps
        assert cost.ms_per_clip == pytest.approx(
            1000 * cost.core_seconds_per_step / cost.clips_per_step
        )


def test_seconds_that_do_not_shrink_make_coarse_phases_dear(schedule):
    costs = phase_costs(schedule, dict.fromkeys(kinds(schedule), 1.0))
    coarse, fine = costs[0], costs[-1]
    assert coarse.core_seconds_per_step == coarse.clips_per_step > 2 * fine.clips_per_step


def test_the_table_says_how_many_times_less(schedule):
    slow = phase_costs(schedule, dict.fromkeys(kinds(schedule), 0.3))
    fast = phase_costs(schedule, dict.fromkeys(kinds(schedule), 0.1))
    lines = loading_table(slow, fast).splitlines()
    assert len(lines) == 1 + len(schedule.phases) + 1
    assert lines[1].split()[-4:-2] == ["300.00", "100.00"]
    assert lines[-1].endswith("3.0 times less")


def test_a_video_that_fails_cannot_be_measured(schedule):
    @contextmanager
    def opener(path):
        raise VideoError(path, "is broken")
        yield

    clips = TrainingClips(
        [VideoRecord("a.mp4", 0)], target_fps=30, jitter=(32, 40), full_crop=32,
        inverse_uniform=False, flip=False, opener=opener,
    )  # fmt: skip
    with pytest.raises(RuntimeError, match="is broken"):
        measure_clips(clips, kinds(schedule)[:1])
