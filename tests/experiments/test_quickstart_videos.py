"""The files of the quickstart set: their format, their lists, and what happens on a second start.

What the videos show is tested in test_quickstart_scenes.py.
"""

import json
import re
from dataclasses import replace

import av
import pytest
import quickstart_videos as writer
from quickstart_scenes import SETS, QuickstartOptions
from quickstart_videos import make_quickstart
from tiny import load_tool

from mgexp.data.formats import read_list
from mgexp.errors import InputError

TINY = QuickstartOptions(num_train=24, num_val=12, seed=3)


def make(folder, options=TINY, num_processes=1):
    return make_quickstart(folder, options, num_processes, progress=False)


def contents(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quickstart")
    make(folder)
    return folder


@pytest.fixture
def cut_short(tmp_path, monkeypatch):
    """The folder of a set whose making stopped after five videos."""
    encode, num_left = writer.encode_video, [5]

    def encode_five(*arguments):
        num_left[0] -= 1
        if num_left[0] < 0:
            raise KeyboardInterrupt
        return encode(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(writer, "encode_video", encode_five)
        with pytest.raises(KeyboardInterrupt):
            make(tmp_path)
    return tmp_path


def test_a_video_is_intra_coded_h264_of_40_frames_of_80_by_64_pixels(made):
    path = next(made.glob("videos/val/*/*.mp4"))
    with av.open(str(path)) as container:
        (stream,) = container.streams
        frames = list(container.decode(stream))
        found = (stream.codec_context.name, stream.codec_context.pix_fmt, stream.average_rate)
    assert found == ("h264", "yuv420p", 30)
    assert [(frame.width, frame.height, frame.key_frame) for frame in frames] == 40 * [
        (80, 64, True)
    ]
    assert [round(frame.time * 30, 3) for frame in frames] == list(range(40))
    assert path.stat().st_size < 50_000


def test_the_lists_are_those_that_training_reads(made):
    for split, num in (("train", 24), ("val", 12)):
        found = read_list(made / f"{split}.csv", made, num_classes=len(TINY.class_names)).existing()
        assert (len(found.records), found.missing, found.problems) == (num, (), ())
        folders = [record.path.split("/")[-2] for record in found.records]
        assert folders == [TINY.class_names[record.label] for record in found.records]
        assert f"/videos/{split}/" in found.records[0].path


def test_classes_are_balanced_in_every_twelve_videos_but_in_no_fixed_order(made):
    labels = [int(line.split()[1]) for line in (made / "train.csv").read_text().splitlines()]
    assert sorted(labels[:12]) == sorted(labels[12:]) == list(range(12))
    assert labels[:12] != labels[12:]


def test_the_lists_of_motions_have_both_textures_in_a_class(made):
    names = (made / "motions.txt").read_text().split()
    assert names == ["fall", "rise", "approach", "recede", "slide_right", "slide_left"]
    for split, num in (("train", 24), ("val", 12)):
        found = read_list(made / f"{split}_motions.csv", made, num_classes=6).existing()
        assert (len(found.records), found.problems) == (num, ())
        for record in found.records:
            texture = record.path.split("/")[-2].removeprefix(f"{names[record.label]}_")
            assert texture in ("horizontal", "vertical")


def test_two_processes_write_the_same_bytes_as_one(made, tmp_path):
    make(tmp_path, num_processes=2)
    assert contents(tmp_path) == contents(made)


@pytest.mark.parametrize(("options", "hidden_share"), [((), 0.0), (("--set", "1"), 0.015)])
def test_the_tool_makes_the_newest_set_or_the_one_asked_for(
    options, hidden_share, tmp_path, monkeypatch
):
    few = ("--output", str(tmp_path), "--num-train", "1", "--num-val", "2", "--processes", "1")
    assert load_tool("make_quickstart").main([*few, *options]) == 0
    found = json.loads((tmp_path / writer.MANIFEST).read_text())["options"]
    assert (found["num_train"], found["num_val"]) == (1, 2)
    assert found["hidden_share"] == hidden_share


def test_a_folder_of_the_first_set_is_refused_with_the_remedy(tmp_path):
    make(tmp_path, replace(SETS[1], num_train=1, num_val=1))
    with pytest.raises(
        InputError, match=r"hidden_share 0\.015 there, 0\.0 now.* or delete this one"
    ):
        make(tmp_path, replace(SETS[2], num_train=1, num_val=1))


def test_a_second_start_makes_only_what_is_missing_or_empty(made, tmp_path):
    first = make(tmp_path)
    videos = sorted(tmp_path.rglob("*.mp4"))
    videos[0].unlink()
    videos[1].write_bytes(b"")
    kept = {path: path.stat().st_mtime_ns for path in videos[2:]}
    second = make(tmp_path)
    assert (first.num_made, first.num_kept) == (36, 0)
    assert (second.num_made, second.num_kept) == (2, 34)
    assert {path: path.stat().st_mtime_ns for path in videos[2:]} == kept
    assert contents(tmp_path) == contents(made)


def test_a_set_that_was_cut_short_has_no_lists_and_can_be_completed(cut_short, made):
    assert len(list(cut_short.rglob("*.mp4"))) == 5
    assert not list(cut_short.glob("*.csv"))
    assert make(cut_short).num_kept == 5
    assert contents(cut_short) == contents(made)


def test_a_set_that_was_cut_short_is_not_completed_with_other_versions(cut_short, monkeypatch):
    monkeypatch.setattr(av, "__version__", "0.0")
    with pytest.raises(InputError, match=re.escape("av ") + ".* there, 0.0 now"):
        make(cut_short)


def test_a_folder_of_other_files_is_left_alone(tmp_path):
    (tmp_path / "train.csv").write_text("mine 0\n")
    with pytest.raises(InputError, match="choose an empty folder"):
        make(tmp_path)
    assert contents(tmp_path) == {"train.csv": b"mine 0\n"}
