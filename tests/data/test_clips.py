"""Training clips: what is drawn, from what, in which memory, and their batches."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fakes import FakeReader, FakeRequest, Pinned, fake_frames, opener_of, training_clips_of

from mgexp.data import clips as module
from mgexp.data.batches import Batch, collate
from mgexp.data.clips import Clip
from mgexp.data.records import VideoRecord
from mgexp.errors import InputError
from mgexp.video.reader import Region, VideoError


def training_clips(num_records=20, broken=(), **changes):
    records = [VideoRecord(f"{index}.mp4", 100 + index) for index in range(num_records)]
    opener = opener_of(FakeReader(), [f"{index}.mp4" for index in broken])
    return training_clips_of(records, opener, **changes)


def many(clips, num_clips, **request):
    return [clips[FakeRequest(seed=(0, position), **request)] for position in range(num_clips)]


def same(one, other):
    return torch.equal(one.frames, other.frames) and replace(one, frames=None) == replace(
        other, frames=None
    )


def test_a_clip_has_the_requested_shape_video_and_label():
    clip = training_clips()[FakeRequest(index=3, frames=4, crop=32)]
    assert clip.frames.shape == (4, 32, 32, 3)
    assert clip.frames.dtype == torch.uint8
    assert (clip.index, clip.label, clip.unusable) == (3, 103, ())


def test_the_stride_is_drawn_from_the_requested_range():
    clips = many(training_clips(), 300, stride_range=(2, 4))
    gaps = torch.stack([clip.frames[:, 0, 0, 0].int().diff() for clip in clips])
    assert gaps.unique().tolist() == [2, 3, 4]
    assert torch.equal(gaps.amin(1), gaps.amax(1))  # one stride for the whole clip


def test_without_a_stride_each_segment_gives_one_frame():
    clips = many(training_clips(), 300, stride_range=None)
    shown = torch.stack([clip.frames[:, 0, 0, 0] for clip in clips])
    assert shown.amin(0).tolist() == [0, 15, 30, 45]
    assert shown.amax(0).tolist() == [14, 29, 44, 59]


# Kinetics: short sides 256 to 320 at 224 pixels. Least short sides: oracle/kinetics_*.json of the released
# code, jitter_min_scales. The clip that shows the most of the 32 rows shows 32 * crop / least of them.
@pytest.mark.parametrize(("crop", "least"), [(112, 128), (158, 181), (224, 256)])
def test_a_smaller_crop_lowers_the_least_short_side_and_not_the_largest(crop, least):
    clips = many(training_clips(jitter=(256, 320), full_crop=224), 300, crop=crop, frames=2)
    rows = torch.stack([clip.frames[0, :, 0, 1].int() for clip in clips])
    shown = (rows[:, -1] - rows[:, 0] + 1).float()
    assert shown.max() == round(32 * crop / least)
    assert shown.min() == pytest.approx(32 * crop / 320, abs=1)


def test_a_relative_crop_shows_its_share_of_the_frame_at_every_shape():
    """A quarter of 32 x 48 pixels, twice as wide as tall, has 13.9 x 27.7 pixels."""
    given = []

    class Reader(FakeReader):
        def frames_at(self, times_seconds, short_side, cut):
            def note(size):
                given.append(cut(size))
                return given[-1]

            return super().frames_at(times_seconds, short_side, note)

    clips = training_clips(relative=((0.25, 0.25), (2.0, 2.0)))
    clips.opener = opener_of(Reader())
    for crop in (32, 16):
        found = many(clips, 300, crop=crop, frames=2)
        assert {clip.frames.shape for clip in found} == {(2, crop, crop, 3)}
    assert {(region.height, region.width) for region in given} == {(14, 28)}
    assert {region.top for region in given} == set(range(19))
    assert {region.left for region in given} == set(range(21))


def test_a_relative_crop_asks_for_a_copy_as_large_as_the_largest_short_side():
    """320 pixels at the full crop, and as much smaller as a smaller crop is."""
    asked = []

    class Reader(FakeReader):
        def frames_at(self, times_seconds, short_side, cut):
            asked.append(short_side)
            return super().frames_at(times_seconds, short_side, cut)

    relative = ((0.08, 1.0), (0.75, 1.3333))
    clips = training_clips(relative=relative, jitter=(256, 320), full_crop=224)
    clips.opener = opener_of(Reader())
    for crop in (224, 112):
        clips[FakeRequest(crop=crop)]
    assert asked == [320, 160]


def test_half_of_the_clips_are_flipped_where_asked():
    clips = many(training_clips(flip=True), 400)
    assert 150 < sum(clip.flipped for clip in clips) < 250  # five standard deviations
    batch = collate(clips[:20])
    assert batch.flipped.tolist() == [clip.flipped for clip in clips[:20]]


def test_no_clip_is_flipped_where_not_asked():
    clips = many(training_clips(), 50)
    assert not any(clip.flipped for clip in clips)
    assert collate(clips).flipped is None


def test_flipping_changes_no_other_draw():
    plain = many(training_clips(), 20)
    for clip, flipped in zip(plain, many(training_clips(flip=True), 20), strict=True):
        assert torch.equal(clip.frames, flipped.frames)


def test_the_same_request_gives_the_same_clip_whatever_came_before():
    requests = [FakeRequest(index=i % 20, seed=(5, i)) for i in range(40)]
    forward = {request: training_clips(flip=True)[request] for request in requests}
    clips = training_clips(flip=True)
    for request in reversed(requests):
        assert same(clips[request], forward[request])


def test_a_broken_video_is_named_and_replaced():
    clip = training_clips(broken=[3])[FakeRequest(index=3)]
    assert clip.unusable == ((3, "3.mp4: is broken"),)
    assert clip.index != 3
    assert clip.label == 100 + clip.index
    assert clip.frames.shape == (4, 32, 32, 3)


def test_the_replacement_is_a_function_of_the_position():
    requests = [FakeRequest(index=3, seed=(0, position)) for position in range(200)]
    first = [training_clips(broken=[3])[request] for request in requests]
    clips = training_clips(broken=[3])
    second = [clips[request] for request in reversed(requests)]
    assert all(same(*pair) for pair in zip(first, reversed(second), strict=True))
    assert {clip.index for clip in first} == set(range(20)) - {3}


def test_a_replacement_that_fails_is_named_too():
    broken = range(18)  # of 20: nine of ten tries fail
    clips = training_clips(broken=broken)
    found = [clips[FakeRequest(seed=(0, position))] for position in range(30)]
    drawn = [clip for clip in found if len(clip.frames)]
    assert all(clip.index in {18, 19} for clip in drawn)
    assert max(len(clip.unusable) for clip in drawn) > 2
    assert all(failed in broken for clip in drawn for failed, _ in clip.unusable)


def test_ten_failures_end_in_a_clip_without_frames():
    opened = []

    def opener(path):
        opened.append(path)
        raise VideoError(path, "is broken")

    clips = training_clips()
    clips.opener = opener
    clip = clips[FakeRequest(index=7)]
    assert clip.unusable[0] == (7, "7.mp4: is broken")
    assert len(opened) == len(clip.unusable) == 10
    batch = collate([training_clips()[FakeRequest()], clip])
    assert (len(batch.clips), len(batch.labels), batch.unusable) == (0, 0, clip.unusable)


@pytest.mark.parametrize("jitter", [(30, 40), (40, 36)])
def test_a_jitter_that_cannot_hold_the_crop_is_refused(jitter):
    with pytest.raises(InputError, match=f"from {jitter[0]} to {jitter[1]} pixels"):
        training_clips(jitter=jitter)


def test_a_batch_is_channels_last_without_a_copy_of_the_stack():
    clips = many(training_clips(), 3)
    batch = collate(clips)
    assert batch.clips.shape == (3, 3, 4, 32, 32)
    assert batch.clips.is_contiguous(memory_format=torch.channels_last_3d)
    assert torch.equal(batch.clips[1, 2], clips[1].frames[..., 2])
    assert batch.labels.dtype == torch.int64
    assert batch.labels.tolist() == [100, 100, 100]


# Draws are what they were before clip stores came: a table made by the code of that time.

# (inverse uniform, stride range, seed, first and last time, region, flipped) of 8 frames at a crop of 112,
# from 10 s of 256 x 340 pixels, with short sides of 256 to 320 at a full crop of 224.
TABLE = [
    (False, (2, 8), (0, 0), (2.257215505, 3.890548838), (29, 9, 211, 211), False),
    (False, (2, 8), (7, 123456), (6.092107266, 7.0254406), (81, 157, 108, 108), True),
    (False, (2, 2), (0, 0), (6.072368086, 6.539034752), (30, 7, 159, 159), True),
    (False, (2, 2), (7, 123456), (5.229325809, 5.695992476), (70, 165, 112, 112), False),
    (False, None, (0, 0), (0.796202109, 9.661870701), (75, 203, 123, 123), False),
    (False, None, (7, 123456), (0.685663349, 9.091919931), (3, 205, 95, 95), True),
    (True, (2, 8), (0, 0), (2.257215505, 3.890548838), (103, 18, 95, 95), False),
    (True, (2, 8), (7, 123456), (6.092107266, 7.0254406), (38, 104, 186, 186), True),
    (True, (2, 2), (0, 0), (6.072368086, 6.539034752), (40, 8, 126, 126), True),
    (True, (2, 2), (7, 123456), (5.229325809, 5.695992476), (37, 116, 180, 180), False),
    (True, None, (0, 0), (0.796202109, 9.661870701), (52, 166, 163, 163), False),
    (True, None, (7, 123456), (0.685663349, 9.091919931), (1, 108, 211, 211), True),
]


class Recorder:
    """A video that notes which times are asked for."""

    duration_seconds = 10.0

    def __init__(self):
        self.times = ()

    def frames_at(self, times_seconds, short_side, cut):
        self.times = (times_seconds[0], times_seconds[-1])
        self.region = cut((256, 340))
        pixels = np.zeros((len(times_seconds), 256, 340, 3), np.uint8)
        return fake_frames(pixels, lambda size: self.region)


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_draws_are_what_they_were(row, monkeypatch):
    inverse_uniform, stride_range, seed, times, corner, flipped = row
    reader = Recorder()

    def finish(frames, crop, augment, seed):
        return torch.arange(crop).reshape(1, 1, crop, 1)

    monkeypatch.setattr(module, "finish", finish)
    sizes = {"jitter": (256, 320), "full_crop": 224, "inverse_uniform": inverse_uniform}
    clips = training_clips_of([VideoRecord("a.mp4", 0)], opener_of(reader), flip=True, **sizes)
    clip = clips[FakeRequest(0, 8, 112, stride_range, seed)]
    assert reader.times == pytest.approx(times, abs=1e-8)
    assert reader.region == Region(*corner)
    assert clip.flipped == flipped


# A batch says which videos are unusable.


def test_a_batch_names_all_unusable_videos_in_order():
    frames = torch.zeros((1, 2, 2, 3), dtype=torch.uint8)
    clips = [
        Clip(frames, 0, 5, ((1, "short"), (4, "empty")), crop=4),
        Clip(frames, 1, 6, (), crop=4),
        Clip(frames, 0, 7, ((2, "gone"),), crop=4),
    ]
    assert collate(clips).unusable == ((1, "short"), (4, "empty"), (2, "gone"))


def test_pinning_pins_all_tensors_and_keeps_the_rest():
    clips = torch.zeros(1, dtype=torch.uint8).as_subclass(Pinned)
    labels = torch.zeros(1, dtype=torch.int64).as_subclass(Pinned)
    flipped = torch.zeros(1, dtype=torch.bool).as_subclass(Pinned)
    pinned = Batch(clips, labels, ((1, "short"),), flipped).pin_memory()
    names = [f"pinned torch.{name}" for name in ("uint8", "int64", "bool")]
    assert pinned == Batch(*names[:2], ((1, "short"),), names[2])
