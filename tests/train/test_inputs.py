"""What a run must know before its first file."""

import pytest
from tiny import tiny_config

from mgexp.data.records import Action, ActionRecord, VideoList, VideoRecord
from mgexp.errors import InputError
from mgexp.train.setup import (
    Inputs,
    device_problems,
    largest_batch_bytes,
    list_problems,
    listed,
    pool_problems,
    raise_problems,
    schedule_of,
    shared_memory_problems,
    slowfast_problems,
    unusable_problem,
)

RECORDS = tuple(VideoRecord(f"/{index}.mp4", index % 2) for index in range(10))


@pytest.mark.parametrize(
    ("num", "share", "is_fine"), [(0, 0, 1), (1, 0, 0), (2, 0.2, 1), (3, 0.2, 0)]
)
def test_the_share_of_unusable_videos_is_a_limit(num, share, is_fine):
    names = [f"{index}.mp4" for index in range(num)]
    assert (unusable_problem(names, 10, (), 10, share) is None) == bool(is_fine)
    assert (unusable_problem((), 10, names, 10, share) is None) == bool(is_fine)


def test_missing_videos_count_in_the_list_and_broken_ones_among_those_used():
    assert unusable_problem(["a.mp4"], 10, ["b.mp4"], 10, 0.2) is None
    problem = unusable_problem(["a.mp4"], 1000, ["b.mp4"], 2, 0.2)
    assert (
        "1 of 1000 training videos are missing or quarantined and 1 of 2 cannot be decoded"
        in problem
    )


def test_a_long_list_is_cut_and_counted():
    assert listed(["a", "b"]) == "a, b"
    assert listed(["x"] * 25).endswith("x and 5 more")


def test_a_missing_validation_video_is_never_tolerated():
    val = VideoList(RECORDS[1:], ("/0.mp4",), ())
    problems = list(list_problems(VideoList(RECORDS, (), ()), val, 1.0))
    assert len(problems) == 1
    assert "/0.mp4" in problems[0]


def test_frames_must_divide_by_alpha(tmp_path):
    schedule = schedule_of(tiny_config(tmp_path), 24)  # 2, 4 and 8 frames
    assert list(slowfast_problems(schedule, 2)) == []
    (problem,) = slowfast_problems(schedule, 4)
    assert "2 frames" in problem
    assert len(list(slowfast_problems(schedule, 8))) == 2


def test_i3d_needs_two_frames(tmp_path):
    assert list(pool_problems(schedule_of(tiny_config(tmp_path), 24), "I3D")) == []
    short = tiny_config(tmp_path, {"DATA.NUM_FRAMES": 4})  # 1, 2 and 4 frames
    (problem,) = pool_problems(schedule_of(short, 24), "I3D")
    assert "1 frame" in problem


def test_a_gpu_that_was_asked_for_must_be_there():
    (problem,) = device_problems("cuda", has_cuda=False)
    assert "DEVICE" in problem
    assert [*device_problems("cuda", has_cuda=True), *device_problems("auto", has_cuda=False)] == []


def test_the_largest_batch_of_a_schedule_in_bytes(tmp_path):
    """B = 4, T = 8, S = 32: by hand, 32 clips of 2 frames of 23 pixels, rounded up, are the most."""
    assert largest_batch_bytes(schedule_of(tiny_config(tmp_path), 24)) == 3 * 32 * 2 * 23**2
    baseline = {"MULTIGRID.LONG_CYCLE": False, "MULTIGRID.SHORT_CYCLE": False}
    assert (
        largest_batch_bytes(schedule_of(tiny_config(tmp_path, baseline), 24)) == 3 * 4 * 8 * 32**2
    )


MEGABYTE = 10**6


# (workers × prefetch + 1) × processes × bytes: what was found in /dev/shm while a loader ran (torch 2.15):
# 3, 5, 9 and 4 batches for (1, 2), (2, 2), (2, 4) and (3, 1).
@pytest.mark.parametrize(
    ("workers", "prefetch", "processes", "num_batches"),
    [(1, 2, 1, 3), (2, 2, 1, 5), (2, 4, 1, 9), (3, 1, 1, 4), (2, 2, 8, 40)],
)
def test_shared_memory_must_hold_what_workers_keep_ready(workers, prefetch, processes, num_batches):
    needed = num_batches * MEGABYTE
    counts = (workers, prefetch, processes)
    assert list(shared_memory_problems(MEGABYTE, *counts, free_bytes=needed)) == []
    assert len(list(shared_memory_problems(MEGABYTE, *counts, free_bytes=needed - 1))) == 1


def test_without_workers_no_shared_memory_is_needed():
    assert list(shared_memory_problems(MEGABYTE, 0, 2, 1, free_bytes=0)) == []


def test_too_little_shared_memory_names_numbers_and_remedies():
    (problem,) = shared_memory_problems(50 * MEGABYTE, 8, 2, 1, free_bytes=64 * MEGABYTE)
    for word in ("850.0 MB", "64.0 MB free", "--shm-size=2g", "DATA_LOADER.NUM_WORKERS (now 8)"):
        assert word in problem
    assert "DATA_LOADER.PREFETCH_FACTOR (now 2)" in problem


def test_the_fingerprint_knows_paths_labels_and_order(tmp_path):
    schedule = schedule_of(tiny_config(tmp_path), 10)
    other_label = (VideoRecord("/0.mp4", 1), *RECORDS[1:])
    kinds = [RECORDS, RECORDS[::-1], RECORDS[:-1], other_label]
    found = [Inputs(kind, kind[:1], (), 10, schedule).fingerprint() for kind in kinds]
    assert len({one["train_sha256"] for one in found}) == 4
    assert len({one["val_sha256"] for one in found}) == 3  # the third starts as the first
    other_val = Inputs(RECORDS, RECORDS, (), 10, schedule).fingerprint()
    assert other_val["train_sha256"] == found[0]["train_sha256"]


def test_the_fingerprint_knows_actions_and_their_seconds(tmp_path):
    schedule = schedule_of(tiny_config(tmp_path), 10)
    kinds = [(), (Action(1, 0.0, 2.0),), (Action(1, 0.0, 2.5),), (Action(2, 0.0, 2.0),)]
    records = [(ActionRecord("/0.mp4", kind, 3),) for kind in kinds]
    found = {Inputs(one, one, (), 1, schedule).fingerprint()["val_sha256"] for one in records}
    assert len(found) == 4


def test_each_problem_is_said_once():
    raise_problems([])
    with pytest.raises(InputError) as caught:
        raise_problems(["a is wrong", "b is wrong", "a is wrong"])
    assert caught.value.problems == ("a is wrong", "b is wrong")
