"""The precision that training computes with: fp32, tf32, bf16 or fp16.

In all of them the weights, their gradients, the optimizer, the statistics of batch normalisation and the input
of the model are fp32. What differs is the arithmetic of convolutions and matrix products, forward and backward.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch

from mgexp.errors import InputError

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
        """A context for the forward pass and the loss, not for the backward pass. fp32 and tf32 need none."""
        dtype = _LOW.get(self.name)
        # Without a type torch looks one up for the device, which need not have one.
        return torch.autocast(device.type, dtype or torch.bfloat16, enabled=dtype is not None)

    def scaler(self, device: torch.device) -> torch.amp.GradScaler:
        """Make what scales the loss of fp16, whose small gradients would be 0. For the others it is off.

        Call ``scale(loss).backward()``, ``step(optimizer)`` and ``update()`` in every precision. fp16 leaves out
        a step whose gradients overflow. ``state_dict`` belongs in the checkpoint; it is empty where it is off.
        """
        return torch.amp.GradScaler(device.type, enabled=self.name == "fp16")

    def set_backends(self) -> None:
        """Let this process compute fp32 products in tf32, or exactly for all other names."""
        for node in _backends():
            node.fp32_precision = "tf32" if self.name == "tf32" else "ieee"

    @contextmanager
    def backends(self) -> Iterator[None]:
        """Call ``set_backends`` for a block; afterwards everything is as before."""
        before = [node.fp32_precision for node in _backends()]
        self.set_backends()
        try:
            yield
        finally:
            for node, value in zip(_backends(), before, strict=True):
                node.fp32_precision = value


def resolve_precision(name: str, device: torch.device) -> Precision:
    """The precision that TRAIN.PRECISION asks for. auto is bf16 on GPUs that compute with it, else fp32.

    On a CPU auto is fp32: released versions of torch compute wrong bf16 gradients of convolutions there (see
    ``mgexp/train/precision_check.py``). Raises InputError where ``device`` cannot compute so.
    """
    if name == "auto":
        return Precision("bf16" if _has_bf16(device) else "fp32")
    precision = Precision(name)  # type: ignore[arg-type]  # Precision checks it
    problem = ""
    if device.type == "cuda":
        gpu = torch.cuda.get_device_name(device)
        if name == "tf32" and torch.cuda.get_device_capability(device) < _AMPERE:
            problem = f"{gpu} is older than Ampere and has none: set TRAIN.PRECISION auto or fp32"
        if name == "bf16" and not _has_bf16(device):
            problem = f"{gpu} does not compute with it: set TRAIN.PRECISION auto, fp32 or fp16"
    elif name == "tf32":  # a CPU emulates bf16 and fp16 where it must
        problem = f"the device is a {device.type}, and only GPUs have TF32: set TRAIN.PRECISION auto or fp32"
    if problem:
        raise InputError([f"TRAIN.PRECISION = {name}, but {problem}"])
    return precision


def _has_bf16(device: torch.device) -> bool:
    """Whether ``device`` is a GPU that computes with bf16. A GPU that emulates it gains nothing."""
    if device.type != "cuda":
        return False
    with torch.cuda.device(device):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def _backends() -> tuple[Any, ...]:
    """The settings that decide about fp32 products on a GPU.

    Source: PyTorch documentation, CUDA semantics, TensorFloat-32. Since torch 2.9 each has ``fp32_precision``.
    Nothing may use the older ``allow_tf32``: it warns, and reading it after a change here is an error.
    """
    b: Any = torch.backends  # whose stubs lack these
    return b.cuda.matmul, b.cudnn.conv, b.cudnn.rnn
