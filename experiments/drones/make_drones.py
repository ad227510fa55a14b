"""Make the videos and lists of the drones table from infrared videos that other people have published.

    git clone https://github.com/DroneDetectionThesis/Drone-detection-dataset
    git -C Drone-detection-dataset checkout 442d0c6750708cc221636f7a1fd31cbd8cb0aeb8
    python experiments/drones/make_drones.py Drone-detection-dataset --output data/drones

The repository has 365 infrared videos of 10 seconds, 320 x 256 pixels, with an airplane, a bird, a drone or a
helicopter, and a box around it in every frame. It is "free to download, use and edit" (README), CC0 (LICENSE).

    <output>/videos/DRONE_001.mp4      80 x 80 pixels that follow the box, every frame coded by itself
    <output>/train_0.csv, val_0.csv    five folds: the scenes of val_0 are not in train_0
    <output>/search_train_0.csv, ...   five folds of other groups of scenes, to tune a recipe with

After an interruption, run it again: it keeps the videos that exist. Exit 0: done, 2: bad input, 4: interrupted.
"""

from __future__ import annotations

import argparse
import os
import struct
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path

import av
import numpy as np
from tqdm import tqdm

from mgexp.errors import InputError, listed, raise_problems
from mgexp.run.environment import num_cores
from mgexp.run.files import atomic_write_text
from mgexp.video.processes import map_in_processes

CLASSES = ("AIRPLANE", "BIRD", "DRONE", "HELICOPTER")
SCENES: Mapping[str, Mapping[str, str]] = {
    "20 March": {"BIRD": "1 3 11-13", "DRONE": "1-38 43-55"},
    "21 March": {"AIRPLANE": "2-4", "BIRD": "2 4-7 10", "DRONE": "39-42"},
    "22 March": {"AIRPLANE": "5-23"},
    "25 March, 13:34": {"HELICOPTER": "1-22"},
    "25 March, 14:15": {"HELICOPTER": "23-30"},
    "25 March, 15:20": {"HELICOPTER": "31-43"},
    "27 March, 11:51": {"DRONE": "56-109"},
    "27 March, 12:03": {"AIRPLANE": "24-26", "DRONE": "110-137", "HELICOPTER": "44-45"},
    "28 March": {"BIRD": "14-25"},
    "29 March": {"BIRD": "8-9 26-37"},
    "5 April": {"DRONE": "138-157"},
    "6 April, 12:51": {"AIRPLANE": "27-39", "BIRD": "38 72"},
    "6 April, 13:11": {"AIRPLANE": "40-42", "BIRD": "39-44"},
    "6 April, 14:04": {"AIRPLANE": "43-45 52-55 59-61 64", "BIRD": "45-64"},
    "6 April, 14:18": {"AIRPLANE": "46-51 56-58", "BIRD": "65-71 73-74"},
    "7 April": {"BIRD": "75-76"},
    "11 April": {"AIRPLANE": "1 62-63 65"},
    "16 April": {"AIRPLANE": "66-70"},
    "17 April": {"AIRPLANE": "71-74", "BIRD": "77-79", "HELICOPTER": "46-55"},
}
"""The numbers of the videos of each scene: recordings of one day, named after the start of the first, that share
a view. prose.md says how they were found."""
FOLDS = (
    ("22 March", "25 March, 15:20", "29 March", "5 April", "7 April"),
    ("27 March, 12:03", "6 April, 14:04"),
    ("25 March, 14:15", "27 March, 11:51", "28 March", "6 April, 12:51"),
    ("20 March", "6 April, 13:11", "16 April", "17 April"),
    ("21 March", "25 March, 13:34", "6 April, 14:18", "11 April"),
)
"""The scenes whose videos test each fold. Of all groupings that we tried, this one is closest to a fifth of each
class and of all videos in each fold."""
SEARCH_FOLDS = (
    ("20 March", "22 March", "28 March"),
    ("25 March, 13:34", "5 April", "6 April, 14:04"),
    ("27 March, 11:51", "6 April, 14:18", "7 April", "17 April"),
    ("21 March", "25 March, 15:20", "6 April, 12:51", "6 April, 13:11"),
    ("25 March, 14:15", "27 March, 12:03", "29 March", "11 April", "16 April"),
)
"""The same for tuning. No two scenes of a group are together in FOLDS."""
NUM_BYTES = 67_443_497
"""Bytes of all videos and labels of the commit. Another number means another version, or a part of it."""

PIXELS = 80
"""Side of the window, in pixels of the camera. A box is 8 to 80 pixels wide or high (median 17), and the object
in it is smaller. In a picture of the whole frame that a network can afford, most objects are one or two pixels."""
FRAMES_PER_SECOND = 30
SMOOTH_FRAMES = 31
"""Frames over which the middle of the window is averaged, so that it does not repeat the jumps of the boxes."""
QUANTIZER = 12
"""The QP of H.264: nearly no visible loss."""


@dataclass(frozen=True)
class Clip:
    """One video of the repository: its class, its number there, and its scene."""

    kind: str
    number: int
    scene: str

    @property
    def name(self) -> str:
        """Return its name in the repository, without IR_."""
        return f"{self.kind}_{self.number:03d}"

    @property
    def path(self) -> str:
        """Return the path of the video below the output folder."""
        return f"videos/{self.name}.mp4"

    def source(self, checkout: Path) -> Path:
        """Return the path of the video in a checkout."""
        return checkout / f"Data/Video_IR/IR_{self.name}.mp4"

    def labels(self, checkout: Path) -> Path:
        """Return the path of its boxes in a checkout."""
        return checkout / f"Data/Video_IR/IR_{self.name}_LABELS.mat"


def numbers(ranges: str) -> list[int]:
    """Return the numbers of a text such as "1 3 11-13"."""
    pairs = [
        (one, last or one) for one, _, last in (word.partition("-") for word in ranges.split())
    ]
    return [number for one, last in pairs for number in range(int(one), int(last) + 1)]


def all_clips() -> list[Clip]:
    """List the clips of SCENES, sorted by class and number."""
    clips = [
        Clip(kind, number, scene)
        for scene, kinds in SCENES.items()
        for kind, ranges in kinds.items()
        for number in numbers(ranges)
    ]
    return sorted(clips, key=lambda clip: (clip.kind, clip.number))


def check_checkout(checkout: Path) -> None:
    """Raise InputError unless a checkout has all videos and labels, and each recording is in one scene.

    A video says when its recording began. So the pieces of one recording have the same time.
    """
    clips = all_clips()
    files = [path for clip in clips for path in (clip.source(checkout), clip.labels(checkout))]
    missing = [path.name for path in files if not path.is_file()]
    problems, remedy = [], "give a checkout of commit 442d0c6; --help says how to get it"
    if missing:
        problems.append(f"{len(missing)} files are missing: {listed(missing, 3)}: {remedy}")
    elif (num_bytes := sum(path.stat().st_size for path in files)) != NUM_BYTES:
        problems.append(f"the files have {num_bytes:,} bytes, not {NUM_BYTES:,}: {remedy}")
    else:
        scenes: dict[str, set[str]] = {}
        for clip in clips:
            with av.open(str(clip.source(checkout))) as container:
                began = container.metadata.get("creation_time", clip.name)
            scenes.setdefault(began, set()).add(clip.scene)
        problems += [
            f"the recording of {began} is in the scenes {listed(sorted(found), 3)}: correct SCENES"
            for began, found in scenes.items()
            if len(found) > 1
        ]
    raise_problems([f"{checkout}: {problem}" for problem in problems])


MATRIX, COMPRESSED, DOUBLES = 14, 15, 6
"""Types of an element of a MATLAB 5 file, and the class of an array of doubles. MathWorks publishes the format."""


def mat_elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the type and the content of each element of a part of a MATLAB 5 file."""
    place = 0
    while place + 8 <= len(data):
        kind, size = struct.unpack_from("<II", data, place)
        if kind >> 16:  # a small element: type, size and content share 8 bytes
            yield kind & 0xFFFF, data[place + 4 : place + 4 + (kind >> 16)]
            place += 8
        elif kind == COMPRESSED:
            yield from mat_elements(zlib.decompress(data[place + 8 : place + 8 + size]))
            place += 8 + size
        else:
            yield kind, data[place + 8 : place + 8 + size]
            place += 8 + size + -size % 8


def double_arrays(data: bytes) -> Iterator[np.ndarray]:
    """Yield the arrays of doubles that are nested in the elements of ``data``, in order."""
    for kind, content in mat_elements(data):
        if kind == MATRIX and content:
            (_, flags), *parts = mat_elements(content)
            if flags[0] == DOUBLES and len(parts) > 2:
                shape = np.frombuffer(parts[0][1], "<i4")
                yield np.frombuffer(parts[2][1], "<f8").reshape(shape, order="F")
            else:
                yield from double_arrays(content)


def read_boxes(path: Path) -> list[np.ndarray]:
    """Read the boxes (left, top, width, height) of each frame, (number of boxes, 4), from a file of labels.

    MATLAB keeps its table of labels as a file inside an array of bytes, which is the last element. The table has
    four cells for each frame, one for each class. A cell without a box is empty.
    """
    *_, (_, last) = mat_elements(path.read_bytes()[128:])
    *_, (_, inner) = mat_elements(last)
    arrays = [
        array
        for array in double_arrays(inner[8:])
        if array.shape == (0, 0) or array.shape[1:] == (4,)
    ]
    return [
        np.concatenate([array.reshape(-1, 4) for array in arrays[first : first + len(CLASSES)]])
        for first in range(0, len(arrays), len(CLASSES))
    ]


def follow(boxes: Sequence[np.ndarray]) -> np.ndarray:
    """Return the middle of the object (x, y) in each frame, (frames, 2), averaged over SMOOTH_FRAMES.

    If there are several objects, it is the first one, and then the one that is nearest to the last middle. Where
    no box is, the middle moves in a straight line between those before and after.
    """
    seen, middles = [], []
    for frame, found in enumerate(boxes):
        if len(found):
            candidates = found[:, :2] + found[:, 2:] / 2
            last = middles[-1] if middles else candidates[0]
            middles.append(candidates[np.argmin(((candidates - last) ** 2).sum(axis=1))])
            seen.append(frame)
    path = np.stack([np.interp(range(len(boxes)), seen, axis) for axis in np.transpose(middles)])
    half = SMOOTH_FRAMES // 2
    padded = np.pad(path, ((0, 0), (half, half)), mode="edge")
    kernel = np.full(SMOOTH_FRAMES, 1 / SMOOTH_FRAMES)
    return np.stack([np.convolve(axis, kernel, mode="valid") for axis in padded], axis=1)


def write_clip(checkout: Path, folder: Path, clip: Clip) -> None:
    """Write the window of a clip as a video. It appears whole or not at all."""
    path = folder / clip.path
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    middles = follow(read_boxes(clip.labels(checkout)))
    # With g = 1 every frame is coded by itself. With one thread, the bytes do not depend on the number of cores.
    options = {"preset": "ultrafast", "tune": "fastdecode", "g": "1", "qp": str(QUANTIZER)}
    with (
        av.open(str(clip.source(checkout))) as source,
        av.open(str(temporary), "w", format="mp4") as container,
    ):
        stream = container.add_stream("libx264", rate=Fraction(FRAMES_PER_SECOND), options=options)
        stream.height = stream.width = PIXELS
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1
        # Some videos state an absurd frame rate. The times of their frames are those of 30 frames per second.
        for middle, decoded in zip(middles, source.decode(video=0), strict=True):
            picture = decoded.to_ndarray(format="rgb24")
            last = np.array(picture.shape[1::-1]) - PIXELS
            left, top = np.clip(np.rint(middle - PIXELS / 2), 0, last).astype(int)
            window = np.ascontiguousarray(picture[top : top + PIXELS, left : left + PIXELS])
            container.mux(
                stream.encode(
                    av.VideoFrame.from_ndarray(window, format="rgb24").reformat(format="yuv420p")
                )
            )
        # encode() without a frame gives the last frames, which the encoder still keeps.
        container.mux(stream.encode())
    temporary.replace(path)


def write_lists(folder: Path) -> None:
    """Write the two lists of each fold."""
    clips = all_clips()
    for prefix, folds in (("", FOLDS), ("search_", SEARCH_FOLDS)):
        for number, tested in enumerate(folds):
            for split in ("train", "val"):
                chosen = [clip for clip in clips if (clip.scene in tested) == (split == "val")]
                lines = "".join(f"{clip.path} {CLASSES.index(clip.kind)}\n" for clip in chosen)
                atomic_write_text(folder / f"{prefix}{split}_{number}.csv", lines)


def make_drones(checkout: Path, folder: Path, num_processes: int, progress: bool) -> str:
    """Make the videos that do not exist, then all lists. Return the line that says what was done."""
    check_checkout(checkout)
    clips = all_clips()
    lacking = [clip for clip in clips if not (folder / clip.path).exists()]
    written = map_in_processes(partial(write_clip, checkout, folder), lacking, num_processes)
    # With disable=None, tqdm shows the bar only on a terminal.
    bar = tqdm(total=len(lacking), unit=" videos", disable=None if progress else True)
    with bar, closing(written):
        for _ in written:
            bar.update()
    # Without lists nothing can train, so nothing trains on a part of the set.
    write_lists(folder)
    return (
        f"{folder}: {len(lacking):,} of {len(clips):,} videos made, {len(clips) - len(lacking):,} kept; "
        f"{len(FOLDS)} folds, and {len(SEARCH_FOLDS)} for tuning"
    )


def main(arguments: Sequence[str]) -> int:
    """Read the command line, make the set, and say what was done."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("checkout", type=Path, help="folder of the repository, at the commit above")
    add("--output", type=Path, default=Path("data/drones"), help="default: data/drones")
    add("--processes", type=int, default=num_cores(), help="videos made at once (default: cores)")
    options = parser.parse_args(arguments)
    try:
        if options.processes < 1:
            raise InputError([f"--processes {options.processes}: give 1 or more"])
        line = make_drones(options.checkout, options.output, options.processes, progress=True)
    except InputError as error:
        print(f"make_drones.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: run the same command again to make the rest", file=sys.stderr)
        return 4
    print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
