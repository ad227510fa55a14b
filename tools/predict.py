#!/usr/bin/env python3
"""Print which classes a trained model sees in videos, or which boxes in images, and score a labelled list.

  python tools/predict.py my_videos --run runs/quickstart/long/seed0 --csv classes.csv
  python tools/predict.py --list test.csv --run runs/quickstart/long/seed0
  python tools/predict.py long_video.mp4 --every 2 --run runs/quickstart/long/seed0
  python tools/predict.py --list test.csv --cfg YAML --weights SLOWFAST_8x8_R50.pyth
  python tools/predict.py my_images --run runs/large_det/sgd_4/seed0 --draw drawn

RUN is the folder of a finished run. A video is seen in all views of the full protocol, and its
probabilities are their mean, or with DATA.ENSEMBLE_METHOD max the largest of each class.
More: docs/predict.md. Exit codes: 0 done, 1 a fault of the machine, 2 bad input, 3 some videos
cannot be read, 4 interrupted.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

# mgexp comes before torch, because it sets how torch's threads wait.
import mgexp  # noqa: F401

# isort: split
import numpy as np
import simplejson
import torch
from PIL import Image, ImageDraw

from mgexp.config.check import cross_problems
from mgexp.config.keys import Config
from mgexp.config.load import flatten, load_config
from mgexp.data.boxes import BoxRecord
from mgexp.data.formats import ENDINGS
from mgexp.data.lists import build_list
from mgexp.data.loader import build_opener, build_view_loader, worker_count, worker_problems
from mgexp.data.records import Record, VideoList, VideoRecord
from mgexp.dist import Processes, device_of, device_problems
from mgexp.errors import collected, listed, raise_problems
from mgexp.models.build import build_problems
from mgexp.models.detector import MAX_DETECTIONS
from mgexp.options import (
    ToolParser,
    add_import_option,
    not_positive,
    run_tool,
    say,
    without_folder,
)
from mgexp.results.comparison import grouped_interval, wilson_interval
from mgexp.results.confusion import count_confusions, name_of
from mgexp.results.runs import group_numbers
from mgexp.results.store import read_groups
from mgexp.run.files import atomic_file, write_rows
from mgexp.run.folder import RunDir
from mgexp.run.log import progress_bar
from mgexp.stop import Interrupted, StopRequest
from mgexp.text import aligned, counted
from mgexp.train.faults import explanation
from mgexp.train.predict import Prediction, build_predictor, load_run, read_names
from mgexp.train.setup import list_problems
from mgexp.train.task import Task, build_task, metrics_text
from mgexp.video.frame_folder import FilesAndFolders, images_of, is_image, read_image
from mgexp.video.reader import Opener, VideoError

NUM_BEST = 5
SURE = 0.5
"""Without --top, a box is shown from this probability on."""
NO_LABEL = 0
"""The label of a video without one. A record needs a label, and a prediction does not read it."""
COLUMNS = ("video", "seconds", "rank", "label", "name", "probability", "error", "truth")
"""The columns of the CSV file. ``seconds`` is the beginning of a stretch of a video, and empty for a whole one.
``truth`` has the classes of a video of a labelled list, with spaces between."""
COLOURS = ("red", "yellow", "cyan", "lime", "magenta", "orange", "white", "blue")
SIDES = ("left", "top", "right", "bottom")
"""More columns for a detector: the sides of a box as shares of the image's width and height."""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = ToolParser(__doc__)
    add = parser.add_argument
    text = "videos, and folders of them; with --list, KEY VALUE pairs such as DATA.FORMAT ucf101"
    add("videos", nargs="*", metavar="VIDEO", help=text)
    text = "score this list of videos with labels, of DATA.FORMAT, relative to DATA.PATH_PREFIX"
    add("--list", metavar="FILE", help=text)
    add("--run", type=Path, help="folder of a finished run")
    add("--cfg", type=Path, metavar="YAML", help="configuration for --weights without --run")
    text = "weights to take in place of those of the run, as TRAIN.INIT_WEIGHTS takes"
    add("--weights", metavar="FILE", default="", help=text)
    text = "best: take the weights of the best evaluation during training, not the last ones"
    add("--checkpoint", choices=("best",), help=text)
    add_import_option(parser)
    text = "predict each stretch of SECONDS of the videos by a clip from its middle"
    add("--every", type=float, metavar="SECONDS", help=text)
    text = "names of the classes, as DATA.CLASSES takes (default: those of the run)"
    add("--classes", type=Path, help=text)
    text = "write each image into DIR with the boxes that a detector finds"
    add("--draw", type=Path, metavar="DIR", help=text)
    text = f"classes shown (default: {NUM_BEST}, or all if fewer; 1 with --list and --every); of a detector, boxes"
    add("--top", type=int, metavar="N", help=text)
    add("--csv", type=Path, metavar="FILE", help="write a line for each video and class")
    text = "write the vector before the classifier of each video, the mean of its views"
    add("--features", type=Path, metavar="FILE.npz", help=text)
    add("--device", choices=("auto", "cpu", "cuda"), default="auto")
    add("--json", action="store_true", help="print all at the end, for programs")
    options = parser.parse_intermixed_args(arguments)
    if not (options.run or (options.cfg and options.weights)):
        parser.error("give --run, or --cfg and --weights")
    if options.run and options.cfg:
        parser.error("--run has a configuration: leave --cfg out")
    if options.checkpoint and (options.weights or not options.run):
        parser.error("--checkpoint is of --run: leave --weights out")
    if options.list and options.every:
        parser.error("--every is for videos, not for --list")
    if not (options.list or options.videos):
        parser.error("give videos or --list")
    return options


def option_problems(options: argparse.Namespace, num_classes: int, is_detector: bool) -> list[str]:
    """Say what is wrong with the options, but for the videos and the list."""
    videos_only = {"--every": options.every, "--features": options.features}
    images_only = {"--draw": options.draw}
    refused = videos_only if is_detector else images_only
    problems = [
        *(f"{name}: not with this network" for name, value in refused.items() if value),
        *device_problems(options.device, torch.cuda.device_count()),
        *without_folder({"--csv": options.csv, "--features": options.features}),
        *not_positive({"--every": options.every}),
    ]
    if options.csv and options.csv.is_file() and options.csv.suffix != ".csv":
        problems.append(f"--csv {options.csv} exists and does not end in .csv: choose another name")
    if options.features and options.features.suffix != ".npz":
        problems.append(f"--features {options.features} does not end in .npz")
    most = MAX_DETECTIONS if is_detector else num_classes
    if options.top is not None and not 1 <= options.top <= most:
        what = "boxes an image" if is_detector else "classes"
        problems.append(f"--top {options.top}: the model has {most} {what}; give 1 to that")
    return problems


def find_videos(names: Sequence[str], are_images: bool) -> tuple[list[str], list[str]]:
    """Return the videos that ``names`` stand for, and the files of folders that do not end like a video.

    A file is taken as it is, and a folder is searched with all below. A folder of numbered images without videos
    is one video, unless ``are_images``: then each image is one. Hidden files are left out, and links to folders
    are not followed.
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
            if not are_images and is_frame_folder(folder, paths):
                videos.append(folder)
                skipped += [str(path) for path in paths if not is_image(path.name)]
            else:
                for path in paths:
                    is_video = path.suffix.lower() in ENDINGS
                    is_wanted = is_image(path.name) if are_images else is_video
                    (videos if is_wanted else skipped).append(str(path))
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


def cut(video: str, every: float, opener: Opener) -> list[VideoRecord]:
    """Cut a video into stretches of ``every`` seconds. The last one may be shorter."""
    try:
        with opener(video) as opened:
            end = opened.duration_seconds
    except VideoError:
        # The prediction will say why.
        return [VideoRecord(video, NO_LABEL)]
    starts = [number * every for number in range(max(1, math.ceil(end / every - 1e-6)))]
    return [VideoRecord(video, NO_LABEL, (start, min(start + every, end))) for start in starts]


def list_records(cfg: Config, problems: list[str]) -> tuple[Record, ...]:
    """Read the videos of the labelled list, and add what is wrong with it to ``problems``."""
    videos = build_list(cfg, "VAL_LIST")
    problems += list_problems(VideoList(), videos, 0.0)
    shape = build_task(cfg).label_shape
    if any(torch.tensor(record.target()).shape != shape for record in videos.records[:1]):
        given = f"DATA.FORMAT = {cfg.DATA.FORMAT}"
        problems.append(
            f"{given}: its labels are not those of MODEL.LOSS_FUNC {cfg.MODEL.LOSS_FUNC}"
        )
    return videos.records


def video_records(
    options: argparse.Namespace, opener: Opener, are_images: bool, problems: list[str]
) -> list[Record]:
    """Find the videos of the command line, or their stretches, or the images."""
    videos, skipped = find_videos(options.videos, are_images)
    kind = "image" if are_images else "video"
    if not videos:
        problems.append(f"no {kind} in {', '.join(options.videos)}")
    if skipped:
        num = counted(len(skipped), "file", "files")
        say(f"skipped {num} without the ending of a {kind}: {listed(skipped, 5)}")
    if options.every and not problems:
        return [part for video in videos for part in cut(video, options.every, opener)]
    return [VideoRecord(video, NO_LABEL) for video in videos]


def read_configuration(options: argparse.Namespace) -> tuple[RunDir | None, Config]:
    """Return the folder of --run, if it is given, and the configuration. Raises InputError."""
    pairs = ["DATA.VAL_LIST", options.list, *options.videos] if options.list else []
    if options.run:
        return load_run(options.run, pairs)
    cfg = load_config(options.cfg, pairs)
    shape = (cfg.DATA.NUM_FRAMES, cfg.DATA.TEST_CROP_SIZE)
    raise_problems([*cross_problems(cfg), *build_problems(cfg, {shape}, runs_own=False)])
    return None, cfg


def predict(options: argparse.Namespace, stop: StopRequest) -> int:
    """Print the predictions or the accuracy, and write the files. Raises InputError for bad input."""
    run_dir, cfg = read_configuration(options)
    num_classes = cfg.MODEL.NUM_CLASSES
    is_detector = build_task(cfg).takes_labels
    problems = option_problems(options, num_classes, is_detector)
    problems += worker_problems(cfg.DATA_LOADER.NUM_WORKERS)
    names: tuple[str, ...] = ()
    records: Sequence[Record] = ()
    opener: Opener = FilesAndFolders(cfg.DATA.FRAMES_FPS)
    with collected(problems):
        names = read_names(options.classes, run_dir, num_classes)
    with collected(problems):
        if options.list:
            # An evaluation of the run reads its clip store, too. A new video has no copy there.
            opener = build_opener(cfg)
            records = list_records(cfg, problems)
        else:
            records = video_records(options, opener, is_detector, problems)
    if options.draw:
        places = Counter(drawn_in(options.draw, record) for record in records)
        problems += [f"--draw: {n} images would be {place}" for place, n in places.items() if n > 1]
    raise_problems(problems)
    device = device_of(options.device)
    if options.checkpoint:
        say("computing the statistics of batch norm from the training videos, if the run did so")
    # All options were checked before this line, which loads the network.
    with stop.at_once():
        predictor = build_predictor(
            *(cfg, run_dir, device, options.weights),
            is_best=options.checkpoint == "best",
            with_features=options.features is not None,
            may_detect=True,
        )
        # NUM_WORKERS may still be auto in its YAML.
        workers = min(worker_count(cfg.DATA_LOADER.NUM_WORKERS), len(records))
        cfg = replace(cfg, DATA_LOADER=replace(cfg.DATA_LOADER, NUM_WORKERS=workers))
        # A stretch of a video has one view: its middle.
        is_full = options.every is None
        views = build_view_loader(cfg, records, is_full, device, Processes(), opener)
        predictions = predictor.predict(records, views)
        groups = read_groups(dict(flatten(cfg))) if options.list else {}
        return report(options, predictions, names, stop, len(records), predictor.task, groups)


def report(
    options: argparse.Namespace,
    predictions: Iterable[Prediction],
    names: Sequence[str],
    stop: StopRequest,
    total: int,
    task: Task,
    groups: Mapping[str, str],
) -> int:
    """Print each prediction as soon as it is there, or JSON or the accuracy at the end, and write the files.

    After a signal, this is done with the predictions that are there, and Interrupted is raised.
    """
    default = None if task.takes_labels else min(NUM_BEST, task.num_classes)
    top = options.top or (1 if default and (options.list or options.every) else default)
    is_quiet = options.json or options.list
    seen: list[Prediction] = []
    printed = ""
    shown = progress_bar(total, "", predictions, desc="videos") if is_quiet else predictions
    with suppress(Interrupted):
        for prediction in shown:
            if options.draw and not prediction.error:
                file = drawn_in(options.draw, prediction.record)
                draw(file, prediction, names, options.top)
            seen.append(prediction)
            if prediction.error:
                say(prediction.error)
            elif not is_quiet:
                if prediction.record.path != printed:
                    printed = prediction.record.path
                    print(printed)
                print("\n".join(as_lines(prediction, names, top)), flush=True)
    num_bad = sum(bool(prediction.error) for prediction in seen)
    with stop.deferred():
        # An accuracy without some of the videos would be that of another list.
        is_whole = len(seen) - num_bad == total
        score, text = {}, ""
        if options.list and is_whole:
            score, text = score_of(seen, names, task, groups)
        if options.json:
            videos = [as_json(each, names, top, bool(options.list)) for each in seen]
            found = {**score, "videos": videos} if options.list else videos
            print(simplejson.dumps(found, indent=2), flush=True)
        elif text:
            print(text, flush=True)
        if options.csv:
            write_csv(options.csv, seen, names, top, bool(options.list), task.takes_labels)
            say(f"wrote {options.csv}")
        if options.features:
            write_features(options.features, seen, bool(options.list))
            say(f"wrote {options.features}")
    if stop.requested:
        raise Interrupted(f"{stop.signal_name} after {len(seen)} of {total} videos")
    if num_bad:
        say(f"{len(seen) - num_bad} of {counted(len(seen), 'video')} predicted, {num_bad} not")
    return 3 if num_bad else 0


def score_of(
    predictions: Sequence[Prediction], names: Sequence[str], task: Task, groups: Mapping[str, str]
) -> tuple[dict[str, Any], str]:
    """Score a labelled list, in percent: for programs, and as text with a table of the classes.

    ``groups``: path → group of each video, if they are known; the interval is then over groups.
    """
    labels = torch.tensor([each.record.target() for each in predictions], dtype=task.label_type)
    scores = torch.stack([each.probabilities for each in predictions])
    metrics = task.metrics(scores, labels)
    score: dict[str, Any] = {"num_videos": len(labels), "metrics": metrics}
    text = f"{counted(len(labels), 'video')}: {metrics_text(metrics, task.num_classes)}"
    # A video that has several classes is in no confusion matrix.
    if "top1" not in metrics:
        return score, text
    confused = count_confusions(labels.tolist(), scores.argmax(1).tolist())
    interval, over = wilson_interval(metrics["top1"], len(labels)), ""
    if groups:
        numbers = group_numbers([each.record.path for each in predictions], groups)
        score["num_groups"] = max(numbers) + 1
        over = f" over {counted(score['num_groups'], 'group')}"
        interval = grouped_interval((scores.argmax(1) == labels).double().numpy(), numbers)
    score["top1_interval"] = interval
    rows = [("class", "videos", "right", "accuracy")]
    score["classes"] = []
    for each in confused.classes:
        name, percent = name_of(each.label, names), f"{each.percent:.1f} %"
        score["classes"].append({**asdict(each), "name": name})
        rows.append((name, str(each.num_videos), str(each.num_correct), percent))
    low, high = interval
    return score, (
        f"{text}; 95 % interval of top-1{over}: {low:.2f} to {high:.2f} %\n"
        f"always the largest class: {confused.largest_percent:.2f} %\n{aligned(rows)}"
    )


def truth_of(record: Record) -> tuple[int, ...]:
    """Return the classes of a video of a labelled list."""
    if isinstance(record, VideoRecord):
        return (record.label,)
    parts = record.boxes if isinstance(record, BoxRecord) else record.actions
    return tuple(sorted({part.label for part in parts}))


@dataclass(frozen=True)
class Seen:
    """A class that a network sees in a video, with its ``sides`` if it is in a box: see SIDES."""

    label: int
    probability: float
    sides: tuple[float, ...] = ()


def seen_in(prediction: Prediction, top: int | None) -> list[Seen]:
    """Return the ``top`` classes or boxes, the best first. None: the boxes whose probability is SURE or more."""
    scores = prediction.probabilities
    if scores is None or scores.ndim == 1:
        return [Seen(*pair) for pair in prediction.best(top or 0)]
    rows = [row for row in scores.tolist() if row[0]]  # the others are unused
    boxes = [Seen(int(label) - 1, score, tuple(sides)) for label, *sides, score in rows]
    return boxes[:top] if top else [box for box in boxes if box.probability >= SURE]


def as_json(
    prediction: Prediction, names: Sequence[str], top: int | None, has_labels: bool
) -> dict[str, object]:
    """Return one video for ``--json``. Probabilities are between 0 and 1."""
    record = prediction.record
    classes = [
        {
            "label": seen.label,
            "name": name_of(seen.label, names),
            "probability": seen.probability,
            **dict(zip(SIDES, seen.sides, strict=False)),
        }
        for seen in seen_in(prediction, top)
    ]
    return {
        "video": record.path,
        **({"seconds": record.part[0]} if record.part else {}),
        **({"truth": truth_of(record)} if has_labels else {}),
        "classes": classes,
        "error": prediction.error,
    }


def as_lines(prediction: Prediction, names: Sequence[str], top: int | None) -> list[str]:
    """Write the classes of one video, a line for each, or those of a stretch of it in one line."""
    part = prediction.record.part
    classes = [
        f"{100 * seen.probability:6.1f} %  {name_of(seen.label, names)}"
        + "".join(f" {side:6.3f}" for side in seen.sides)
        for seen in seen_in(prediction, top)
    ]
    return [f"{part[0]:8.1f} s{''.join(classes)}"] if part else classes


def write_csv(
    path: Path,
    predictions: Iterable[Prediction],
    names: Sequence[str],
    top: int | None,
    has_labels: bool,
    has_boxes: bool,
) -> None:
    """Write a line for each video and class or box, the most probable first, and one for each that failed."""
    sides = SIDES if has_boxes else ()
    rows: list[Sequence[object]] = [(*COLUMNS, *sides)]
    for prediction in predictions:
        record = prediction.record
        where = (record.path, round(record.part[0], 3) if record.part else None)
        truth = " ".join(map(str, truth_of(record))) if has_labels else None
        for rank, seen in enumerate(seen_in(prediction, top), start=1):
            what = (seen.label, name_of(seen.label, names), f"{seen.probability:.6f}")
            rows.append((*where, rank, *what, None, truth, *(f"{side:.6f}" for side in seen.sides)))
        if prediction.error:
            nothing = [None] * len(sides)
            rows.append((*where, None, None, None, None, prediction.error, truth, *nothing))
    write_rows(path, rows)


def drawn_in(folder: Path, record: Record) -> Path:
    """Return the file of an image that is drawn with its boxes."""
    return folder / f"{Path(record.path).stem}.png"


def draw(path: Path, prediction: Prediction, names: Sequence[str], top: int | None) -> None:
    """Write an image with its boxes, of a colour for each class, as PNG."""
    image = Image.fromarray(read_image(prediction.record.path))
    canvas, size = ImageDraw.Draw(image), image.size * 2
    for seen in reversed(seen_in(prediction, top)):
        colour = COLOURS[seen.label % len(COLOURS)]
        box = [side * pixels for side, pixels in zip(seen.sides, size, strict=True)]
        canvas.rectangle(box, outline=colour, width=2)
        text = f"{name_of(seen.label, names)} {100 * seen.probability:.0f} %"
        canvas.text((box[0] + 4, box[1] + 2), text, fill=colour)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        image.save(file, "png")


def write_features(path: Path, predictions: Iterable[Prediction], has_labels: bool) -> None:
    """Write the features of all videos but those that failed, with their paths.

    Stretches of videos also have the seconds at which they begin, and labelled videos their labels.
    """
    seen = [prediction for prediction in predictions if not prediction.error]
    columns: dict[str, list[Any]] = {
        "videos": [each.record.path for each in seen],
        "features": [each.features for each in seen],
        "seconds": [each.record.part[0] for each in seen if each.record.part],
        "labels": [each.record.target() for each in seen if has_labels],
    }
    with atomic_file(path) as file:
        np.savez(file, **{name: np.array(column) for name, column in columns.items() if column})


def main(arguments: list[str]) -> int:
    """Predict, and turn an error into an exit code and one message."""
    options = parse(arguments)
    try:
        with StopRequest().listening() as stop:
            return predict(options, stop)
    except (EOFError, OSError, RuntimeError) as error:
        # The worker of a loader has no /dev/shm left, for instance.
        text = explanation(error, RunDir(options.run or Path()))
        if text is None and not isinstance(error, OSError):
            raise
        say(f"{text or error}; nothing more was written")
        return 1
    except Interrupted as stopped:
        say(f"stopped by {stopped.signal_name}")
        return 4


if __name__ == "__main__":
    sys.exit(run_tool(main))
