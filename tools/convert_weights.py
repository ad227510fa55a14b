#!/usr/bin/env python3
"""Turn weights of other code bases into a file that TRAIN.INIT_WEIGHTS and pytorchvideo read.

  python tools/convert_weights.py SLOWFAST_8x8_R50.pkl slowfast_8x8_r50.safetensors \\
      --cfg experiments/main/k400_slowfast_8x8_r50/baseline.yaml

INPUT is a file of pytorchvideo's hub (.pyth), of PySlowFast (.pyth, or .pkl of its caffe2 model zoo), of
torchvision's ImageNet ResNets (.pth, inflated over time), of a ViT (timm, torchvision, VideoMAE, V-JEPA 2), or
of mgexp (model.pt, a checkpoint). OUTPUT is a .safetensors file or a torch file like those of pytorchvideo's hub,
with the names of our networks: pytorchvideo's, for MViT torchvision's, and for ViT our own.
The model of --cfg says which tensors are needed. A missing or unknown tensor or another shape is an error.
A classifier with another number of classes is left out. The tool lists every tensor that it did not use, and with
--json all tensors. It cannot check parts of a network that have no weights: the pool of C2D, the shifts of TSM,
SlowFast's alpha, and the heads of a ViT.
A .pkl file is a pickle, which can run code. The tool takes arrays of floats out of it and runs nothing.
Exit codes: 0 done; 2 a file or a configuration cannot be used (nothing is written).
"""

from __future__ import annotations

import argparse
import pickle
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import simplejson

# mgexp comes before torch, because it sets how torch's threads wait.
import mgexp  # noqa: F401

# isort: split
import torch
from torch import Tensor

from mgexp.config.load import load_config
from mgexp.errors import InputError, raise_problems
from mgexp.models.build import build_to_look_at, own_names
from mgexp.models.weights import WeightsFile, fit_weights, read_weights, write_weights
from mgexp.options import ToolParser, add_import_option, not_new, run_tool, say

ENDINGS = (".safetensors", ".pyth", ".pt")

# This maps names of caffe2 blobs, without their endings, to PySlowFast's layers. {p} is the
# pathway: names of the fast pathway have t_. Source: the rules of PySlowFast's c2_model_loading.py.
CAFFE2_LAYERS = (
    (r"t_pool1_subsample(?P<bn>_bn)?", "s1_fuse.{fuse}"),
    (r"t_res(?P<s>\d)_\d+_branch2c_bn_subsample(?P<bn>_bn)?", "s{s}_fuse.{fuse}"),
    (r"(?P<t>t_)?conv1", "s1.pathway{p}_stem.conv"),
    (r"(?P<t>t_)?res_conv1_bn", "s1.pathway{p}_stem.bn"),
    (
        r"(?P<t>t_)?res(?P<s>\d)_(?P<n>\d+)_branch1(?P<bn>_bn)?",
        "s{s}.pathway{p}_res{n}.branch1{bn}",
    ),
    (
        r"(?P<t>t_)?res(?P<s>\d)_(?P<n>\d+)_branch2(?P<c>[abc])(?P<bn>_bn)?",
        "s{s}.pathway{p}_res{n}.branch2.{c}{bn}",
    ),
    (r"nonlocal_conv(?P<s>\d)_(?P<n>\d+)_bn", "s{s}.pathway0_nonlocal{n}.bn"),
    (
        r"nonlocal_conv(?P<s>\d)_(?P<n>\d+)_(?P<c>theta|phi|g|out)",
        "s{s}.pathway0_nonlocal{n}.conv_{c}",
    ),
    (r"pred", "head.projection"),
)
CAFFE2_ENDS = {"w": "weight", "b": "bias"}
CAFFE2_NORM_ENDS = {
    "s": "weight",
    "b": "bias",
    "rm": "running_mean",
    # The i suggests an inverse, but the values are variances.
    "riv": "running_var",
}
CAFFE2_TRAINING_STATE = re.compile(r".*_momentum|lr|model_iter|optimizer_iteration_\w+")


class Dtype:
    """Stand-in for numpy.dtype, which obeys flags in the file that could make it read any memory."""

    def __init__(self, name: str, *_: object) -> None:
        if name not in {"f2", "f4", "f8"}:
            raise pickle.UnpicklingError(f"it holds an array of {name!r}, not of floats")
        self.name = name

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] not in {"<", "|", "="}:
            raise pickle.UnpicklingError(f"it holds an array of byte order {state[1]!r}, not '<'")


class Array:
    """Stand-in for numpy.ndarray. It keeps what a pickle says about an array, and does nothing with it."""

    def __init__(self, *_: object) -> None:
        self.tensor: Tensor | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, data = state
        raw = data.encode("latin1") if isinstance(data, str) else bytes(data)
        values = np.frombuffer(raw, dtype=f"<{dtype.name}")
        values = values.reshape(shape, order="F" if fortran else "C")
        self.tensor = torch.from_numpy(values.astype(np.float32))


def encode(text: str, encoding: str = "latin1") -> bytes:
    """Do the work of codecs.encode, with which pickles of protocol 2 make bytes."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it asks for the encoding {encoding!r}")
    return text.encode("latin1")


KNOWN = {
    ("numpy.core.multiarray", "_reconstruct"): Array,
    ("numpy._core.multiarray", "_reconstruct"): Array,
    ("numpy", "ndarray"): Array,
    ("numpy", "dtype"): Dtype,
    ("_codecs", "encode"): encode,
    ("collections", "OrderedDict"): dict,
}
"""Names with which a pickle makes an array of floats, and what we call instead."""


class ArraysUnpickler(pickle.Unpickler):
    """Read arrays of floats, numbers, text and containers. Raises pickle.UnpicklingError for anything else."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - pickle's own signature
        """Return our stand-in for a name in a pickle, which can call nothing else."""
        if (module, name) not in KNOWN:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is no array of floats")
        return KNOWN[module, name]


def pyslowfast_name(blob: str) -> str:
    """Return PySlowFast's name of a blob of a caffe2 file; the blob's own name if no rule fits."""
    layer, _, end = blob.rpartition("_")
    ends = CAFFE2_NORM_ENDS if layer.endswith("_bn") else CAFFE2_ENDS
    for pattern, name in CAFFE2_LAYERS:
        match = re.fullmatch(pattern, layer)
        if match and end in ends:
            # A name has only some of the groups of its pattern. The others become "".
            groups = {key: value or "" for key, value in match.groupdict().items()}
            groups["p"] = "1" if groups.get("t") else "0"
            groups["fuse"] = "bn" if groups.get("bn") else "conv_f2s"
            return f"{name.format(**groups)}.{ends[end]}"
    return blob


def read_caffe2(path: Path) -> WeightsFile:
    """Read the weights of a caffe2 pickle under PySlowFast's names, without momenta and counters of its training.

    A blob that follows no rule keeps its name. It will fit no model, and the message will name it.
    Raises InputError for a file that cannot be read, or that holds anything but named arrays of floats.
    """
    try:
        with path.open("rb") as file:
            # Python 2 wrote the arrays' bytes as text. latin1 maps each character to one byte.
            content = ArraysUnpickler(file, encoding="latin1").load()
        blobs = content.get("blobs", content)
        tensors: dict[str, Tensor] = {}
        for blob, array in blobs.items():
            if CAFFE2_TRAINING_STATE.fullmatch(blob):
                continue
            name = pyslowfast_name(blob)
            if name in tensors:
                raise ValueError(f"{blob} is a second tensor for {name}")
            if not isinstance(array, Array) or array.tensor is None:
                raise ValueError(f"{blob} is no array")
            tensors[name] = array.tensor
    # A damaged pickle may raise almost any exception.
    except Exception as error:
        problem = f"is no file of caffe2 weights ({type(error).__name__}: {error})"
        raise InputError([f"{path} {problem}"]) from error
    return WeightsFile(path, "PySlowFast", tensors)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line. KEY VALUE pairs stay text, because the configuration knows their types."""
    parser = ToolParser(__doc__)
    add = parser.add_argument
    add("input", type=Path, metavar="INPUT", help="file of weights")
    add("output", type=Path, metavar="OUTPUT", help=".safetensors, .pyth or .pt")
    add("--cfg", required=True, type=Path, help="YAML with the model of the weights")
    add_import_option(parser)
    add("--json", action="store_true", help="list every tensor as JSON")
    add("overrides", nargs="*", metavar="KEY VALUE", help="configuration keys")
    return parser.parse_intermixed_args(arguments)


def main(arguments: list[str]) -> int:
    """Convert, and print what happened to the tensors. Return 2 if the input cannot be used."""
    options = parse(arguments)
    try:
        problems = not_new({"OUTPUT": options.output})
        if options.output.suffix not in ENDINGS:
            problems.append(f"{options.output}: end the name with {', '.join(ENDINGS)}")
        raise_problems(problems)
        # Only the names and shapes of tensors are needed.
        cfg = load_config(options.cfg, options.overrides)
        model = build_to_look_at(cfg)
        if options.input.suffix == ".pkl":
            weights = read_caffe2(options.input)
        else:
            weights = read_weights(options.input, own_names(cfg.MODEL.MODEL_NAME, model))
        fit = fit_weights(weights, model)
        write_weights(options.output, fit.used)
    except (InputError, ValueError, OSError) as error:
        say(f"nothing was written; {error}")
        return 2
    print(simplejson.dumps(fit.record(), indent=2) if options.json else fit.summary())
    if not options.json:
        print(f"{options.output}: {len(fit.used)} tensors written")
    return 0


if __name__ == "__main__":
    sys.exit(run_tool(main))
