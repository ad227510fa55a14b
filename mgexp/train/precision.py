"""The precision of training: fp32, tf32, bf16 or fp16.

In all four, the weights, their gradients, the optimizer, the statistics of batch normalisation and
the input of the model are fp32. The precision changes only convolutions and matrix products,
forward and backward.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch

from mgexp.errors import InputError

Name = Literal["fp32", "tf32", "bf16", "fp16"]

_LOW = {"bf16": torch.bfloat16, "fp16": torch.float16}
_AMPERE = (8, 0)
"""First compute capability with TF32 (NVIDIA, CUDA C++ Programming Guide, table of compute capabilities)."""


@dataclass(frozen=True)
class Precision:
    """The number format of products.

    tf32 needs a GPU of the Ampere generation or a later one. It rounds the factors of a product to
    a mantissa of 10 bits.
    """

    name: Name = "fp32"

    @property
    def dtype(self) -> torch.dtype:
        """The type of the factors of a product."""
        return _LOW.get(self.name, torch.float32)

    def autocast(self, device: torch.device) -> torch.autocast:
        """Make the context for the forward pass and the loss. Do not use it for the backward pass."""
        dtype = _LOW.get(self.name)
        # We give a type even if autocast is off. Otherwise torch would look up the default type of
        # the device, and some devices have none.
        return torch.autocast(device.type, dtype or torch.bfloat16, enabled=dtype is not None)

    def scaler(self, device: torch.device) -> torch.amp.GradScaler:
        """Make the scaler of the loss. It is on only in fp16, where small gradients would become 0.

        Call ``scale(loss).backward()``, ``step(optimizer)`` and ``update()`` in every precision. In
        fp16 ``step`` skips an update whose gradients overflow. Save ``state_dict`` in the
        checkpoint; it is empty if the scaler is off.
        """
        # bf16 needs no scaler: it has as many bits of exponent as fp32.
        return torch.amp.GradScaler(device.type, enabled=self.name == "fp16")

    def set_backends(self) -> None:
        """Let this process compute fp32 products in tf32 if this precision is tf32, else in full precision."""
        # We also set "ieee", because torch's default lets cuDNN compute fp32 convolutions in tf32.
        for node in _backends():
            node.fp32_precision = "tf32" if self.name == "tf32" else "ieee"

    @contextmanager
    def backends(self) -> Iterator[None]:
        """Call ``set_backends`` for the block, and restore the settings afterwards."""
        before = [node.fp32_precision for node in _backends()]
        self.set_backends()
        try:
            yield
        finally:
            for node, value in zip(_backends(), before, strict=True):
                node.fp32_precision = value


def resolve_precision(name: str, device: torch.device) -> Precision:
    """Return the precision for TRAIN.PRECISION. auto is bf16 on GPUs that compute with it, else fp32.

    Raises InputError if ``device`` cannot compute in the precision.
    """
    # On a CPU torch computes wrong bf16 gradients of convolutions (measured: see precision_check.py).
    if name == "auto":
        return Precision("bf16" if _has_bf16(device) else "fp32")
    precision = Precision(name)  # type: ignore[arg-type]  # the key allows no other
    problem = ""
    if device.type == "cuda":
        gpu = torch.cuda.get_device_name(device)
        if name == "tf32" and torch.cuda.get_device_capability(device) < _AMPERE:
            problem = f"{gpu} is older than Ampere and has none: set TRAIN.PRECISION auto or fp32"
        if name == "bf16" and not _has_bf16(device):
            problem = f"{gpu} does not compute with it: set TRAIN.PRECISION auto, fp32 or fp16"
    # A CPU can emulate bf16 and fp16, but not tf32.
    elif name == "tf32":
        problem = f"the device is a {device.type}, and only GPUs have TF32: set TRAIN.PRECISION auto or fp32"
    if problem:
        raise InputError([f"TRAIN.PRECISION = {name}, but {problem}"])
    return precision


def _has_bf16(device: torch.device) -> bool:
    """Return whether ``device`` is a GPU with bf16 units. A GPU that emulates bf16 gains nothing from it."""
    if device.type != "cuda":
        return False
    with torch.cuda.device(device):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def _backends() -> tuple[Any, ...]:
    """Return the settings that decide how a GPU multiplies fp32 numbers.

    Source: PyTorch documentation, CUDA semantics, TensorFloat-32. Each has ``fp32_precision`` since torch 2.9.
    """
    # No code may use the older ``allow_tf32``: it warns, and torch refuses to read it after these
    # settings were changed.
    b: Any = torch.backends  # torch's type stubs lack these settings
    return b.cuda.matmul, b.cudnn.conv, b.cudnn.rnn
