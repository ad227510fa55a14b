"""Lists of stretches of videos, and of videos with many labels, against files written by hand."""

import math

import pytest
from fakes import FakeReader, FakeRequest, opener_of, training_clips_of
from listed import write_videos, written
from tiny import data_keys, tiny_config

from mgexp.data.lists import build_list, overlap_problems
from mgexp.data.records import Action, ActionRecord, VideoRecord
from mgexp.data.views import EvaluationViews


@pytest.fixture
def read(tmp_path):
    """Reads a training list of the given text with three classes; returns the list and a function of paths."""
    root = write_videos(tmp_path / "videos", "a b.mp4", "c.mp4")

    def read(content, **changes):
        path = written(tmp_path / "train.csv", content)
        keys = {"DATA.TRAIN_LIST": str(path), "DATA.PATH_PREFIX": str(root), "MODEL.NUM_CLASSES": 3}
        return build_list(tiny_config(tmp_path, {**keys, **changes}), "TRAIN_LIST")

    return read


def names(videos):
    return [record.path.rpartition("/")[2] for record in videos.records]


@pytest.mark.parametrize(
    ("content", "separator"),
    [
        ("video,start,end,label\na b.mp4,0,2.5,2\na b.mp4,2.5,4,0\n", ","),
        ("path\tlabel\tstart\tend\tnote\na b.mp4\t2\t0\t2.5\tx\na b.mp4\t0\t2.5\t4\ty\n", "\t"),
        ('path start end label\n"a b.mp4" 0 2.5 2\n"a b.mp4" 2.5 4 0\n', " "),
    ],
)
def test_a_table_names_stretches_of_videos(read, content, separator):
    found = read(content, **{"DATA.PATH_LABEL_SEPARATOR": separator})
    assert found.problems == ()
    path = found.records[0].path
    assert found.records == (VideoRecord(path, 2, (0, 2.5)), VideoRecord(path, 0, (2.5, 4)))
    assert names(found) == ["a b.mp4"] * 2


@pytest.mark.parametrize("line", ["c.mp4,3,2,0", "c.mp4,-1,2,0", "c.mp4,x,2,0", "c.mp4,0,2,3"])
def test_a_wrong_stretch_is_named_by_its_line(read, line):
    content = f"video,start,end,label\nc.mp4,0,1,0\n{line}\n"
    (problem,) = read(content, **{"DATA.PATH_LABEL_SEPARATOR": ","}).problems
    assert "train.csv:3: " in problem


@pytest.mark.parametrize(
    ("content", "separator"),
    [
        ("a b.mp4 0 2\nc.mp4 1\n", " "),
        ("a b.mp4,0,2\nc.mp4,1\n", ","),
        ("id,run,walk,jump\na b.mp4,1,0,1\nc.mp4,0,1,0\n", ","),
    ],
)
def test_a_video_may_have_many_labels(read, content, separator):
    loss = {"MODEL.LOSS_FUNC": "bce_logit", "DATA.PATH_LABEL_SEPARATOR": separator}
    found = read(content, **loss)
    assert found.problems == ()
    assert names(found) == ["a b.mp4", "c.mp4"]
    assert [record.target() for record in found.records] == [(1.0, 0.0, 1.0), (0.0, 1.0, 0.0)]
    assert isinstance(found.records[0], ActionRecord)
    assert found.records[1].actions == (Action(1, 0.0, math.inf),)


def test_a_cell_that_is_neither_0_nor_1_is_named(read):
    loss = {"MODEL.LOSS_FUNC": "bce_logit", "DATA.PATH_LABEL_SEPARATOR": ","}
    (problem,) = read("id,run,walk,jump\nc.mp4,0,2,0\n", **loss).problems
    assert "train.csv:2: " in problem


def test_without_many_labels_a_second_number_is_a_part_of_the_name(read):
    assert read("c.mp4 1 2\n").missing[0].endswith("c.mp4 1")


def test_stretches_of_one_video_may_differ_in_their_labels_and_be_in_both_lists(
    tiny_data, tmp_path
):
    table = "video,start,end,label\ntrain0.mp4,0,0.3,0\ntrain0.mp4,0.3,0.8,1\n"
    keys = {"DATA.TRAIN_LIST": str(written(tmp_path / "train.csv", table))}
    keys |= {"DATA.VAL_LIST": keys["DATA.TRAIN_LIST"], "DATA.PATH_LABEL_SEPARATOR": ","}
    cfg = tiny_config(tmp_path, {**data_keys(tiny_data), **keys})
    lists = [build_list(cfg, key) for key in ("TRAIN_LIST", "VAL_LIST")]
    problems, (warning,) = overlap_problems(*lists, 2)
    assert problems == []
    assert warning.startswith("2 of 2 validation videos are training videos too")


def test_a_training_clip_shows_its_stretch_alone():
    """The frames of the made-up video are numbered, 30 in a second."""
    records = [VideoRecord("a", 0, (0.5, 1.0)), VideoRecord("a", 1, (1.5, 9.0))]
    clips = training_clips_of(records, opener_of(FakeReader()))
    shown = {
        index: [
            int(frame)
            for number in range(60)
            for frame in clips[FakeRequest(index, stride_range=(1, 2), seed=(0, number))].frames[
                :, 0, 0, 0
            ]
        ]
        for index in (0, 1)
    }
    assert (min(shown[0]), max(shown[0])) == (15, 29)
    assert (min(shown[1]), max(shown[1])) == (45, 59)


def test_a_stretch_behind_the_end_of_its_video_is_named():
    clips = training_clips_of([VideoRecord("a", 0, (2.0, 3.0))], opener_of(FakeReader()))
    assert "stretch" in clips[FakeRequest()].unusable[0][1]


def test_evaluation_shows_a_stretch_as_training_does():
    """A stretch ends with its video, and one behind the end is an error. The video has 60 frames in 2 s."""
    records = [VideoRecord("a", 0, (1.0, 9.0)), VideoRecord("a", 0, (2.0, 3.0))]
    clip = {"frames": 4, "stride": 1, "crop": 8, "target_fps": 30.0}
    opener = opener_of(FakeReader())
    views = EvaluationViews(records, **clip, num_views=2, num_crops=1, opener=opener)
    assert views[0].frames[0, :, 0, 0, 0].tolist() == [30, 31, 32, 33]
    assert views[1].frames[0, :, 0, 0, 0].tolist() == [56, 57, 58, 59]
    assert "stretch" in views[2].error
