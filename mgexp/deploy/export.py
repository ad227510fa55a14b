"""Export a trained network to files that other programs load: safetensors, ``torch.export`` and ONNX.

Every program file is read again and compared with the network on random clips, in the same process. A file that
gives other logits is never kept.
"""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mgexp.config.keys import Config
from mgexp.errors import InputError, TrainingError
from mgexp.models.weights import write_weights
from mgexp.run.files import atomic_file, atomic_write_text, write_json
from mgexp.run.folder import Folder, Inside
from mgexp.train.precision import Precision

# ruff: noqa: ANN401 (the objects of ONNX are untyped here)

MAX_DEVIATION = 1e-5
"""The largest difference of a logit that is accepted, relative to the largest logit."""
BATCHES = (2, 1, 3)
"""Numbers of clips of the check. torch treats a batch of 1 in its own way, so it is not the only one."""
SEED = 20
"""Seed of the random clips."""
ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
PROBABILITIES = {"cross_entropy": "softmax", "bce_logit": "sigmoid"}
"""What makes probabilities of logits, for each MODEL.LOSS_FUNC. A loss of one's own is not known."""
MAX_PROTOBUF_BYTES = 2**31
"""An ONNX file is one protobuf message, which has no more bytes."""

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


class ExportDir(Folder):
    """The folder of an exported network."""

    weights = Inside("model.safetensors")
    """The weights, under the names of mgexp. TRAIN.INIT_WEIGHTS takes them too."""
    program = Inside("model.pt2")
    """The network of ``torch.export``, for which torch is enough."""
    onnx = Inside("model.onnx")
    """The network for ONNX Runtime and others."""
    preprocessing = Inside("preprocessing.json")
    """What has to happen to a video before, and what the logits mean."""
    loader = Inside("load_model.py")
    """A short program that loads ``program`` and ``weights``."""


@dataclass(frozen=True)
class Check:
    """The comparison of the file at ``path`` with the network.

    ``deviation``: the largest difference of a logit; ``scale``: the largest absolute logit. ``num_clips`` is None
    if the file takes any number of clips, and otherwise the number that it takes; ``reason`` then says why.
    """

    path: Path
    deviation: float
    scale: float
    num_clips: int | None = None
    reason: str = ""

    @property
    def is_good(self) -> bool:
        """Whether the logits agree. A deviation that is not a number does not."""
        return self.deviation <= MAX_DEVIATION * self.scale

    def as_text(self) -> str:
        """Say what was measured, in one line."""
        relative = self.deviation / self.scale if self.scale else self.deviation
        fixed = f"; takes {self.num_clips} clip at once ({self.reason})" if self.num_clips else ""
        return (
            f"{self.path}: largest difference {self.deviation:.1e}, {relative:.1e} of the largest logit "
            f"({self.scale:.3g}); at most {MAX_DEVIATION:.0e} is accepted{fixed}"
        )


@dataclass(frozen=True)
class Shape:
    """The full shape of a network's clips, and how random uint8 clips of it are normalised."""

    frames: int
    crop: int
    normalize: Run

    def clips(self, num: int) -> Tensor:
        """Draw ``num`` clips; the same ones for the same ``num``."""
        generator = torch.Generator().manual_seed(SEED + num)
        size = (num, 3, self.frames, self.crop, self.crop)
        return self.normalize(torch.randint(256, size, generator=generator, dtype=torch.uint8))


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


def onnx_problems() -> list[str]:
    """Say which packages are missing for ONNX."""
    missing = [name for name in ONNX_PACKAGES if find_spec(name) is None]
    if not missing:
        return []
    verb = "is" if len(missing) == 1 else "are"
    return [
        f"ONNX needs the packages {', '.join(ONNX_PACKAGES)}, and {' and '.join(missing)} {verb} not "
        "installed: pip install --editable '.[export]', or leave ONNX out with --formats torch"
    ]


def write_plain_files(folder: ExportDir, model: nn.Module, preprocessing: dict[str, Any]) -> None:
    """Write the weights and the preprocessing. Before, delete what an earlier export left in the folder."""
    try:
        folder.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"--output {folder.root}: the folder cannot be made ({error.strerror})"
        raise InputError([f"{problem}: choose another"]) from error
    for old in (folder.program, folder.onnx, folder.loader):
        old.unlink(missing_ok=True)
    write_weights(folder.weights, model.state_dict())
    write_json(folder.preprocessing, preprocessing)


def write_loader(folder: ExportDir) -> None:
    """Write the program that loads the network with torch and safetensors alone."""
    atomic_write_text(folder.loader, LOADER)


def export_program(model: nn.Module, shape: Shape, path: Path) -> tuple[Any, Check]:
    """Write the network as a program of ``torch.export``; return it with its check.

    The number of clips is free, or 1 if the network cannot be exported otherwise. Raises TrainingError if it
    cannot be exported at all, or if the logits differ.
    """
    failures: list[str] = []
    for num_clips in (None, 1):
        try:
            program = _exported(model, shape, num_clips)
        # torch raises many kinds of errors for code that it cannot follow.
        except Exception as error:
            failures.append(_in_short(error))
            continue
        reason = failures[0] if failures else ""
        with atomic_file(path) as file:
            torch.export.save(program, file)
            file.seek(0)
            loaded = torch.export.load(io.BytesIO(file.read())).module()
            check = _compare(path, model, loaded, shape, num_clips, reason)
        return program, check
    what = type(model).__name__
    raise TrainingError(f"torch.export cannot export {what}: {failures[-1]}")


def export_onnx(program: Any, model: nn.Module, shape: Shape, path: Path, traced: Check) -> Check:
    """Write ``program`` as ONNX, and run that in ONNX Runtime.

    ``program`` and ``traced`` are what ``export_program`` returned for ``model``.

    Raises TrainingError if it cannot be written, or if the logits differ.
    """
    import onnxruntime

    size = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    if size >= MAX_PROTOBUF_BYTES:
        raise TrainingError(
            f"{path}: the weights have {size / 2**30:.1f} GiB, and an ONNX file has at most 2 GiB: "
            "leave ONNX out with --formats torch"
        )
    try:
        with _tracing():
            made: Any = torch.onnx.export(
                program, input_names=["clips"], output_names=["logits"], verbose=False
            )
        data = made.model_proto.SerializeToString()
    except Exception as error:
        raise TrainingError(f"{path}: cannot be written as ONNX: {_in_short(error)}") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])

    def run(clips: Tensor) -> Tensor:
        return torch.from_numpy(session.run(["logits"], {"clips": clips.contiguous().numpy()})[0])

    with atomic_file(path) as file:
        file.write(data)
        return _compare(path, model, run, shape, traced.num_clips, traced.reason)


def _exported(model: nn.Module, shape: Shape, num_clips: int | None) -> Any:
    """Trace the network at the full shape, with any number of clips if ``num_clips`` is None."""
    # torch warns as it stores weights in channels_last_3d, and other programs expect plain memory.
    plain = copy.deepcopy(model).to(memory_format=torch.contiguous_format)
    clips = shape.clips(num_clips or BATCHES[0]).contiguous()
    free = None if num_clips else ({0: torch.export.Dim("num_clips", min=1)},)
    with _tracing(), torch.no_grad():
        program = torch.export.export(plain, (clips,), dynamic_shapes=free)
    # torch would store the example as a pickle. The file then holds tensors and text alone.
    program.example_inputs = None
    return program


@contextmanager
def _tracing() -> Iterator[None]:
    """Let torch trace in the block. Nothing is computed there.

    torch's exporter reads the older switch of TF32, which torch refuses after training has turned TF32 off by the
    newer ones. So these are on in the block, as they are when Python starts. torch also warns of its own code.
    """
    with warnings.catch_warnings(), Precision("tf32").backends():
        warnings.simplefilter("ignore")
        yield


@torch.inference_mode()
def _compare(
    path: Path, model: nn.Module, run: Run, shape: Shape, num_clips: int | None, reason: str
) -> Check:
    """Compare ``run`` with the network on random clips. Raises TrainingError if the logits differ."""
    deviation, scale = torch.zeros(()), torch.zeros(())
    for num in (num_clips,) if num_clips else BATCHES:
        clips = shape.clips(num).contiguous()
        wanted = model(clips)
        # torch.maximum gives NaN if one of the two is NaN.
        deviation = torch.maximum(deviation, (run(clips) - wanted).abs().max())
        scale = torch.maximum(scale, wanted.abs().max())
    check = Check(path, deviation.item(), scale.item(), num_clips, reason)
    if not check.is_good:
        raise TrainingError(f"the logits differ, so the file was deleted: {check.as_text()}")
    return check


def _in_short(error: Exception) -> str:
    """Return the first two lines of an error, in one line. torch gives the reason in the second."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:2]) or 'no reason given'}"
