"""A data set of three small videos in each format of lists: two for training, one for validation, two classes."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tiny import write_config

KINETICS = "label,youtube_id,time_start,time_end,split\n"


@dataclass(frozen=True)
class Layout:
    """Videos by their names below the root, and the list files, below a folder of their own, by content."""

    videos: Sequence[str]
    lists: Mapping[str, str]
    train: str
    val: str
    classes: str = ""
    others: Mapping[str, Any] = field(default_factory=dict)


FORMATS = {
    "list": Layout(
        ("run/a.mp4", "walk/b.mp4", "run/c.mp4"),
        {"train.txt": "run/a.mp4 0\nwalk/b.mp4 1\n", "val.txt": "run/c.mp4 0\n"},
        "train.txt",
        "val.txt",
    ),
    "kinetics": Layout(  # flat, in a folder of a class, and below val
        (
            "AAAAAAAAAAA_000001_000011.mp4",
            "train/my_walk/BBBBBBBBBBB_000001_000011.mp4",
            "val/CCCCCCCCCCC_000001_000011.mp4",
        ),
        {
            "train.csv": f"{KINETICS}run,AAAAAAAAAAA,1,11,train\nmy walk,BBBBBBBBBBB,1,11,train\n",
            "val.csv": f"{KINETICS}run,CCCCCCCCCCC,1,11,val\n",
        },
        "train.csv",
        "val.csv",
    ),
    "ssv2": Layout(
        ("1.webm", "2.mp4", "3.webm"),
        {
            "train.json": '[{"id": "1", "template": "[run]"}, {"id": "2", "template": "walk"}]',
            "validation.json": '[{"id": "3", "template": "run"}]',
            "labels.json": '{"walk": "1", "run": "0"}',
        },
        "train.json",
        "validation.json",
        "labels.json",
    ),
    "charades": Layout(
        ("AAAAA.mp4", "BBBBB.mp4", "CCCCC.mp4"),
        {
            "train.csv": "id,actions\nAAAAA,c000 0.0 0.5\nBBBBB,c000 0.0 0.5;c001 0.1 0.2\n",
            "test.csv": "id,actions\nCCCCC,c001 0.0 0.5\n",
        },
        "train.csv",
        "test.csv",
        others={"MODEL.LOSS_FUNC": "bce_logit"},
    ),
    "ucf101": Layout(
        ("Run/v_a.avi", "Walk/v_b.avi", "Run/v_c.avi"),
        {
            "trainlist01.txt": "Run/v_a.avi 1\nWalk/v_b.avi 2\n",
            "testlist01.txt": "Run/v_c.avi\n",
            "classInd.txt": "1 Run\n2 Walk\n",
        },
        "trainlist01.txt",
        "testlist01.txt",
        "classInd.txt",
    ),
    "hmdb51": Layout(
        ("run/a.avi", "walk/b.avi", "run/c.avi"),
        {
            "run_test_split1.txt": "a.avi 1 \nc.avi 2 \n",
            "walk_test_split1.txt": "b.avi 1 \n",
        },
        "*_test_split1.txt",
        "*_test_split1.txt",
    ),
    "folders": Layout(
        ("train/run/a.mp4", "train/walk/b.MP4", "val/run/c.webm"),
        {},
        "../videos/train",  # the lists are the folders of the videos
        "../videos/val",
    ),
}


def lay_out(folder: Path, format_: str, source: Path) -> dict[str, Any]:
    """Writes lists and videos, copies of ``source``; the keys of the data set."""
    layout, root, lists = FORMATS[format_], folder / "videos", folder / "lists"
    for name in layout.videos:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, root / name)
    lists.mkdir()
    for name, content in layout.lists.items():
        (lists / name).write_text(content)
    return {
        "DATA.FORMAT": format_,
        "DATA.TRAIN_LIST": str(lists / layout.train),
        "DATA.VAL_LIST": str(lists / layout.val),
        "DATA.CLASSES": str(lists / layout.classes) if layout.classes else "",
        "DATA.PATH_PREFIX": "" if format_ == "folders" else str(root),
        **layout.others,
    }


def row(folder: Path, format_: str, source: Path) -> Path:
    """The YAML of the tiny row on such a data set."""
    return write_config(folder / "row.yaml", lay_out(folder, format_, source))
