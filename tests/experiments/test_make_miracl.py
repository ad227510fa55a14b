"""The clips and lists of the MIRACL-VC1 table, made from a small checkout of made-up mouths."""

import av
import make_miracl
import numpy as np
import pytest
from make_miracl import FOLDS, MEN, SEARCH_FOLDS, WOMEN, main
from PIL import Image

from mgexp.data.formats import read_list


def write_mouth(path, number):
    """A grey image, brighter from image to image, and higher too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (100, 40 + 2 * number), 20 * number).save(path, quality=95)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """One word and one phrase of every speaker, said once, in three images; one clip lacks its second image."""
    root = tmp_path_factory.mktemp("checkout")
    for speaker in (*WOMEN, *MEN):
        for kind in ("words", "phrases"):
            for number in (1, 2, 3):
                write_mouth(root / f"cropped/{speaker}/{kind}/01/01/color_{number:03d}.jpg", number)
    (root / "cropped/M02/phrases/01/01/color_002.jpg").unlink()
    return root


@pytest.fixture
def small(checkout, monkeypatch):
    """Lets that checkout be complete."""
    images = list(checkout.rglob("*.jpg"))
    monkeypatch.setattr(make_miracl, "NUM_EACH", 1)
    monkeypatch.setattr(make_miracl, "NUM_IMAGES", len(images))
    monkeypatch.setattr(make_miracl, "NUM_BYTES", sum(image.stat().st_size for image in images))


@pytest.mark.parametrize("folds", [FOLDS, SEARCH_FOLDS])
def test_every_speaker_tests_one_fold_with_two_women_and_a_man(folds):
    assert sorted(speaker for fold in folds for speaker in fold) == sorted((*WOMEN, *MEN))
    assert [sum(speaker in MEN for speaker in fold) for fold in folds] == [1] * 5


def test_lists_name_the_clips_of_other_speakers(small, checkout, tmp_path, capsys):
    assert main([str(checkout), "--output", str(tmp_path), "--processes", "1"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith(f"{tmp_path}: 30 of 30 clips made, 0 kept; 5 folds, and 5 for tuning")
    assert said[1:] == ["closed a gap in cropped/M02/phrases/01/01: 1 is followed by 3"]
    for prefix, folds in (("", FOLDS), ("search_", SEARCH_FOLDS)):
        for number, tested in enumerate(folds):
            found = {
                split: read_list(tmp_path / f"{prefix}{split}_{number}.csv", tmp_path, 2).existing()
                for split in ("train", "val")
            }
            assert all(videos.problems == videos.missing == () for videos in found.values())
            assert (len(found["train"].records), len(found["val"].records)) == (24, 6)
            speakers = {path.split("/")[-4] for path in found["val"].paths}
            assert speakers == set(tested)
            assert speakers.isdisjoint(path.split("/")[-4] for path in found["train"].paths)
            labels = {
                path.split("/")[-3]: one.label
                for one in found["val"].records
                for path in [one.path]
            }
            assert labels == {"words": 0, "phrases": 1}


def test_a_clip_has_its_images_as_squares(small, checkout, tmp_path):
    assert main([str(checkout), "--output", str(tmp_path), "--processes", "1"]) == 0
    with av.open(str(tmp_path / "videos/F01/words/01/01.mp4")) as container:
        stream = container.streams.video[0]
        assert (stream.average_rate, stream.frames) == (15, 3)
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert {frame.shape for frame in frames} == {(96, 96, 3)}
    np.testing.assert_allclose([frame.mean() for frame in frames], [20, 40, 60], atol=2)
    with av.open(str(tmp_path / "videos/M02/phrases/01/01.mp4")) as container:
        assert container.streams.video[0].frames == 2


def test_a_second_video_of_each_clip_has_the_same_mean_and_contrast(small, checkout, tmp_path):
    assert main([str(checkout), "--output", str(tmp_path), "--processes", "1"]) == 0
    for speaker in ("F01", "M02"):
        with av.open(
            str(tmp_path / f"equal_contrast/videos/{speaker}/words/01/01.mp4")
        ) as container:
            frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        # The images are grey 20, 40 and 60: mean 40, standard deviation 16.3.
        expected = [128 + (grey - 40) * 45 / 16.33 for grey in (20, 40, 60)]
        np.testing.assert_allclose([frame.mean() for frame in frames], expected, atol=2)
