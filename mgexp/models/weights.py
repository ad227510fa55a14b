"""Weights from a file into a model: all that belong there, or an error before one is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from mgexp.errors import InputError, listed
from mgexp.models import names
from mgexp.models.weight_files import WeightsFile
from mgexp.record.files import sha256_of

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
