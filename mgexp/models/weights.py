"""Read files of weights without running code from them, fit the weights to a model, write files.

A file must have all tensors that a model needs. Otherwise there is an error before any tensor is
loaded.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from mgexp.errors import InputError, first_line, listed
from mgexp.models import names
from mgexp.models.vit import VideoTransformer
from mgexp.models.vit_weights import CONVERSIONS, OTHER_TASKS, VJEPA2
from mgexp.run.files import atomic_file, is_file, sha256_of

WRAPPERS = ("model_state", "model", "state_dict", "module", "encoder")
"""Keys under which files hold the weights: PySlowFast and pytorchvideo the first, mgexp the second,
DeepSpeed the fourth, V-JEPA 2 the last."""
NAMINGS = {
    "pytorchvideo": "blocks.",
    "PySlowFast": "s1.pathway0_stem.",
    "torchvision": "layer1.0.",
}
"""A beginning that some name has in every file of a convention. mgexp's names are
pytorchvideo's."""
POSITIONS = "positions"
"""The table of positions of our ViT."""
SAFETENSORS = ".safetensors"
"""Files with this ending are safetensors; all others are torch's."""
MAX_LISTED = 8
"""A message names at most this many tensors, and gives the number of the others."""


@dataclass(frozen=True)
class WeightsFile:
    """The tensors of a file under the file's own names.

    ``naming`` is the convention of these names. If the network is a part of another one, as the ``backbone`` of
    MMAction2's, the names of its tensors are without this beginning, and ``outside`` names all other tensors.
    """

    path: Path
    naming: str
    tensors: Mapping[str, Tensor]
    outside: tuple[str, ...] = ()


def read_weights(path: Path, own: Collection[str] = ()) -> WeightsFile:
    """Read weights of pytorchvideo, PySlowFast, torchvision or mgexp from a torch file or safetensors.

    ``own``: the names of a network that follows none of these conventions. A file that has all of them is taken as
    it is. Raises InputError if there is no such file, if it is damaged, if it holds anything except
    tensors and plain values, or if its names follow no known convention.
    """
    if not is_file(path):
        raise InputError(
            [f"{path}: there is no such file of weights; docs/weights.md says where some are"]
        )
    if path.suffix == SAFETENSORS:
        try:
            content: dict[str, Any] = dict(load_file(path))
        except (SafetensorError, OSError) as error:
            raise InputError([f"{path}: is damaged or no file of safetensors ({error})"]) from error
    else:
        content = _read_torch(path)
    # A wrapper may hold another one, so we try each in turn.
    for wrapper in WRAPPERS:
        if isinstance(inner := content.get(wrapper), dict):
            # A checkpoint of a run with TRAIN.EMA_DECAY also has the average of the weights, which is evaluated.
            average = content.get("average")
            content = {**inner, **average} if isinstance(average, dict) else inner
    tensors = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    # DistributedDataParallel and torch.compile put these before all names.
    # Either of the two may be the outer one.
    for prefix in ("module.", "_orig_mod.", "module."):
        if tensors and all(name.startswith(prefix) for name in tensors):
            tensors = {name.removeprefix(prefix): value for name, value in tensors.items()}
    if own and tensors.keys() >= set(own):
        return WeightsFile(path, "the network's own names", tensors)
    return named_weights(path, tensors)


def named_weights(path: Path, tensors: Mapping[str, Tensor]) -> WeightsFile:
    """Find the convention that the names of ``tensors`` follow. Raises InputError if none fits.

    The tensors of a vision transformer then have our names.
    """
    for naming, (beginnings, convert) in CONVERSIONS.items():
        if any(name.startswith(beginnings) for name in tensors):
            try:
                return WeightsFile(path, naming, convert(tensors))
            except (KeyError, ValueError) as error:
                problem = f"its names are those of {naming}, but it is no whole ViT ({error})"
                raise InputError([f"{path}: {problem}"]) from error
    for naming, beginning in NAMINGS.items():
        if any(name.startswith(beginning) for name in tensors):
            return WeightsFile(path, naming, tensors)
    for naming, beginning in NAMINGS.items():
        whole = [name for name in tensors if f".{beginning}" in name]
        if whole:
            prefix = whole[0].partition(beginning)[0]
            inside = {
                names.without_modules(name.removeprefix(prefix)): tensor
                for name, tensor in tensors.items()
                if name.startswith(prefix)
            }
            outside = tuple(name for name in tensors if not name.startswith(prefix))
            return WeightsFile(path, naming, inside, outside)
    some = ", ".join(list(tensors)[:3]) or "no tensors at all"
    problem = f"its names ({some}) are not those of pytorchvideo, PySlowFast, torchvision or mgexp"
    raise InputError([f"{path}: {problem}"])


def write_weights(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write ``tensors`` atomically: as safetensors, or as a torch file like those of pytorchvideo's hub."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_file(path) as file:
        if path.suffix == SAFETENSORS:
            # safetensors refuses names that share one tensor, so each tied weight is written under all its names.
            copies = {name: tensor.clone() for name, tensor in plain.items()}
            file.write(save(copies, metadata={"format": "pt"}))
        else:
            torch.save({"model_state": plain}, file)


def _read_torch(path: Path) -> dict[str, Any]:
    try:
        # Files of VideoMAE hold the arguments of their training. Such an object is a list of names and values.
        with torch.serialization.safe_globals([argparse.Namespace]):
            content = torch.load(path, map_location="cpu", weights_only=True)
    # A damaged file may raise almost any exception in torch.load. A file that holds other objects raises one that
    # explains how to run their code.
    except Exception as error:
        refused = re.search(r"GLOBAL ([\w.]+)", str(error))
        reason = f"it holds {refused[1]}" if refused else first_line(error)
        problem = "is damaged, or holds more than tensors and plain values"
        raise InputError([f"{path}: {problem} ({reason})"]) from error
    if not isinstance(content, dict):
        raise InputError([f"{path}: holds a {type(content).__name__}, not a dict of tensors"])
    return content


@dataclass(frozen=True)
class Fit:
    """Assignment of the tensors of a file to the tensors of a model.

    - ``used`` are the tensors that will be loaded, by our names.
    - ``left`` is our classifier if it keeps its initial values. The file then has no classifier, or
      one for another number of classes.
    - ``missing`` are our other tensors that the file lacks and that keep their initial values:
      non-local blocks, which start as the identity, and counters.
    - ``unused`` are tensors of the file, under its names, that are not loaded: its classifier, what serves
      another task, and counters.
    """

    file: WeightsFile
    used: Mapping[str, Tensor]
    left: tuple[str, ...]
    missing: tuple[str, ...]
    unused: tuple[str, ...]

    def load_into(self, model: nn.Module) -> None:
        """Copy ``used`` into ``model``, in its precision. All other tensors stay as they are."""
        # We give a tensor for every name, so that torch checks names and shapes strictly.
        model.load_state_dict({**model.state_dict(), **self.used})

    def record(self) -> dict[str, Any]:
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
        """Say how many tensors are used, with a line for each kind of tensor that is not used."""
        lines = [f"{self.file.path} ({self.file.naming}): {len(self.used)} tensors used"]
        for words, tensors in (
            (
                "of the classifier keep their initial values: the file has no classifier for as many classes",
                self.left,
            ),
            ("not in the file, at their initial values", _but_counters(self.missing)),
            ("in the file and not used", _but_counters(self.unused)),
        ):
            if tensors:
                lines.append(f"{len(tensors)} {words}: {listed(tensors, MAX_LISTED)}")
        return "\n".join(lines)


def fit_weights(file: WeightsFile, model: nn.Module) -> Fit:
    """Find the tensor of ``file`` for each tensor of ``model``, which may be on the meta device.

    The kernels of an image network (torchvision) are inflated (Carreira and Zisserman, CVPR 2017):
    repeated over the frames of our kernels and divided by their number. A video that repeats one
    picture then gives the same output as the picture. With a class token this is so for one tubelet in time:
    with more, the token sees each patch several times. Learned positions are stretched over the grid of ours, like
    those of coarse clips. Raises an InputError that names the tensors which do not fit.
    """
    # All tensors fit a network with other rotations, too.
    if file.naming in VJEPA2 and not (
        isinstance(model, VideoTransformer) and model.kind == "vjepa2"
    ):
        problem = f"{file.path} ({file.naming}) does not fit the model: its positions are V-JEPA 2's rotations"
        raise InputError([f"{problem}; set MODEL.MODEL_NAME ViT and VIT.POSITIONS vjepa2"])
    state = model.state_dict()
    # Our names are pytorchvideo's, so this is right for its files and ours.
    theirs = {name: name for name in state}
    if file.naming in names.RENAMINGS:
        rename = names.RENAMINGS[file.naming](state)
        theirs = {name: rename(name) for name in state}
    is_detector = any(name.startswith(names.BODY) for name in state)
    if is_detector and file.naming == "torchvision":
        theirs = {name: name.removeprefix(names.BODY) for name in state}
    is_mvit = False
    if any(".rel_pos_" in name for name in state):
        # torchvision takes seconds to import.
        from mgexp.models.mvit import MultiscaleTransformer

        is_mvit = isinstance(model, MultiscaleTransformer)
    fitting = {}
    for name, ours in state.items():
        if theirs[name] not in file.tensors:
            continue
        tensor = file.tensors[theirs[name]]
        # The image network has kernels (O, I, H, W), ours has (O, I, T, H, W).
        if (tensor.dim(), ours.dim()) == (4, 5):
            frames = ours.shape[2]
            tensor = tensor.unsqueeze(2).repeat(1, 1, frames, 1, 1) / frames
        # Positions of a picture, or of clips of another size.
        is_grid = name == POSITIONS and isinstance(model, VideoTransformer)
        if is_grid and tensor.shape[:2] == ours.shape[:2] and tensor.shape != ours.shape:
            tensor = F.interpolate(tensor, ours.shape[2:], mode="trilinear")
        # MViT's tables (2N − 1, C) of the distances along one side of a grid of N.
        is_table = is_mvit and ".rel_pos_" in name
        if is_table and tensor.shape[1:] == ours.shape[1:] and tensor.shape != ours.shape:
            # torchvision does the same with these tables for another grid.
            tensor = F.interpolate(tensor.T[None], len(ours), mode="linear")[0].T
        fitting[name] = tensor
    head = names.head_of(state)
    # A classifier of other classes is of no use for ours, so neither its weights nor its bias are
    # loaded.
    fits = all(
        name in fitting and fitting[name].shape[:1] == state[name].shape[:1] for name in head
    )
    left = () if fits else head
    used = {name: tensor for name, tensor in fitting.items() if name not in left}
    missing = tuple(name for name in state if name not in used and name not in left)
    asked = {theirs[name] for name in used}
    unused = (*(name for name in file.tensors if name not in asked), *file.outside)
    fit = Fit(file, used, left, missing, unused)
    # A detector has no place for the classifier of an image network.
    heads = {"fc.weight", "fc.bias"} if is_detector else {theirs[name] for name in left}
    problems = [*_problems(fit, state, heads)]
    if problems:
        text = f"{file.path} ({file.naming}) does not fit the model: {', '.join(problems)}"
        raise InputError([f"{text}; give weights of the network of MODEL.MODEL_NAME"])
    return fit


def _problems(fit: Fit, state: Mapping[str, Tensor], heads: set[str]) -> Iterator[str]:
    """Yield each problem: the file is of another architecture, or its values cannot be used."""
    shapes = [
        f"{name} is {tuple(tensor.shape)} in the file and {tuple(state[name].shape)} in the model"
        for name, tensor in fit.used.items()
        if tensor.shape != state[name].shape
    ]
    if shapes:
        yield f"{len(shapes)} tensors have another shape: {listed(shapes, MAX_LISTED, '; ')}"
    broken = [
        name
        for name, x in fit.used.items()
        if not (names.is_counter(name) or (x.is_floating_point() and x.isfinite().all()))
    ]
    if broken:
        yield f"{len(broken)} tensors hold no finite floats: {listed(broken, MAX_LISTED)}"
    # A non-local block may be missing as a whole, but not in part. None stands for all other
    # tensors.
    begun = {None, *(names.nonlocal_block(name) for name in fit.used)}
    lacking = [n for n in _but_counters(fit.missing) if names.nonlocal_block(n) in begun]
    if lacking:
        yield f"{len(lacking)} tensors of the model are not in the file: {listed(lacking, MAX_LISTED)}"
    others = OTHER_TASKS.get(fit.file.naming, ())
    strange = [
        name
        for name in _but_counters(fit.unused)
        if name not in {*heads, *fit.file.outside} and not name.startswith(others)
    ]
    if strange:
        yield f"{len(strange)} tensors of the file are not in the model: {listed(strange, MAX_LISTED)}"


def _but_counters(tensors: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in tensors if not names.is_counter(name))
