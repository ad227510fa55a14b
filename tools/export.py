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
import copy
import io
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

# mgexp comes before torch, because it sets how torch's threads wait.
import mgexp  # noqa: F401

# isort: split
import torch
from torch import Tensor, nn

from mgexp.config.keys import Config
from mgexp.errors import TrainingError, collected, raise_problems
from mgexp.models.weights import write_weights
from mgexp.options import ToolParser, add_import_option, local_folder, run_tool, say
from mgexp.run.files import atomic_file, atomic_write_text, write_json
from mgexp.stop import Interrupted, StopRequest
from mgexp.train.precision import Precision
from mgexp.train.predict import build_predictor, load_run, read_names

# ruff: noqa: ANN401 (the objects of ONNX are untyped here)

FORMATS = ("torch", "onnx")
MAX_DEVIATION = 1e-5
"""The largest difference of a logit that is accepted, relative to the largest logit."""
BATCHES = (2, 1, 3)
"""Numbers of clips of the check. torch treats a batch of 1 in its own way, so it is not the only one."""
SEED = 20
"""Seed of the random clips."""
ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
PROBABILITIES = {"cross_entropy": "softmax", "bce_logit": "sigmoid"}
"""What makes probabilities of logits, for each MODEL.LOSS_FUNC. A custom loss is not known."""

LOADER = '''"""Load an exported network, with torch and safetensors alone: python load_model.py"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

FOLDER = Path(__file__).resolve().parent
SETTINGS = json.loads((FOLDER / "preprocessing.json").read_text(encoding="utf-8"))


def load_model():
    """Return the network. It turns normalised clips (clips, 3, frames, crop, crop) into logits."""
    network = torch.export.load(FOLDER / "model.pt2").module()
    network.load_state_dict(load_file(FOLDER / "model.safetensors"))
    return network


def normalize(clips):
    """Normalise uint8 RGB clips of that shape."""
    mean, std = (255 * torch.tensor(SETTINGS[name]).view(3, 1, 1, 1) for name in ("mean", "std"))
    return (clips - mean) / std


if __name__ == "__main__":
    crop = SETTINGS["crop"]
    clips = torch.randint(256, (1, 3, SETTINGS["frames"], crop, crop), dtype=torch.uint8)
    print(load_model()(normalize(clips)))
'''
"""The program that loads what was exported."""

Run = Callable[[Tensor], Tensor]
"""Turns normalised clips (B, 3, T, S, S) into logits (B, classes)."""


class Clips(NamedTuple):
    """Random uint8 clips of a network's full shape, which ``normalize`` makes its input."""

    frames: int
    crop: int
    normalize: Run

    def draw(self, num: int) -> Tensor:
        """Draw ``num`` clips; the same ones for the same ``num``."""
        generator = torch.Generator().manual_seed(SEED + num)
        size = (num, 3, self.frames, self.crop, self.crop)
        clips = self.normalize(torch.randint(256, size, generator=generator, dtype=torch.uint8))
        return clips.contiguous()


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = ToolParser(__doc__)
    add = parser.add_argument
    add("--run", required=True, type=Path, help="folder of a finished run")
    text = "best: take the weights of the best evaluation during training, not the last ones"
    add("--checkpoint", choices=("best",), help=text)
    text = "folder for the exported files"
    add("--output", required=True, type=local_folder, metavar="DIR", help=text)
    add_import_option(parser)
    text = "names of the classes, as DATA.CLASSES takes (default: those of the run)"
    add("--classes", type=Path, help=text)
    text = "programs to write (default: both); ONNX needs pip install --editable '.[export]'"
    add("--formats", nargs="+", choices=FORMATS, default=FORMATS, help=text)
    return parser.parse_args(arguments)


def build_preprocessing(cfg: Config, names: tuple[str, ...]) -> dict[str, Any]:
    """Describe how clips are made from a video, and what the logits are. ``names``: of the classes, if known."""
    data, is_strided = cfg.DATA, cfg.DATA.TEMPORAL_GRID == "stride"
    return {
        "network": cfg.MODEL.MODEL_NAME,
        "input": "clips: float32 (clips, 3, frames, crop, crop), RGB, (pixel / 255 - mean) / std",
        "output": "logits: float32 (clips, classes)",
        "frames": data.NUM_FRAMES,
        "crop": data.TRAIN_CROP_SIZE,
        "resize": "the centre square of the picture, bilinear with antialiasing, to crop x crop pixels",
        "mean": list(data.MEAN),
        "std": list(data.STD),
        "times": (
            "frame k shows the moment start + k * stride / target_fps seconds"
            if is_strided
            else "frame k shows the middle of segment k, of as many equal segments of the video as frames"
        ),
        "stride": data.SAMPLING_RATE if is_strided else None,
        "target_fps": data.TARGET_FPS,
        "probabilities": PROBABILITIES.get(cfg.MODEL.LOSS_FUNC),
        "num_classes": cfg.MODEL.NUM_CLASSES,
        "classes": list(names) or None,
    }


def export_program(model: nn.Module, clips: Clips, path: Path) -> tuple[Any, str]:
    """Write the network as a program of ``torch.export``; return it with the line that says how it compares.

    The number of clips is free, or 1 if the network cannot be exported otherwise. Raises TrainingError if it
    cannot be exported at all, or if the logits differ.
    """
    reason = ""
    try:
        program = trace(model, clips, None)
    # torch raises many kinds of errors for code that it cannot follow.
    except Exception as error:
        reason = in_short(error)
        try:
            program = trace(model, clips, 1)
        except Exception as again:
            what = type(model).__name__
            raise TrainingError(f"torch.export cannot export {what}: {in_short(again)}") from again
    with atomic_file(path) as file:
        torch.export.save(program, file)
        file.seek(0)
        loaded = torch.export.load(io.BytesIO(file.read())).module()
        line = compare(path, model, loaded, clips, (1,) if reason else BATCHES)
    return program, f"{line}; takes 1 clip at once ({reason})" if reason else line


def export_onnx(program: Any, model: nn.Module, clips: Clips, path: Path) -> str:
    """Write a program of ``torch.export`` as ONNX, run that in ONNX Runtime, and say how it compares.

    Raises TrainingError if it cannot be written, or if the logits differ.
    """
    import onnxruntime

    try:
        with tracing():
            made: Any = torch.onnx.export(
                program, input_names=["clips"], output_names=["logits"], verbose=False
            )
        # One protobuf message, so networks of 2 GiB and more fail here.
        data = made.model_proto.SerializeToString()
    except Exception as error:
        raise TrainingError(f"{path}: cannot be written as ONNX: {in_short(error)}") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])

    def run(batch: Tensor) -> Tensor:
        return torch.from_numpy(session.run(["logits"], {"clips": batch.numpy()})[0])

    batch_dim = session.get_inputs()[0].shape[0]
    with atomic_file(path) as file:
        file.write(data)
        return compare(path, model, run, clips, (1,) if batch_dim == 1 else BATCHES)


def trace(model: nn.Module, clips: Clips, num_clips: int | None) -> Any:
    """Trace the network at the full shape, with any number of clips if ``num_clips`` is None."""
    # torch warns as it stores weights in channels_last_3d, and other programs expect plain memory.
    plain = copy.deepcopy(model).to(memory_format=torch.contiguous_format)
    free = None if num_clips else ({0: torch.export.Dim("num_clips", min=1)},)
    example = clips.draw(num_clips or BATCHES[0])
    with tracing(), torch.no_grad():
        program = torch.export.export(plain, (example,), dynamic_shapes=free)
    # torch would store the example as a pickle. The file then holds tensors and text alone.
    program.example_inputs = None
    return program


@contextmanager
def tracing() -> Iterator[None]:
    """Let torch trace in the block. Nothing is computed there.

    torch's exporter reads the older switch of TF32, which torch refuses after training has turned TF32 off by the
    newer ones. So these are on in the block, as they are when Python starts. torch also warns of its own code.
    """
    with warnings.catch_warnings(), Precision("tf32").backends():
        warnings.simplefilter("ignore")
        yield


@torch.inference_mode()
def compare(path: Path, model: nn.Module, run: Run, clips: Clips, batches: tuple[int, ...]) -> str:
    """Compare ``run`` with the network on random clips, and say how far the logits differ.

    Raises TrainingError if they differ by more than MAX_DEVIATION.
    """
    deviation, scale = torch.zeros(()), torch.zeros(())
    for num in batches:
        batch = clips.draw(num)
        wanted = model(batch)
        # torch.maximum gives NaN if one of the two is NaN.
        deviation = torch.maximum(deviation, (run(batch) - wanted).abs().max())
        scale = torch.maximum(scale, wanted.abs().max())
    relative = (deviation / scale).item() if scale else deviation.item()
    line = (
        f"{path}: largest difference {deviation:.1e}, {relative:.1e} of the largest logit "
        f"({scale:.3g}); at most {MAX_DEVIATION:.0e} is accepted"
    )
    # A deviation that is not a number is not accepted either.
    if not deviation <= MAX_DEVIATION * scale:
        raise TrainingError(f"the logits differ, so the file was deleted: {line}")
    return line


def in_short(error: Exception) -> str:
    """Return the first two lines of an error, in one line. torch gives the reason in the second."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:2]) or 'no reason given'}"


def export(options: argparse.Namespace) -> None:
    """Write and check all files. Raises InputError for bad input, TrainingError if a file is not right."""
    run_dir, cfg = load_run(options.run)
    names, problems = (), list[str]()
    with collected(problems):
        names = read_names(options.classes, run_dir, cfg.MODEL.NUM_CLASSES)
    missing = [name for name in ONNX_PACKAGES if find_spec(name) is None]
    if "onnx" in options.formats and missing:
        remedy = "pip install --editable '.[export]', or leave ONNX out with --formats torch"
        problems.append(f"ONNX needs {', '.join(missing)}: {remedy}")
    raise_problems(problems)
    predictor = build_predictor(
        cfg, run_dir, torch.device("cpu"), is_best=options.checkpoint == "best"
    )
    model = predictor.model
    clips = Clips(cfg.DATA.NUM_FRAMES, cfg.DATA.TRAIN_CROP_SIZE, predictor.normalizer)
    folder: Path = options.output
    folder.mkdir(parents=True, exist_ok=True)
    program_file, onnx_file, loader = (
        folder / name for name in ("model.pt2", "model.onnx", "load_model.py")
    )
    # An earlier export may have left files of another network.
    for old in (program_file, onnx_file, loader):
        old.unlink(missing_ok=True)
    weights, settings = folder / "model.safetensors", folder / "preprocessing.json"
    write_weights(weights, model.state_dict())
    write_json(settings, build_preprocessing(cfg, names))
    print(f"{weights}\n{settings}", flush=True)
    say("tracing the network, which may take a minute")
    program, line = export_program(model, clips, program_file)
    if "torch" in options.formats:
        atomic_write_text(loader, LOADER)
        print(f"{line}\n{loader}", flush=True)
    else:  # it was only the way to ONNX
        program_file.unlink()
    if "onnx" in options.formats:
        say("writing ONNX, which may take some minutes")
        print(export_onnx(program, model, clips, onnx_file))


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
