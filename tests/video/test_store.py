"""Reading from a store: which level serves, from which region, and what happens without a copy."""

import os

import pytest
from fakes import FakeRequest, training_clips_of
from stores import TALL, WIDE, NotedOpener, order, psnr, store_in, write_smooth
from videos import set_display_matrix

from mgexp.data.records import VideoRecord
from mgexp.errors import InputError
from mgexp.video.pyav import PyavReader
from mgexp.video.reader import VideoError
from mgexp.video.store import StoreIndex, choose_level, is_gone
from mgexp.video.store_fill import fill_store

BOTH = ((160, 160), (320, 256))  # of a video of 256 x 340, asked for 320 and 160
SMALL = ((80, 80), (160, 160))  # of a video of 720 x 1280


@pytest.mark.parametrize(
    ("short_sides", "source", "needed", "level"),
    [
        (BOTH, 256, 128.0, 160),
        (BOTH, 256, 160.0, 160),
        (BOTH, 256, 160.1, 320),
        (BOTH, 256, 256.0, 320),
        (BOTH, 256, 320.0, 320),  # more than there is: the copy is as large as the video
        (((320, 254),), 255, 320.0, 320),  # an odd video
        (SMALL, 720, 80.0, 80),
        (SMALL, 720, 81.0, 160),
        (SMALL, 720, 161.0, None),  # the video is sharper than its largest copy
    ],
)
def test_level_by_short_side(short_sides, source, needed, level):
    assert choose_level(short_sides, source, needed) == level


@pytest.fixture
def filled(tmp_path):
    """(record, index) of a video of 96 x 128 with levels 96 and 48."""
    source = write_smooth(tmp_path / "videos" / "a.mp4")
    fill_store(store_in(tmp_path), order(source.parent, 96, 48), ["a.mp4"], 1, progress=False)
    return VideoRecord(str(source), 3), StoreIndex(store_in(tmp_path), source.parent, NotedOpener())


def training_clips(record, opener, jitter=(48, 96)):
    return training_clips_of([record], opener, jitter, flip=True)


def test_clips_show_the_same_region_at_the_same_times_from_every_level(filled, tmp_path):
    record, index = filled
    requests = [FakeRequest(stride_range=(1, 3), seed=(0, position)) for position in range(12)]
    for jitter, level in (((40, 48), 48), ((49, 96), 96)):
        stored = [training_clips(record, index, jitter)[request] for request in requests]
        plain = [training_clips(record, PyavReader, jitter)[request] for request in requests]
        assert {*index.open_file[-12:]} == {str(store_in(tmp_path).copy(level, "a.mp4"))}
        for one, other in zip(stored, plain, strict=True):
            assert psnr(one.frames.numpy(), other.frames.numpy()) > 32


def test_clips_of_several_sizes_come_from_several_levels(filled, tmp_path):
    record, index = filled
    clips = training_clips(record, index, jitter=(32, 64))
    for position in range(40):
        _ = clips[FakeRequest(stride_range=(1, 3), seed=(0, position))]
    assert len(index.open_file) == 40
    small = index.open_file.count(str(store_in(tmp_path).copy(48, "a.mp4")))
    assert 10 < small < 30  # half of them, by the uniform draw


def test_a_video_without_a_copy_is_read_itself(filled, tmp_path):
    _, index = filled
    other = VideoRecord(str(write_smooth(tmp_path / "videos" / "b.mp4")), 0)
    _ = training_clips(other, index)[FakeRequest()]
    assert index.open_file == [other.path]


def test_a_video_that_changed_since_is_read_itself(filled):
    record, index = filled
    os.utime(record.path, (1, 1))
    assert index.entry(record.path) is None
    _ = training_clips(record, index)[FakeRequest()]
    assert index.open_file == [record.path]


def test_copies_are_used_if_the_video_is_gone_but_not_if_its_folder_is_closed(filled, monkeypatch):
    record, index = filled

    def raising(error):
        def stat(path, *rest, **more):
            if path == record.path:
                raise error
            return os.lstat(path)

        return stat

    for error, is_used in ((NotADirectoryError(20, "x"), True), (PermissionError(13, "x"), False)):
        monkeypatch.setattr("mgexp.video.store.os.stat", raising(error))
        assert is_gone(record.path) == is_used
        assert (index.entry(record.path) is not None) == is_used


def test_a_copy_that_is_gone_is_an_error_that_names_it(filled, tmp_path):
    record, index = filled
    copy = store_in(tmp_path).copy(48, "a.mp4")
    copy.unlink()
    with pytest.raises(VideoError, match=str(copy)), index(record.path) as video:
        video.frames_at([0.0], 40)


def test_a_turned_video_is_turned_at_every_level_and_from_itself(tmp_path):
    source = write_smooth(tmp_path / "videos" / "a.mp4")
    set_display_matrix(source, (0, -1, 1, 0, 0, 0))
    fill_store(store_in(tmp_path), order(source.parent, 48), ["a.mp4"], 1, progress=False)
    opener = NotedOpener()
    with StoreIndex(store_in(tmp_path), source.parent, opener)(str(source)) as video:
        small, large = video.frames_at([0.5], 48), video.frames_at([0.5], 96)
    assert opener == [str(store_in(tmp_path).copy(48, "a.mp4")), str(source)]
    assert small.size == large.size == (WIDE, TALL)
    assert large.pixels.shape[1:3] == (WIDE, TALL)
    averaged = large.pixels.astype(float).reshape(1, 64, 2, 48, 2, 3).mean(axis=(2, 4))
    assert psnr(averaged, small.pixels) > 34


def test_a_folder_that_is_no_store_is_refused(tmp_path):
    with pytest.raises(InputError, match="is no clip store"):
        StoreIndex(store_in(tmp_path), tmp_path, PyavReader)
