"""Videos in folders: what counts as one, what is skipped, and in which order."""

import shutil

import numpy as np
import pytest
from PIL import Image

from mgexp.deploy.find import find_videos


@pytest.fixture
def folder(tiny_data, tmp_path):
    """A video, another one without an ending, and files that are no videos."""
    root = tmp_path / "videos"
    (root / "b").mkdir(parents=True)
    shutil.copy(tiny_data / "val0.mp4", root / "b" / "one.MP4")
    shutil.copy(tiny_data / "val1.mp4", root / "without_an_ending")
    (root / "notes.txt").write_text("no video")
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(root / "picture.png")
    (root / ".hidden.mp4").write_bytes(b"")
    return root


def below(root, paths):
    return [path.removeprefix(f"{root}/") for path in paths]


def test_a_folder_gives_the_videos_below_it_and_names_the_files_that_are_none(folder):
    found = find_videos([str(folder)])
    assert below(folder, found.videos) == ["b/one.MP4"]
    assert below(folder, found.skipped) == ["notes.txt", "picture.png", "without_an_ending"]
    assert found.skipped_text().startswith("skipped 3 files that do not end like a video: ")


def test_a_file_that_is_named_is_taken_as_it_is(folder):
    names = [str(folder / "notes.txt"), str(folder / "lost.mp4")]
    assert find_videos(names).videos == tuple(names)


def test_a_video_that_is_named_twice_is_seen_once(folder):
    video = str(folder / "b" / "one.MP4")
    assert find_videos([video, str(folder), video]).videos.count(video) == 1


def test_a_damaged_file_with_the_ending_of_a_video_is_not_skipped(tmp_path):
    (tmp_path / "broken.mkv").write_bytes(b"no video")
    assert find_videos([str(tmp_path)]).videos == (str(tmp_path / "broken.mkv"),)


def test_a_folder_of_numbered_images_is_one_video(tmp_path):
    frames = tmp_path / "frames"
    frames.mkdir()
    for number in (1, 2, 3):
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(frames / f"img_{number:05d}.jpg")
    found = find_videos([str(tmp_path)])
    assert (found.videos, found.skipped) == ((str(frames),), ())


def test_images_that_are_no_series_are_skipped(tmp_path):
    for name in ("a.png", "b.png"):
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / name)
    found = find_videos([str(tmp_path)])
    assert (found.videos, len(found.skipped)) == ((), 2)
