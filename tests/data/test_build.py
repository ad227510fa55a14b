"""Lists and loaders as a configuration asks for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from listed import names_and_labels, write_videos
from torch.utils.data import DataLoader, Dataset

from mgexp.config.keys import Config
from mgexp.config.load import load_config
from mgexp.data.lists import build_list
from mgexp.data.loader import build_time_limit, build_train_loader, build_view_loader
from mgexp.data.records import VideoRecord
from mgexp.dist import Processes
from mgexp.video.time_limit import EXIT_NOT_HANDED_ON, TimeLimit, Timeout, write_timeout

ROW = Path("experiments/quickstart/baseline.yaml")


class Niceness(Dataset[int]):
    """How nice the process is that loads the only item."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, item: int) -> int:
        return os.getpriority(os.PRIO_PROCESS, 0)


@pytest.mark.parametrize(("device", "expected"), [("cpu", 19), ("cuda", None)])
def test_workers_yield_to_training_threads_only_on_a_cpu(device: str, expected: int | None) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    loader = build_train_loader(load_config(ROW, []), [], [], torch.device(device))
    probe = DataLoader(Niceness(), num_workers=1, worker_init_fn=loader.worker_init_fn)
    assert [value.item() for value in probe] == [own if expected is None else expected]


KINETICS = "label,youtube_id,time_start,time_end\n{}"
BOTH = KINETICS.format("zumba,AAAAAAAAAAA,1,2\nrun,BBBBBBBBBBB,1,2\n")


def config_of(folder: Path, format_: str, train: str, val: str, *pairs: str) -> Config:
    """The quickstart's row on the lists of a folder, with two classes."""
    given = (
        "DATA.FORMAT",
        format_,
        "DATA.TRAIN_LIST",
        f"{folder}/{train}",
        "DATA.VAL_LIST",
        f"{folder}/{val}",
    )
    prefix = "" if format_ == "folders" else str(folder)
    return load_config(ROW, [*given, "DATA.PATH_PREFIX", prefix, "MODEL.NUM_CLASSES", "2", *pairs])


def write_lists(folder: Path) -> None:
    """One training video of class "run" in every format, under the names of the table below."""
    (folder / "kinetics.csv").write_text(BOTH)
    (folder / "one.csv").write_text(KINETICS.format("zumba,AAAAAAAAAAA,1,2\n"))
    (folder / "ssv2.json").write_text('[{"id": "1", "template": "[run]"}]')
    (folder / "labels.json").write_text('{"walk": "1", "run": "0"}')
    (folder / "trainlist01.txt").write_text("run/v_x.avi 1\n")
    (folder / "classInd.txt").write_text("1 run\n2 walk\n")
    (folder / "run_test_split1.txt").write_text("v_x.avi 1\n")
    (folder / "walk_test_split1.txt").write_text("v_x.avi 0\n")
    (folder / "list.txt").write_text("run/v_x.avi 0\n")
    videos = ("1.webm", "run/v_x.avi", "by_class/run/v_x.avi", "by_class/walk/v_x.avi")
    write_videos(folder, *videos, "BBBBBBBBBBB_000001_000002.mp4", "AAAAAAAAAAA_000001_000002.mp4")


@pytest.mark.parametrize(
    ("format_", "train", "classes", "wanted"),
    [
        ("list", "list.txt", "", ("run/v_x.avi", 0)),
        ("kinetics", "kinetics.csv", "", ("BBBBBBBBBBB_000001_000002.mp4", 0)),
        ("kinetics", "kinetics.csv", "names.txt", ("BBBBBBBBBBB_000001_000002.mp4", 1)),
        ("ssv2", "ssv2.json", "labels.json", ("1.webm", 0)),
        ("ucf101", "trainlist01.txt", "classInd.txt", ("run/v_x.avi", 0)),
        ("hmdb51", "*_test_split1.txt", "", ("run/v_x.avi", 0)),
        ("folders", "by_class", "", ("by_class/run/v_x.avi", 0)),
    ],
)
def test_the_format_chooses_the_reader(
    format_: str, train: str, classes: str, wanted: tuple[str, int], tmp_path: Path
) -> None:
    write_lists(tmp_path)
    (tmp_path / "names.txt").write_text("zumba\nrun\n")
    pairs = ("DATA.CLASSES", str(tmp_path / classes)) if classes else ()
    videos = build_list(config_of(tmp_path, format_, train, train, *pairs), "TRAIN_LIST")
    assert wanted in names_and_labels(tmp_path, videos)


def test_classes_without_a_file_are_those_of_the_training_list(tmp_path: Path) -> None:
    """The validation list lacks the first class, which changes the number of no other."""
    write_lists(tmp_path)
    videos = build_list(config_of(tmp_path, "kinetics", "kinetics.csv", "one.csv"), "VAL_LIST")
    assert names_and_labels(tmp_path, videos) == [("AAAAAAAAAAA_000001_000002.mp4", 1)]


@pytest.mark.parametrize(
    ("format_", "train", "said"),
    [
        (
            "ssv2",
            "ssv2.json",
            "DATA.CLASSES is not set: add DATA.CLASSES FILE, the official labels.json",
        ),
        (
            "ucf101",
            "trainlist01.txt",
            "DATA.CLASSES is not set: add DATA.CLASSES FILE, the official classInd",
        ),
        ("kinetics", "one.csv", "one.csv: 1 names, but MODEL.NUM_CLASSES = 2"),
        ("kinetics", "no.csv", "no.csv does not exist"),
        ("folders", "no", "no does not exist"),
    ],
)
def test_without_classes_there_is_one_problem(
    format_: str, train: str, said: str, tmp_path: Path
) -> None:
    write_lists(tmp_path)
    for key in ("TRAIN_LIST", "VAL_LIST"):
        (problem,) = build_list(config_of(tmp_path, format_, train, train), key).problems
        assert said in problem


def test_a_list_that_is_not_set_is_told_what_it_would_be() -> None:
    pairs = ["DATA.FORMAT", "charades", "DATA.TRAIN_LIST", ""]
    (problem,) = build_list(load_config(ROW, pairs), "TRAIN_LIST").problems
    assert problem.startswith(
        "DATA.TRAIN_LIST is not set: add DATA.TRAIN_LIST PATH, the official CSV, Charades"
    )


@pytest.mark.parametrize(("rank", "count"), [(0, 1), (0, 2), (1, 2)])
def test_batches_that_are_left_out_are_the_first_of_the_process(rank: int, count: int) -> None:
    cfg = load_config(ROW, ["TEST.NUM_ENSEMBLE_VIEWS", "2", "TEST.BATCH_SIZE", "4"])
    records = [VideoRecord(f"{index}.mp4", 0) for index in range(11)]
    of = (cfg, records, True, torch.device("cpu"), Processes(rank, count))
    batches = list(build_view_loader(*of).batch_sampler)
    for first in (0, 2, len(batches)):
        assert list(build_view_loader(*of, first_batch=first).batch_sampler) == batches[first:]


class Unshared(Dataset[torch.Tensor]):
    """Its batches cannot be handed on, as where shared memory is full."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, item: int) -> object:
        return lambda: None  # which cannot be pickled


def test_a_worker_that_cannot_hand_on_a_batch_ends() -> None:
    """Without that, the run would wait for the batch for ever."""
    loader = build_train_loader(load_config(ROW, []), [], [], torch.device("cpu"))
    probe = DataLoader(
        Unshared(), num_workers=1, collate_fn=list, worker_init_fn=loader.worker_init_fn, timeout=60
    )
    with pytest.raises(RuntimeError, match="exited unexpectedly") as caught:
        list(probe)
    assert f"exit code {EXIT_NOT_HANDED_ON}" in str(caught.value.__cause__ or caught.value)


def test_the_limit_knows_the_time_outs_of_the_run(tmp_path: Path) -> None:
    record = tmp_path / "timeouts.jsonl"
    write_timeout(record, Timeout("a.mp4", (0, 3)))
    limit = build_time_limit(load_config(ROW, ["DATA.VIDEO_TIMEOUT_SECONDS", "7"]), record)
    assert limit == TimeLimit(7.0, record, frozenset([Timeout("a.mp4", (0, 3))]))


FAILS = """
import torch
from torch.utils.data import DataLoader
from mgexp.config.load import load_config
from mgexp.data.loader import build_train_loader

class Endless(torch.utils.data.Dataset):
    def __len__(self): return 100
    def __getitem__(self, item): return item

options = build_train_loader(load_config("experiments/quickstart/baseline.yaml", []), [], [], torch.device("cpu"))
batches = iter(DataLoader(Endless(), num_workers=2, worker_init_fn=options.worker_init_fn))
next(batches)
raise ValueError("a bug")
"""


def test_a_program_that_fails_does_not_wait_for_its_workers() -> None:
    """Python keeps the frames of the error, and with them the loader; its workers ignore SIGTERM."""
    done = subprocess.run(
        [sys.executable, "-c", FAILS], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 1
    assert "ValueError: a bug" in done.stderr
