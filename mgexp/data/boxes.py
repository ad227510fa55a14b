"""Images with boxes: COCO's lists, and the boxes that a crop shows."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any

from mgexp.data.classes import read_text
from mgexp.data.formats import Findings
from mgexp.data.records import Shown, Span, Target
from mgexp.errors import collected
from mgexp.run.files import is_file, understanding
from mgexp.video.paths import Root
from mgexp.video.reader import VideoError, whole

MAX_BOXES = 100
"""Most boxes of an image. COCO has 93 at most, and counts the best 100 detections of an image."""
COLUMNS = 7
"""A row of a target: class + 1, left, top, right, bottom, iscrowd, area. Sides are shares of what the clip shows,
and the area is in pixels of the image. The first row is (1, height, width, 0, …): what is shown, in pixels."""


@dataclass(frozen=True)
class Box:
    """An object of class ``label``, from 0, in pixels of its image.

    ``area``: that of its outline, by which COCO calls it small or large. ``is_crowd``: the box holds many objects
    of the class. A detection in it is neither right nor wrong, and training leaves it out.
    """

    label: int
    left: float
    top: float
    right: float
    bottom: float
    is_crowd: bool
    area: float


@dataclass(frozen=True)
class BoxRecord:
    """An image of ``height`` × ``width`` pixels, by its absolute path, and its boxes, MAX_BOXES at most."""

    path: str
    height: int
    width: int
    boxes: tuple[Box, ...]
    part: None = None

    def target(self, span: Span | None = None, shown: Shown | None = None) -> Target:
        """Return 1 + MAX_BOXES rows for the boxes in ``shown``, by default the whole image; unused rows are 0.

        A box is in a crop if its middle is (Liu et al., ECCV 2016), and ends at the edges of the crop. Raises
        VideoError if the file has another size than the list says.
        """
        size = (self.height, self.width)
        if shown is not None and shown.size != size:
            has, says = ("{} x {}".format(*pair) for pair in (shown.size, size))
            raise VideoError(self.path, f"has {has} pixels, and the list says {says}")
        region = shown.region if shown else whole(size)
        rows = [(1.0, float(region.height), float(region.width), *[0.0] * (COLUMNS - 3))]
        for box in self.boxes:
            middle = ((box.left + box.right) / 2, (box.top + box.bottom) / 2)
            x, y = (
                (middle[0] - region.left) / region.width,
                (middle[1] - region.top) / region.height,
            )
            if not (0 <= x < 1 and 0 <= y < 1):
                continue
            left, right = (
                min(1.0, max(0.0, (side - region.left) / region.width))
                for side in (box.left, box.right)
            )
            top, bottom = (
                min(1.0, max(0.0, (side - region.top) / region.height))
                for side in (box.top, box.bottom)
            )
            if shown and shown.is_flipped:
                left, right = 1 - right, 1 - left
            rows.append((box.label + 1.0, left, top, right, bottom, float(box.is_crowd), box.area))
        rows += [(0.0,) * COLUMNS] * (1 + MAX_BOXES - len(rows))
        return tuple(rows)

    def line(self) -> str:
        return f"{self.path} {self.height} {self.width} {self.boxes}"


def coco_names(list_path: Path) -> tuple[str, ...]:
    """Return the names of the categories of a list, in the order of their numbers. Raises InputError."""
    changed = list_path.stat().st_mtime_ns if is_file(list_path) else 0
    return _names(list_path, changed)


# A start asks for the names several times, and COCO's own list has hundreds of megabytes.
@lru_cache(maxsize=1)
def _names(list_path: Path, _changed_ns: int) -> tuple[str, ...]:
    with understanding(list_path, "in COCO's format"):
        categories = json.loads(read_text(list_path))["categories"]
        return tuple(each["name"] for each in sorted(categories, key=itemgetter("id")))


def read_coco(list_path: Path, root: Path, classes: Mapping[str, int]) -> Findings:
    """Read COCO's JSON of images and boxes. ``classes``: name of a category → class.

    Paths are relative to ``root``. Boxes without an area are left out, as in torchvision's own training; the
    official training list has one. Images without boxes stay.
    """
    listed, inside = Findings(root, f"list file {list_path} is empty"), Root(root)
    boxes = defaultdict[Any, list[Box]](list)
    with collected(listed.problems), understanding(list_path, "in COCO's format"):
        content = json.loads(read_text(list_path))
        labels = {each["id"]: classes.get(each["name"], -1) for each in content["categories"]}
        for each in content["annotations"]:
            place = f"{list_path}: annotation {each.get('id')}"
            left, top, wide, tall = map(float, each["bbox"])
            label = labels.get(each["category_id"], -1)
            if label < 0:
                what = "category that the training list does not have"
                listed.fault(place, what, each["category_id"])
            elif wide > 0 and tall > 0:
                area = float(each.get("area", wide * tall))
                sides = (left, top, left + wide, top + tall)
                boxes[each["image_id"]].append(Box(label, *sides, bool(each.get("iscrowd")), area))
        for each in content["images"]:
            place, path = f"{list_path}: image {each['id']}", inside.path(each["file_name"])
            own = tuple(boxes[each["id"]])
            if len(own) > MAX_BOXES:
                listed.fault(place, f"more than {MAX_BOXES} boxes", len(own))
            else:
                size = (int(each["height"]), int(each["width"]))
                listed.add(place, BoxRecord(path, *size, own))
    return listed
