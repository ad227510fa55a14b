"""Read weights from caffe2 pickles without running the code that they name.

PySlowFast's model zoo still has such files.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mgexp.errors import InputError
from mgexp.models.names import is_training_state_of_caffe2, pyslowfast_name_of_caffe2
from mgexp.models.weights import WeightsFile

WHY_NOT_PICKLES = (
    "A pickle is a program. pickle.load runs whatever its author put into it, or anybody who changed it on the\n"
    "way. This tool runs nothing that the file names. It takes the bytes of arrays of floats out of the file and\n"
    "writes tensors. Training reads only those."
)
_LITTLE_ENDIAN_FLOATS = ("f2", "f4", "f8")


class ForeignNameError(pickle.UnpicklingError):
    """Error for a pickle that names something other than an array of floats."""


class _Dtype:
    """Stand-in for numpy.dtype.

    numpy's own class obeys flags in the file, which could make it read any memory.
    """

    def __init__(self, name: str, *_: object) -> None:
        if name not in _LITTLE_ENDIAN_FLOATS:
            raise ForeignNameError(f"it holds an array of {name!r}, not of floats")
        self.name = name

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] not in ("<", "|", "="):
            raise ForeignNameError(f"it holds an array of byte order {state[1]!r}, not '<'")


class _Array:
    """Stand-in for numpy.ndarray.

    It keeps what a pickle says about an array, and does nothing with it.
    """

    def __init__(self, *_: object) -> None:
        self.values: np.ndarray[Any, Any] | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, data = state
        if not isinstance(dtype, _Dtype):
            raise ForeignNameError("it holds an array without a type")
        raw = data.encode("latin1") if isinstance(data, str) else bytes(data)
        values = np.frombuffer(raw, dtype=f"<{dtype.name}")
        self.values = values.reshape(shape, order="F" if fortran else "C")


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """Do the work of codecs.encode, with which pickles of protocol 2 make bytes."""
    if encoding != "latin1":
        raise ForeignNameError(f"it asks for the encoding {encoding!r}")
    return text.encode("latin1")


_KNOWN = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
    ("collections", "OrderedDict"): dict,
}
"""Names with which a pickle makes an array of floats, and what we call instead."""


class ArraysUnpickler(pickle.Unpickler):
    """Read arrays of floats, numbers, text and containers. Raises ForeignNameError for anything else."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - pickle's own signature
        """Return our stand-in for a name in a pickle."""
        # A pickle gets every function and class that it calls from here, so it can call nothing
        # else.
        if (module, name) not in _KNOWN:
            raise ForeignNameError(f"it names {module}.{name}, which is no array of floats")
        return _KNOWN[module, name]


def read_caffe2(path: Path) -> WeightsFile:
    """Read the weights of a caffe2 file under PySlowFast's names, without momenta and counters of its training.

    A blob that follows no rule keeps its name. It will fit no model, and the message will name it.
    Raises InputError for a file that is missing, damaged or refused, or that holds anything but named arrays.
    """
    tensors: dict[str, Tensor] = {}
    for blob, array in _read_blobs(path).items():
        if is_training_state_of_caffe2(str(blob)):
            continue
        name = pyslowfast_name_of_caffe2(str(blob)) or str(blob)
        if name in tensors:
            raise InputError(
                [f"{path}: {blob} is a second tensor for {name}; give an unchanged file"]
            )
        if not isinstance(array, _Array) or array.values is None:
            found = type(array).__name__
            raise InputError([f"{path}: {blob} is a {found}, not an array of floats"])
        tensors[name] = torch.from_numpy(array.values.astype(np.float32))
    if not any(name.startswith("s1.") for name in tensors):
        some = ", ".join([*tensors][:3])
        raise InputError([f"{path}: no blob has a name of PySlowFast's caffe2 models ({some})"])
    return WeightsFile(path, "PySlowFast", tensors)


def _read_blobs(path: Path) -> dict[Any, Any]:
    if not path.is_file():
        raise InputError([f"{path}: there is no such file of weights"])
    try:
        with path.open("rb") as file:
            # Python 2 wrote the arrays' bytes as text. latin1 maps each character to one byte.
            content = ArraysUnpickler(file, encoding="latin1").load()
    except ForeignNameError as error:
        raise InputError([f"{path}: refused, {error}"]) from error
    # A damaged pickle may raise almost any exception.
    except Exception as error:
        raise InputError(
            [f"{path}: is damaged or no pickle ({type(error).__name__}: {error})"]
        ) from error
    blobs = content.get("blobs", content) if isinstance(content, dict) else content
    if not isinstance(blobs, dict):
        raise InputError([f"{path}: holds a {type(blobs).__name__}, not a dict of arrays"])
    return blobs
