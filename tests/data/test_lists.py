"""The videos that a configuration or plain lists name, those in a quarantine, and all problems at once."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from listed import names_and_labels, write_videos, written
from tiny import tiny_config

from mgexp.config.load import load_config
from mgexp.data.lists import (
    build_class_names,
    build_list,
    lost_classes,
    overlap_problems,
    quarantine_problems,
    read_listing,
)
from mgexp.data.records import VideoList, VideoRecord
from mgexp.errors import InputError

ROW = Path("experiments/quickstart/baseline.yaml")
KINETICS = "label,youtube_id,time_start,time_end\n{}"
UCF = "run/v_x.avi"
KINETICS_RUN = "BBBBBBBBBBB_000001_000002.mp4"
BOTH = KINETICS.format("zumba,AAAAAAAAAAA,1,2\nrun,BBBBBBBBBBB,1,2\n")


def config_of(folder, format_, train, val, *pairs):
    """The quickstart's row on the lists of a folder, with two classes."""
    return load_config(ROW, keys_of(folder, format_, train, val, *pairs))


def keys_of(folder, format_, train, val, *pairs):
    given = ("DATA.FORMAT", format_)
    given += ("DATA.TRAIN_LIST", f"{folder}/{train}", "DATA.VAL_LIST", f"{folder}/{val}")
    prefix = "" if format_ == "folders" else str(folder)
    return [*given, "DATA.PATH_PREFIX", prefix, "MODEL.NUM_CLASSES", "2", *pairs]


def write_lists(folder):
    """One training video of class "run" in every format, under the names of the table below."""
    (folder / "kinetics.csv").write_text(BOTH)
    (folder / "one.csv").write_text(KINETICS.format("zumba,AAAAAAAAAAA,1,2\n"))
    (folder / "ssv2.json").write_text('[{"id": "1", "template": "[run]"}]')
    (folder / "labels.json").write_text('{"walk": "1", "run": "0"}')
    (folder / "trainlist01.txt").write_text("run/v_x.avi 1\n")
    (folder / "classInd.txt").write_text("1 run\n2 walk\n")
    (folder / "run_test_split1.txt").write_text("v_x.avi 1\n")
    (folder / "walk_test_split1.txt").write_text("v_x.avi 0\n")
    (folder / "list.txt").write_text("run/v_x.avi 0\n")
    (folder / "rawframes.txt").write_text("frames/x 1 1\n")
    videos = (
        "1.webm",
        "frames/x/img_00001.jpg",
        "run/v_x.avi",
        "by_class/run/v_x.avi",
        "by_class/walk/v_x.avi",
    )
    write_videos(folder, *videos, "BBBBBBBBBBB_000001_000002.mp4", "AAAAAAAAAAA_000001_000002.mp4")


@pytest.mark.parametrize(
    ("format_", "train", "classes", "wanted", "names"),
    [
        ("list", "list.txt", "", (UCF, 0), ()),
        ("list", "list.txt", "labels.json", (UCF, 0), ("run", "walk")),
        ("rawframes", "rawframes.txt", "", ("frames/x", 1), ()),
        ("kinetics", "kinetics.csv", "", (KINETICS_RUN, 0), ("run", "zumba")),
        ("kinetics", "kinetics.csv", "names.txt", (KINETICS_RUN, 1), ("zumba", "run")),
        ("ssv2", "ssv2.json", "labels.json", ("1.webm", 0), ("run", "walk")),
        ("ucf101", "trainlist01.txt", "classInd.txt", (UCF, 0), ("run", "walk")),
        ("hmdb51", "*_test_split1.txt", "", (UCF, 0), ("run", "walk")),
        ("folders", "by_class", "", (f"by_class/{UCF}", 0), ("run", "walk")),
    ],
)
def test_the_format_chooses_the_reader_and_the_names_of_the_classes(
    format_, train, classes, wanted, names, tmp_path
):
    write_lists(tmp_path)
    (tmp_path / "names.txt").write_text("zumba\nrun\n")
    pairs = ("DATA.CLASSES", str(tmp_path / classes)) if classes else ()
    cfg = config_of(tmp_path, format_, train, train, *pairs)
    assert wanted in names_and_labels(tmp_path, build_list(cfg, "TRAIN_LIST"))
    assert build_class_names(cfg) == names


def test_classes_without_a_file_are_those_of_the_training_list(tmp_path):
    """The validation list lacks the first class, which changes the number of no other."""
    write_lists(tmp_path)
    videos = build_list(config_of(tmp_path, "kinetics", "kinetics.csv", "one.csv"), "VAL_LIST")
    assert names_and_labels(tmp_path, videos) == [("AAAAAAAAAAA_000001_000002.mp4", 1)]


@pytest.mark.parametrize(
    ("format_", "train", "said"),
    [
        ("ssv2", "ssv2.json", "DATA.CLASSES is not set: it names the official labels.json"),
        ("kinetics", "one.csv", "one.csv: 1 name, but MODEL.NUM_CLASSES = 2"),
        ("kinetics", "no.csv", "no.csv does not exist"),
        ("folders", "no", "no does not exist"),
    ],
)
def test_without_classes_there_is_one_problem(format_, train, said, tmp_path):
    write_lists(tmp_path)
    for key in ("TRAIN_LIST", "VAL_LIST"):
        (problem,) = build_list(config_of(tmp_path, format_, train, train), key).problems
        assert said in problem


def test_all_problems_are_in_one_message(tmp_path):
    written(tmp_path / "one.csv", "a.mp4 0\nb.mp4\nc.mp4 9\n" + "d.mp4\n" * 12)
    with pytest.raises(InputError) as caught:
        read_listing(ROW, keys_of(tmp_path, "list", "one.csv", "lost.csv"))
    message = str(caught.value)
    assert "lost.csv does not exist" in message
    assert f"{tmp_path}/one.csv:2: " in message
    assert "... and 3 more" in message
    assert f"{tmp_path}/one.csv:3: " in message


def test_a_tool_is_told_which_videos_exist(tmp_path):
    write_videos(tmp_path, "a.mp4")
    written(tmp_path / "empty.mp4", "")
    written(tmp_path / "one.csv", "lost.mp4 0\nempty.mp4 0\n")
    written(tmp_path / "other.csv", "a.mp4 0\nlost.mp4 1\n")
    found = read_listing(ROW, keys_of(tmp_path, "list", "one.csv", "other.csv"))
    assert found.paths == tuple(f"{tmp_path}/{name}.mp4" for name in ("lost", "empty", "a"))
    assert found.existing == (f"{tmp_path}/a.mp4",)


@pytest.mark.parametrize(("seed", "fold"), [("0", "0"), ("1", "1"), ("7", "1")])
def test_the_seed_chooses_the_fold(seed, fold, tmp_path):
    write_videos(tmp_path, "0.mp4", "1.mp4", "2.mp4")
    for number in range(3):
        written(tmp_path / f"val_{number}.txt", f"{number}.mp4 1\n")
    pairs = ("DATA.NUM_FOLDS", "3", "RNG_SEED", seed)
    keys = keys_of(tmp_path, "list", "train_{fold}.txt", "val_{fold}.txt", *pairs)
    cfg = load_config(ROW, keys)
    assert names_and_labels(tmp_path, build_list(cfg, "VAL_LIST")) == [(f"{fold}.mp4", 1)]
    (problem,) = build_list(cfg, "TRAIN_LIST").problems
    assert f"train_{fold}.txt does not exist" in problem
    # A tool with --cfg reads the lists of the same fold.
    with pytest.raises(InputError, match=f"train_{fold}.txt does not exist"):
        read_listing(ROW, keys)


@pytest.fixture
def quarantined(tmp_path):
    """Read a list of three videos and a lost one, with a quarantine of the given content."""
    write_videos(tmp_path, "run/a.mp4", "run/b.mp4", "run/c.mp4")
    written(
        tmp_path / "train.txt", "".join(f"run/{name}.mp4 0\n" for name in ("a", "b", "c", "lost"))
    )

    def read(content, root=tmp_path):
        if content is not None:
            (tmp_path / "q.txt").write_bytes(content.encode())
        keys = {
            "TRAIN_LIST": tmp_path / "train.txt",
            "PATH_PREFIX": root,
            "QUARANTINE": tmp_path / "q.txt",
        }
        cfg = tiny_config(tmp_path, {f"DATA.{key}": str(value) for key, value in keys.items()})
        return cfg.DATA, build_list(cfg, "TRAIN_LIST")

    return read


def test_forms_of_a_quarantine(quarantined, tmp_path):
    lost = str(tmp_path / "run/lost.mp4")
    for content in (
        "run/b.mp4\n",
        "\n./run/../run/b.mp4\r\n\n",
        "\ufeffrun/b.mp4",
        "run/b.mp4\nother/d.mp4\n",
        f"{tmp_path}/run/b.mp4\n",
    ):
        _, found = quarantined(content)
        assert [record.path[-5:] for record in found.records] == ["a.mp4", "c.mp4"]
        assert found.missing == (lost, str(tmp_path / "run/b.mp4"))
        assert (found.num_listed, found.problems) == (4, ())


def test_an_empty_quarantine_is_fine(quarantined):
    data, found = quarantined("")
    assert (len(found.records), len(found.missing), found.problems) == (3, 1, ())
    assert quarantine_problems(data, [found]) == []


def test_a_quarantine_that_is_not_there_is_a_problem_of_the_list(quarantined, tmp_path):
    _, found = quarantined(None)
    (problem,) = found.problems
    assert f"DATA.QUARANTINE {tmp_path}/q.txt does not exist" in problem


def test_a_quarantine_of_other_videos_is_a_problem(quarantined, tmp_path):
    data, found = quarantined("a.mp4\n../run/b.mp4\n/elsewhere/run/c.mp4\n")
    (problem,) = quarantine_problems(data, [found, found])
    assert f"{tmp_path}/q.txt: none of its 3 lines, such as '/elsewhere/run/c.mp4'" in problem
    # A list with problems says nothing about the quarantine.
    broken = VideoList(problems=("does not exist",))
    assert quarantine_problems(data, [found, broken]) == []


def test_a_quarantined_video_is_found_below_a_link_to_the_root(quarantined, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    _, found = quarantined("run/b.mp4\n", root=tmp_path / "link")
    assert found.missing[1:] == (f"{tmp_path}/link/run/b.mp4",)


def list_of(*labels, start=0):
    return VideoList(
        tuple(VideoRecord(f"/{start + n}.mp4", label) for n, label in enumerate(labels))
    )


@pytest.mark.parametrize(
    ("train", "val", "num_classes", "problem", "warning"),
    [
        (list_of(0, 1), list_of(1, 0, start=5), 2, "", ""),
        (VideoList(), VideoList(), 2, "", ""),
        (list_of(0, 1), list_of(0), 2, "all 1 validation videos are training videos", ""),
        (list_of(0, 1), list_of(1, 0, start=1), 2, "", "1 of 2 validation .* such as /1.mp4"),
        (list_of(0, 3), list_of(0, 2, 1, start=5), 4, r"training video \(class 1, 2\)", ""),
        (list_of(0, 3), list_of(0, start=5), 5, "", "3 classes have no video.* 1, 2, 4"),
        (list_of(1, 1), list_of(1, start=5), 2, "all .* are of class 1", "1 class has no video"),
    ],
)
def test_two_lists_beside_each_other(train, val, num_classes, problem, warning):
    for found, said in zip(
        overlap_problems(train, val, num_classes), (problem, warning), strict=True
    ):
        assert len(found) == bool(said)
        assert re.search(said, "".join(found))


@pytest.mark.parametrize(
    ("labels", "used", "left"),
    [
        ([0, 1] * 12, [0] * 12, "1 of 2"),
        ([*range(12)] * 4, [0, 4, 8] * 4, "3 of 12"),
        ([*range(12)] * 4, [*range(12)], None),
        ([*range(400)], [*range(0, 400, 8)], None),
        ([], [], None),
    ],
)
def test_every_nth_video_of_a_periodic_list_is_a_warning(labels, used, left):
    warnings = lost_classes("KEY", list_of(*labels).records, list_of(*used).records)
    assert [text for text in warnings if f"{left} classes" in text] == warnings
    assert bool(warnings) == bool(left)


def test_as_many_names_as_classes_are_needed_for_a_list_too(tmp_path):
    write_lists(tmp_path)
    cfg = config_of(
        tmp_path, "list", "list.txt", "", "DATA.CLASSES", str(written(tmp_path / "c", "run\n"))
    )
    (problem,) = build_list(cfg, "TRAIN_LIST").problems
    assert "1 name, but MODEL.NUM_CLASSES = 2" in problem


def test_a_video_with_two_labels_is_a_problem():
    videos = list_of(0, 1)
    again = replace(videos.records[0], label=1)
    twice = replace(videos, records=(*videos.records, again))
    (problem,), _ = overlap_problems(twice, list_of(1, 0, start=5), 2)
    path = videos.records[0].path
    assert problem.startswith(f"1 video is in the training list with two labels: {path} (0 and 1)")
    assert overlap_problems(videos, list_of(1, 0, start=5), 2) == ([], [])
