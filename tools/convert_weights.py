#!/usr/bin/env python3
"""Turn weights of other code bases into a file that TRAIN.INIT_WEIGHTS and pytorchvideo read.

  python tools/convert_weights.py SLOWFAST_8x8_R50.pyth slowfast_8x8_r50.safetensors \\
      --cfg experiments/main/k400_slowfast_8x8_r50/baseline.yaml

INPUT is a file of pytorchvideo's hub or PySlowFast (.pyth), of torchvision's ImageNet ResNets (.pth, inflated
over time), of a ViT (timm, torchvision, VideoMAE, V-JEPA 2), or of mgexp (model.pt, a checkpoint).
OUTPUT is a .safetensors file or a torch file like those of pytorchvideo's hub, with the names of our networks:
pytorchvideo's, for MViT torchvision's, and for ViT our own.
The model of --cfg says which tensors are needed. A missing or unknown tensor or another shape is an error.
A classifier with another number of classes is left out. The tool lists every tensor that it did not use, and with
--json all tensors. It cannot check parts of a network that have no weights: the pool of C2D, the shifts of TSM,
SlowFast's alpha, and the heads of a ViT.
Exit codes: 0 done; 2 a file or a configuration cannot be used (nothing is written).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import simplejson

from mgexp.config.load import load_config
from mgexp.errors import InputError, raise_problems
from mgexp.models.build import build_to_look_at, own_names
from mgexp.models.weights import fit_weights, read_weights, write_weights
from mgexp.options import ToolParser, add_import_option, not_new, run_tool, say

ENDINGS = (".safetensors", ".pyth", ".pt")


def parse(arguments: list[str]) -> argparse.Namespace:
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
