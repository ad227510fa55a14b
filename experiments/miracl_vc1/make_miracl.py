"""Make the clips and lists of the MIRACL-VC1 table from frames that other people have published.

    git clone https://github.com/apoorvpatne10/fantastic-memory
    git -C fantastic-memory checkout 9c1e194a4c44cd0243b2d93d6cff7a15bed3504c
    python experiments/miracl_vc1/make_miracl.py fantastic-memory --output data/miracl_vc1

The set has 15 speakers, who say 10 words and 10 phrases 10 times each. The repository has the mouth in
each frame, cut out and made 250 pixels wide, as cropped/F01/words/01/01/color_001.jpg. We do not know the
terms of use of these frames. So keep them and the clips to yourself: this project contains none of them.

    <output>/videos/F01/words/01/01.mp4         96 x 96 pixels, 15 frames per second, every frame coded by itself
    <output>/equal_contrast/videos/...          the same clips, all with the same mean and contrast
    <output>/train_0.csv, val_0.csv, ...        five folds: the speakers of val_0 are not in train_0
    <output>/search_train_0.csv, ...            five folds of other groups of speakers, to tune a recipe with

After an interruption, run it again: it keeps the clips that exist. Exit 0: done, 2: bad input, 4: interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import pairwise
from pathlib import Path

import av
import numpy as np
from tqdm import tqdm

from mgexp.errors import InputError, listed, raise_problems
from mgexp.run.environment import num_cores
from mgexp.run.files import atomic_write_text
from mgexp.video.frame_folder import read_image, resized
from mgexp.video.processes import map_in_processes

WOMEN = ("F01", "F02", "F04", "F05", "F06", "F07", "F08", "F09", "F10", "F11")
MEN = ("M01", "M02", "M04", "M07", "M08")
FOLDS = (
    ("F01", "F07", "M01"),
    ("F02", "F08", "M02"),
    ("F04", "F09", "M04"),
    ("F05", "F10", "M07"),
    ("F06", "F11", "M08"),
)
"""The speakers whose clips test each fold: two women and one man."""
SEARCH_FOLDS = (
    ("F01", "F08", "M04"),
    ("F02", "F09", "M07"),
    ("F04", "F10", "M08"),
    ("F05", "F11", "M01"),
    ("F06", "F07", "M02"),
)
"""The same for tuning. No two speakers of a group are together in FOLDS."""
KINDS = ("words", "phrases")
NUM_EACH = 10
"""Number of words, of phrases, and of repetitions of each by each speaker."""
NUM_IMAGES, NUM_BYTES = 34_761, 112_814_212
"""Images of the commit, and their bytes together. Other numbers mean another version, or a part of it."""

PIXELS = 96
"""Side of the square to which each image is stretched. A mouth is 250 pixels wide and 46 to 328 high
(median 125), and a square cut out of it would lose its corners. The rows need 80 pixels at most."""
FRAMES_PER_SECOND = 15
"""The frame rate of MIRACL-VC1's camera, from memory. It has no effect on rows with TEMPORAL_GRID segments."""
QUANTIZER = 8
"""The QP of H.264: nearly no visible loss."""
EQUAL = "equal_contrast"
"""Folder of the second set of videos. The lists are the same: DATA.PATH_PREFIX chooses the set."""
EQUAL_MEAN, EQUAL_STD = 128, 45
"""Mean and standard deviation of the pixels of each clip there. The speakers had different light."""


@dataclass(frozen=True)
class Clip:
    """One clip: who says it, what is said (words from 0, phrases from 10), and its images in order."""

    speaker: str
    label: int
    repetition: int
    images: tuple[Path, ...]

    @property
    def path(self) -> str:
        """The path of the video below the output folder."""
        kind, number = divmod(self.label, NUM_EACH)
        return f"videos/{self.speaker}/{KINDS[kind]}/{number + 1:02d}/{self.repetition:02d}.mp4"


def find_clips(checkout: Path) -> tuple[list[Clip], list[str]]:
    """Find all clips of a checkout, and describe every gap in the numbers of their images.

    A clip with a gap keeps its images, and the gap is closed. Raises InputError if the checkout is not complete.
    """
    clips, gaps, missing = [], [], []
    for speaker in (*WOMEN, *MEN):
        for label in range(len(KINDS) * NUM_EACH):
            kind, number = divmod(label, NUM_EACH)
            for repetition in range(1, NUM_EACH + 1):
                place = f"cropped/{speaker}/{KINDS[kind]}/{number + 1:02d}/{repetition:02d}"
                images = tuple(sorted((checkout / place).glob("color_[0-9][0-9][0-9].jpg")))
                if not images:
                    missing.append(place)
                numbers = [int(image.stem[-3:]) for image in images]
                gaps += [
                    f"{place}: {one} is followed by {other}"
                    for one, other in pairwise(numbers)
                    if other != one + 1
                ]
                clips.append(Clip(speaker, label, repetition, images))
    sizes = [image.stat().st_size for clip in clips for image in clip.images]
    problems = []
    if missing:
        problems.append(f"{len(missing)} folders of images are missing: {listed(missing, 3)}")
    elif (len(sizes), sum(sizes)) != (NUM_IMAGES, NUM_BYTES):
        problems.append(
            f"there are {len(sizes):,} images of {sum(sizes):,} bytes, not {NUM_IMAGES:,} of {NUM_BYTES:,}"
        )
    remedy = "give a checkout of commit 9c1e194a; --help says how to get it"
    raise_problems([f"{checkout}: {problem}: {remedy}" for problem in problems])
    return clips, gaps


def with_equal_contrast(pictures: np.ndarray) -> np.ndarray:
    """Shift and scale the pixels (T, H, W, 3) of a clip to EQUAL_MEAN and EQUAL_STD."""
    scale = EQUAL_STD / max(float(pictures.std()), 1.0)
    return ((pictures - pictures.mean()) * scale + EQUAL_MEAN).round().clip(0, 255).astype(np.uint8)


def write_clip(folder: Path, clip: Clip) -> None:
    """Write both videos of a clip."""
    images = (read_image(str(image)) for image in clip.images)
    pictures = np.stack([resized(image, (PIXELS, PIXELS)) for image in images])
    write_video(folder / clip.path, pictures)
    write_video(folder / EQUAL / clip.path, with_equal_contrast(pictures))


def write_video(path: Path, pictures: np.ndarray) -> None:
    """Write pictures (T, H, W, 3) as a video. It appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    # With g = 1 every frame is coded by itself. With one thread, the bytes do not depend on the number of cores.
    options = {"preset": "ultrafast", "tune": "fastdecode", "g": "1", "qp": str(QUANTIZER)}
    with av.open(str(temporary), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=Fraction(FRAMES_PER_SECOND), options=options)
        stream.height = stream.width = PIXELS
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1
        for picture in pictures:
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format="yuv420p")
            container.mux(stream.encode(frame))
        # encode() without a frame gives the last frames, which the encoder still keeps.
        container.mux(stream.encode())
    temporary.replace(path)


def write_lists(folder: Path, clips: Sequence[Clip]) -> None:
    """Write the two lists of each fold."""
    for prefix, folds in (("", FOLDS), ("search_", SEARCH_FOLDS)):
        for number, tested in enumerate(folds):
            for split in ("train", "val"):
                chosen = [clip for clip in clips if (clip.speaker in tested) == (split == "val")]
                lines = "".join(f"{clip.path} {clip.label}\n" for clip in chosen)
                atomic_write_text(folder / f"{prefix}{split}_{number}.csv", lines)


def make_miracl(checkout: Path, folder: Path, num_processes: int, progress: bool) -> list[str]:
    """Make the clips that do not exist, then all lists. Return the lines that say what was done."""
    clips, gaps = find_clips(checkout)
    lacking = [
        clip
        for clip in clips
        if not all((place / clip.path).exists() for place in (folder, folder / EQUAL))
    ]
    written = map_in_processes(partial(write_clip, folder), lacking, num_processes)
    # With disable=None, tqdm shows the bar only on a terminal.
    bar = tqdm(total=len(lacking), unit=" clips", disable=None if progress else True)
    with bar, closing(written):
        for _ in written:
            bar.update()
    # Without lists nothing can train, so nothing trains on a part of the set.
    write_lists(folder, clips)
    return [
        f"{folder}: {len(lacking):,} of {len(clips):,} clips made, {len(clips) - len(lacking):,} kept; "
        f"{len(FOLDS)} folds, and {len(SEARCH_FOLDS)} for tuning",
        *(f"closed a gap in {gap}" for gap in gaps),
    ]


def main(arguments: Sequence[str]) -> int:
    """Read the command line, make the set, and say what was done."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("checkout", type=Path, help="folder of the repository, at the commit above")
    add("--output", type=Path, default=Path("data/miracl_vc1"), help="default: data/miracl_vc1")
    add("--processes", type=int, default=num_cores(), help="clips made at once (default: cores)")
    options = parser.parse_args(arguments)
    try:
        if options.processes < 1:
            raise InputError([f"--processes {options.processes}: give 1 or more"])
        lines = make_miracl(options.checkout, options.output, options.processes, progress=True)
    except InputError as error:
        print(f"make_miracl.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: run the same command again to make the rest", file=sys.stderr)
        return 4
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
