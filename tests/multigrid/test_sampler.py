"""The sampler draws exactly the stream, whatever the row, the number of processes and the first step."""

import json
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from recipes import HALF_AREA, ROWS, SHORT, TINY
from torch.utils.data import DataLoader

from mgexp.multigrid.recipe import Multigrid
from mgexp.multigrid.sampler import ClipRequest, StepSampler, Stream
from mgexp.multigrid.schedule import build_schedule

GOLDEN_CASES = json.loads(
    (Path(__file__).parents[1] / "golden" / "sampler_cases.json").read_text()
)["cases"]

few_examples = settings(max_examples=25, deadline=None, derandomize=True)


@st.composite
def runs(draw):
    """(schedule, seed, number of processes) of a small run."""
    num_processes = draw(st.sampled_from([1, 2, 4]))
    recipe = replace(TINY, clips=num_processes * draw(st.integers(1, 5)))
    multigrid = replace(
        ROWS[draw(st.sampled_from(sorted(ROWS)))],
        granularity=draw(st.sampled_from(["step", "epoch"])),
        shape_order=draw(st.sampled_from(["coarse_to_fine", "random"])),
        bn_base_size=1,  # divides whatever is drawn
    )
    num_videos = draw(st.integers(recipe.clips, 60))
    schedule = build_schedule(recipe, multigrid, num_videos, num_processes)
    return schedule, draw(st.integers(0, 2**31)), num_processes


def drawn(run, first_step=0):
    """Requests of each step, those of all processes in their order."""
    schedule, seed, num_processes = run
    samplers = [StepSampler(schedule, seed, first_step, rank) for rank in range(num_processes)]
    return [list(chain(*shares)) for shares in zip(*samplers, strict=True)]


@few_examples
@given(runs())
def test_processes_together_draw_the_stream_and_nothing_else(run):
    schedule, seed, _ = run
    requests = list(chain(*drawn(run)))
    assert [request.seed for request in requests] == [(seed, p) for p in range(len(requests))]
    stream = Stream(schedule.num_videos, seed)
    assert [r.index for r in requests] == [stream.index_at(p) for p in range(len(requests))]


@few_examples
@given(runs())
def test_no_video_is_lost_or_drawn_twice_in_an_epoch_of_the_stream(run):
    num_videos = run[0].num_videos
    indices = [request.index for request in chain(*drawn(run))]
    for start in range(0, len(indices) - num_videos + 1, num_videos):
        assert sorted(indices[start : start + num_videos]) == list(range(num_videos))


@few_examples
@given(runs(), st.floats(0, 1))
def test_any_first_step_gives_the_tail_of_the_whole(run, share):
    first_step = round(share * run[0].total_steps)
    assert drawn(run, first_step) == drawn(run)[first_step:]


@few_examples
@given(runs())
def test_draws_do_not_depend_on_the_number_of_processes(run):
    schedule, seed, _ = run
    assert drawn(run) == drawn((replace(schedule, num_processes=1), seed, 1))


@few_examples
@given(runs())
def test_each_process_draws_its_share_of_the_plan_in_its_shape(run):
    schedule, seed, num_processes = run
    samplers = [StepSampler(schedule, seed, 0, rank) for rank in range(num_processes)]
    total = 0
    for step, shares in enumerate(zip(*samplers, strict=True)):
        plan = schedule.plan_at(step)
        assert {len(share) * num_processes for share in shares} == {plan.clips}
        requests = chain(*shares)
        shapes = {(request.frames, request.crop, request.stride_range) for request in requests}
        assert shapes == {(plan.frames, plan.crop, plan.stride_range)}
        total += plan.clips
    assert schedule.epoch_before(schedule.total_steps) * schedule.num_videos == pytest.approx(total)


@pytest.mark.parametrize("case", GOLDEN_CASES, ids=lambda c: f"{c['base_batch']}x{c['train_crop']}")
def test_batches_come_in_the_order_of_the_released_sampler(case):
    coarse = case["train_crop"] < case["default_s"]
    clips = case["base_batch"] // 2 if coarse else case["base_batch"]
    recipe = replace(TINY, clips=clips, crop=case["default_s"])
    long_factors = ((1.0, HALF_AREA),) if coarse else ((1.0, 1.0),)
    schedule = build_schedule(recipe, Multigrid(long_factors, SHORT, bn_base_size=1), 1000)
    sizes = [len(batch) for batch, _ in zip(StepSampler(schedule, 0), range(12), strict=False)]
    assert schedule.phases[0].cycle.base.crop == case["train_crop"]
    assert sizes == case["batch_sizes"]


def test_request_is_all_that_a_clip_follows_from():
    schedule = build_schedule(TINY, ROWS["long"], 100)
    request = StepSampler(schedule, seed=5).requests(schedule.plan_at(0))[3]
    index = Stream(100, 5).index_at(3)
    assert request == ClipRequest(index, frames=2, crop=45, stride_range=(2, 8), seed=(5, 3))


def test_epochs_and_seeds_have_permutations_of_their_own():
    orders = {
        tuple(Stream(20, seed).index_at(epoch * 20 + place) for place in range(20))
        for seed in range(30)
        for epoch in range(30)
    }
    assert len(orders) == 900


def test_every_video_comes_first_about_as_often_as_any_other():
    # 8000 epochs of 8 videos: 1000 ± 30 each; ± 5 standard deviations.
    stream = Stream(8, seed=0)
    first = torch.tensor([stream.index_at(epoch * 8) for epoch in range(8000)])
    assert (torch.bincount(first, minlength=8) - 1000).abs().max() < 150


def test_stream_does_not_depend_on_the_order_of_the_questions():
    asked, other = Stream(50, 1), Stream(50, 1)
    forward = [asked.index_at(position) for position in range(500)]
    assert [other.index_at(position) for position in range(499, -1, -1)] == forward[::-1]


def test_a_loader_takes_it_as_its_batches():
    schedule = build_schedule(TINY, ROWS["long_short"], 40)
    sampler = StepSampler(schedule, seed=0, first_step=2)

    class Echo(torch.utils.data.Dataset):
        def __getitem__(self, request):
            return request

    loader = DataLoader(Echo(), batch_sampler=sampler, collate_fn=list)
    assert len(loader) == schedule.total_steps - 2
    assert list(loader) == list(sampler)


@pytest.mark.parametrize(("rank", "num_processes"), [(1, 1), (2, 2), (-1, 2)])
def test_a_process_that_the_schedule_has_not_is_refused(rank, num_processes):
    schedule = build_schedule(TINY, ROWS["baseline"], 24, num_processes)
    with pytest.raises(ValueError, match=f"rank = {rank}, .* is one of {num_processes} proc"):
        StepSampler(schedule, seed=0, rank=rank)


def test_another_number_of_processes_than_those_that_run_is_refused(monkeypatch):
    """A loop that forgets num_processes would train all clips in every process."""
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    alone, shared = (build_schedule(TINY, ROWS["baseline"], 24, num) for num in (1, 2))
    StepSampler(shared, seed=0, rank=1)
    with pytest.raises(ValueError, match="runs 2 processes, but the schedule is one of 1: build_"):
        StepSampler(alone, seed=0)


def test_repeats_of_a_video_alternate_with_another_one():
    plain = [Stream(6, seed=1).index_at(place) for place in range(6)]
    a, b, c, d, e, f = plain
    found = [Stream(6, seed=1, repeats=3).index_at(place) for place in range(18)]
    assert found == [a, b, a, b, a, b, c, d, c, d, c, d, e, f, e, f, e, f]
    assert sorted(plain) == list(range(6))


@pytest.mark.parametrize("num_videos", [5, 8])
def test_repeats_leave_no_video_out(num_videos):
    stream = Stream(num_videos, seed=0, repeats=2)
    found = [stream.index_at(place) for place in range(4 * num_videos)]
    assert {found.count(video) for video in range(num_videos)} == {4}


def test_repeats_differ_in_their_draws():
    schedule = build_schedule(TINY, Multigrid(), 40)
    first = next(iter(StepSampler(schedule, seed=0, repeats=2)))
    assert len({request.seed for request in first}) == len(first) == 8
    assert len({request.index for request in first}) == 4
