"""What a run must know before its first file."""

import pytest
from tiny import tiny_config

from mgexp.data.records import VideoList, VideoRecord
from mgexp.errors import InputError
from mgexp.train.build import schedule_of
from mgexp.train.inputs import (
    Inputs,
    list_problems,
    listed,
    raise_problems,
    shape_problems,
    unusable_problem,
)

RECORDS = tuple(VideoRecord(f"/{index}.mp4", index % 2) for index in range(10))


@pytest.mark.parametrize(
    ("num", "share", "is_fine"), [(0, 0, 1), (1, 0, 0), (2, 0.2, 1), (3, 0.2, 0)]
)
def test_the_share_of_unusable_videos_is_a_limit(num, share, is_fine):
    names = [f"{index}.mp4" for index in range(num)]
    assert (unusable_problem(names, 10, share) is None) == bool(is_fine)


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
    assert list(shape_problems(schedule, 2)) == []
    (problem,) = shape_problems(schedule, 4)
    assert "2 frames" in problem
    assert len(list(shape_problems(schedule, 8))) == 2


def test_the_fingerprint_knows_paths_labels_and_order(tmp_path):
    schedule = schedule_of(tiny_config(tmp_path), 10)
    other_label = (VideoRecord("/0.mp4", 1), *RECORDS[1:])
    kinds = [RECORDS, RECORDS[::-1], RECORDS[:-1], other_label]
    found = [Inputs(kind, (), (), schedule).fingerprint()["train_sha256"] for kind in kinds]
    assert len(set(found)) == 4
    assert Inputs(RECORDS, RECORDS, (), schedule).fingerprint()["train_sha256"] == found[0]


def test_each_problem_is_said_once():
    raise_problems([])
    with pytest.raises(InputError) as caught:
        raise_problems(["a is wrong", "b is wrong", "a is wrong"])
    assert caught.value.problems == ("a is wrong", "b is wrong")
