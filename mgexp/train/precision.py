"""Which precision checks this machine has passed: one small file each, in the user's cache folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import simplejson
import torch
from torch import nn

from mgexp.errors import InputError
from mgexp.multigrid.steps import StepShape
from mgexp.run.environment import cpu_model
from mgexp.run.files import read_json, write_json
from mgexp.run.log import LOGGER

Name = Literal["fp32", "tf32", "bf16", "fp16"]
NAMES: tuple[Name, ...] = get_args(Name)

_LOW = {"bf16": torch.bfloat16, "fp16": torch.float16}
_AMPERE = (8, 0)
"""First compute capability with TF32 (NVIDIA, CUDA C++ Programming Guide, table of compute capabilities)."""


@dataclass(frozen=True)
class Precision:
    """One of ``NAMES``. fp32 is exact; tf32 rounds the factors of products to 10 bits, on GPUs from Ampere on."""

    name: Name = "fp32"

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise ValueError(f"{self.name!r} is no precision; there are {', '.join(NAMES)}")

    @property
    def is_exact(self) -> bool:
        """Whether there is nothing to compare with fp32."""
        return self.name == "fp32"

    def autocast(self, device: torch.device) -> torch.autocast:
        """For the forward pass and the loss, not for the backward pass; does nothing for fp32 and tf32."""
        dtype = _LOW.get(self.name)
        # Without a type torch looks one up for the device, which it need not have.
        return torch.autocast(device.type, dtype or torch.bfloat16, enabled=dtype is not None)

    def scaler(self, device: torch.device) -> torch.amp.GradScaler:
        """Scales the loss of fp16, whose small gradients would be 0; for the others it is off and does nothing.

        ``scale(loss).backward()``, ``step(optimizer)``, ``update()`` in every precision. A step whose gradients
        overflow is left out by fp16. ``state_dict`` belongs into the checkpoint; it is empty where it is off.
        """
        return torch.amp.GradScaler(device.type, enabled=self.name == "fp16")

    def set_backends(self) -> None:
        """Makes fp32 products of this process tf32, or exact for all other names."""
        _set_backends("tf32" if self.name == "tf32" else "ieee")

    @contextmanager
    def backends(self) -> Iterator[None]:
        """``set_backends`` for a block; afterwards everything is as before."""
        before = [node.fp32_precision for node in _backends()]
        self.set_backends()
        try:
            yield
        finally:
            for node, value in zip(_backends(), before, strict=True):
                node.fp32_precision = value


def resolve(name: str, device: torch.device) -> Precision:
    """The precision that TRAIN.PRECISION asks for; auto: bf16 on GPUs that compute with it, else fp32.

    On a CPU auto is fp32: bf16 gradients of convolutions are wrong in released versions of torch (see
    ``mgexp/train/precision_check.py``). Raises InputError where ``device`` cannot do it.
    """
    if name == "auto":
        return Precision("bf16" if _has_bf16(device) else "fp32")
    precision = Precision(name)  # type: ignore[arg-type]  # it checks
    problem = _problem(precision, device)
    if problem:
        raise InputError([problem])
    return precision


def _problem(precision: Precision, device: torch.device) -> str:
    """Why ``device`` cannot compute so; empty if it can. A CPU emulates bf16 and fp16 where it must."""
    remedy = "set TRAIN.PRECISION auto or fp32"
    if precision.name == "tf32" and device.type != "cuda":
        return f"TRAIN.PRECISION = tf32, but the device is a {device.type}, and TF32 is of GPUs: {remedy}"
    if device.type != "cuda":
        return ""
    gpu = torch.cuda.get_device_name(device)
    if precision.name == "tf32" and torch.cuda.get_device_capability(device) < _AMPERE:
        return f"TRAIN.PRECISION = tf32, but {gpu} is older than Ampere and has none: {remedy}"
    if precision.name == "bf16" and not _has_bf16(device):
        return f"TRAIN.PRECISION = bf16, but {gpu} does not compute with it: {remedy}, or fp16"
    return ""


def _has_bf16(device: torch.device) -> bool:
    """Whether it is a GPU that computes with bf16; what emulates it gains nothing."""
    if device.type != "cuda":
        return False
    with torch.cuda.device(device):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def _backends() -> tuple[Any, ...]:
    """What decides about fp32 products on a GPU.

    Source: PyTorch documentation, CUDA semantics, TensorFloat-32. Since torch 2.9 each has ``fp32_precision``; the
    older ``allow_tf32`` warns, and reading it after a change here is an error, so nothing may use both.
    """
    b: Any = torch.backends  # whose stubs lack these
    return b.cuda.matmul, b.cudnn.conv, b.cudnn.rnn


def _set_backends(value: Literal["ieee", "tf32"]) -> None:
    for node in _backends():
        node.fp32_precision = value


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
