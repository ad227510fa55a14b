"""Make the lists of the BCCD rows, in COCO's format, from images of blood cells that others have published.

    git clone https://github.com/Shenggan/BCCD_Dataset
    git -C BCCD_Dataset checkout d272fb14cdff6e473fafeeeba32aba5f560e9e43
    python experiments/large_det/make_bccd.py BCCD_Dataset --output data/bccd

The repository has 364 images of 640 x 480 pixels with 4,888 boxes of red cells, white cells and platelets
(MIT).

    <output>/pictures         copies of them
    <output>/trainval.json    292 images
    <output>/test.json        the other 72, by the repository's own lists

Two boxes without an area are left out. Exit 0: done, 2: bad input.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import simplejson

from mgexp.errors import InputError, raise_problems
from mgexp.run.files import atomic_write_text

CLASSES = ("Platelets", "RBC", "WBC")
SPLITS = ("trainval", "test")


def read_list(bccd: Path, split: str) -> dict[str, list[dict[str, Any]]]:
    """Read the images and boxes of a split as COCO's tables."""
    images, annotations = [], []
    names = (bccd / "ImageSets" / "Main" / f"{split}.txt").read_text(encoding="utf-8").split()
    for number, name in enumerate(names, start=1):
        tree = ElementTree.parse(bccd / "Annotations" / f"{name}.xml").getroot()  # noqa: S314 - files of a pinned commit
        size = {side: int(_text(tree, f"size/{side}")) for side in ("width", "height")}
        images.append({"id": number, "file_name": f"pictures/{name}.jpg", **size})
        for element in tree.iter("object"):
            left, top, right, bottom = (
                int(_text(element, f"bndbox/{side}")) for side in ("xmin", "ymin", "xmax", "ymax")
            )
            if left < right and top < bottom:
                annotations.append(
                    {
                        "id": len(annotations) + 1,
                        "image_id": number,
                        "category_id": 1 + CLASSES.index(_text(element, "name")),
                        "bbox": [left, top, right - left, bottom - top],
                        "area": (right - left) * (bottom - top),
                        "iscrowd": 0,
                    }
                )
    categories = [{"id": number, "name": name} for number, name in enumerate(CLASSES, start=1)]
    return {"images": images, "annotations": annotations, "categories": categories}


def _text(tree: ElementTree.Element, path: str) -> str:
    text = tree.findtext(path)
    if text is None:
        raise ValueError(f"no {path}")
    return text


def main(arguments: list[str]) -> int:
    """Write the lists. Return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("repository", type=Path, help="the clone of BCCD_Dataset")
    parser.add_argument("--output", type=Path, required=True, help="folder for the lists")
    options = parser.parse_args(arguments)
    try:
        bccd = options.repository / "BCCD"
        raise_problems([] if bccd.is_dir() else [f"{bccd} is not a folder"])
        tables = {split: read_list(bccd, split) for split in SPLITS}
        shutil.copytree(bccd / "JPEGImages", options.output / "pictures", dirs_exist_ok=True)
        for split, table in tables.items():
            path = options.output / f"{split}.json"
            atomic_write_text(path, simplejson.dumps(table, indent=1))
            print(f"{path}: {len(table['images'])} images, {len(table['annotations'])} boxes")
    except (InputError, OSError, ValueError, ElementTree.ParseError) as error:
        print(f"make_bccd.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
