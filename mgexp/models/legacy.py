"""Weights in caffe2 pickles, as the model zoo of PySlowFast still has them: read with a restricted unpickler."""

from __future__ import annotations

import codecs
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mgexp.errors import InputError
from mgexp.models.names import pyslowfast_name_of_caffe2
from mgexp.models.weight_files import WeightsFile

WHY_NOT_PICKLES = (
    "A pickle is a program: reading one with pickle.load runs whatever its author, or whoever changed it on\n"
    "the way, put into it. This tool reads it with an unpickler that knows arrays of numbers and nothing else,\n"
    "and writes tensors; training reads only those."
)

_RECONSTRUCT = np.empty(0).__reduce__()[0]  # a function wherever numpy keeps it
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): codecs.encode,
    ("collections", "OrderedDict"): OrderedDict,
}
"""All that an array of numbers in a pickle needs to call."""


class ArraysUnpickler(pickle.Unpickler):
    """Knows arrays, numbers, text and containers; raises UnpicklingError for a pickle that names anything else."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - pickle's own signature
        """What a pickle names, if it is allowed."""
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is no array of numbers")
        return _ALLOWED[module, name]


def read_caffe2(path: Path) -> WeightsFile:
    """The weights of a caffe2 file under PySlowFast's names; momenta and counters of its training are left out.

    Raises InputError for a file that is missing, damaged, refused, or holds anything but named arrays.
    """
    blobs = _read_blobs(path)
    tensors = {}
    for blob, array in blobs.items():
        name = pyslowfast_name_of_caffe2(str(blob))
        if name is not None:
            tensors[name] = _tensor(path, str(blob), array)
    if not tensors:
        some = ", ".join(map(str, list(blobs)[:3]))
        raise InputError([f"{path}: no blob has a name of PySlowFast's caffe2 models ({some})"])
    return WeightsFile(path, "PySlowFast", tensors)


def _read_blobs(path: Path) -> dict[Any, Any]:
    if not path.is_file():
        raise InputError([f"{path}: there is no such file of weights"])
    try:
        with path.open("rb") as file:
            # latin1: Python 2 wrote the arrays' bytes as text
            content = ArraysUnpickler(file, encoding="latin1").load()
    except pickle.UnpicklingError as error:
        raise InputError([f"{path}: refused: {error}"]) from error
    except Exception as error:
        raise InputError(
            [f"{path}: is damaged or no pickle ({type(error).__name__}: {error})"]
        ) from error
    blobs = content.get("blobs", content) if isinstance(content, dict) else content
    if not isinstance(blobs, dict):
        raise InputError([f"{path}: holds a {type(blobs).__name__}, not a dict of arrays"])
    return blobs


def _tensor(path: Path, blob: str, array: object) -> Tensor:
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        raise InputError([f"{path}: {blob} is a {type(array).__name__}, not an array of floats"])
    return torch.from_numpy(array.astype(np.float32))
