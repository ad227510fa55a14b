"""The videos and lists of the drones table, made from a small checkout of made-up videos and labels."""

import struct
import zlib

import av
import make_drones
import numpy as np
import pytest
from make_drones import CLASSES, FOLDS, SCENES, SEARCH_FOLDS, all_clips, follow, main

from mgexp.data.formats import read_list

NUM_FRAMES = 4
SMALL = {
    f"scene {number}": {"BIRD": f"{number}", "DRONE": f"{2 * number - 1}-{2 * number}"}
    for number in range(1, 6)
}
SMALL_FOLDS = tuple((scene,) for scene in SMALL)


def element(kind, content):
    """An element of a MATLAB 5 file; at most 4 bytes are packed together with their type."""
    if len(content) <= 4:
        return struct.pack("<I", kind | len(content) << 16) + content.ljust(4, b"\0")
    return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)


def matrix(array_class, *parts):
    """An array with its flags and an empty name."""
    flags = element(6, bytes([array_class, 0, 0, 0, 0, 0, 0, 0]))
    return element(14, flags + b"".join(parts))


def doubles(array):
    shape = np.array(array.shape, "<i4").tobytes()
    content = np.asarray(array, "<f8").tobytes(order="F")
    return matrix(6, element(5, shape), element(1, b""), element(9, content))


def write_labels(path, boxes, kind):
    """Labels as MATLAB writes them: a table of cells, as a file in an array of bytes in a compressed element."""
    column = CLASSES.index(kind)
    cells = [
        doubles(np.reshape(found, (-1, 4)) if found and number == column else np.zeros((0, 0)))
        for found in boxes
        for number in range(len(CLASSES))
    ]
    other = doubles(np.ones((1, 1)))  # the table also has numbers that are no boxes
    shape = element(5, np.array((len(boxes), len(CLASSES)), "<i4").tobytes())
    inner = bytes(8) + matrix(1, shape, element(1, b""), *cells, other)
    outer = matrix(
        9,
        element(5, np.array((1, len(inner)), "<i4").tobytes()),
        element(1, b""),
        element(2, inner),
    )
    compressed = zlib.compress(outer)
    head = struct.pack("<II", 15, len(compressed))
    path.write_bytes(bytes(128) + head + compressed)


def write_camera(path, middles, began):
    """A grey video of 320 x 256 pixels with a white square of 8 pixels at ``middles``."""
    with av.open(str(path), "w", format="mp4") as container:
        container.metadata["creation_time"] = began
        stream = container.add_stream("libx264", rate=30, options={"qp": "4", "threads": "1"})
        stream.width, stream.height, stream.pix_fmt = 320, 256, "yuv420p"
        for x, y in middles:
            picture = np.full((256, 320, 3), 60, np.uint8)
            picture[y - 4 : y + 4, x - 4 : x + 4] = 250
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A bird and two drones in each of five scenes: an object in the middle, or at the corner in DRONE_002."""
    root = tmp_path_factory.mktemp("checkout")
    (root / "Data/Video_IR").mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(make_drones, "SCENES", SMALL)
        for clip in all_clips():
            x, y = (310, 10) if clip.name == "DRONE_002" else (160, 128)
            began = f"2020-03-{clip.scene[-1]:0>2}T12:00:00.000000Z"
            write_camera(clip.source(root), [(x, y)] * NUM_FRAMES, began)
            write_labels(clip.labels(root), [[[x - 6, y - 6, 12, 12]]] * NUM_FRAMES, clip.kind)
    return root


@pytest.fixture
def small(checkout, monkeypatch):
    """Lets that checkout be complete."""
    for name, value in (
        ("SCENES", SMALL),
        ("FOLDS", SMALL_FOLDS),
        ("SEARCH_FOLDS", SMALL_FOLDS),
        ("NUM_BYTES", sum(path.stat().st_size for path in checkout.glob("Data/Video_IR/*"))),
    ):
        monkeypatch.setattr(make_drones, name, value)


@pytest.mark.parametrize("folds", [FOLDS, SEARCH_FOLDS])
def test_every_scene_tests_one_fold_of_about_a_fifth(folds):
    assert sorted(scene for fold in folds for scene in fold) == sorted(SCENES)
    assert len(folds) == 5
    sizes = [sum(clip.scene in fold for clip in all_clips()) for fold in folds]
    assert min(sizes) >= 50 and max(sizes) <= 91


def test_lists_name_the_videos_of_other_scenes(small, checkout, tmp_path, capsys):
    assert main([str(checkout), "--output", str(tmp_path), "--processes", "1"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{tmp_path}: 15 of 15 videos made, 0 kept; 5 folds, and 5 for tuning")
    scenes = {clip.path: clip.scene for clip in all_clips()}
    for prefix in ("", "search_"):
        for number, tested in enumerate(SMALL_FOLDS):
            found = {
                split: read_list(tmp_path / f"{prefix}{split}_{number}.csv", tmp_path, 4).existing()
                for split in ("train", "val")
            }
            assert all(videos.problems == videos.missing == () for videos in found.values())
            assert (len(found["train"].records), len(found["val"].records)) == (12, 3)
            names = {
                split: {path.rpartition("videos/")[2] for path in videos.paths}
                for split, videos in found.items()
            }
            assert {scenes[f"videos/{name}"] for name in names["val"]} == set(tested)
            assert names["val"].isdisjoint(names["train"])
            assert [one.label for one in found["val"].records] == [1, 2, 2]


def test_a_window_follows_the_object_and_stays_in_the_picture(small, checkout, tmp_path):
    assert main([str(checkout), "--output", str(tmp_path), "--processes", "1"]) == 0
    for name, (x, y) in {"BIRD_001": (40, 40), "DRONE_002": (70, 10)}.items():
        with av.open(str(tmp_path / f"videos/{name}.mp4")) as container:
            assert container.streams.video[0].average_rate == 30
            frames = [frame.to_ndarray(format="gray") for frame in container.decode(video=0)]
        assert [frame.shape for frame in frames] == [(80, 80)] * NUM_FRAMES
        rows, columns = np.nonzero(frames[-1] > 150)
        assert (columns.mean() + 0.5, rows.mean() + 0.5) == pytest.approx((x, y), abs=0.5)


def test_the_window_stays_with_one_object_and_bridges_gaps(monkeypatch):
    monkeypatch.setattr(make_drones, "SMOOTH_FRAMES", 1)
    near, far = [8.0, 8.0, 4.0, 4.0], [98.0, 8.0, 4.0, 4.0]
    moved = [28.0, 8.0, 4.0, 4.0]
    boxes = [np.reshape(found, (-1, 4)) for found in ([near], [], [far, moved], [])]
    np.testing.assert_allclose(follow(boxes), [[10, 10], [20, 10], [30, 10], [30, 10]])
    monkeypatch.setattr(make_drones, "SMOOTH_FRAMES", 3)
    np.testing.assert_allclose(follow(boxes)[:, 0], [40 / 3, 20, 80 / 3, 30])
