"""Labels of clips and views of videos with many actions."""

import pytest
import torch
from fakes import FakeReader, FakeRequest, opener_of, training_clips_of

from mgexp.data.batches import collate
from mgexp.data.records import Action, ActionRecord
from mgexp.data.views import EvaluationViews, collate_views

OPENER = opener_of(FakeReader())


def clips_of(actions, stride):
    """Clips of two frames of one video, from 60 random starts."""
    source = training_clips_of([ActionRecord("0.mp4", actions, 3)], OPENER)
    stride_range = None if stride is None else (stride, stride)
    requests = [FakeRequest(0, 2, 32, stride_range, (0, position)) for position in range(60)]
    return [source[request] for request in requests]


# Class 0 in the first second, class 1 in the second, class 2 after the end of the video. A stride of 15 frames
# is half a second; without one a frame comes from each half.
@pytest.mark.parametrize(
    ("stride", "wanted"),
    [
        (15, {(1.0, 0.0, 0.0), (1.0, 1.0, 0.0), (0.0, 1.0, 0.0)}),
        (None, {(1.0, 1.0, 0.0)}),
        (90, {(1.0, 1.0, 0.0)}),  # 3 s: the end of the video is shown, not what would come after
    ],
)
def test_labels_of_a_clip_are_those_shown_in_it(stride, wanted):
    drawn = clips_of((Action(0, 0.0, 1.0), Action(1, 1.0, 5.0), Action(2, 2.1, 9.0)), stride)
    assert {clip.label for clip in drawn} == wanted
    for clip in drawn:
        first, last = clip.frames[:, 0, 0, 0].tolist()
        assert clip.label[:2] == (float(first < 30), float(last >= 30))


def test_a_batch_has_a_row_of_labels_for_each_clip():
    batch = collate(clips_of((Action(1, 0.0, 2.0),), 1)[:4])
    assert batch.labels.dtype == torch.float32
    assert batch.labels.tolist() == [[0.0, 1.0, 0.0]] * 4


def test_labels_of_a_view_are_those_of_the_whole_video():
    records = [
        ActionRecord("0.mp4", (Action(0, 0.0, 0.1), Action(2, 1.9, 2.0)), 3),
        ActionRecord("1.mp4", (), 3),
    ]
    shape = {"frames": 2, "stride": 1, "crop": 32, "target_fps": 30}
    views = EvaluationViews(records, **shape, num_views=2, num_crops=3, opener=OPENER)
    batch = collate_views([views[item] for item in range(4)])
    assert batch.labels.dtype == torch.float32
    assert batch.labels.tolist() == [[1.0, 0.0, 1.0]] * 6 + [[0.0] * 3] * 6
