"""Which precision checks this machine has passed: one small file each, in the user's cache folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import simplejson
import torch
from torch import nn

from mgexp.errors import InputError
from mgexp.plan.step_shapes import StepShape
from mgexp.record.environment import cpu_model
from mgexp.record.files import read_json, write_json
from mgexp.record.progress import LOGGER
from mgexp.train.precision import Precision

VERSION = 1
"""Raised when the check changes: what an older one passed is checked again."""


@dataclass(frozen=True)
class CheckKey:
    """What the result of a check depends on. ``model``: hash of its layers and of its tensors' names and sizes."""

    version: int
    machine: str
    libraries: str
    threads: int
    precision: str
    model: str
    shapes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        model: nn.Module,
        shapes: Sequence[StepShape],
        precision: Precision,
        device: torch.device,
    ) -> CheckKey:
        """The key of a check on ``device``, in this process."""
        cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
        return cls(
            version=VERSION,
            machine=_machine(device),
            libraries=f"torch {torch.__version__}, cuDNN {cudnn}",
            threads=torch.get_num_threads() if device.type == "cpu" else 0,
            precision=precision.name,
            model=fingerprint(model),
            shapes=tuple(f"{shape} {shape.num_bn_groups}" for shape in shapes),
        )

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**asdict(self), "shapes": list(self.shapes)}


@dataclass(frozen=True)
class PassedChecks:
    """Files in ``folder``. A file that is torn, or that cannot be read or written, costs a check and no more."""

    folder: Path

    @classmethod
    def of_user(cls) -> PassedChecks:
        """In $XDG_CACHE_HOME, else ~/.cache (XDG Base Directory Specification)."""
        root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        return cls(Path(root).expanduser() / "mgexp" / "precision")

    def path(self, key: CheckKey) -> Path:
        """Of the file of one check."""
        text = simplejson.dumps(key.record(), sort_keys=True)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"

    def contains(self, key: CheckKey) -> bool:
        """Whether this check was passed."""
        try:
            return read_json(self.path(key)).get("check") == key.record()
        except InputError:
            return False

    def add(self, key: CheckKey, min_cosines: Mapping[str, float]) -> None:
        """Remembers a check that was passed, with its worst cosine by shape."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(self.path(key), {"check": key.record(), "min_cosines": dict(min_cosines)})
        except OSError as error:
            LOGGER.warning("the precision check will be repeated at the next start: %s", error)


def fingerprint(model: nn.Module) -> str:
    """Equal for models of the same layers and sizes, whatever their weights."""
    tensors = [f"{name} {tuple(value.shape)}" for name, value in model.state_dict().items()]
    return hashlib.sha256("\n".join([repr(model), *tensors]).encode()).hexdigest()[:32]


def _machine(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "all")
    return f"{cpu_model()}, {torch.backends.cpu.get_cpu_capability()}, oneDNN {limit}"
