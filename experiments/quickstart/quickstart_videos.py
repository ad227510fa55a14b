"""Write the quickstart set: H.264 files and lists, as a user's own data set has them.

    <folder>/quickstart.json               options and versions with which the files are made
    <folder>/videos/<split>/<class>/<index>.mp4
    <folder>/classes.txt                   the name of class i on line i, counted from 0
    <folder>/train.csv  <folder>/val.csv   a line "path label" per video; paths start at the folder
    <folder>/motions.txt  <folder>/train_motions.csv  <folder>/val_motions.csv
                                           the same videos with their motions alone as classes

The lists are written last. Without lists nothing can train, so nothing trains on a part of the set.
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
    FRAME_RATE,
    MOTION_NAMES,
    SPLITS,
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
    """The result of `make_quickstart`: the numbers of videos that were made, and that existed and were kept."""

    num_made: int
    num_kept: int


@dataclass(frozen=True)
class Video:
    """One video of the set."""

    split: str
    index: int
    label: int
    class_name: str

    @property
    def path(self) -> str:
        """The path of the video in the folder of the set."""
        return f"videos/{self.split}/{self.class_name}/{self.index:05d}.mp4"


def make_quickstart(
    folder: Path, options: QuickstartOptions, num_processes: int, progress: bool
) -> QuickstartSet:
    """Write the set of ``options`` into ``folder``. Keep the videos that exist already.

    A video depends only on ``options``, its split and its index. The same machine with the same versions of PyAV
    and NumPy always makes the same bytes. ``progress`` shows a bar on a terminal. Raises InputError if the
    folder contains something else, such as a set with other options.
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
        # Write the options before the videos. So a set that was interrupted is never completed with other options.
        write_json(folder / MANIFEST, manifest)
        _make_videos(folder, options, missing, num_processes, progress)
    _write_lists(folder, videos, options)
    return QuickstartSet(num_made=len(missing), num_kept=len(videos) - len(missing))


def list_videos(options: QuickstartOptions, split: str) -> list[Video]:
    """List the videos of "train" or "val" by index."""
    labels = [draw_label(options, split, index) for index in range(options.num_videos(split))]
    return [
        Video(split, index, label, options.class_names[label]) for index, label in enumerate(labels)
    ]


def encode_video(frames: NDArray[np.uint8], quantizer: int) -> bytes:
    """Make an .mp4 file of ``frames``, (T, 1.5·H, W) planar YUV 4:2:0. ``quantizer`` is the QP of H.264."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=FRAME_RATE, options=_x264(quantizer))
        stream.width, stream.height = frames.shape[2], frames.shape[1] * 2 // 3
        stream.pix_fmt = "yuv420p"
        # With one thread, the bytes do not depend on the number of cores.
        stream.codec_context.thread_count = 1
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="yuv420p")))
        # encode() without a frame gives the last frames, which the encoder still keeps.
        container.mux(stream.encode())
    return buffer.getvalue()


def _x264(quantizer: int) -> dict[str, str]:
    """Return options of x264 that code every frame by itself (g = 1) and make decoding cheap.

    The tune "fastdecode" means CAVLC and no deblocking. The cost of decoding then depends only on the number of
    frames that a clip takes, as in a clip store of intra-coded copies. In a file with long groups of pictures, 8
    frames cost as much as 32. A constant QP makes all frames equally sharp, so a network cannot see the
    direction of time in the traces of the coder.
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
    # With disable=None, tqdm shows the bar only on a terminal.
    bar = tqdm(total=len(videos), unit=" videos", disable=None if progress else True)
    with bar, closing(map_in_processes(make, videos, num_processes)) as made:
        for _ in made:
            bar.update()


def _make_video(folder: Path, options: QuickstartOptions, video: Video) -> None:
    frames = draw_video(options, video.split, video.index)
    path = folder / video.path
    # `atomic_file` would wait for the disk after each of thousands of small files, which takes far too long.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(encode_video(frames, options.quantizer))
    temporary.replace(path)


def _is_there(path: Path) -> bool:
    # A file appears whole, but after a power cut it may be empty.
    return path.exists() and path.stat().st_size > 0


def _manifest(options: QuickstartOptions) -> dict[str, Any]:
    versions = {"av": av.__version__, "numpy": np.__version__}
    # JSON turns tuples into lists. With them, the manifest can be compared with one that was read from a file.
    manifest: dict[str, Any] = simplejson.loads(
        simplejson.dumps({"options": asdict(options), "versions": versions})
    )
    return manifest


def _check_folder(folder: Path, asked: dict[str, Any], is_whole: bool) -> None:
    """Raise InputError unless ``folder`` is new, or contains videos of the same set.

    A whole set may have been made with any versions. A set must not have parts of two versions.
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


def _write_lists(folder: Path, videos: list[Video], options: QuickstartOptions) -> None:
    tasks = (
        ("classes", "", options.class_names, 1),
        ("motions", "_motions", MOTION_NAMES, len(options.textures)),
    )
    for names_file, ending, names, labels_per_class in tasks:
        atomic_write_text(folder / f"{names_file}.txt", "".join(f"{name}\n" for name in names))
        for split in SPLITS:
            lines = [
                f"{video.path} {video.label // labels_per_class}\n"
                for video in videos
                if video.split == split
            ]
            atomic_write_text(folder / f"{split}{ending}.csv", "".join(lines))
