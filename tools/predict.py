#!/usr/bin/env python3
"""Print which classes a trained model sees in videos.

  python tools/predict.py my_video.mp4 --run runs/quickstart/long_short/seed0 \\
      --classes data/quickstart/classes.txt

RUN is the folder of a finished run, with config.yaml and model.pt. The model sees each video in the views of the
full protocol (TEST.NUM_ENSEMBLE_VIEWS, TEST.NUM_SPATIAL_CROPS). A probability is the mean of the softmax over
these views. A video that cannot be read gives one message, and the other videos are still predicted. Exit codes: 0
done, 2 bad input, 3 some videos cannot be read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

# mgexp comes before torch, because it sets how torch's threads wait.
import mgexp  # noqa: F401

# isort: split
import simplejson
import torch

from mgexp.config.load import load_config
from mgexp.data.loader import build_opener, build_view_loader
from mgexp.data.records import VideoRecord
from mgexp.dist import Processes, device_of
from mgexp.errors import InputError
from mgexp.options import add_import_option
from mgexp.run.confusion import name_of, read_class_names
from mgexp.run.folder import RunDir
from mgexp.train.predict import Prediction, build_predictor
from mgexp.train.setup import device_problems

NUM_BEST = 5


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("videos", nargs="+", metavar="VIDEO", help="video files")
    parser.add_argument("--run", required=True, type=Path, help="folder of a finished run")
    add_import_option(parser)
    parser.add_argument("--classes", type=Path, help="names of the classes, one a line")
    parser.add_argument(
        "--top", type=int, help=f"classes shown (default: {NUM_BEST}, or all if fewer)"
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--json", action="store_true", help="for programs")
    return parser.parse_args(arguments)


def predictions(options: argparse.Namespace) -> tuple[Iterator[Prediction], Sequence[str]]:
    """Return the predictions, one video at a time, and the class names. Raises InputError for bad input."""
    run_dir = RunDir(options.run)
    if not run_dir.config_yaml.is_file():
        raise InputError(
            [f"--run {options.run} is not a run folder: {run_dir.config_yaml} does not exist"]
        )
    cfg = load_config(run_dir.config_yaml)
    num_classes = cfg.MODEL.NUM_CLASSES
    names = read_class_names(options.classes) if options.classes else ()
    problems = [*device_problems(options.device, torch.cuda.is_available())]
    if options.top is not None and not 1 <= options.top <= num_classes:
        problems.append(f"--top {options.top}: the model has {num_classes} classes")
    if names and len(names) != num_classes:
        problems.append(
            f"{options.classes} names {len(names)} classes, the model has {num_classes}"
        )
    if problems:
        raise InputError(problems)
    device = device_of(options.device)
    # All options were checked before this line, which loads the network.
    predictor = build_predictor(cfg, run_dir, device)
    # A record needs a label, but prediction does not read it.
    records = [VideoRecord(video, 0) for video in options.videos]
    views = build_view_loader(cfg, records, True, device, Processes(), build_opener(cfg))
    num_best = options.top or min(NUM_BEST, num_classes)
    return predictor.predict(tuple(options.videos), views, num_best), names


def as_json(found: Prediction, names: Sequence[str]) -> dict[str, object]:
    """Return one video for ``--json``. Probabilities are between 0 and 1."""
    classes = [
        {"label": label, "name": name_of(label, names), "probability": probability}
        for label, probability in found.classes
    ]
    return {"video": found.path, "classes": classes, "error": found.error}


def as_text(found: Prediction, names: Sequence[str]) -> str:
    """Write one video and its classes, a line for each."""
    lines = [f"{100 * share:6.1f} %  {name_of(label, names)}" for label, share in found.classes]
    return "\n".join([found.path, *lines])


def main(arguments: list[str]) -> int:
    """Print each video as soon as it is done, or JSON at the end. Return 3 if a video cannot be read."""
    options = parse(arguments)
    try:
        found, names = predictions(options)
    except InputError as error:
        print(f"predict.py: {error}", file=sys.stderr)
        return 2
    records, has_errors = [], False
    for one in found:
        records.append(as_json(one, names))
        if one.error:
            has_errors = True
            print(f"predict.py: {one.error}", file=sys.stderr)
        elif not options.json:
            print(as_text(one, names), flush=True)
    if options.json:
        print(simplejson.dumps(records, indent=2))
    return 3 if has_errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
