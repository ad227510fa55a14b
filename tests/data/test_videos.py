"""The data set for a custom loop: clips as the released run reads them, and the folder that it reads."""

import shutil
from dataclasses import replace

import pytest
import torch
from fakes import training_clips_of

from mgexp.data import Videos, videos_in
from mgexp.errors import InputError
from mgexp.multigrid import ClipRequest, Recipe
from mgexp.train.step import Normalizer
from mgexp.video.pyav import PyavReader
from mgexp.video.reader import VideoError

SIZES = {"clips": 4, "frames": 8, "crop": 32, "stride": 1, "jitter": (32, 40)}
RECIPE = Recipe(**SIZES, base_lr=0.05, stage_epochs=(0, 3), max_epoch=4)
REQUEST = ClipRequest(index=1, frames=4, crop=16, stride_range=(1, 2), seed=(0, 5))


@pytest.fixture(scope="module")
def folder(tiny_data, tmp_path_factory):
    """Three videos of two classes."""
    root = tmp_path_factory.mktemp("own")
    for number, name in enumerate(("walk/a.mp4", "walk/b.mp4", "jump/c.mp4")):
        (root / name).parent.mkdir(exist_ok=True)
        shutil.copy(tiny_data / f"train{number}.mp4", root / name)
    return root


@pytest.fixture(scope="module")
def videos(folder):
    return videos_in(folder)[0]


def test_a_folder_gives_paths_with_labels_by_the_sorted_names(folder):
    videos, classes = videos_in(folder)
    assert classes == ["jump", "walk"]
    assert [(path.rsplit("/", 2)[1], label) for path, label in videos] == [
        ("jump", 0),
        ("walk", 1),
        ("walk", 1),
    ]


def test_a_validation_folder_has_the_classes_of_the_training_folder(folder):
    """Otherwise its labels would be those of other classes."""
    assert videos_in(folder, ["jump", "walk"]) == videos_in(folder)
    with pytest.raises(InputError, match="has the classes jump, walk, not jump, run, walk"):
        videos_in(folder, ["jump", "run", "walk"])
    with pytest.raises(
        InputError, match="has the classes jump, walk, not walk, jump in this order"
    ):
        videos_in(folder, ["walk", "jump"])


@pytest.mark.parametrize("seed", [5, 6, 7, 8])
def test_a_request_gives_the_clip_of_a_run_normalised_as_there(seed, videos):
    """The witness is what tools/run_net.py feeds its network."""
    request = ClipRequest(1, 4, 16, (1, 2), (0, seed))
    data = Videos(videos, RECIPE)
    own = training_clips_of(data.records, PyavReader, jitter=(32, 40), flip=True)[request]
    normalizer = Normalizer((0.45,) * 3, (0.225,) * 3, torch.device("cpu"))
    flipped = torch.tensor([own.flipped])
    wanted = normalizer(own.frames[None].permute(0, 4, 1, 2, 3), flipped)[0]
    clip, label = data[request]
    torch.testing.assert_close(clip, wanted)
    assert (clip.shape, label) == ((3, 4, 16, 16), videos[1][1])


def test_a_number_gives_the_centre_clip_at_the_full_shape(videos):
    data = Videos(videos, RECIPE)
    clip, label = data[2]
    assert (clip.shape, label) == ((3, 8, 32, 32), 1)
    assert torch.equal(clip, Videos(videos, RECIPE, flip=False)[2][0])
    assert len(list(data)) == len(data) == 3


def test_a_broken_video_is_replaced_in_training_and_an_error_in_validation(videos, tmp_path):
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video")
    data = Videos([videos[0], (broken, 1)], RECIPE)
    with pytest.warns(UserWarning, match=r"unusable video, replaced: .*broken\.mp4"):
        clip, label = data[REQUEST]
    assert (clip.shape, label) == ((3, 4, 16, 16), 0)
    with pytest.raises(VideoError, match=r"broken\.mp4"):
        data[1]


def test_files_that_do_not_exist_are_one_error(tmp_path):
    with pytest.raises(InputError, match="2 problems found"):
        Videos([(tmp_path / "a.mp4", 0), (tmp_path / "b.mp4", 1)], RECIPE)


def test_a_recipe_of_relative_crops_is_refused(videos):
    with pytest.raises(InputError, match=r"give the range of the short side, such as \(256, 320\)"):
        Videos(videos, replace(RECIPE, jitter=None))
