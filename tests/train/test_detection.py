"""Detection: COCO's numbers, the loss of a network that takes labels, and runs."""

import contextlib
import io

import pytest
import torch
from faster_coco_eval import COCO as _COCO  # noqa: F401 - fails here if the extra is missing
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from mgexp.train.detection import coco_metrics, coco_numbers, coco_tables, detection


def random_case(seed, pictures=12, classes=3):
    """Boxes, a tenth of them crowds, and detections near some of them."""
    rng = torch.Generator().manual_seed(seed)

    def rand(*size):
        return torch.rand(*size, generator=rng)

    labels, found = torch.zeros(pictures, 101, 7), torch.zeros(pictures, 100, 6)
    labels[:, 0, :3] = torch.tensor([1.0, 480.0, 640.0])
    for picture in range(pictures):
        number = int(30 * rand(1))
        corner, size = 0.7 * rand(number, 2), 0.02 + 0.28 * rand(number, 2) ** 2
        labels[picture, 1 : 1 + number, 0] = 1 + (classes * rand(number)).floor()
        labels[picture, 1 : 1 + number, 1:5] = torch.cat([corner, corner + size], 1)
        labels[picture, 1 : 1 + number, 5] = (rand(number) < 0.1).float()
        labels[picture, 1 : 1 + number, 6] = 480 * 640 * size.prod(1) * (0.6 + 0.4 * rand(number))
        near = labels[picture, 1 : 1 + number, :5].repeat(3, 1)
        moved = near[:, 1:] + 0.02 * (rand(len(near), 4) - 0.5)
        keep = torch.nonzero(rand(len(near)) < 0.8)[:100, 0]
        found[picture, : len(keep), 0] = near[keep, 0]
        found[picture, : len(keep), 1:5] = moved[keep]
        found[picture, : len(keep), 5] = rand(len(keep))
    return found, labels


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_all_twelve_numbers_are_those_of_pycocotools(seed):
    found, labels = random_case(seed)
    truth, detections = coco_tables(found, labels)
    with contextlib.redirect_stdout(io.StringIO()):
        pictures = COCO()
        pictures.dataset = truth
        pictures.createIndex()
        witness = COCOeval(pictures, pictures.loadRes(detections), "bbox")
        witness.evaluate()
        witness.accumulate()
        witness.summarize()
    numbers = coco_numbers(found, labels)
    assert len(numbers) == 12
    assert numbers == pytest.approx(witness.stats.tolist(), abs=1e-9)
    assert 0.05 < numbers[0] < 0.95


def test_perfect_detections_have_100_percent_and_sizes_without_boxes_are_left_out():
    labels, found = torch.zeros(2, 101, 7), torch.zeros(2, 100, 6)
    labels[:, 0, :3] = torch.tensor([1.0, 100.0, 200.0])
    labels[:, 1] = torch.tensor([2, 0.1, 0.1, 0.3, 0.5, 0, 1600.0])
    found[:, 0] = torch.tensor([2, 0.1, 0.1, 0.3, 0.5, 0.9])
    assert coco_metrics(found, labels) == pytest.approx(
        {"map": 100.0, "ap50": 100.0, "ap_medium": 100.0}
    )
    assert coco_metrics(torch.zeros_like(found), labels)["map"] == 0.0


def test_the_task_draws_boxes_that_a_detector_learns_from():
    labels = detection(3, "sum").draw_labels(20, torch.Generator().manual_seed(0))
    assert labels.shape == (20, 101, 7)
    assert {*labels[:, 1, 0].tolist()} == {1.0, 2.0, 3.0}
    assert (labels[:, 1, 3:5] <= 1).all()
