"""The task of finding boxes: a network that computes its own loss, and COCO's average precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mgexp.data.boxes import COLUMNS, MAX_BOXES
from mgexp.errors import InputError
from mgexp.models.detector import MAX_DETECTIONS
from mgexp.registry import LOSSES
from mgexp.train.task import Ensemble, Task

PLACES = {"map": 0, "ap50": 1, "ap_small": 3, "ap_medium": 4, "ap_large": 5}
"""The metrics among the 12 numbers of COCO: average precision over IoU from 0.5 to 0.95, at 0.5, and of boxes
below 32², up to 96² and above, in pixels of the image."""


@dataclass(frozen=True)
class DetectionTask(Task):
    """The task whose labels are rows of boxes (see mgexp/data/boxes.py) and whose scores are detections."""

    def no_scores(self, num_videos: int, device: torch.device) -> Tensor:
        return torch.zeros(num_videos, MAX_DETECTIONS, 6, device=device)

    def draw_labels(self, num_videos: int, generator: torch.Generator) -> Tensor:
        """Draw a box of a quarter of the image for each, of a random class."""
        labels = self.no_labels(num_videos, torch.device("cpu"))
        labels[:, 0, 0] = 1
        labels[:, 1, 0] = 1 + torch.randint(self.num_classes, (num_videos,), generator=generator)
        labels[:, 1, 1:3] = torch.rand(num_videos, 2, generator=generator) / 2
        labels[:, 1, 3:5] = labels[:, 1, 1:3] + 0.5
        return labels


def detection(num_classes: int, ensemble: Ensemble) -> DetectionTask:
    """Make the task of boxes. An image has one view, so ``ensemble`` combines nothing."""
    return DetectionTask(
        num_classes=num_classes,
        loss=lambda loss, labels: loss,
        scores=lambda detections: detections,
        metrics=coco_metrics,
        ensemble=ensemble,
        label_shape=(1 + MAX_BOXES, COLUMNS),
        label_type=torch.float32,
        takes_labels=True,
    )


LOSSES.add("detection", detection)


def coco_metrics(detections: Tensor, labels: Tensor) -> dict[str, float]:
    """Compute COCO's average precisions in percent, without those of sizes that no box has.

    ``detections`` (images, MAX_DETECTIONS, 6) and ``labels`` (images, rows, COLUMNS) are on any device.
    """
    numbers = coco_numbers(detections, labels)
    # COCO writes -1 where there is no box.
    return {name: 100 * numbers[place] for name, place in PLACES.items() if numbers[place] >= 0}


def coco_numbers(detections: Tensor, labels: Tensor) -> list[float]:
    """Return COCO's 12 numbers. faster-coco-eval computes what pycocotools does, in C++."""
    try:
        from faster_coco_eval import COCO, COCOeval_faster
    except ImportError as error:
        problem = "MODEL.LOSS_FUNC = detection: pip install 'mgexp[detection]'"
        raise InputError([problem]) from error

    truth, detected = coco_tables(detections, labels)
    images = COCO(truth)
    judge = COCOeval_faster(images, images.loadRes(detected), iouType="bbox")
    judge.evaluate()
    judge.accumulate()
    judge.summarize()
    return [float(number) for number in judge.stats[:12]]


def coco_tables(
    detections: Tensor, labels: Tensor
) -> tuple[dict[str, list[dict[str, Any]]], list[dict[str, Any]]]:
    """Write labels and detections as COCO's tables, in pixels of each image."""
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    detected: list[dict[str, Any]] = []
    blocks = zip(labels.double().tolist(), detections.double().tolist(), strict=True)
    for number, (((_, height, width, *_), *boxes), rows) in enumerate(blocks, start=1):

        def corner(sides: list[float], tall: float = height, wide: float = width) -> list[float]:
            left, top, right, bottom = sides
            return [left * wide, top * tall, (right - left) * wide, (bottom - top) * tall]

        images.append({"id": number, "height": height, "width": width})
        for label, *sides, is_crowd, area in boxes:
            if label:
                place = {"id": len(annotations) + 1, "image_id": number, "category_id": int(label)}
                judged = {"bbox": corner(sides), "iscrowd": int(is_crowd), "area": area}
                annotations.append({**place, **judged})
        for label, *sides, score in rows:
            if label:
                place = {"image_id": number, "category_id": int(label)}
                detected.append({**place, "bbox": corner(sides), "score": score})
    categories = [{"id": label} for label in sorted({each["category_id"] for each in annotations})]
    return {"images": images, "annotations": annotations, "categories": categories}, detected
