#!/usr/bin/env python3
"""Print which classes a trained model sees in videos.

  python tools/predict.py my_videos --run runs/quickstart/long/seed0 --csv classes.csv
  python tools/predict.py my_video.mp4 --run RUN --overlay my_video_classes.mp4
  python tools/predict.py --webcam 0 --run RUN

RUN is the folder of a finished run. A video is seen in all views of the full protocol, and its
probabilities are their mean, or with DATA.ENSEMBLE_METHOD max the largest of each class.
--overlay and --webcam see one clip after the other.
More: docs/predict.md. Exit codes: 0 done, 1 a file cannot be written, 2 bad input, 3 some videos
cannot be read, 4 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

# mgexp comes before torch, because it sets how torch's threads wait.
import mgexp  # noqa: F401

# isort: split
import simplejson
import torch

from mgexp.config.keys import Config
from mgexp.data.loader import build_view_loader, worker_count
from mgexp.data.records import VideoRecord
from mgexp.deploy.find import Found, find_videos
from mgexp.deploy.overlay import default_font, font_problems, overlay_problems
from mgexp.deploy.show import Style, overlay_file, watch
from mgexp.deploy.stream import SPAN_SECONDS, Source, build_window, camera
from mgexp.dist import Processes, device_of, device_problems
from mgexp.errors import InputError, collected, raise_problems
from mgexp.options import ToolParser, add_import_option, not_positive, run_tool, say, without_folder
from mgexp.run.confusion import name_of
from mgexp.run.log import with_progress
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
from mgexp.video.frame_folder import FilesAndFolders
from mgexp.video.reader import VideoError

NUM_BEST, NUM_DRAWN = 5, 3
EVERY_SECONDS = 0.5


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = ToolParser(__doc__)
    add = parser.add_argument
    add("videos", nargs="*", metavar="VIDEO", help="video files, and folders of them")
    add("--webcam", metavar="INDEX", help="camera, such as 0, or an address that FFmpeg opens")
    add("--run", required=True, type=Path, help="folder of a finished run")
    add_import_option(parser)
    add(
        "--classes",
        type=Path,
        help="names of the classes, as DATA.CLASSES takes (default: those of the run)",
    )
    top = f"classes shown (default: {NUM_BEST}, in --overlay {NUM_DRAWN}, or all if fewer)"
    add("--top", type=int, metavar="N", help=top)
    add("--csv", type=Path, metavar="FILE", help="write a line for each video and class")
    add(
        "--overlay",
        type=Path,
        metavar="FILE.mp4",
        help="write the one video with its classes below it",
    )
    every = f"time from clip to clip of --overlay and --webcam (default: {EVERY_SECONDS})"
    add("--every", type=float, metavar="SECONDS", help=every)
    span = f"what a clip shows, if a network sees whole videos (default: {SPAN_SECONDS})"
    add("--span", type=float, metavar="SECONDS", help=span)
    add("--seconds", type=float, help="stop --webcam after that time (default: at Ctrl-C)")
    add("--font", type=Path, metavar="FILE.ttf", help="letters of --overlay (default: DejaVu Sans)")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto")
    add("--json", action="store_true", help="print all at the end, for programs")
    return parser.parse_args(arguments)


def option_problems(options: argparse.Namespace, num_classes: int) -> list[str]:
    """Say what is wrong with the options, but for the videos."""
    problems = [
        *device_problems(options.device, torch.cuda.device_count()),
        *not_positive(
            {"--every": options.every, "--span": options.span, "--seconds": options.seconds}
        ),
        *without_folder({"--csv": options.csv}),
        *not_a_table(options.csv),
    ]
    if options.top is not None and not 1 <= options.top <= num_classes:
        problems.append(f"--top {options.top}: the model has {num_classes} classes; give 1 to that")
    if bool(options.videos) == (options.webcam is not None):
        given = "both are given" if options.videos else "nothing is given"
        problems.append(f"{given}: name videos or folders, or give --webcam, one of the two")
    for name, value, needs, is_there in (
        ("--seconds", options.seconds, "--webcam", options.webcam is not None),
        ("--every", options.every, "--webcam or --overlay", options.webcam or options.overlay),
        ("--span", options.span, "--webcam or --overlay", options.webcam or options.overlay),
        ("--font", options.font, "--overlay", options.overlay),
    ):
        if value is not None and not is_there:
            problems.append(f"{name} {value} is for {needs}, which is not given: leave it out")
    return problems


def not_a_table(path: Path | None) -> Iterator[str]:
    """Yield a problem if --csv would replace a file that is no table, such as the video."""
    if path is not None and path.is_file() and path.suffix != ".csv":
        yield f"--csv {path} exists and does not end in .csv: choose another name, so that it is not lost"


def sources(options: argparse.Namespace) -> tuple[Found, Source | None]:
    """Return the videos to look at, or the camera. Raises InputError if there is none."""
    if options.webcam is not None:
        return Found((), ()), camera(options.webcam)
    found = find_videos(options.videos)
    # Without any name, the problems of the options say so.
    if options.videos and not found.videos:
        what = (
            f"no video in {', '.join(options.videos)}; {found.skipped_text() or 'nothing is there'}"
        )
        raise InputError([f"{what}: name a video, or a folder that holds some"])
    return found, None


def style_of(options: argparse.Namespace, names: Sequence[str], num_classes: int) -> Style:
    """Return what an overlay shows. Raises InputError if the names cannot be drawn."""
    shown = tuple(name_of(label, names) for label in range(num_classes))
    font = options.font or default_font()
    raise_problems(font_problems(font, shown))
    return Style(shown, options.top or min(NUM_DRAWN, num_classes), font)


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
    """Print, and write the files that are asked for. Raises InputError for bad input."""
    run_dir, cfg = load_run(options.run)
    num_classes = cfg.MODEL.NUM_CLASSES
    problems = option_problems(options, num_classes)
    names: tuple[str, ...] = ()
    found, source, style, window = Found((), ()), None, None, None
    with collected(problems):
        names = read_names(options.classes, run_dir, num_classes)
    with collected(problems):
        found, source = sources(options)
        every = options.every or EVERY_SECONDS
        if source or options.overlay:
            window = build_window(cfg, every, options.span)
        problems += overlay_problems(options.overlay, [source.name] if source else found.videos)
    with collected(problems):
        style = style_of(options, names, num_classes) if options.overlay else None
    raise_problems(problems)
    if found.skipped:
        say(found.skipped_text())
    device = device_of(options.device)
    # All options were checked before this line, which loads the network.
    predictor = build_predictor(cfg, run_dir, device)
    num_best = options.top or min(NUM_BEST, num_classes)
    if window and window.has_segments and options.span is None:
        say(
            f"each clip shows {SPAN_SECONDS:g} s, or a whole video that is shorter; if your training videos are "
            "shorter or longer, give --span"
        )
    if source and window:
        until = options.seconds or float("inf")
        overlay = (options.overlay, style) if style else None
        seen = watch(
            *(source, window, predictor.scores, num_best, overlay),
            is_over=lambda seconds: stop.requested or seconds >= until,
        )
        say(f"looking at {source.name}; Ctrl-C ends it")
        return report(options, seen, names, stop)
    with stop.at_once():
        seen = build_predictions(cfg, predictor, found.videos, device, num_best)
        code = report(options, seen, names, stop, total=len(found.videos))
        if style and window and not code:
            overlay_file(found.videos[0], options.overlay, window, predictor.scores, style)
            say(f"wrote {options.overlay}")
    return code


def report(
    options: argparse.Namespace,
    found: Iterable[Prediction],
    names: Sequence[str],
    stop: StopRequest,
    total: int | None = None,
) -> int:
    """Print each prediction as soon as it is there, or JSON at the end, and write the CSV file.

    After a signal, this is done with the predictions that are there, and Interrupted is raised.
    """
    seen: list[Prediction] = []
    try:
        for one in with_progress(found, total, "", "videos") if options.json else found:
            seen.append(one)
            if one.error:
                say(one.error)
            elif not options.json:
                print(as_text(one, names), flush=True)
    except Interrupted:
        if total is None:
            raise
    with stop.deferred():
        if options.json:
            print(simplejson.dumps([as_json(one, names) for one in seen], indent=2), flush=True)
        if options.csv:
            write_csv(options.csv, seen, names)
            say(f"wrote {options.csv}")
    if stop.requested and total is not None:
        raise Interrupted(f"{stop.signal_name} after {len(seen)} of {total} videos")
    stop.check()
    num_bad = sum(bool(one.error) for one in seen)
    if num_bad:
        say(f"{len(seen) - num_bad} of {counted(len(seen), 'video')} predicted, {num_bad} not")
    return 3 if num_bad else 0


def as_json(found: Prediction, names: Sequence[str]) -> dict[str, object]:
    """Return one video for ``--json``. Probabilities are between 0 and 1."""
    classes = [
        {"label": label, "name": name_of(label, names), "probability": probability}
        for label, probability in found.classes
    ]
    moment = {} if found.seconds is None else {"seconds": round(found.seconds, 3)}
    return {"video": found.path, **moment, "classes": classes, "error": found.error}


def as_text(found: Prediction, names: Sequence[str]) -> str:
    """Write one video and its classes, a line for each; one moment of a camera in one line."""
    best = [(100 * share, name_of(label, names)) for label, share in found.classes]
    if found.seconds is not None:
        return f"{found.seconds:8.1f} s  " + "   ".join(f"{x:.1f} % {name}" for x, name in best)
    return "\n".join([found.path, *(f"{share:6.1f} %  {name}" for share, name in best)])


def main(arguments: list[str]) -> int:
    """Predict, and turn an error into an exit code and one message."""
    options = parse(arguments)
    try:
        with StopRequest().listening() as stop:
            return predict(options, stop)
    except VideoError as error:
        say(str(error))
        return 3
    except OSError as error:  # the disk is full, for instance
        say(f"{error}; nothing more was written")
        return 1
    except Interrupted as stopped:
        say(f"stopped by {stopped.signal_name}")
        return 4


if __name__ == "__main__":
    sys.exit(run_tool(main))
