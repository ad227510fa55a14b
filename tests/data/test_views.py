"""Evaluation views: which moments and squares, in which order, and what becomes of a broken video."""

import numpy as np
import pytest
import torch
from fakes import FakeReader, opener_of

from mgexp.data.records import VideoRecord
from mgexp.data.views import EvaluationViews, collate_views


def evaluation_views(broken=(), num_records=5, **changes):
    opened, open_video = [], opener_of(FakeReader(), [f"{index}.mp4" for index in broken])

    def opener(path):
        opened.append(path)
        return open_video(path)

    arguments = {"frames": 4, "stride": 8, "crop": 32, "target_fps": 30, "opener": opener}
    arguments |= {"num_views": 1, "num_crops": 1, **changes}
    records = [VideoRecord(f"{index}.mp4", 100 + index) for index in range(num_records)]
    views = EvaluationViews(records, **arguments)
    views.opened = opened
    return views


def shown(view):
    """Numbers of the frames in each crop of the view."""
    return view.frames[:, :, 0, 0, 0].tolist()


def test_there_is_one_item_for_each_view_of_each_video():
    views = evaluation_views(num_views=3)
    assert len(views) == 15
    assert [views[item].video for item in range(7)] == [0, 0, 0, 1, 1, 1, 2]
    assert views[14].label == 104


# 60 frames, of which 4 with stride 8 span 25: starts 0 to 35.
@pytest.mark.parametrize(
    ("num_views", "frames"),
    [(1, [[17, 25, 33, 41]]), (3, [[0, 8, 16, 24], [17, 25, 33, 41], [35, 43, 51, 59]])],
)
def test_views_are_evenly_spaced(num_views, frames):
    views = evaluation_views(num_views=num_views)
    assert [shown(views[item])[0] for item in range(num_views)] == frames


def test_without_a_stride_the_middle_of_each_segment_is_shown():
    assert shown(evaluation_views(stride=None)[0]) == [[7, 22, 37, 52]]


# Frames 30 to 49 of 60 as a part: a clip of 4 frames is in its middle, or a frame in the middle of each segment.
# A longer clip begins with its part. That of the last part begins earlier, so that it ends with the video.
@pytest.mark.parametrize(
    ("stride", "part", "frames"),
    [
        (4, (1.0, 50 / 30), [[33, 37, 41, 45]]),
        (None, (1.0, 50 / 30), [[32, 37, 42, 47]]),
        (8, (1.0, 1.1), [[30, 38, 46, 54]]),
        (8, (1.9, 2.0), [[36, 44, 52, 59]]),
    ],
)
def test_a_part_of_a_video_is_shown_alone(stride, part, frames):
    views = evaluation_views(stride=stride)
    views.records = [VideoRecord("0.mp4", 0, part)]
    assert shown(views[0]) == frames


def test_all_crops_come_from_one_decoding():
    views = evaluation_views(num_crops=3)
    frames = views[0].frames
    assert frames.shape == (3, 4, 32, 32, 3)
    assert frames[:, 0, 0, 0, 2].tolist() == [0, 8, 16]  # left, centre, right of 48 columns
    assert views.opened == ["0.mp4"]


def test_a_smaller_crop_shows_all_of_the_short_side():
    frames = evaluation_views(crop=16)[0].frames
    assert frames.shape == (1, 4, 16, 16, 3)
    rows = frames[0, 0, :, 0, 1].tolist()
    # The means of the first and of the last two rows, rounded.
    assert (rows[0], rows[-1]) == (1, 30)
    assert np.all(np.diff(rows) > 0)


@pytest.mark.parametrize(
    ("order", "frames"), [("repeated", [33, 33, 33, 33]), ("reversed", [41, 33, 25, 17])]
)
def test_frames_may_be_shown_in_another_order(order, frames):
    assert shown(evaluation_views(frame_order=order, num_crops=3)[0]) == [frames] * 3


def test_shuffled_shows_the_same_frames_in_an_order_of_the_video():
    views = evaluation_views(num_records=30, frame_order="shuffled", num_crops=3)
    orders = [shown(views[item]) for item in range(30)]
    assert all(sorted(crop) == [17, 25, 33, 41] for crops in orders for crop in crops)
    assert all(crops[0] == crops[1] == crops[2] for crops in orders)
    assert len({tuple(crops[0]) for crops in orders}) > 10  # of 24
    assert [shown(views[item]) for item in range(30)] == orders


def test_a_broken_video_is_an_error_and_not_replaced():
    view = evaluation_views(broken=[2])[2]
    assert (view.video, view.label, view.error) == (2, 102, "2.mp4: is broken")
    assert len(view.frames) == 0


def test_a_batch_holds_all_crops_in_order():
    views = evaluation_views(num_views=2, num_crops=3)
    batch = collate_views([views[1], views[2]])
    assert batch.clips.shape == (6, 3, 4, 32, 32)
    assert batch.clips.dtype == torch.uint8
    assert batch.clips.is_contiguous(memory_format=torch.channels_last_3d)
    assert torch.equal(batch.clips[4, 1], views[2].frames[1, ..., 1])
    assert batch.videos.tolist() == [0, 0, 0, 1, 1, 1]
    assert batch.labels.tolist() == [100, 100, 100, 101, 101, 101]
    assert batch.videos.dtype == batch.labels.dtype == torch.int64
    assert batch.errors == ()


def test_a_batch_leaves_broken_videos_out_and_names_all():
    views = evaluation_views(broken=[0, 3], num_crops=3)
    batch = collate_views([views[item] for item in range(5)])
    assert batch.videos.tolist() == [1, 1, 1, 2, 2, 2, 4, 4, 4]
    assert batch.labels.tolist() == [101, 101, 101, 102, 102, 102, 104, 104, 104]
    assert len(batch.clips) == 9
    assert batch.errors == ((0, "0.mp4: is broken"), (3, "3.mp4: is broken"))


def test_a_batch_of_broken_videos_alone_has_no_clips():
    views = evaluation_views(broken=[0, 1])
    batch = collate_views([views[0], views[1]])
    assert batch.clips.shape == (0, 3, 4, 32, 32)
    assert len(batch.videos) == len(batch.labels) == 0
    assert batch.errors == ((0, "0.mp4: is broken"), (1, "1.mp4: is broken"))
