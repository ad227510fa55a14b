"""Lists, classes, quarantines and stores at addresses, and videos that exist as copies alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from served import served, write_handler
from tiny import NUM_TRAIN, data_keys, tiny_config

from mgexp.data.entries import Listed, existing_videos
from mgexp.data.lists import _with_copies, build_list, quarantine_problems
from mgexp.data.loader import build_opener
from mgexp.data.records import VideoRecord
from mgexp.errors import InputError
from mgexp.registry import import_file
from mgexp.run import remote
from mgexp.train.setup import build_num_videos
from mgexp.video.paths import Root
from mgexp.video.reader import VideoError
from mgexp.video.store import StoreDir, open_store
from mgexp.video.store_fill import Order, fill_store

pytestmark = pytest.mark.usefixtures("own_code")

NAMES = [f"train{number}.mp4" for number in range(NUM_TRAIN)]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(remote, "_KNOWN", {})


@pytest.fixture(scope="module")
def bucket(tiny_data, tmp_path_factory) -> Path:
    """A folder of what lies at addresses: the lists, a store of files and one of shards."""
    folder = tmp_path_factory.mktemp("bucket")
    for name in ("train.txt", "val.txt"):
        shutil.copy(tiny_data / name, folder / name)
    (folder / "quarantine.txt").write_text("train3.mp4\n")
    for name, shard_bytes in (("files", None), ("shards", 50_000)):
        asked = Order(tiny_data, (32, 24), 4, shard_bytes=shard_bytes)
        fill_store(StoreDir(folder / name), asked, NAMES, 1, progress=False)
    return folder


def test_a_list_on_a_web_server_is_that_of_a_file(tiny_data, bucket, tmp_path):
    here = tiny_config(tmp_path, data_keys(tiny_data))
    with served(bucket) as (address, requests):
        keys = {"DATA.TRAIN_LIST": f"{address}/train.txt", "DATA.VAL_LIST": f"{address}/val.txt"}
        there = tiny_config(tmp_path, {**data_keys(tiny_data), **keys})
        for key in ("TRAIN_LIST", "VAL_LIST"):
            assert build_list(there, key) == build_list(here, key)
        assert build_num_videos(there, None) == (NUM_TRAIN, [])
        assert sorted(requests) == ["/train.txt", "/val.txt"]


def test_a_quarantine_at_an_address_counts(tiny_data, bucket, tmp_path):
    import_file(write_handler(tmp_path / "my_handlers.py", bucket))
    changes = {**data_keys(tiny_data), "DATA.QUARANTINE": "test://quarantine.txt"}
    cfg = tiny_config(tmp_path, changes)
    train, val = build_list(cfg, "TRAIN_LIST"), build_list(cfg, "VAL_LIST")
    assert train.missing == (str(tiny_data / "train3.mp4"),)
    assert quarantine_problems(cfg.DATA, (train, val)) == []


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"DATA.TRAIN_LIST": "gs://b/a"}, "DATA.TRAIN_LIST: gs://b/a: no handler reads it"),
        ({"DATA.CLASSES": "gs://b/c"}, "DATA.CLASSES: gs://b/c: no handler reads it"),
        ({"DATA.PATH_PREFIX": "s3://b/videos"}, "videos are files of this machine"),
        (
            {"DATA.FORMAT": "folders", "DATA.TRAIN_LIST": "https://h/a", "DATA.VAL_LIST": ""},
            "with DATA.FORMAT folders this key names files of this machine",
        ),
    ],
)
def test_what_cannot_be_read_is_one_problem(tiny_data, tmp_path, keys, said):
    cfg = tiny_config(tmp_path, {**data_keys(tiny_data), **keys})
    (problem,) = build_list(cfg, "TRAIN_LIST").problems
    assert said in problem


@pytest.mark.parametrize("name", ["files", "shards"])
def test_clips_come_from_a_store_at_an_address_without_any_video(tiny_data, bucket, tmp_path, name):
    """The videos are on another machine: the folder of DATA.PATH_PREFIX is empty."""
    (tmp_path / "videos").mkdir()
    import_file(write_handler(tmp_path / "my_handlers.py", bucket))
    keys = {"DATA.STORE": f"test://{name}", "DATA.PATH_PREFIX": str(tmp_path / "videos")}
    cfg = tiny_config(tmp_path, {**data_keys(tiny_data), **keys})
    train = build_list(cfg, "TRAIN_LIST")
    assert [Path(record.path).name for record in train.records] == NAMES
    assert [record.label for record in train.records] == [n % 2 for n in range(NUM_TRAIN)]
    assert train.missing == ()
    local = tiny_config(tmp_path, {**data_keys(tiny_data), "DATA.STORE": str(bucket / name)})
    for there, here in zip(train.records, build_list(local, "TRAIN_LIST").records, strict=True):
        with build_opener(cfg)(there.path) as one, build_opener(local)(here.path) as other:
            assert one.duration_seconds == other.duration_seconds
            frames = one.frames_at([0.1, 0.4], 24), other.frames_at([0.1, 0.4], 24)
            assert np.array_equal(*(found.rgb() for found in frames))


def test_videos_without_copies_are_still_missing(tiny_data, bucket, tmp_path):
    (tmp_path / "videos").mkdir()
    keys = {"DATA.STORE": str(bucket / "files"), "DATA.PATH_PREFIX": str(tmp_path / "videos")}
    cfg = tiny_config(tmp_path, {**data_keys(tiny_data), **keys})
    val = build_list(cfg, "VAL_LIST")
    assert (len(val.records), len(val.missing)) == (0, 8)


@pytest.mark.parametrize(("where", "name"), [("train/class 0", "train0.mp4"), ("", "train0.avi")])
def test_a_video_that_was_not_at_its_usual_place_is_found_in_the_store(
    tiny_data, tmp_path, where, name
):
    """Kinetics in folders of classes, and a file of another format than the list says."""
    there = tmp_path / "videos" / where / name
    there.parent.mkdir(parents=True)
    shutil.copy(tiny_data / "train0.mp4", there)
    path = there.relative_to(tmp_path / "videos").as_posix()
    fill_store(
        StoreDir(tmp_path / "store"),
        Order(tmp_path / "videos", (32,), 4),
        [path],
        1,
        progress=False,
    )
    usual = str(tmp_path / "videos/train0.mp4")
    videos = existing_videos([Listed(VideoRecord(usual, 1), (str(there),))], (), "empty")
    assert videos.records == (VideoRecord(str(there), 1),)
    there.unlink()
    gone = existing_videos([Listed(VideoRecord(usual, 1), (str(there),))], (), "empty")
    entries, root = StoreDir(tmp_path / "store").entries(), Root(tmp_path / "videos")
    found = _with_copies(gone, entries, root)
    assert (found.records, found.missing) == (videos.records, ())
    # An empty file is no video that is gone.
    there.touch()
    assert _with_copies(gone, entries, root).missing == (usual,)


def test_names_in_a_store_on_a_web_server_may_have_any_characters(tmp_path):
    (tmp_path / "s/32/c# 1").mkdir(parents=True)
    (tmp_path / "s/32/c# 1/100%41?.mp4").write_text("a copy")
    with served(tmp_path) as (address, _):
        store = open_store(f"{address}/s")
        assert store.copy(32, "c# 1/100%41?.mp4").read_text() == "a copy"


def test_only_what_is_needed_of_a_store_is_fetched(tiny_data, bucket, tmp_path):
    with served(bucket) as (address, requests):
        changes = {**data_keys(tiny_data), "DATA.STORE": f"{address}/shards"}
        opener = build_opener(tiny_config(tmp_path, changes))
        assert requests == ["/shards/manifest.jsonl", "/shards/store.json"]
        with opener(str(tiny_data / "train0.mp4")) as video:
            video.frames_at([0.0], 24).rgb()
        (shard,) = requests[2:]
        assert shard.startswith("/shards/24/")


def test_a_store_that_does_not_answer_is_a_problem_of_the_key_or_the_video(
    tiny_data, bucket, tmp_path
):
    with served(bucket) as (address, _):
        changes = {**data_keys(tiny_data), "DATA.STORE": f"{address}/shards"}
        opener = build_opener(tiny_config(tmp_path, changes))
        changes["DATA.STORE"] = f"{address}/none"
        with pytest.raises(InputError, match=r"DATA.STORE: http.*none/manifest.jsonl: cannot be"):
            build_opener(tiny_config(tmp_path, changes))
    with (
        opener(str(tiny_data / "train0.mp4")) as video,
        pytest.raises(VideoError, match=r"has no copy here: http.*Connection refused"),
    ):
        video.frames_at([0.0], 24)
