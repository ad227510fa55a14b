#!/usr/bin/env python3
"""Print which classes a trained model sees in videos.

  python tools/predict.py my_videos --run runs/quickstart/long/seed0 --csv classes.csv

RUN is the folder of a finished run. A video is seen in all views of the full protocol, and its
probabilities are their mean, or with DATA.ENSEMBLE_METHOD max the largest of each class.
More: docs/predict.md. Exit codes: 0 done, 1 a file cannot be written, 2 bad input, 3 some videos
cannot be read, 4 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

# mgexp comes before torch, because it sets how torch's threads wait.
import mgexp  # noqa: F401

# isort: split
import simplejson
import torch

from mgexp.config.keys import Config
from mgexp.data.formats import ENDINGS
from mgexp.data.loader import build_view_loader, worker_count
from mgexp.data.records import VideoRecord
from mgexp.dist import Processes, device_of, device_problems
from mgexp.errors import collected, listed, raise_problems
from mgexp.options import ToolParser, add_import_option, run_tool, say, without_folder
from mgexp.run.confusion import name_of
from mgexp.run.log import progress_bar
from mgexp.stop import Interrupted, StopRequest
from mgexp.text import counted
from mgexp.train.predict import (
    Prediction,
    Predictor,
    build_predictor,
    load_run,
    read_names,
    write_csv,
)
from mgexp.video.frame_folder import FilesAndFolders, images_of, is_image
from mgexp.video.reader import VideoError

NUM_BEST = 5


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = ToolParser(__doc__)
    add = parser.add_argument
    add("videos", nargs="+", metavar="VIDEO", help="video files, and folders of them")
    add("--run", required=True, type=Path, help="folder of a finished run")
    add_import_option(parser)
    add(
        "--classes",
        type=Path,
        help="names of the classes, as DATA.CLASSES takes (default: those of the run)",
    )
    add(
        "--top", type=int, metavar="N", help=f"classes shown (default: {NUM_BEST}, or all if fewer)"
    )
    add("--csv", type=Path, metavar="FILE", help="write a line for each video and class")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto")
    add("--json", action="store_true", help="print all at the end, for programs")
    return parser.parse_args(arguments)


def option_problems(options: argparse.Namespace, num_classes: int) -> list[str]:
    """Say what is wrong with the options, but for the videos."""
    problems = [
        *device_problems(options.device, torch.cuda.device_count()),
        *without_folder({"--csv": options.csv}),
    ]
    if options.csv and options.csv.is_file() and options.csv.suffix != ".csv":
        problems.append(f"--csv {options.csv} exists and does not end in .csv: choose another name")
    if options.top is not None and not 1 <= options.top <= num_classes:
        problems.append(f"--top {options.top}: the model has {num_classes} classes; give 1 to that")
    return problems


def find_videos(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the videos that ``names`` stand for, and the files of folders that do not end like a video.

    A file is taken as it is, and a folder is searched with all below. A folder of numbered images without videos
    is one video. Hidden files are left out, and links to folders are not followed.
    """
    videos: list[str] = []
    skipped: list[str] = []
    for name in names:
        if not os.path.isdir(name):  # noqa: PTH112 (names may be too long or have a NUL character)
            videos.append(name)
            continue
        for folder, folders, files in os.walk(name):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            paths = [Path(folder, file) for file in sorted(files) if not file.startswith(".")]
            if is_frame_folder(folder, paths):
                videos.append(folder)
                skipped += [str(path) for path in paths if not is_image(path.name)]
            else:
                for path in paths:
                    (videos if path.suffix.lower() in ENDINGS else skipped).append(str(path))
    return list(dict.fromkeys(videos)), list(dict.fromkeys(skipped))


def is_frame_folder(folder: str, paths: Sequence[Path]) -> bool:
    """Tell whether the files of a folder are the frames of one video."""
    num_images = sum(is_image(path.name) for path in paths)
    if num_images < 2 or any(path.suffix.lower() in ENDINGS for path in paths):
        return False
    try:
        return bool(images_of(folder))
    except VideoError:
        return False


def build_predictions(
    cfg: Config, predictor: Predictor, videos: tuple[str, ...], device: torch.device, num_best: int
) -> Iterator[Prediction]:
    """Predict the videos in all views of the full protocol, one after the other."""
    # A record needs a label, but prediction does not read it.
    records = [VideoRecord(video, 0) for video in videos]
    # A new video has no copy in the clip store of the run. NUM_WORKERS may still be auto in its YAML.
    workers = min(worker_count(cfg.DATA_LOADER.NUM_WORKERS), len(videos))
    cfg = replace(cfg, DATA_LOADER=replace(cfg.DATA_LOADER, NUM_WORKERS=workers))
    opener = FilesAndFolders(cfg.DATA.FRAMES_FPS)
    views = build_view_loader(cfg, records, True, device, Processes(), opener)
    return predictor.predict(videos, views, num_best)


def predict(options: argparse.Namespace, stop: StopRequest) -> int:
    """Print the predictions, and write the CSV file. Raises InputError for bad input."""
    run_dir, cfg = load_run(options.run)
    num_classes = cfg.MODEL.NUM_CLASSES
    problems = option_problems(options, num_classes)
    names: tuple[str, ...] = ()
    with collected(problems):
        names = read_names(options.classes, run_dir, num_classes)
    videos, skipped = find_videos(options.videos)
    if not videos:
        problems.append(f"no video in {', '.join(options.videos)}")
    raise_problems(problems)
    if skipped:
        num = counted(len(skipped), "file", "files")
        say(f"skipped {num} without the ending of a video: {listed(skipped, 5)}")
    device = device_of(options.device)
    # All options were checked before this line, which loads the network.
    predictor = build_predictor(cfg, run_dir, device)
    num_best = options.top or min(NUM_BEST, num_classes)
    with stop.at_once():
        predictions = build_predictions(cfg, predictor, tuple(videos), device, num_best)
        return report(options, predictions, names, stop, len(videos))


def report(
    options: argparse.Namespace,
    predictions: Iterable[Prediction],
    names: Sequence[str],
    stop: StopRequest,
    total: int,
) -> int:
    """Print each prediction as soon as it is there, or JSON at the end, and write the CSV file.

    After a signal, this is done with the predictions that are there, and Interrupted is raised.
    """
    seen: list[Prediction] = []
    shown = progress_bar(total, "", predictions, desc="videos") if options.json else predictions
    with suppress(Interrupted):
        for prediction in shown:
            seen.append(prediction)
            if prediction.error:
                say(prediction.error)
            elif not options.json:
                print(as_text(prediction, names), flush=True)
    with stop.deferred():
        if options.json:
            print(simplejson.dumps([as_json(each, names) for each in seen], indent=2), flush=True)
        if options.csv:
            write_csv(options.csv, seen, names)
            say(f"wrote {options.csv}")
    if stop.requested:
        raise Interrupted(f"{stop.signal_name} after {len(seen)} of {total} videos")
    num_bad = sum(bool(prediction.error) for prediction in seen)
    if num_bad:
        say(f"{len(seen) - num_bad} of {counted(len(seen), 'video')} predicted, {num_bad} not")
    return 3 if num_bad else 0


def as_json(prediction: Prediction, names: Sequence[str]) -> dict[str, object]:
    """Return one video for ``--json``. Probabilities are between 0 and 1."""
    classes = [
        {"label": label, "name": name_of(label, names), "probability": probability}
        for label, probability in prediction.classes
    ]
    return {"video": prediction.path, "classes": classes, "error": prediction.error}


def as_text(prediction: Prediction, names: Sequence[str]) -> str:
    """Write one video and its classes, a line for each."""
    lines = [
        f"{100 * share:6.1f} %  {name_of(label, names)}" for label, share in prediction.classes
    ]
    return "\n".join([prediction.path, *lines])


def main(arguments: list[str]) -> int:
    """Predict, and turn an error into an exit code and one message."""
    options = parse(arguments)
    try:
        with StopRequest().listening() as stop:
            return predict(options, stop)
    except OSError as error:  # the disk is full, for instance
        say(f"{error}; nothing more was written")
        return 1
    except Interrupted as stopped:
        say(f"stopped by {stopped.signal_name}")
        return 4


if __name__ == "__main__":
    sys.exit(run_tool(main))
