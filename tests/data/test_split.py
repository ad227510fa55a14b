"""One's own videos: what is found in folders and lists, which groups they have, and how they are split."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tiny import refuse_to_list

from mgexp.data import split
from mgexp.data.split import (
    OwnVideo,
    class_order,
    find_videos,
    name_problems,
    read_lists,
    split_videos,
    with_groups,
)
from mgexp.run.files import sha256_of


@pytest.fixture
def make(tmp_path):
    """Makes files that hold their own name, and returns the folder."""

    def files(*names):
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
        return tmp_path

    return files


def names(videos, root):
    return [(str(Path(one.path).relative_to(root)), one.class_name, one.group) for one in videos]


def test_a_folder_is_a_class_and_a_folder_in_it_is_a_group(make):
    root = make("b/x.mp4", "a/y.AVI", "a/person1/z.mp4", "a/.hidden/w.mp4", "a/.DS_Store")
    found = find_videos(root)
    assert names(found.videos, root) == [
        ("a/person1/z.mp4", "a", "person1"),
        ("a/y.AVI", "a", ""),
        ("b/x.mp4", "b", ""),
    ]
    assert (found.problems, found.notes) == ((), ())


def test_a_folder_of_images_is_a_video(make):
    root = make("a/clip/001.jpg", "a/clip/002.jpg", "b/x.mp4")
    assert names(find_videos(root).videos, root)[0] == ("a/clip", "a", "")


def test_a_picture_beside_folders_hides_no_videos(make):
    root = make("a/camera1/scene_1.jpg", "a/camera1/mon/x.mp4", "a/camera1/tue/y.mp4")
    found = find_videos(root)
    assert names(found.videos, root) == [
        ("a/camera1/mon/x.mp4", "a", "camera1"),
        ("a/camera1/tue/y.mp4", "a", "camera1"),
    ]
    assert "1 file is no video" in found.notes[0]


def test_the_outer_folder_in_a_class_is_the_group_also_of_folders_of_images(make):
    root = make(
        "a/p1/d1/x.mp4", "a/p1/d2/x.mp4", "a/p2/d1/x.mp4", "b/p1/clip/1.jpg", "b/clip/1.jpg"
    )
    assert names(find_videos(root).videos, root) == [
        ("a/p1/d1/x.mp4", "a", "p1"),
        ("a/p1/d2/x.mp4", "a", "p1"),
        ("a/p2/d1/x.mp4", "a", "p2"),
        ("b/clip", "b", ""),
        ("b/p1/clip", "b", "p1"),
    ]


def test_other_files_and_empty_folders_are_told_and_left_out(make):
    root = make("a/x.mp4", "train.csv", "a/notes.txt", "readme/hello.txt")
    found = find_videos(root)
    assert len(found.videos) == 1
    assert found.notes[0].endswith("readme: left out, since no video is in it")
    assert "3 files are no videos" in found.notes[1]


def test_a_video_outside_the_classes_is_a_problem(make):
    (problem,) = find_videos(make("a/x.mp4", "y.mp4")).problems
    assert "1 video lies outside the folders of the classes" in problem
    (problem,) = find_videos(make("a/x.mp4").joinpath("a")).problems
    assert "1 video lies outside" in problem


def test_a_folder_without_videos_is_a_problem(make):
    (problem,) = find_videos(make("a/x.txt")).problems
    assert "holds no video in a folder of a class" in problem


@pytest.mark.parametrize(
    ("folders", "val"),
    [
        (("train", "val", "test"), "val"),
        (("Train", "validation"), "validation"),
        (("train", "test"), "test"),
    ],
)
def test_folders_of_a_split_are_kept(make, folders, val):
    root = make(*(f"{folder}/a/{folder}.mp4" for folder in folders))
    found = find_videos(root)
    assert [(Path(one.path).stem, one.is_val) for one in found.videos] == [
        (folders[0], False),
        (val, True),
    ]
    assert len(found.notes) == (len(folders) == 3)


def test_files_and_folders_without_videos_beside_a_split_are_left_out(make):
    found = find_videos(make("train/a/x.mp4", "val/a/y.mp4", "annotations/a.json", "notes.txt"))
    assert [one.is_val for one in found.videos] == [False, True]
    assert [note.rsplit("/")[-1] for note in found.notes] == [
        "annotations: left out, since no video is in it",
        "notes.txt: left out, since no video is in it",
    ]


@pytest.mark.parametrize("more", ["other/a/z.mp4", "z.mp4", "TRAIN/a/z.mp4", "validation/a/z.mp4"])
def test_a_split_with_other_videos_beside_it_is_a_problem(make, more):
    found = find_videos(make("train/a/x.mp4", "val/a/y.mp4", more))
    assert found.videos == ()
    (problem,) = found.problems
    assert "and beside them" in problem


def test_links_that_go_round_end(make):
    root = make("a/x.mp4")
    (root / "a/again").symlink_to(root / "a")
    assert len(find_videos(root).videos) == 1


def test_a_list_has_labels_and_perhaps_groups(make):
    root = make("my file.mp4", "list.txt")
    (root / "list.txt").write_text("my file.mp4 run p1\n\nb.mp4\tstop\tp2\n")
    found = read_lists([root / "list.txt"], root, None, None, with_group=True)
    assert names(found.videos, root) == [("my file.mp4", "run", "p1"), ("b.mp4", "stop", "p2")]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a.mp4", "list.txt:1: 'a.mp4' is not 'path label'"),
        ("../a.mp4 0", "list.txt:1: '../a.mp4' lies outside"),
        ("", "no line names a video"),
    ],
)
def test_a_bad_line_is_named(make, line, said):
    root = make("list.txt")
    (root / "list.txt").write_text(line + "\n")
    (problem,) = read_lists([root / "list.txt"], root, None, None, with_group=False).problems
    assert said in problem


def test_of_many_bad_lines_the_number_of_the_others_is_said(make):
    root = make("list.txt")
    (root / "list.txt").write_text("a.mp4\n" * 12)
    problems = read_lists([root / "list.txt"], root, None, None, with_group=False).problems
    assert (len(problems), problems[-1]) == (11, "... and 2 more")


def test_names_of_parts_are_groups():
    stems = ["v_Archery_g01_c01", "v_Archery_g01_c02", "street_clip2", "blue_circle_1", "x"]
    videos, lines = with_groups([OwnVideo(f"/{stem}.mp4", "a") for stem in stems], None)
    assert [one.group for one in videos] == [
        *["v_Archery_g01"] * 2,
        *("street", "/blue_circle_1.mp4", "/x.mp4"),
    ]
    assert "3 names look like parts of one recording" in lines[0]


def test_names_that_only_count_the_videos_of_a_class_are_no_groups():
    videos = [OwnVideo(f"/{kind}_clip{n}.mp4", kind) for kind in "ab" for n in range(9)]
    named, (line,) = with_groups(videos, None)
    assert len({one.group for one in named}) == 18
    assert "a class would have only 1 group, so each video is by itself" in line


def test_a_regex_names_groups_and_an_empty_one_none():
    videos = [OwnVideo("/p1_a_c01.mp4", "a"), OwnVideo("/p1_b_c01.mp4", "a")]
    assert [one.group for one in with_groups(videos, "^(p[0-9])_")[0]] == ["p1", "p1"]
    assert [one.group for one in with_groups(videos, "")[0]] == [one.path for one in videos]


@pytest.mark.parametrize(
    ("regex", "said"), [("(", "no regular expression"), ("x", "finds no group")]
)
def test_a_regex_that_finds_nothing_is_refused(regex, said):
    with pytest.raises(ValueError, match=said):
        with_groups([OwnVideo("/a.mp4", "a")], regex)


def test_copies_join_their_groups(make):
    root = make("a.mp4", "b.mp4", "c.mp4", "d.mp4")
    (root / "b.mp4").write_text("a.mp4")
    given = [("a", "g1"), ("b", "g2"), ("c", "g2"), ("d", "")]
    videos, lines = with_groups(
        [OwnVideo(str(root / f"{name}.mp4"), "k", group) for name, group in given], None
    )
    groups = [one.group for one in videos]
    assert groups[0] == groups[1] == groups[2] != groups[3]
    assert "1 video is a copy of another" in lines[-1]


def test_a_file_that_cannot_be_read_is_no_copy(make, monkeypatch):
    root = make("a.mp4", "b.mp4", "c.mp4")
    (root / "b.mp4").write_text("a.mp4")

    def closed(path):
        if path.name == "c.mp4":
            raise PermissionError(13, "Permission denied", str(path))
        return sha256_of(path)

    monkeypatch.setattr(split, "sha256_of", closed)
    given = [OwnVideo(str(root / f"{name}.mp4"), "k") for name in "abc"]
    groups = [one.group for one in with_groups(given, None)[0]]
    assert groups[0] == groups[1] != groups[2]


def videos_of(counts, group_of=lambda kind, number: f"{kind}{number}"):
    return [
        OwnVideo(f"/{kind}/{number}.mp4", kind, group_of(kind, number))
        for kind, num in counts.items()
        for number in range(num)
    ]


def test_each_class_is_split_by_the_share():
    train, val = split_videos(videos_of({"a": 40, "b": 100, "c": 2}), 0.25, 0)
    assert Counter(one.class_name for one in val) == {"a": 10, "b": 25, "c": 1}
    assert not {one.path for one in train} & {one.path for one in val}


def test_the_seed_decides_the_split():
    videos = videos_of({"a": 40, "b": 40})
    assert split_videos(videos, 0.25, 1) == split_videos(videos, 0.25, 1)
    assert split_videos(videos, 0.25, 1) != split_videos(videos, 0.25, 2)


@pytest.mark.parametrize("seed", range(5))
def test_groups_stay_together_and_the_shares_are_near(seed):
    """Twelve persons of different numbers of videos do both actions."""
    videos = videos_of({"a": 120, "b": 120}, lambda kind, number: f"p{number**2 % 13}")
    train, val = split_videos(videos, 0.25, seed)
    assert not {one.group for one in train} & {one.group for one in val}
    assert 40 <= len(val) <= 80
    assert {one.class_name for one in train} == {one.class_name for one in val} == {"a", "b"}


@pytest.mark.parametrize("share", [0.5, 0.8, 0.95])
def test_a_large_share_leaves_each_class_a_training_video(share):
    train, val = split_videos(videos_of({"a": 4, "b": 4}), share, 0)
    assert len(val) == {0.5: 4, 0.8: 6, 0.95: 6}[share]
    assert {one.class_name for one in train} == {one.class_name for one in val} == {"a", "b"}


@pytest.mark.parametrize(
    "group_of", [lambda kind, number: f"{kind}{number}", lambda kind, number: "all"]
)
def test_a_class_that_cannot_be_in_both_lists_is_named(group_of):
    with pytest.raises(ValueError, match="class a"):
        split_videos(videos_of({"a": 1, "b": 9}, group_of), 0.25, 0)


def test_labels_that_are_numbers_are_sorted_by_value():
    assert class_order(["10", "9", "10"]) == ["9", "10"]
    assert class_order(["b", "10", "9"]) == ["10", "9", "b"]


def test_names_of_several_lines_are_refused():
    assert name_problems([OwnVideo("/a.mp4", "a")]) == []
    (problem,) = name_problems([OwnVideo("/a\n.mp4", "a")])
    assert "control characters" in problem


@pytest.mark.parametrize(("path", "name"), [("/ jump/a.mp4", " jump"), ("/jump/frames ", "jump")])
def test_names_with_a_space_at_an_end_are_refused(path, name):
    """A line of a list is read without the spaces around it."""
    (problem,) = name_problems([OwnVideo(path, name), OwnVideo("/jump/a b.mp4", "jump up")])
    assert problem.startswith(
        "1 names hold control characters, or begin or end with a space, such as"
    )


def test_a_folder_that_cannot_be_read_is_one_problem(make, monkeypatch):
    root = make("run/x.mp4", "walk/x.mp4")
    refuse_to_list(monkeypatch, "run")
    (problem,) = find_videos(root).problems
    assert problem.startswith(f"{root}/run cannot be read (Permission denied)")
