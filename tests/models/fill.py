"""Weights and clips that any program can make again, so that logits can be compared across code bases."""

import json
import zlib
from pathlib import Path

import numpy as np
import torch

FOLDER = Path(__file__).parents[1] / "golden"
GOLDEN = json.loads((FOLDER / "pyslowfast_weights.json").read_text())["models"]
TRANSFORMERS = json.loads((FOLDER / "transformer_weights.json").read_text())


def fill(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """The tensor called ``name``: a sine whose phase is drawn from the name, scaled by its role."""
    if name.endswith("num_batches_tracked"):
        return torch.zeros((), dtype=torch.long)
    count = int(np.prod(shape))
    sine = np.sin(0.7 * np.arange(count, dtype=np.float64) + zlib.crc32(name.encode()) % 1000 / 159)
    if len(shape) >= 2:
        sine = sine * np.sqrt(2 * shape[0] / count)
    elif name.endswith("running_var"):
        sine = 1 + 0.3 * sine * sine
    else:
        sine = 1 + 0.1 * sine if name.endswith("weight") else 0.1 * sine
    return torch.from_numpy(sine.astype(np.float32)).reshape(shape)


def filled(golden_name: str) -> dict[str, torch.Tensor]:
    """A whole state_dict with the names of the released code."""
    names = {**GOLDEN, **TRANSFORMERS}[golden_name]["names"]
    return {name: fill(name, tuple(shape)) for name, shape in names}


def sine_clip(frames: int, crop: int) -> torch.Tensor:
    """x[i] = sin(0.01 i), i the C-order index of (1, 3, frames, crop, crop)."""
    count = 3 * frames * crop * crop
    values = np.sin(0.01 * np.arange(count, dtype=np.float64)).astype(np.float32)
    return torch.from_numpy(values).reshape(1, 3, frames, crop, crop)
