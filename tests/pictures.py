"""Small pictures with boxes, and COCO's lists of them."""

import json

import numpy as np
from PIL import Image

TALL, WIDE, NUM_CLASSES = 48, 64, 3
NUM_PICTURES = {"train": 30, "val": 6}


def write_pictures(folder):
    """Write train.json and val.json: pictures of noise with three squares each, a class a colour."""
    rng = np.random.default_rng(0)
    for split, number in NUM_PICTURES.items():
        images, boxes = [], []
        for picture in range(number):
            pixels = rng.integers(0, 80, (TALL, WIDE, 3), np.uint8)
            for label in range(NUM_CLASSES):
                side = int(rng.integers(10, 20))
                left, top = (int(rng.integers(0, room - side)) for room in (WIDE, TALL))
                pixels[top : top + side, left : left + side, label] = 255
                place = {"image_id": picture, "category_id": label + 1}
                boxes.append({"id": len(boxes), **place, "bbox": [left, top, side, side]})
            name = f"{split}{picture}.png"
            Image.fromarray(pixels).save(folder / name)
            images.append({"id": picture, "file_name": name, "height": TALL, "width": WIDE})
        names = [{"id": label + 1, "name": f"class {label}"} for label in range(NUM_CLASSES)]
        content = {"images": images, "annotations": boxes, "categories": names}
        (folder / f"{split}.json").write_text(json.dumps(content))
    return folder


def picture_keys(folder):
    """The keys that point to the lists."""
    lists = {f"DATA.{key}_LIST": str(folder / f"{key.lower()}.json") for key in ("TRAIN", "VAL")}
    return {**lists, "DATA.PATH_PREFIX": str(folder)}
