"""Caffe2's names of PySlowFast's tensors, by the rules that it published, to make files of the legacy format."""

import re

ENDS = {"running_mean": "rm", "running_var": "riv", "bias": "b"}
LAST_BLOCKS = {"2": 2, "3": 3, "4": 5}  # of depth 50, whose output is subsampled


def caffe2_name(name: str) -> str | None:
    """The blob of a tensor of PySlowFast; None for counters, that caffe2 has not."""
    if name.endswith("num_batches_tracked"):
        return None
    layer, _, end = name.rpartition(".")
    short = ENDS.get(end) or ("s" if layer.endswith("bn") else "w")
    return f"{_layer(layer)}_{short}"


def _layer(layer: str) -> str:
    t = "t_" if "pathway1" in layer else ""
    if match := re.fullmatch(r"s1\.pathway\d_stem\.(conv|bn)", layer):
        return t + ("conv1" if match[1] == "conv" else "res_conv1_bn")
    if match := re.fullmatch(r"s(\d)_fuse\.(conv_f2s|bn)", layer):
        stage = match[1]
        place = "pool1" if stage == "1" else f"res{stage}_{LAST_BLOCKS[stage]}_branch2c_bn"
        return f"t_{place}_subsample" + ("_bn" if match[2] == "bn" else "")
    if match := re.fullmatch(r"s(\d)\.pathway\d_res(\d+)\.branch2\.(\w+)", layer):
        return f"{t}res{match[1]}_{match[2]}_branch2{match[3]}"
    if match := re.fullmatch(r"s(\d)\.pathway\d_res(\d+)\.(branch1\w*)", layer):
        return f"{t}res{match[1]}_{match[2]}_{match[3]}"
    if match := re.fullmatch(r"s(\d)\.pathway0_nonlocal(\d)\.(?:conv_)?(\w+)", layer):
        return f"nonlocal_conv{match[1]}_{match[2]}_{match[3]}"
    assert layer == "head.projection", layer
    return "pred"
