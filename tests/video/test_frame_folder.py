"""Folders of images: the same frames as a lossless video, what is no sequence, checks and copies in a store."""

import shutil

import av
import numpy as np
import pytest
from frame_folders import write_folder, write_image, write_lossless
from PIL import Image
from stores import TALL, WIDE, NotedOpener, order, psnr, smooth_picture, store_in
from videos import frames_at

from mgexp.run.folder import CheckDir
from mgexp.video.check import check_video
from mgexp.video.check_log import add_check, known_checks
from mgexp.video.frame_folder import FilesAndFolders, FrameFolder, images_of, read_image
from mgexp.video.reader import Region, VideoError, whole
from mgexp.video.store import StoreIndex, stamp_of
from mgexp.video.store_encode import encode_video
from mgexp.video.store_fill import fill_store

NUM_IMAGES = 12
PICTURES = [smooth_picture(number) for number in range(NUM_IMAGES)]
PLACE = Region(10, 20, 33, 47)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Twelve images; read only."""
    return write_folder(tmp_path_factory.mktemp("frames") / "clip")


@pytest.fixture
def own(folder, tmp_path):
    """Twelve images that a test may change."""
    return shutil.copytree(folder, tmp_path / "own" / "clip")


@pytest.mark.parametrize("fps", [30, 12])
def test_a_folder_gives_the_frames_of_a_lossless_video_of_its_images(folder, fps, tmp_path):
    video = str(write_lossless(tmp_path / "clip.mkv", PICTURES, fps))
    times = np.random.default_rng(0).uniform(-0.1, 14 / fps, 20)
    times = [*(time for time in times if abs(time * fps - round(time * fps)) > 0.05), 3 / fps]
    opener = FilesAndFolders(fps)
    with opener(video) as plain, opener(str(folder)) as found:
        assert found.duration_seconds == pytest.approx(NUM_IMAGES / fps)
        for cut in (whole, lambda size: PLACE):
            wanted = plain.frames_at(times, cut=cut).pixels
            frames = found.frames_at(times, cut=cut)
            assert (frames.size, frames.region) == ((TALL, WIDE), cut((TALL, WIDE)))
            np.testing.assert_array_equal(frames.pixels, wanted)


def test_each_image_of_a_clip_is_decoded_once(folder, monkeypatch):
    decoded = []
    monkeypatch.setattr(
        FrameFolder, "image", lambda self, place: decoded.append(place) or PICTURES[place]
    )
    FrameFolder(str(folder)).frames_at([0.1, 0.1, 0.2, 9.0, 0.1])
    assert decoded == [3, 6, 11]


@pytest.mark.parametrize(
    "names",
    [
        ["img_00001.jpg", "img_00002.jpg", "img_00003.jpg"],
        ["frame_0000000009.png", "frame_0000000010.png"],
        ["9.JPEG", "10.JPEG", "11.JPEG"],
        ["clip2_000.jpg", "clip2_001.jpg"],
        ["img_00005.jpg", "img_00010.jpg", "img_00015.jpg"],
        [f"img ({number}).jpg" for number in range(1, 12)],
        ["img_00001.jpg", "flow_x_00001.jpg", "flow_y_00001.jpg", ".img_00007.jpg", "notes.txt"],
    ],
)
def test_images_come_in_the_order_of_their_numbers(names, tmp_path):
    for name in reversed(names):
        (tmp_path / name).write_bytes(b"x")
    wanted = [name for name in names if name.lower().endswith(("jpg", "jpeg", "png"))]
    assert list(images_of(str(tmp_path))) == [n for n in wanted if not n.startswith((".", "flow"))]


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ([], "is a folder without images (.jpg, .jpeg, .png)"),
        (["a.mp4"], "is a folder without images (.jpg, .jpeg, .png)"),
        (["5.jpg", "7.jpg", "8.jpg"], "has a gap: 5.jpg is followed by 7.jpg"),
        (["img_1.jpg", "img_01.jpg"], "has a number twice: img_01.jpg is followed by img_1.jpg"),
        (["img_1.jpg", "cover.jpg"], "holds an image without a number, cover.jpg: remove it"),
        (
            ["color_001.jpg", "depth_001.jpg"],
            "holds several series of images, such as color_001.jpg and depth_001.jpg",
        ),
    ],
)
def test_a_folder_that_is_no_sequence_is_a_video_error_and_a_kind_of_its_own(
    names, reason, tmp_path
):
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(VideoError) as caught:
        FrameFolder(str(tmp_path))
    assert str(caught.value) == f"{tmp_path}: {reason}"
    found = check_video(str(tmp_path), quick=True)
    assert (found.kind, found.reason, found.is_usable) == ("no_sequence", reason, False)


def test_grey_becomes_rgb_and_transparency_is_dropped(tmp_path):
    grey = smooth_picture(3)[..., :1]
    found = read_image(str(write_image(tmp_path / "1.png", grey)))
    np.testing.assert_array_equal(found, np.repeat(grey, 3, axis=2))
    nearly_transparent = np.full((TALL, WIDE, 1), 7, np.uint8)
    Image.fromarray(np.dstack([smooth_picture(3), nearly_transparent])).save(tmp_path / "2.png")
    np.testing.assert_array_equal(read_image(str(tmp_path / "2.png")), smooth_picture(3))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (lambda data: b"", "is empty"),
        (lambda data: b"not an image", "cannot be decoded: "),
        (lambda data: data[: len(data) // 2], "cannot be decoded: "),
        (lambda data: data[:-10], "cannot be decoded: "),
    ],
)
def test_a_damaged_image_is_a_video_error_that_names_it(own, content, reason, tmp_path):
    path = write_image(tmp_path / "own" / "jpegs" / "3.jpg", smooth_picture(3))
    path.write_bytes(content(path.read_bytes()))
    for number in (1, 2, 4):
        write_image(path.with_name(f"{number}.jpg"), smooth_picture(number))
    with pytest.raises(VideoError, match="3.jpg: " + reason):
        FrameFolder(str(path.parent)).frames_at([0.0, 0.07])
    found = check_video(str(path.parent), quick=False)
    assert (found.kind, found.frames) == ("decode_error_partial", 3)
    assert found.reason.startswith(f"1 images, first 3.jpg {reason}")
    # The first and the last image are whole.
    quick = check_video(str(path.parent), quick=True)
    assert (quick.kind, quick.frames) == ("ok", 4)


def test_an_image_that_disappears_is_a_video_error(own):
    opened = FrameFolder(str(own))
    (own / "img_00004.png").unlink()
    with pytest.raises(VideoError, match=r"img_00004\.png: cannot be read: No such file"):
        opened.frames_at([0.1])


def test_images_of_another_size_show_the_same_part_at_the_size_of_the_first(own):
    """The second image has half the size: its part is half as high and wide, and is then doubled."""
    small = PICTURES[1].reshape(TALL // 2, 2, WIDE // 2, 2, 3).mean(axis=(1, 3)).round()
    write_image(own / "img_00002.png", small.astype(np.uint8))
    place = Region(20, 40, 32, 48)
    found = FrameFolder(str(own)).frames_at([0.0, 1 / 30], cut=lambda size: place).pixels
    assert found.shape == (2, 32, 48, 3)
    np.testing.assert_array_equal(found[0], PICTURES[0][20:52, 40:88])
    # Doubling blurs the edges a little.
    np.testing.assert_allclose(found[1].astype(int), PICTURES[1][20:52, 40:88], atol=6)
    check = check_video(str(own), quick=False)
    assert (check.kind, check.is_usable, check.frames) == ("sizes_differ", True, 12)
    assert check.reason == f"{WIDE}×{TALL} (img_00001.png) and 64×48 (img_00002.png)"
    assert (check.width, check.height, check.codec) == (WIDE, TALL, "png")


def test_a_check_is_made_again_when_an_image_changes(own, tmp_path):
    folder, how = CheckDir(tmp_path), {"quick": False, "limit_seconds": 10}
    add_check(folder, check_video(str(own), quick=False), quick=False)
    assert known_checks(folder, [str(own)], **how)[str(own)].frames == NUM_IMAGES
    # An image that is written again in place changes no time of the folder.
    before = own.stat().st_mtime_ns
    write_image(own / "img_00003.png", smooth_picture(3, 32, 32))
    assert own.stat().st_mtime_ns == before
    assert known_checks(folder, [str(own)], **how) == {}


def test_the_stamp_of_a_folder_has_the_size_of_its_images(own):
    images = [*own.iterdir()]
    (own / "notes.txt").write_text("no image")
    assert stamp_of(str(own)).size_bytes == sum(path.stat().st_size for path in images)


@pytest.fixture
def store(own, tmp_path):
    """A store of the folder with a copy of 96 pixels, as large as the images."""
    filled = fill_store(store_in(tmp_path), order(own.parent, 96), ["clip"], 1, progress=False)
    assert (filled.num_copied, filled.failures) == (1, ())
    return store_in(tmp_path)


@pytest.mark.parametrize("fps", [30.0, 12.0])
def test_a_copy_in_a_store_has_the_same_frames_at_any_frame_rate(own, store, fps):
    opener = NotedOpener(FilesAndFolders(fps))
    index = StoreIndex(store, own.parent, opener, fps)
    times = [(number + 0.5) / fps for number in (0, 3, 7, 11, 20)]
    with opener(str(own)) as source, index(str(own)) as copy:
        assert copy.duration_seconds == pytest.approx(source.duration_seconds) == 12 / fps
        found = copy.frames_at(times, 96)
        assert opener == [str(own), str(store.copy(96, "clip"))]
        assert found.size == (TALL, WIDE)
        pixels, wanted = found.pixels, source.frames_at(times).pixels
        # A larger short side than that of the copy would need the images themselves.
        np.testing.assert_array_equal(copy.frames_at(times).pixels, wanted)
    assert min(psnr(one, other) for one, other in zip(pixels, wanted, strict=True)) > 38


def test_a_store_keeps_a_folder_and_copies_it_again_when_it_changes(own, store, tmp_path):
    again = (store, order(own.parent, 96), ["clip"], 1)
    assert fill_store(*again, progress=False).num_kept == 1
    write_image(own / "img_00013.png", smooth_picture(12))
    opener = FilesAndFolders()
    assert StoreIndex(store, own.parent, opener).entry(str(own)) is None
    assert fill_store(*again, progress=False).num_copied == 1
    assert store.read()["clip"].num_frames == 13
    assert StoreIndex(store, own.parent, opener).entry(str(own)) is not None


def test_a_copy_has_the_size_of_the_first_image(own, tmp_path):
    write_image(own / "img_00002.png", smooth_picture(1, 48, 64))
    stored = encode_video(own, "clip", stamp_of(str(own)), store_in(tmp_path), (96,), 2)
    assert (stored.height, stored.width, stored.num_frames) == (TALL, WIDE, NUM_IMAGES)
    copy = store_in(tmp_path).copy(96, "clip")
    assert copy.name == "clip.mp4"
    frames = frames_at(copy, [0.0, 1 / 30, 2 / 30])
    wanted = FrameFolder(str(own)).frames_at([0.0, 1 / 30, 2 / 30]).pixels
    assert min(psnr(one, other) for one, other in zip(frames, wanted, strict=True)) > 38


@pytest.mark.parametrize("pix_fmt", ["gray16be", "rgb48be", "ya16be", "rgba64be"])
def test_an_image_of_16_bits_is_refused(pix_fmt, tmp_path):
    """Pillow shows that for grey alone."""
    with av.open(str(tmp_path / "1.png"), "w", format="image2") as container:
        stream = container.add_stream("png", width=4, height=4, pix_fmt=pix_fmt)
        container.mux(stream.encode(av.VideoFrame(4, 4, pix_fmt)))
    with pytest.raises(VideoError, match=r"1\.png: has 16 or 32 bits for each colour"):
        read_image(str(tmp_path / "1.png"))
