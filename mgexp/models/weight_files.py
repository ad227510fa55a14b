"""Files of weights, read without running code of theirs, and written."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from mgexp.errors import InputError
from mgexp.models import names
from mgexp.record.files import atomic_file, is_file

WRAPPERS = ("model_state", "model", "state_dict")
"""Where files keep the weights among other things: PySlowFast and pytorchvideo, mgexp, others."""
SAFETENSORS = ".safetensors"
"""Files of this ending are safetensors; all others are torch's."""


@dataclass(frozen=True)
class WeightsFile:
    """The tensors of a file under their own names, and whose names these are."""

    path: Path
    naming: str
    tensors: Mapping[str, Tensor]

    def rename(self, ours: list[str]) -> names.Rename:
        """From the names of a model to those in this file."""
        if self.naming == "PySlowFast":
            return names.pyslowfast_names(ours)
        return names.torchvision_names(ours) if self.naming == "torchvision" else names.same_name


def read_weights(path: Path) -> WeightsFile:
    """Reads weights of pytorchvideo, PySlowFast, torchvision or mgexp: a torch file or safetensors.

    Raises InputError where there is no such file, it is damaged, holds anything but tensors and plain
    values, or follows no naming that is known.
    """
    if not is_file(path):
        raise InputError([f"{path}: there is no such file of weights"])
    content = _read_safetensors(path) if path.suffix == SAFETENSORS else _read_torch(path)
    for wrapper in WRAPPERS:
        if isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    tensors = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    return named_weights(path, _without_wrapper(tensors))


def _without_wrapper(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The names without what DistributedDataParallel or torch.compile put before all of them."""
    for prefix in ("module.", "_orig_mod."):
        if tensors and all(name.startswith(prefix) for name in tensors):
            tensors = {name.removeprefix(prefix): value for name, value in tensors.items()}
    return tensors


def named_weights(path: Path, tensors: Mapping[str, Tensor]) -> WeightsFile:
    """``tensors`` with the naming that they follow; raises InputError if none is known."""
    marks = {
        "pytorchvideo": "blocks.",
        "PySlowFast": "s1.pathway0_stem.",
        "torchvision": "layer1.0.",
    }
    for naming, mark in marks.items():
        if any(name.startswith(mark) for name in tensors):
            return WeightsFile(path, naming, tensors)
    some = ", ".join(list(tensors)[:3]) or "no tensors at all"
    raise InputError(
        [
            f"{path}: its names ({some}) are not those of pytorchvideo, PySlowFast, torchvision or mgexp; "
            "give a file of one of these"
        ]
    )


def write_weights(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes pytorchvideo's names: safetensors, or a torch file as pytorchvideo's hub has them; atomically."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    if path.suffix == SAFETENSORS:
        with atomic_file(path) as file:
            file.write(save(plain, metadata={"format": "pt"}))
        return
    with atomic_file(path) as file:
        torch.save({"model_state": plain}, file)


def _read_torch(path: Path) -> dict[str, Any]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError([_refusal(path, str(error))]) from error
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InputError([f"{path}: is damaged or no file of weights ({reason})"]) from error
    if not isinstance(content, dict):
        raise InputError([f"{path}: holds a {type(content).__name__}, not a dict of tensors"])
    return content


def _refusal(path: Path, reason: str) -> str:
    if path.suffix == ".pkl":
        return (
            f"{path}: is a pickle, which may run any code as it is read, so training does not read it; "
            "turn it into a file of tensors with tools/convert_weights.py"
        )
    foreign = re.search(r"GLOBAL ([\w.]+)", reason)
    what = (
        f"holds {foreign[1]}"
        if foreign
        else "is damaged, or holds more than tensors and plain values"
    )
    return f"{path}: {what}: objects may run any code as they are read; save the state_dict alone"


def _read_safetensors(path: Path) -> dict[str, Any]:
    try:
        return dict(load_file(path))
    except (SafetensorError, OSError) as error:
        raise InputError([f"{path}: is damaged or no file of safetensors ({error})"]) from error
