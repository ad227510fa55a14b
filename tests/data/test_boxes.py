"""Pictures with boxes: COCO's lists, and boxes that follow crop and mirror."""

import json

import numpy as np
import pytest
from fakes import FakeRequest, training_clips_of
from PIL import Image

from mgexp.data.boxes import MAX_BOXES, Box, BoxRecord, coco_names, read_coco
from mgexp.data.views import EvaluationViews
from mgexp.video.frame_folder import FilesAndFolders

COLOURS = ((255, 0, 0), (0, 255, 0), (0, 0, 255))
PLACES = ((4, 6, 24, 22), (30, 2, 50, 12), (40, 20, 62, 44))
"""Left, top, right and bottom of a rectangle of each colour, in a black picture of 64 x 48."""


@pytest.fixture
def record(tmp_path):
    pixels = np.zeros((48, 64, 3), np.uint8)
    for colour, (left, top, right, bottom) in zip(COLOURS, PLACES, strict=True):
        pixels[top:bottom, left:right] = colour
    Image.fromarray(pixels).save(tmp_path / "a.png")
    boxes = tuple(
        Box(label, *map(float, place), label == 1, 100.0) for label, place in enumerate(PLACES)
    )
    return BoxRecord(str(tmp_path / "a.png"), 48, 64, boxes)


def boxes_of(target):
    """(class, sides) of each box of a target."""
    return {int(row[0]) - 1: row[1:5] for row in target[1:] if row[0]}


def test_boxes_are_where_their_colours_are_at_every_crop_and_mirror(record):
    """Areas: a box holds all pixels of its colour in the crop, and its colour fills it."""
    clips = training_clips_of(
        [record],
        FilesAndFolders(),
        jitter=(96, 96),
        full_crop=96,
        relative=((0.3, 1.0), (0.7, 1.4)),
        flip=True,
    )
    flips, seen = 0, {0: 0, 1: 0, 2: 0}
    for position in range(60):
        clip = clips[FakeRequest(seed=(0, position), frames=1, crop=96)]
        shown = clip.frames[0].numpy()
        shown = shown[:, ::-1] if clip.flipped else shown
        flips += clip.flipped
        for label, sides in boxes_of(clip.label).items():
            left, top, right, bottom = (96 * side for side in sides)
            is_colour = shown[..., label] > 127
            # Resizing blurs a border of about a pixel of the picture.
            inside = is_colour[round(top) : round(bottom), round(left) : round(right)]
            area = (right - left) * (bottom - top)
            border = 2.5 * 2 * (right - left + bottom - top)
            assert inside.sum() == pytest.approx(area, abs=border)
            assert is_colour.sum() - inside.sum() < border
            seen[label] += 1
    assert 15 < flips < 45
    assert min(seen.values()) > 20


def test_a_box_whose_middle_is_outside_of_the_crop_is_left_out(record):
    clips = training_clips_of(
        [record], FilesAndFolders(), jitter=(32, 32), relative=((0.25, 0.25), (1.0, 1.0))
    )
    numbers = {
        len(boxes_of(clips[FakeRequest(seed=(0, n), frames=1, crop=32)].label)) for n in range(40)
    }
    assert {0, 1} <= numbers < {0, 1, 2, 3}


def test_an_evaluation_shows_the_whole_picture_and_the_crowd(record):
    views = EvaluationViews(
        [record],
        frames=1,
        stride=1,
        crop=32,
        target_fps=30,
        num_views=1,
        num_crops=1,
        are_whole=True,
        opener=FilesAndFolders(),
    )
    view = views[0]
    assert view.error is None
    assert view.frames.shape == (1, 1, 32, 32, 3)
    assert view.label == record.target()
    assert np.array(view.label).shape == (1 + MAX_BOXES, 7)
    assert view.label[0][:3] == (1.0, 48.0, 64.0)
    assert view.label[2] == pytest.approx((2, 30 / 64, 2 / 48, 50 / 64, 12 / 48, 1, 100))
    assert not np.array(view.label[4:]).any()


def test_a_picture_of_another_size_than_its_list_says_fails(record):
    wrong = BoxRecord(record.path, 64, 48, record.boxes)
    clips = training_clips_of([wrong], FilesAndFolders(), jitter=(32, 32))
    clip = clips[FakeRequest(seed=(0, 0), frames=1, crop=32)]
    assert not len(clip.frames)
    assert "48 x 64" in clip.unusable[0][1]


COCO = {
    "images": [
        {"id": 7, "file_name": "a.png", "height": 48, "width": 64},
        {"id": 9, "file_name": "b.png", "height": 10, "width": 20},
    ],
    "annotations": [
        {
            "id": 1,
            "image_id": 7,
            "category_id": 90,
            "bbox": [4, 6, 20, 16],
            "area": 99,
            "iscrowd": 0,
        },
        {"id": 2, "image_id": 7, "category_id": 3, "bbox": [1, 2, 3, 4], "iscrowd": 1},
        {"id": 3, "image_id": 7, "category_id": 3, "bbox": [1, 2, 0, 4]},
    ],
    "categories": [{"id": 90, "name": "dog"}, {"id": 3, "name": "cat"}],
}


def read(tmp_path, changes=None, classes=None):
    (tmp_path / "list.json").write_text(json.dumps({**COCO, **(changes or {})}))
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(b"x")
    found = read_coco(tmp_path / "list.json", tmp_path, classes or {"cat": 0, "dog": 1})
    return found.existing()


def test_a_list_of_coco_is_read(tmp_path):
    """Categories are numbered without gaps in the order of their ids; a box without an area is left out."""
    videos = read(tmp_path)
    assert videos.problems == ()
    first, second = videos.records
    assert coco_names(tmp_path / "list.json") == ("cat", "dog")
    assert first.boxes == (
        Box(1, 4.0, 6.0, 24.0, 22.0, False, 99.0),
        Box(0, 1.0, 2.0, 4.0, 6.0, True, 12.0),
    )
    assert (second.height, second.width, second.boxes) == (10, 20, ())


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"categories": [{"id": 3, "name": "cat"}]}, "annotation 1"),
        (
            {"annotations": [{"id": 5, "image_id": 7, "category_id": 3, "bbox": [1, 2]}]},
            "list.json",
        ),
        ({"annotations": [COCO["annotations"][0]] * (1 + MAX_BOXES)}, "image 7"),
        ({"categories": [{"id": 3}]}, "list.json"),
        ({"images": 5}, "list.json"),
    ],
)
def test_a_fault_of_a_list_says_where(tmp_path, changes, place):
    (problem,) = read(tmp_path, changes).problems
    assert place in problem
