"""Writes the quickstart set: H.264 files and lists, as a user's own data set has them.

    <folder>/quickstart.json               options and versions that the files are made with
    <folder>/videos/<split>/<class>/<index>.mp4
    <folder>/classes.txt                   the name of class i on line i, counted from 0
    <folder>/train.csv  <folder>/val.csv   a line "path label" per video; paths start at the folder

The lists are written last: a set that was never whole has none, so nothing can train on a part of it.
"""

from __future__ import annotations

import io
import os
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import av
import numpy as np
import simplejson
from numpy.typing import NDArray
from quickstart_scenes import (
    CLASS_NAMES,
    FRAME_RATE,
    HEIGHT_PIXELS,
    SPLITS,
    WIDTH_PIXELS,
    QuickstartOptions,
    draw_label,
    draw_video,
)
from tqdm import tqdm

from mgexp.errors import InputError
from mgexp.run.files import atomic_write_text, read_json, write_json
from mgexp.video.processes import map_in_processes

MANIFEST = "quickstart.json"


@dataclass(frozen=True)
class QuickstartSet:
    """What `make_quickstart` did: videos made, and videos found and kept."""

    num_made: int
    num_kept: int


@dataclass(frozen=True)
class Video:
    """One video of the set."""

    split: str
    index: int
    label: int

    @property
    def path(self) -> str:
        """Where it is in the folder of the set."""
        return f"videos/{self.split}/{CLASS_NAMES[self.label]}/{self.index:05d}.mp4"


def make_quickstart(
    folder: Path, options: QuickstartOptions, num_processes: int, progress: bool
) -> QuickstartSet:
    """Write the set of ``options`` into ``folder``; videos that are there already are kept.

    A video follows from ``options``, its split and its index alone; made again on the same machine with
    the same versions of PyAV and NumPy it has the same bytes. ``progress`` shows a bar on a terminal.
    Raises InputError if the folder holds something else, such as a set made with other options.
    """
    if num_processes < 1:
        raise InputError([f"{num_processes} processes cannot make videos: use 1 or more"])
    videos = [video for split in SPLITS for video in list_videos(options, split)]
    missing = [video for video in videos if not _is_there(folder / video.path)]
    manifest = _manifest(options)
    _check_folder(folder, manifest, is_whole=not missing)
    if missing:
        for subfolder in sorted({(folder / video.path).parent for video in missing}):
            subfolder.mkdir(parents=True, exist_ok=True)
        # First of all: a set cut short must not be completed with other options.
        write_json(folder / MANIFEST, manifest)
        _make_videos(folder, options, missing, num_processes, progress)
    _write_lists(folder, videos)
    return QuickstartSet(num_made=len(missing), num_kept=len(videos) - len(missing))


def list_videos(options: QuickstartOptions, split: str) -> list[Video]:
    """The videos of "train" or "val", by index."""
    indices = range(options.num_videos(split))
    return [Video(split, index, draw_label(options, split, index)) for index in indices]


def encode_video(frames: NDArray[np.uint8], quantizer: int) -> bytes:
    """An .mp4 file of ``frames``, (T, 96, 80) planar YUV 4:2:0; ``quantizer`` is the H.264 QP."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=FRAME_RATE, options=_x264(quantizer))
        stream.width, stream.height, stream.pix_fmt = WIDTH_PIXELS, HEIGHT_PIXELS, "yuv420p"
        stream.codec_context.thread_count = 1  # the same bytes on machines with more or fewer cores
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="yuv420p")))
        container.mux(stream.encode())
    return buffer.getvalue()


def _x264(quantizer: int) -> dict[str, str]:
    """Every frame is coded on its own (g = 1), for a decoder's sake (fastdecode: CAVLC, no deblocking).

    So decoding costs as much as the frames taken, whichever those are, like in a clip store of
    intra-coded copies: in a long-GOP file 8 frames cost as much as 32. A constant QP makes frames equally
    sharp, so that the coder leaves no hint of the direction of time.
    """
    return {"preset": "ultrafast", "tune": "fastdecode", "g": "1", "qp": str(quantizer)}


def _make_videos(
    folder: Path,
    options: QuickstartOptions,
    videos: list[Video],
    num_processes: int,
    progress: bool,
) -> None:
    make = partial(_make_video, folder, options)
    # None: a bar on a terminal alone.
    bar = tqdm(total=len(videos), unit=" videos", disable=None if progress else True)
    with bar, closing(map_in_processes(make, videos, num_processes)) as made:
        for _ in made:
            bar.update()


def _make_video(folder: Path, options: QuickstartOptions, video: Video) -> None:
    frames = draw_video(options, video.split, video.index)
    path = folder / video.path
    # Not `atomic_file`: to wait for the disk after each of thousands of small files takes far too long.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(encode_video(frames, options.quantizer))
    temporary.replace(path)


def _is_there(path: Path) -> bool:
    # Files appear whole, but after a power cut one may have lost its content.
    return path.exists() and path.stat().st_size > 0


def _manifest(options: QuickstartOptions) -> dict[str, Any]:
    versions = {"av": av.__version__, "numpy": np.__version__}
    # Through JSON, so that it can be compared with one that was read: tuples become lists.
    manifest: dict[str, Any] = simplejson.loads(
        simplejson.dumps({"options": asdict(options), "versions": versions})
    )
    return manifest


def _check_folder(folder: Path, asked: dict[str, Any], is_whole: bool) -> None:
    """Raises InputError unless ``folder`` is new, or holds videos that belong to the set asked for.

    A whole set is good whatever versions it was made with; two parts made with different ones are not.
    """
    if not (folder / MANIFEST).exists():
        if folder.exists() and any(folder.iterdir()):
            raise InputError([f"{folder} holds files but no {MANIFEST}: choose an empty folder"])
        return
    found = read_json(folder / MANIFEST)
    sections = ("options",) if is_whole else ("options", "versions")
    differences = [
        f"{name} {found[section].get(name)} there, {asked[section].get(name)} now"
        for section in sections
        for name in sorted({*found[section], *asked[section]})
        if found[section].get(name) != asked[section].get(name)
    ]
    if differences:
        remedy = "choose another folder with --output, or delete this one"
        raise InputError([f"{folder} holds another set ({'; '.join(differences)}): {remedy}"])


def _write_lists(folder: Path, videos: list[Video]) -> None:
    atomic_write_text(folder / "classes.txt", "".join(f"{name}\n" for name in CLASS_NAMES))
    for split in SPLITS:
        lines = [f"{video.path} {video.label}\n" for video in videos if video.split == split]
        atomic_write_text(folder / f"{split}.csv", "".join(lines))
