#!/usr/bin/env python3
"""Export a trained network for other programs: safetensors, torch.export and ONNX.

  python tools/export.py --run runs/quickstart/long/seed0 --output exported

DIR gets model.safetensors, preprocessing.json (mean, std, frames, crop, stride, classes), model.pt2
with load_model.py, for which torch and safetensors are enough, and model.onnx. The logits of
model.pt2 and model.onnx are compared with those of the network on random clips of the full shape.
A file whose logits differ by more than 1e-5 of the largest logit is deleted.
More: docs/predict.md. Exit codes: 0 done, 1 a file cannot be made or its logits differ, 2 bad
input, 4 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

# mgexp comes before torch, because it sets how torch's threads wait.
import mgexp  # noqa: F401

# isort: split
import torch

from mgexp.deploy.export import (
    ExportDir,
    Shape,
    build_preprocessing,
    export_onnx,
    export_program,
    onnx_problems,
    write_loader,
    write_plain_files,
)
from mgexp.errors import TrainingError, collected, raise_problems
from mgexp.options import ToolParser, add_import_option, local_folder, run_tool, say
from mgexp.stop import Interrupted, StopRequest
from mgexp.train.predict import build_predictor, load_run, read_names

FORMATS = ("torch", "onnx")


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = ToolParser(__doc__)
    parser.add_argument("--run", required=True, type=Path, help="folder of a finished run")
    parser.add_argument(
        "--output",
        required=True,
        type=local_folder,
        metavar="DIR",
        help="folder for the exported files",
    )
    add_import_option(parser)
    parser.add_argument(
        "--classes",
        type=Path,
        help="names of the classes, as DATA.CLASSES takes (default: those of the run)",
    )
    parser.add_argument(
        "--formats",
        nargs="+",
        choices=FORMATS,
        default=FORMATS,
        help="programs to write (default: both); ONNX needs pip install --editable '.[export]'",
    )
    return parser.parse_args(arguments)


def export(options: argparse.Namespace) -> None:
    """Write and check all files. Raises InputError for bad input, TrainingError if a file is not right."""
    run_dir, cfg = load_run(options.run)
    folder, names, problems = ExportDir(options.output), (), list[str]()
    with collected(problems):
        names = read_names(options.classes, run_dir, cfg.MODEL.NUM_CLASSES)
    raise_problems([*problems, *(onnx_problems() if "onnx" in options.formats else [])])
    predictor = build_predictor(cfg, run_dir, torch.device("cpu"))
    model = predictor.model
    shape = Shape(cfg.DATA.NUM_FRAMES, cfg.DATA.TRAIN_CROP_SIZE, predictor.normalizer)
    write_plain_files(folder, model, build_preprocessing(cfg, names))
    print(f"{folder.weights}\n{folder.preprocessing}", flush=True)
    say("tracing the network, which may take a minute")
    program, check = export_program(model, shape, folder.program)
    if "torch" in options.formats:
        write_loader(folder)
        print(f"{check.as_text()}\n{folder.loader}", flush=True)
    else:  # it was only the way to ONNX
        folder.program.unlink()
    if "onnx" in options.formats:
        say("writing ONNX, which may take some minutes")
        print(export_onnx(program, model, shape, folder.onnx, check).as_text())


def main(arguments: list[str]) -> int:
    """Export, and turn an error into an exit code and one message."""
    options = parse(arguments)
    try:
        with StopRequest().listening() as stop, stop.at_once():
            export(options)
    except (TrainingError, OSError) as error:  # an OSError: the disk is full, for instance
        say(str(error))
        return 1
    except Interrupted as stopped:
        say(f"stopped by {stopped.signal_name}; files that were not checked yet are not kept")
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(run_tool(main))
