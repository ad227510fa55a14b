"""Weights from a file into a model: all that belong there, or an error before one is loaded."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from mgexp.errors import InputError, listed
from mgexp.models import names
from mgexp.run.files import atomic_file, is_file, sha256_of

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


MAX_LISTED = 8


@dataclass(frozen=True)
class Fit:
    """What becomes of every tensor of a file and of a model.

    ``used``: by our names, as they will be loaded. ``left``: of our classifier, at its initial value since
    the file has another number of classes (or none). ``missing``: other tensors of ours that the file
    lacks, at their initial values: non-local blocks, that start as the identity, and counters.
    ``unused``: of the file, under its names: its classifier, and counters.
    """

    file: WeightsFile
    used: Mapping[str, Tensor]
    left: tuple[str, ...]
    missing: tuple[str, ...]
    unused: tuple[str, ...]

    def load_into(self, model: nn.Module) -> None:
        """Copies ``used`` into ``model``, in its precision; all other tensors stay as they are."""
        model.load_state_dict({**model.state_dict(), **self.used})

    def record(self) -> dict[str, Any]:
        """For JSON: every tensor by name."""
        return {
            "file": str(self.file.path),
            "sha256": sha256_of(self.file.path),
            "naming": self.file.naming,
            "used": list(self.used),
            "left": list(self.left),
            "missing": list(self.missing),
            "unused": list(self.unused),
        }

    def summary(self) -> str:
        """A line, and one for each kind of tensor that was not used."""
        lines = [f"{self.file.path} ({self.file.naming}): {len(self.used)} tensors used"]
        for words, found in (
            (
                "of the classifier left at their initial values: the file has none for as many classes",
                self.left,
            ),
            ("not in the file, at their initial values", _but_counters(self.missing)),
            ("in the file and not used", _but_counters(self.unused)),
        ):
            if found:
                lines.append(f"{len(found)} {words}: {listed(found, MAX_LISTED)}")
        return "\n".join(lines)


def fit_weights(file: WeightsFile, model: nn.Module) -> Fit:
    """Finds the tensor of ``file`` for each of ``model``, which may be on the meta device.

    The kernels of an image network (torchvision) are inflated: repeated over the frames of ours and divided
    by their number (Carreira and Zisserman, CVPR 2017), so that a video of one picture gives what
    the picture gave. Raises InputError that lists every tensor that does not fit.
    """
    state = model.state_dict()
    rename = file.rename(list(state))
    theirs = {name: rename(name) for name in state}
    found = {
        name: _inflated(file.tensors[theirs[name]], tensor)
        for name, tensor in state.items()
        if theirs[name] in file.tensors
    }
    left = _left(found, state)
    used = {name: tensor for name, tensor in found.items() if name not in left}
    missing = tuple(name for name in state if name not in used and name not in left)
    asked = {theirs[name] for name in used}
    fit = Fit(file, used, left, missing, tuple(n for n in file.tensors if n not in asked))
    problems = [*_problems(fit, state, {theirs[name] for name in left})]
    if problems:
        raise InputError(
            [f"{file.path} ({file.naming}) does not fit the model: {', '.join(problems)}"]
        )
    return fit


def _left(found: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> tuple[str, ...]:
    """The classifier, weights and bias, where the file has none or another number of classes."""
    head = tuple(name for name in state if names.is_head(name))
    there = all(name in found for name in head)
    return () if there and all(found[n].shape[:1] == state[n].shape[:1] for n in head) else head


def _inflated(tensor: Tensor, ours: Tensor) -> Tensor:
    """A kernel (O, I, H, W) for ours, (O, I, T, H, W): its T-th part in each frame. All else as it is."""
    if (tensor.dim(), ours.dim()) != (4, 5):
        return tensor
    frames = ours.shape[2]
    return tensor.unsqueeze(2).repeat(1, 1, frames, 1, 1) / frames


def _problems(fit: Fit, state: Mapping[str, Tensor], heads: set[str]) -> Iterator[str]:
    """What makes a file one of another architecture."""
    shapes = [
        f"{name} is {tuple(tensor.shape)} in the file and {tuple(state[name].shape)} in the model"
        for name, tensor in fit.used.items()
        if tensor.shape != state[name].shape
    ]
    if shapes:
        yield f"{len(shapes)} tensors have another shape: {listed(shapes, MAX_LISTED, '; ')}"
    values = {name: tensor for name, tensor in fit.used.items() if not names.is_counter(name)}
    broken = [
        name for name, x in values.items() if not (x.is_floating_point() and x.isfinite().all())
    ]
    if broken:
        yield f"{len(broken)} tensors hold no finite floats: {listed(broken, MAX_LISTED)}"
    begun = {
        None,
        *(names.nonlocal_block(name) for name in fit.used),
    }  # a whole block may be missing
    lacking = [n for n in _but_counters(fit.missing) if names.nonlocal_block(n) in begun]
    if lacking:
        yield f"{len(lacking)} tensors of the model are not in the file: {listed(lacking, MAX_LISTED)}"
    strange = [name for name in _but_counters(fit.unused) if name not in heads]
    if strange:
        yield f"{len(strange)} tensors of the file are not in the model: {listed(strange, MAX_LISTED)}"


def _but_counters(tensors: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in tensors if not names.is_counter(name))
