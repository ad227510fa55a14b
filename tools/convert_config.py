#!/usr/bin/env python3
"""Turn a PySlowFast configuration into an mgexp configuration with the same meaning.

  python tools/convert_config.py configs/Kinetics/SLOWFAST_8x8_R50_stepwise_multigrid.yaml --output row.yaml
  python tools/convert_config.py configs/Kinetics/I3D_8x8_R50.yaml NUM_SHARDS 4     # pairs as PySlowFast has them

The new YAML contains what differs from our defaults. The tool also lists each key that is not kept, with the
reason. Without --output the YAML is printed, and the list goes to stderr. A key that the file leaves out has
PySlowFast's default, which often differs from ours. These have a counterpart: SlowFast, X3D, MViTv2, I3D, C2D
and Slow (the last three also with non-local blocks); the lists of Kinetics, Something-Something V2 and Charades;
SGD and AdamW. Any other value is a problem.
Multigrid phases end at epochs, as in the released code. Remove MULTIGRID.GRANULARITY to let them end at steps.
Before the result is written, it is read back, and its schedule is derived for the same number of GPUs.
TRAIN.PRECISION stays auto (bf16 on GPUs that support it), although PySlowFast computes in fp32.
Exit codes: 0 done; 2 a file or a value cannot be converted (one message with all problems; nothing is written).
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from mgexp.config.check import cross_problems
from mgexp.config.keys import BY_NAME, SQRT_HALF
from mgexp.config.load import file_values, read_config, read_pairs
from mgexp.config.values import as_lists, convert, from_text
from mgexp.errors import InputError, collected, raise_problems
from mgexp.options import ToolParser, not_new, run_tool, say
from mgexp.run.files import atomic_write_text
from mgexp.train.setup import build_row_schedule

# ruff: noqa: ANN401 (values have the types of their keys; a set of keys has many conditions)

ANY_NUM_VIDEOS = 100_000
"""The number of videos of the schedule that is checked. Phases that end at epochs do not depend on it."""

# The tables of PySlowFast's keys. Source: slowfast/config/defaults.py of PySlowFast, main in 2021 (00eb2b4) and
# after the keys of 2022 were added.
# fmt: off
KEPT: dict[str, Any] = {
    "RNG_SEED": 1, "LOG_PERIOD": 10, "TRAIN.ENABLE": True,
    "DATA.NUM_FRAMES": 8, "DATA.SAMPLING_RATE": 8, "DATA.TRAIN_JITTER_SCALES": (256, 320),
    "DATA.TRAIN_JITTER_SCALES_RELATIVE": (), "DATA.TRAIN_JITTER_ASPECT_RELATIVE": (),
    "DATA.INV_UNIFORM_SAMPLE": False, "DATA.TRAIN_CROP_SIZE": 224, "DATA.RANDOM_FLIP": True,
    "DATA.ENSEMBLE_METHOD": "sum", "DATA.PATH_PREFIX": "", "DATA.PATH_LABEL_SEPARATOR": " ",
    "DATA_LOADER.NUM_WORKERS": 8, "TEST.NUM_SPATIAL_CROPS": 3, "AUG.RE_PROB": 0.25,
    "MODEL.NUM_CLASSES": 400, "MODEL.DROPOUT_RATE": 0.5, "MODEL.FC_INIT_STD": 0.01, "RESNET.DEPTH": 50,
    "RESNET.WIDTH_PER_GROUP": 64, "NONLOCAL.INSTANTIATION": "dot_product",
    "SLOWFAST.ALPHA": 8, "SLOWFAST.BETA_INV": 8, "SLOWFAST.FUSION_CONV_CHANNEL_RATIO": 2,
    "SLOWFAST.FUSION_KERNEL_SZ": 5, "X3D.WIDTH_FACTOR": 1.0, "X3D.DEPTH_FACTOR": 1.0,
    "MVIT.EMBED_DIM": 96, "MVIT.DEPTH": 16, "MVIT.NUM_HEADS": 1, "MVIT.DROPPATH_RATE": 0.1,
    "BN.USE_PRECISE_STATS": False, "BN.NUM_BATCHES_PRECISE": 200, "BN.WEIGHT_DECAY": 0.0,
    "MULTIGRID.LONG_CYCLE": False, "MULTIGRID.SHORT_CYCLE": False, "MULTIGRID.EPOCH_FACTOR": 1.5,
    "MULTIGRID.LONG_CYCLE_FACTORS": ((0.25, SQRT_HALF), (0.5, SQRT_HALF), (0.5, 1.0), (1.0, 1.0)),
    "MULTIGRID.SHORT_CYCLE_FACTORS": (0.5, SQRT_HALF), "MULTIGRID.BN_BASE_SIZE": 8,
    "SOLVER.OPTIMIZING_METHOD": "sgd", "SOLVER.LR_POLICY": "cosine", "SOLVER.COSINE_AFTER_WARMUP": False,
    "SOLVER.GAMMA": 0.1, "SOLVER.MOMENTUM": 0.9, "SOLVER.NESTEROV": True, "SOLVER.BETAS": (0.9, 0.999),
    "SOLVER.WEIGHT_DECAY": 1e-4, "SOLVER.ZERO_WD_1D_PARAM": False, "SOLVER.CLIP_GRAD_L2NORM": 0.0,
    "SOLVER.LAYER_DECAY": 1.0,
}
"""Keys that have the same name and meaning here, with PySlowFast's defaults."""

RULED: dict[str, Any] = {
    "NUM_GPUS": 1, "NUM_SHARDS": 1,
    "TRAIN.DATASET": "kinetics", "TRAIN.BATCH_SIZE": 64, "TRAIN.CHECKPOINT_FILE_PATH": "",
    "TRAIN.MIXED_PRECISION": False, "TEST.ENABLE": True, "TEST.DATASET": "kinetics", "TEST.BATCH_SIZE": 8,
    "TEST.CHECKPOINT_FILE_PATH": "", "TEST.NUM_ENSEMBLE_VIEWS": 10,
    "DATA.PATH_TO_DATA_DIR": "", "DATA.TARGET_FPS": 30.0, "DATA.MEAN": (0.45, 0.45, 0.45),
    "DATA.STD": (0.225, 0.225, 0.225), "DATA.INPUT_CHANNEL_NUM": (3, 3), "DATA.REVERSE_INPUT_CHANNEL": False,
    "DATA.TEST_CROP_SIZE": 256, "DATA.MULTI_LABEL": False,
    "AUG.ENABLE": False, "AUG.NUM_SAMPLE": 1, "AUG.AA_TYPE": "rand-m9-mstd0.5-inc1", "AUG.RE_MODE": "pixel",
    "MODEL.ARCH": "slowfast", "MODEL.MODEL_NAME": "SlowFast", "MODEL.LOSS_FUNC": "cross_entropy",
    "MODEL.HEAD_ACT": "softmax", "MODEL.ACT_CHECKPOINT": False,
    "RESNET.ZERO_INIT_FINAL_BN": False, "RESNET.TRANS_FUNC": "bottleneck_transform",
    "RESNET.NUM_BLOCK_TEMP_KERNEL": [[3], [4], [6], [3]], "RESNET.SPATIAL_STRIDES": [[1], [2], [2], [2]],
    "RESNET.SPATIAL_DILATIONS": [[1], [1], [1], [1]], "NONLOCAL.LOCATION": [[[]], [[]], [[]], [[]]],
    "NONLOCAL.GROUP": [[1], [1], [1], [1]], "NONLOCAL.POOL": [[[1, 2, 2], [1, 2, 2]]] * 4,
    "MVIT.DIM_MUL": [], "MVIT.HEAD_MUL": [], "MVIT.POOL_Q_STRIDE": [], "MVIT.POOL_KV_STRIDE_ADAPTIVE": [],
    "MVIT.ZERO_DECAY_POS_CLS": True,
    "BN.NORM_TYPE": "batchnorm", "BN.NUM_SPLITS": 1, "BN.NUM_SYNC_DEVICES": 1, "BN.GLOBAL_SYNC": False,
    "SOLVER.BASE_LR": 0.1, "SOLVER.BASE_LR_SCALE_NUM_SHARDS": False,
    "SOLVER.WARMUP_START_LR": 0.01, "SOLVER.COSINE_END_LR": 0.0, "SOLVER.STEPS": (), "SOLVER.LRS": (),
    "SOLVER.MAX_EPOCH": 300.0, "SOLVER.WARMUP_EPOCHS": 0.0,
    "MIXUP.ENABLE": False, "MIXUP.ALPHA": 0.8, "MIXUP.CUTMIX_ALPHA": 1.0, "MIXUP.SWITCH_PROB": 0.5,
    "MIXUP.LABEL_SMOOTH_VALUE": 0.1,
}
"""Keys that a rule below converts, with PySlowFast's defaults."""

DEFAULTS = KEPT | RULED

Row, Pair, Cut = tuple[int, ...], tuple[float, float], tuple[int, int, int, int]
TABLES: dict[str, Any] = dict.fromkeys((
    "RESNET.NUM_BLOCK_TEMP_KERNEL", "RESNET.SPATIAL_STRIDES", "RESNET.SPATIAL_DILATIONS", "NONLOCAL.GROUP",
), tuple[Row, Row, Row, Row]) | {
    "NONLOCAL.LOCATION": tuple[(tuple[Row, ...],) * 4],
    "NONLOCAL.POOL": tuple[(tuple[tuple[int, int, int], ...],) * 4],
    "MVIT.DIM_MUL": tuple[Pair, ...], "MVIT.HEAD_MUL": tuple[Pair, ...],
    "MVIT.POOL_Q_STRIDE": tuple[Cut, ...], "MVIT.POOL_KV_STRIDE_ADAPTIVE": Row,
}
"""The shapes of tables: of four stages, each with a value for each pathway, or of blocks with their values."""

FIXED: dict[str, Any] = {
    "RESNET.NUM_GROUPS": 1, "BN.MOMENTUM": 0.1, "BN.EPSILON": 1e-5, "AUG.RE_COUNT": 1, "MIXUP.PROB": 1,
    "DATA.TRAIN_CROP_NUM_TEMPORAL": 1, "DATA.TRAIN_CROP_NUM_SPATIAL": 1,
    "X3D.BOTTLENECK_FACTOR": 2.25, "X3D.DIM_C1": 12, "X3D.DIM_C5": 2048, "X3D.CHANNELWISE_3x3x3": True,
    # The released networks of MViTv2.
    "MVIT.PATCH_KERNEL": (3, 7, 7), "MVIT.PATCH_STRIDE": (2, 4, 4), "MVIT.PATCH_PADDING": (1, 3, 3),
    "MVIT.MODE": "conv", "MVIT.POOL_KVQ_KERNEL": (3, 3, 3), "MVIT.CLS_EMBED_ON": True, "MVIT.MLP_RATIO": 4,
    "MVIT.QKV_BIAS": True, "MVIT.NORM": "layernorm", "MVIT.REL_POS_SPATIAL": True,
    "MVIT.REL_POS_TEMPORAL": True, "MVIT.RESIDUAL_POOLING": True, "MVIT.DIM_MUL_IN_ATT": True,
} | dict.fromkeys((
    "TASK", "DETECTION.ENABLE", "MASK.ENABLE", "TRAIN.CHECKPOINT_CLEAR_NAME_PATTERN", "TRAIN.CHECKPOINT_IN_INIT",
    "TEST.NUM_TEMPORAL_CLIPS", "MODEL.DROPCONNECT_RATE", "MODEL.DETACH_FINAL_FC", "MODEL.FROZEN_BN",
    "RESNET.STRIDE_1X1", "RESNET.ZERO_INIT_FINAL_CONV", "DATA.TRAIN_JITTER_MOTION_SHIFT",
    "DATA.TRAIN_JITTER_FPS", "DATA.COLOR_RND_GRAYSCALE", "DATA.TIME_DIFF_PROB", "DATA.SSL_COLOR_JITTER",
    "DATA.SSL_MOCOV2_AUG", "DATA.SKIP_ROWS", "DATA.DUMMY_LOAD", "SOLVER.LARS_ON", "SOLVER.DAMPENING",
    "SOLVER.CLIP_GRAD_VAL", "X3D.SCALE_RES2", "X3D.BN_LIN5", "MVIT.REV.ENABLE", "MVIT.PATCH_2D",
    "MVIT.POOL_FIRST", "MVIT.USE_MEAN_POOLING", "MVIT.NORM_STEM", "MVIT.DROPOUT_RATE", "MVIT.USE_ABS_POS",
    "MVIT.REL_POS_ZERO_INIT",
), "off")
"""Keys that must have this value, which mgexp always has. Off: False, 0, None or empty."""

OTHER_DEFAULTS: dict[str, Any] = {
    "X3D.BOTTLENECK_FACTOR": 1.0, "MVIT.PATCH_PADDING": (2, 4, 4), "MVIT.POOL_KVQ_KERNEL": (),
    "MVIT.USE_ABS_POS": True, "MVIT.REL_POS_SPATIAL": False, "MVIT.REL_POS_TEMPORAL": False,
    "MVIT.RESIDUAL_POOLING": False, "MVIT.DIM_MUL_IN_ATT": False,
}
"""PySlowFast's defaults that are other values than those of FIXED."""

DROPPED: dict[str, str] = {
    "OUTPUT_DIR": "the run folder is --output of tools/run_net.py",
    "TRAIN.EVAL_PERIOD": "TRAIN.NUM_EVALUATIONS (10) are spaced evenly by cost",
    "TRAIN.CHECKPOINT_PERIOD": "checkpoints are written every TRAIN.CHECKPOINT_MINUTES (10)",
    "TRAIN.AUTO_RESUME": "the same command resumes its run; another --output begins a new one",
    "TRAIN.CHECKPOINT_INFLATE": "kernels of images are inflated wherever the file has such",
    "TRAIN.CHECKPOINT_EPOCH_RESET": "a run starts at step 0 with the weights alone",
    "MODEL.FP16_ALLREDUCE": "TRAIN.BF16_ALLREDUCE exchanges gradients in bf16, which do not overflow",
    "MULTIGRID.EVAL_FREQ": "TRAIN.NUM_EVALUATIONS (10) are spaced evenly by cost",
    "DATA.DECODING_BACKEND": "PyAV decodes",
    "DATA.USE_OFFSET_SAMPLING": "the views of a test are evenly spaced, from the start of a video to its end",
    "AUG.COLOR_JITTER": "PySlowFast reads it for images only; AUG.COLOR_JITTER here is for clips",
    "AUG.INTERPOLATION": "clips are resized bilinearly, antialiased",
    "TENSORBOARD.": "TENSORBOARD.ENABLE and WANDB.ENABLE of tools/run_net.py --list-keys",
    "BENCHMARK.": "tools/bench_loader.py measures loading",
    "DEMO.": "examples/demo.py",
} | dict.fromkeys((
    "SHARD_ID", "DIST_BACKEND", "LOG_MODEL_INFO", "TRAIN.KILL_LOSS_EXPLOSION_FACTOR", "TRAIN.CHECKPOINT_TYPE",
    "TEST.CHECKPOINT_TYPE", "TEST.SAVE_RESULTS_PATH", "MODEL.SINGLE_PATHWAY_ARCH", "MODEL.MULTI_PATHWAY_ARCH",
    "MVIT.SEP_POS_EMBED", "MVIT.SEPARATE_QKV", "RESNET.INPLACE_RELU", "MULTIGRID.LONG_CYCLE_SAMPLING_RATE",
    "MULTIGRID.DEFAULT_B", "MULTIGRID.DEFAULT_T", "MULTIGRID.DEFAULT_S", "DATA.DECODING_SHORT_SIZE",
    "DATA.PATH_TO_PRELOAD_IMDB", "DATA.TRAIN_PCA_EIGVAL", "DATA.TRAIN_PCA_EIGVEC", "DATA.IN22K_TRAINVAL",
    "DATA.IN22k_VAL_IN1K", "DATA.IN_VAL_CROP_RATIO", "DATA.LOADER_CHUNK_SIZE", "DATA.LOADER_CHUNK_OVERALL_SIZE",
    "DATA.SSL_COLOR_BRI_CON_SAT", "DATA.SSL_COLOR_HUE", "DATA.SSL_BLUR_SIGMA_MIN", "DATA.SSL_BLUR_SIGMA_MAX",
    "DATA_LOADER.PIN_MEMORY", "DATA_LOADER.ENABLE_MULTI_THREAD_DECODE", "AUG.RE_SPLIT", "AUG.GEN_MASK_LOADER",
    "AUG.MASK_TUBE", "AUG.MASK_FRAMES", "AUG.MASK_WINDOW_SIZE", "AUG.MASK_RATIO",
    "AUG.MAX_MASK_PATCHES_PER_BLOCK", "PREFETCH.NUM_LOADERS", "SOLVER.STEP_SIZE", "SOLVER.WARMUP_FACTOR",
    "DETECTION.", "AVA.", "MASK.", "VIS_MASK.", "CONTRASTIVE.",
), "it has no effect here")
"""Keys, and sections, that have no counterpart, with the reason or what mgexp does instead."""


NETWORKS = {
    # Source: PySlowFast 287ec00, video_model_builder.py. slowonly was the name of slow until 2020.
    "slowfast": ("SlowFast", {"SlowFast", "PTVSlowFast"}), "i3d": ("I3D", {"ResNet", "PTVResNet"}),
    "c2d": ("C2D", {"ResNet", "PTVResNet"}), "slow": ("Slow", {"ResNet", "PTVResNet"}),
    "slowonly": ("Slow", {"ResNet", "PTVResNet"}), "x3d": ("X3D", {"X3D", "PTVX3D"}), "mvit": ("MViT", {"MViT"}),
}
"""Our MODEL.MODEL_NAME, and PySlowFast's, for each of its MODEL.ARCH."""
# fmt: on
RELATIVE = ("DATA.TRAIN_JITTER_SCALES_RELATIVE", "DATA.TRAIN_JITTER_ASPECT_RELATIVE")
"""A crop of a random area needs both keys."""
FORMATS = {"kinetics": "list", "ssv2": "ssv2", "charades": "charades"}
"""DATA.FORMAT by TRAIN.DATASET. PySlowFast's lists of Kinetics have lines of path and label."""
SSV2_LIST = "something-something-v2-{}.json"
FILES = {
    "list": {"DATA.TRAIN_LIST": "train.csv", "DATA.VAL_LIST": "val.csv"},
    "ssv2": {
        "DATA.TRAIN_LIST": SSV2_LIST.format("train"),
        "DATA.VAL_LIST": SSV2_LIST.format("validation"),
        "DATA.CLASSES": SSV2_LIST.format("labels"),
    },
}
"""The lists in DATA.PATH_TO_DATA_DIR, by DATA.FORMAT."""
RAND_AUGMENT = re.compile(r"rand(?:-(?:m(?P<m>\d+(?:\.\d+)?)|n(?P<n>\d+)|mstd[\d.]+|inc\d))*")
"""RandAugment in the notation of timm, such as rand-m7-n4-mstd0.5-inc1: its magnitude m and its
number n of operations."""


class Conversion:
    """The ``given`` keys of a PySlowFast YAML by dotted names, and our ``keys`` for them.

    A given key is kept (we have the same key with the same value), or has a line in ``changed``, ``dropped`` or
    ``problems``.
    """

    def __init__(self, given: Mapping[str, object]) -> None:
        self.given = given
        self.keys: dict[str, Any] = {}
        self.changed: dict[str, str] = {}
        self.dropped: dict[str, str] = {}
        self.problems: dict[str, str] = {}
        self._values = dict(DEFAULTS)
        for name in DEFAULTS.keys() & given.keys():
            # PySlowFast's default takes the place of a value that cannot be read, so that all keys are judged.
            try:
                self._values[name] = read(name, given[name])
            except ValueError as error:
                self.refuse(name, str(error))
        dataset = self["TRAIN.DATASET"].lower()
        self.is_pytorchvideo = dataset.startswith("ptv")
        self.format = FORMATS.get(dataset.removeprefix("ptv"), "list")
        self.arch: str = self["MODEL.ARCH"]
        self.is_ptv_network = self["MODEL.MODEL_NAME"].startswith("PTV")
        self.num_gpus, self.num_machines = max(1, self["NUM_GPUS"]), max(1, self["NUM_SHARDS"])
        # Clips of a video that are drawn together. An epoch of PySlowFast has so many times the clips of ours.
        self.num_samples: int = self["AUG.NUM_SAMPLE"] if self["AUG.ENABLE"] else 1

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def refuse(self, name: str, why: str) -> None:
        """Report a problem with the value of a key."""
        value = self.given.get(name, OTHER_DEFAULTS.get(name, DEFAULTS.get(name)))
        default = "" if name in self.given else " (PySlowFast's default)"
        self.problems[name] = f"{name} = {value}{default} {why}"

    def require(self, name: str, is_so: bool, here: str) -> None:
        """Drop a key whose value means what mgexp always does: ``here``. Refuse any other value."""
        if is_so:
            self.dropped[name] = here
        else:
            self.refuse(name, f"has no counterpart: {here}")

    def become(self, name: str, ours: Mapping[str, object], why: str = "") -> None:
        """Replace a key by keys of ours."""
        self.keys.update(ours)
        if ours != {name: self[name]}:
            becomes = ", ".join(f"{key} {json_text(value)}" for key, value in ours.items())
            self.changed[name] = f"{becomes}; {why}" if why else becomes

    def keep(self, name: str, value: object, why: str = "") -> None:
        """Take over a key of the same name with a value that may differ: ``why``."""
        self.become(name, {name: value}, why)

    def yaml_text(self, comment: str) -> str:
        """Write the YAML of ``keys``, section by section, under ``comment``."""
        lines, section = [f"# {comment}"], ""
        for name, value in self.keys.items():
            above, _, last = name.rpartition(".")
            if above != section:
                section = above
                lines.append(f"{section}:")
            lines.append(f"{'  ' if above else ''}{last}: {json_text(value)}")
        return "\n".join(lines) + "\n"

    def report(self) -> str:
        """List what became of the given keys, a line for each. Keys that are kept are only counted."""
        given = sorted(self.given.items())
        changed = [f"  {k} = {v} -> {self.changed[k]}" for k, v in given if k in self.changed]
        dropped = [f"  {k} = {v}: {self.dropped[k]}" for k, v in given if k in self.dropped]
        kept = f"{len(given) - len(changed) - len(dropped)} keys mean the same here, and are kept"
        words = "become other keys or values, or have a slightly other meaning"
        lines = [kept, f"{len(changed)} {words}", *changed, f"{len(dropped)} are dropped", *dropped]
        return "\n".join(lines)


def read(name: str, value: object) -> Any:
    """Convert a given value to the type of its key, which its default shows. Raises ValueError."""
    default = DEFAULTS[name]
    if value is None and (isinstance(default, str) or name == "SOLVER.CLIP_GRAD_L2NORM"):
        return type(default)()  # PySlowFast writes None for no file and for no limit
    if isinstance(value, str) and not isinstance(default, str):
        value = from_text(value)
    if name in TABLES:
        convert(TABLES[name], value)
        return value
    if name == "MULTIGRID.LONG_CYCLE_FACTORS":
        return convert(tuple[tuple[float, float], ...], value)
    # An empty tuple is one of epochs or rates.
    kind: Any = type(default)
    if kind is tuple:
        kind = tuple[type(default[0]) if default else float, ...]  # type: ignore[misc]
    return convert(kind, value)


def json_text(value: object) -> str:
    """Write a value in one line. YAML reads JSON."""
    return json.dumps(as_lists(value), ensure_ascii=False)


def unread(draft: Conversion) -> set[str]:
    """Return the keys, and sections such as "MVIT.", that PySlowFast does not read beside the values of others."""
    arch, format_ = draft.arch, draft.format
    is_long, is_short = draft["MULTIGRID.LONG_CYCLE"], draft["MULTIGRID.SHORT_CYCLE"]
    is_cosine = draft["SOLVER.LR_POLICY"] == "cosine"
    is_adamw = draft["SOLVER.OPTIMIZING_METHOD"] == "adamw"
    # Crops of a random area are read by some data sets of PySlowFast, and then no short side is drawn.
    may_be_relative = format_ == "list" or (format_ == "ssv2" and draft["AUG.ENABLE"])
    may_be_relative = may_be_relative and not draft.is_pytorchvideo
    is_relative = may_be_relative and any(draft[name] for name in RELATIVE)
    # fmt: off
    table: list[tuple[bool, set[str]]] = [
        (True, {"MVIT.", "X3D.", "SLOWFAST."} - {f"{arch.upper()}."}),
        (arch == "mvit", {"RESNET.", "NONLOCAL.", "BN.", "MULTIGRID.BN_BASE_SIZE"}),
        (arch == "x3d", {"RESNET.DEPTH", "RESNET.WIDTH_PER_GROUP", "RESNET.NUM_GROUPS", "DATA.INPUT_CHANNEL_NUM",
                         "RESNET.NUM_BLOCK_TEMP_KERNEL", "RESNET.SPATIAL_STRIDES"}),
        (draft.is_ptv_network, {"NONLOCAL.", "RESNET.NUM_BLOCK_TEMP_KERNEL"}),
        (format_ != "list", {"DATA.PATH_PREFIX", "DATA.PATH_LABEL_SEPARATOR"}),
        (format_ == "ssv2", {"DATA.SAMPLING_RATE", "DATA.TARGET_FPS"}),
        (not draft["AUG.ENABLE"] or format_ == "charades", {"AUG."}),
        (not draft["MIXUP.ENABLE"], {"MIXUP."}),
        (is_relative, {"DATA.INV_UNIFORM_SAMPLE"}),
        (not is_relative, {*RELATIVE}),
        (is_adamw, {"SOLVER.MOMENTUM", "SOLVER.NESTEROV"}),
        (not is_adamw, {"SOLVER.BETAS"}),
        (is_cosine, {"SOLVER.LRS", "SOLVER.GAMMA"}),
        (is_cosine and not is_long, {"SOLVER.STEPS"}),
        (not is_cosine, {"SOLVER.COSINE_END_LR", "SOLVER.COSINE_AFTER_WARMUP"}),
        (not is_cosine, {"SOLVER.LRS" if is_long else "SOLVER.GAMMA"}),
        (is_long, {"BN.NORM_TYPE", "BN.NUM_SPLITS", "BN.NUM_SYNC_DEVICES", "BN.GLOBAL_SYNC"}),
        (not is_long, {"MULTIGRID.LONG_CYCLE_FACTORS", "MULTIGRID.BN_BASE_SIZE"}),
        (not is_short, {"MULTIGRID.SHORT_CYCLE_FACTORS"}),
        (not (is_long or is_short), {"MULTIGRID.EPOCH_FACTOR"}),
        (not draft["BN.USE_PRECISE_STATS"], {"BN.NUM_BATCHES_PRECISE"}),
    ]
    # fmt: on
    return {key for is_unread, keys in table if is_unread for key in keys}


def convert_network(draft: Conversion) -> None:
    """Convert MODEL, RESNET, NONLOCAL, X3D and MVIT."""
    saves_memory = draft["MODEL.ACT_CHECKPOINT"]
    draft.become("MODEL.ACT_CHECKPOINT", {"TRAIN.ACTIVATION_CHECKPOINTING": saves_memory})
    arch = draft.arch
    if arch not in NETWORKS:
        draft.refuse("MODEL.ARCH", f"has no counterpart: {', '.join(NETWORKS)} have one")
        return
    name, theirs = NETWORKS[arch]
    draft.become("MODEL.ARCH", {"MODEL.MODEL_NAME": name})
    # Files from before MODEL_NAME existed (2020) have MODEL.ARCH alone.
    is_known = "MODEL.MODEL_NAME" not in draft.given or draft["MODEL.MODEL_NAME"] in theirs
    draft.require("MODEL.MODEL_NAME", is_known, "MODEL.ARCH decides this")
    if arch != "x3d":
        num_pathways = 2 if arch == "slowfast" else 1
        channels = set(draft["DATA.INPUT_CHANNEL_NUM"][:num_pathways])
        draft.require("DATA.INPUT_CHANNEL_NUM", channels == {3}, "clips have red, green and blue")
    if arch == "mvit":
        convert_mvit(draft)
        return
    blocks = "x3d_transform" if arch == "x3d" else "bottleneck_transform"
    draft.require("RESNET.TRANS_FUNC", draft["RESNET.TRANS_FUNC"] == blocks, f"blocks are {blocks}")
    is_zero = draft["RESNET.ZERO_INIT_FINAL_BN"] or (draft.is_ptv_network and arch != "x3d")
    draft.keep("RESNET.ZERO_INIT_FINAL_BN", is_zero, "pytorchvideo's networks start with it")
    num_blocks = {50: [3, 4, 6, 3], 101: [3, 4, 23, 3]}.get(draft["RESNET.DEPTH"])
    for name, wanted in (
        ("RESNET.SPATIAL_DILATIONS", [1, 1, 1, 1]),
        ("RESNET.SPATIAL_STRIDES", [1, 2, 2, 2]),
        ("RESNET.NUM_BLOCK_TEMP_KERNEL", num_blocks),
    ):
        if name not in draft.dropped:
            pathways = (0, 1) if arch == "slowfast" else (0,)
            is_so = all(column(draft[name], pathway) == wanted for pathway in pathways)
            draft.require(name, is_so, f"the stages have {wanted}")
    if arch != "x3d" and num_blocks is None:
        draft.refuse("RESNET.DEPTH", "has no counterpart: 50 and 101 have one")
    convert_nonlocal(draft)


def convert_nonlocal(draft: Conversion) -> None:
    """Convert non-local blocks. Here each stage has a list of them, with one pool for all and no groups."""
    names = [f"NONLOCAL.{last}" for last in ("LOCATION", "GROUP", "POOL", "INSTANTIATION")]
    pathways = (0, 1) if draft.arch == "slowfast" else (0,)
    if not any(blocks for pathway in pathways for blocks in column(draft[names[0]], pathway)):
        draft.dropped |= dict.fromkeys(names, "no block is non-local")
        draft.keys.pop("NONLOCAL.INSTANTIATION", None)
    elif draft.arch in {"slowfast", "x3d"}:
        draft.refuse("NONLOCAL.LOCATION", "has no counterpart: I3D, C2D and Slow have such blocks")
    elif not draft.is_ptv_network:
        stages, groups, pools = (column(draft[name], 0) for name in names[:3])
        draft.become("NONLOCAL.LOCATION", {"NONLOCAL.LOCATION": stages})
        used = [number for number, blocks in enumerate(stages) if blocks]
        is_whole = all(groups[stage] == 1 for stage in used)
        draft.require("NONLOCAL.GROUP", is_whole, "all frames of a clip are looked at together")
        pool = pools[used[0]]
        draft.become("NONLOCAL.POOL", {"NONLOCAL.POOL": pool})
        if any(pools[stage] != pool for stage in used):
            draft.refuse("NONLOCAL.POOL", "has no counterpart: all stages have one pool here")


def column(rows: Sequence[Sequence[Any]], pathway: int) -> list[Any]:
    """Return the values of the stages for a pathway. If a stage has only one value, it counts for both."""
    return [row[min(pathway, len(row) - 1)] if row else [] for row in rows]


def convert_mvit(draft: Conversion) -> None:
    """Convert MViTv2. The blocks that double channels are those that halve the grid."""
    draft.keep("MODEL.FC_INIT_STD", 0.02, "PySlowFast starts all layers of MViT so")
    draft.keys |= {"MULTIGRID.BN_BASE_SIZE": 0, "BN.USE_PRECISE_STATS": False}
    doubled = draft["MVIT.DIM_MUL"]
    stages = sorted(int(block) for block, _ in doubled)
    draft.become("MVIT.DIM_MUL", {"MVIT.STAGES": stages})
    if any(factor != 2 for _, factor in doubled):
        draft.refuse("MVIT.DIM_MUL", "has no counterpart: a stage doubles the channels")
    is_same = draft["MVIT.HEAD_MUL"] == doubled
    draft.require("MVIT.HEAD_MUL", is_same, "heads double where channels do")
    blocks = range(draft["MVIT.DEPTH"])
    strides = {block: [1, 2, 2] if block in stages else [1, 1, 1] for block in blocks}
    is_so = {int(block): stride for block, *stride in draft["MVIT.POOL_Q_STRIDE"]} == strides
    here = "blocks that double channels halve height and width, and all pool queries"
    draft.require("MVIT.POOL_Q_STRIDE", is_so, here)
    coarsest = [1, 2 ** len(stages), 2 ** len(stages)]
    is_so = draft["MVIT.POOL_KV_STRIDE_ADAPTIVE"] == coarsest
    here = f"keys and values have the grid of the last stage: {coarsest}"
    draft.require("MVIT.POOL_KV_STRIDE_ADAPTIVE", is_so, here)
    here = "positions are never decayed, nor is the class token with SOLVER.ZERO_WD_1D_PARAM"
    draft.dropped["MVIT.ZERO_DECAY_POS_CLS"] = here


def convert_solver(draft: Conversion) -> None:
    """Convert SOLVER. With AUG.NUM_SAMPLE an epoch there is as long as several here."""
    method = draft["SOLVER.OPTIMIZING_METHOD"]
    if method not in {"sgd", "adamw"}:
        draft.refuse("SOLVER.OPTIMIZING_METHOD", "has no counterpart: sgd and adamw have one")
    if method == "adamw":
        # PySlowFast has no key for it: slowfast/models/optimizer.py writes the number.
        draft.keys["SOLVER.EPS"] = 1e-8
    times = f"times AUG.NUM_SAMPLE = {draft.num_samples}"
    for name in ("SOLVER.MAX_EPOCH", "SOLVER.WARMUP_EPOCHS"):
        draft.keep(name, draft[name] * draft.num_samples, times)
    first = 1.0
    if "SOLVER.STEPS" not in draft.dropped:
        # A stage that begins after the last epoch never takes place in PySlowFast. Here it would be an error.
        reached = [step for step in draft["SOLVER.STEPS"] if step < draft["SOLVER.MAX_EPOCH"]]
        if not reached:
            draft.refuse("SOLVER.STEPS", "has no stage before SOLVER.MAX_EPOCH")
        why = f"stages before MAX_EPOCH, {times}"
        if draft["SOLVER.LR_POLICY"] == "cosine":
            why += "; the rate follows the batches here (MULTIGRID.LR_SCALING linear)"
        draft.keep("SOLVER.STEPS", tuple(step * draft.num_samples for step in reached), why)
        if "SOLVER.LRS" not in draft.dropped:
            first = convert_decay(draft, len(reached))
    machines = draft.num_machines if draft["SOLVER.BASE_LR_SCALE_NUM_SHARDS"] else 1
    for name in ("SOLVER.BASE_LR", "SOLVER.WARMUP_START_LR", "SOLVER.COSINE_END_LR"):
        factor = machines * (first if name == "SOLVER.BASE_LR" else 1)
        # Nine digits are kept, because 0.1 times 3 would be written 0.30000000000000004.
        rate = draft[name] if factor == 1 else float(f"{draft[name] * factor:.9g}")
        if name not in draft.dropped:
            draft.keep(name, rate, f"times {factor:g}")


def convert_decay(draft: Conversion, num_stages: int) -> float:
    """Compute SOLVER.GAMMA from the LRS of the stages, which must fall by one factor; return the first of LRS."""
    rates = draft["SOLVER.LRS"][:num_stages]
    if len(rates) < num_stages or not rates or min(rates) <= 0:
        draft.refuse("SOLVER.LRS", f"has no rate above 0 for each of {num_stages} stages")
        return 1.0
    factors = [after / before for before, after in pairwise(rates)]
    # The ratios of 0.1, 0.01 and 0.001 differ in floating point.
    if any(not math.isclose(factor, factors[0], rel_tol=1e-6) for factor in factors):
        draft.refuse("SOLVER.LRS", "has no counterpart: the rate falls by one factor, SOLVER.GAMMA")
    # With a single stage the rate never falls, so any GAMMA will do.
    gamma = float(f"{factors[0]:.9g}") if factors else 0.1
    draft.become("SOLVER.LRS", {"SOLVER.GAMMA": gamma})
    return float(rates[0])


def convert_batch(draft: Conversion) -> None:
    """Convert mini-batches and BN: PySlowFast counts the videos of one machine, and we count all clips."""
    clips, gpus = draft["TRAIN.BATCH_SIZE"], draft.num_gpus
    if clips % gpus:
        draft.refuse("TRAIN.BATCH_SIZE", f"does not divide over NUM_GPUS = {gpus}")
    whole = clips * draft.num_machines * draft.num_samples
    draft.keep("TRAIN.BATCH_SIZE", whole, "the clips of all machines")
    of_process = draft["TEST.BATCH_SIZE"] if gpus == 1 else max(1, draft["TEST.BATCH_SIZE"] // gpus)
    draft.keep("TEST.BATCH_SIZE", of_process, f"of one process of {gpus}")
    draft.dropped["NUM_GPUS"] = "torchrun or Slurm starts a process for each GPU"
    if draft["MULTIGRID.LONG_CYCLE"] or draft["MULTIGRID.SHORT_CYCLE"]:
        # Phases end at epochs, as PySlowFast rounds. Granularity step ends them at steps and loses none.
        draft.keys["MULTIGRID.GRANULARITY"] = "epoch"
    if "BN.NORM_TYPE" in draft.dropped:
        return
    # PySlowFast's plain batch norm takes the statistics of the clips of one GPU. Sub-batch norm splits these
    # clips, and synchronised batch norm joins the clips of several GPUs.
    norm, group = draft["BN.NORM_TYPE"], whole / (draft.num_machines * gpus)
    if norm == "sub_batchnorm":
        group /= max(1, draft["BN.NUM_SPLITS"])
    elif norm.startswith("sync_batchnorm"):
        group = whole if draft["BN.GLOBAL_SYNC"] else group * draft["BN.NUM_SYNC_DEVICES"]
    elif norm != "batchnorm":
        draft.refuse("BN.NORM_TYPE", "is none of batchnorm, sub_batchnorm and sync_batchnorm")
    if group < 1 or group != int(group):
        draft.refuse("BN.NORM_TYPE", f"gives groups of {group:g} clips; they must be whole")
    why = "so many clips of the full shape share statistics"
    draft.become("BN.NORM_TYPE", {"MULTIGRID.BN_BASE_SIZE": int(group)}, why)


def convert_data(draft: Conversion) -> None:
    """Convert the data set, its lists, colours and labels."""
    format_ = draft.format
    grid = "segments" if format_ == "ssv2" else "stride"
    draft.become("TRAIN.DATASET", {"DATA.FORMAT": format_, "DATA.TEMPORAL_GRID": grid})
    if draft["TRAIN.DATASET"].lower().removeprefix("ptv") not in FORMATS:
        draft.refuse("TRAIN.DATASET", f"has no counterpart: {', '.join(FORMATS)} have one")
    name = "DATA.PATH_TO_DATA_DIR"
    if draft[name] and format_ in FILES:
        folder = draft[name].rstrip("/")
        draft.become(name, {key: f"{folder}/{file}" for key, file in FILES[format_].items()})
    else:
        draft.dropped[name] = "name DATA.TRAIN_LIST and DATA.VAL_LIST: docs/data_sets.md"
    if "DATA.TARGET_FPS" not in draft.dropped:
        # PySlowFast does not read the key for extracted frames, and those of charades are 24 a second.
        fps = 24.0 if format_ == "charades" else draft["DATA.TARGET_FPS"]
        draft.keep("DATA.TARGET_FPS", fps, "as frames are extracted")
    given = [name for name in RELATIVE if draft[name] and name not in draft.dropped]
    if len(given) == 1:
        draft.refuse(given[0], "has no counterpart alone: a crop of a random area needs both keys")
    # Ours is RGB. PySlowFast reads videos as RGB, but extracted frames as BGR.
    is_bgr = format_ != "list" and not draft.is_pytorchvideo
    for name in ("DATA.MEAN", "DATA.STD"):
        draft.keep(name, draft[name][::-1] if is_bgr else draft[name], "red, green, blue")
    if draft["DATA.REVERSE_INPUT_CHANNEL"] != is_bgr:
        why = "the network there sees blue, green, red, which matters for weights from there"
        draft.changed["DATA.REVERSE_INPUT_CHANNEL"] = f"red, green, blue; {why}"
    is_so = draft["DATA.MULTI_LABEL"] == (format_ == "charades")
    draft.require("DATA.MULTI_LABEL", is_so, "charades has many labels, and no other format")
    loss = draft["MODEL.LOSS_FUNC"].removeprefix("soft_")
    draft.keep("MODEL.LOSS_FUNC", loss, "of two labels with their weights")
    activation = {"cross_entropy": "softmax", "bce_logit": "sigmoid"}.get(loss)
    if activation is None:
        draft.refuse("MODEL.LOSS_FUNC", "has no counterpart: cross_entropy and bce_logit have one")
    elif activation != draft["MODEL.HEAD_ACT"]:
        draft.refuse("MODEL.HEAD_ACT", f"has no counterpart with that loss: {activation}")


def convert_augmentation(draft: Conversion) -> None:
    """Convert AUG and MIXUP."""
    if "AUG.ENABLE" not in draft.dropped:
        draft.dropped["AUG.RE_MODE"] = "a rectangle gets the colour DATA.MEAN"
        num = draft.num_samples
        draft.become("AUG.NUM_SAMPLE", {"AUG.REPEATS": num}, "and as many times the epochs")
        is_multigrid = draft["MULTIGRID.LONG_CYCLE"] or draft["MULTIGRID.SHORT_CYCLE"]
        if num < 1 or (num > 1 and is_multigrid):
            draft.refuse("AUG.NUM_SAMPLE", "has no counterpart: it is 1 with multigrid")
        match = RAND_AUGMENT.fullmatch(draft["AUG.AA_TYPE"])
        if match is None:
            draft.refuse("AUG.AA_TYPE", "is no RandAugment, such as rand-m7-n4")
            return
        # In timm's notation the largest strength is 10, and an operation takes place for half of the clips. In
        # torchvision, which we use, the largest strength is 30, and every operation takes place.
        ops, magnitude = math.ceil(int(match["n"] or 2) / 2), round(float(match["m"] or 10) * 3)
        ours = {"AUG.RANDAUGMENT_OPS": ops, "AUG.RANDAUGMENT_MAGNITUDE": magnitude}
        why = "similar: strengths vary there, and half of the operations take place"
        draft.become("AUG.AA_TYPE", ours, why)
    if "MIXUP.ENABLE" not in draft.dropped:
        mixup, cutmix = draft["MIXUP.ALPHA"], draft["MIXUP.CUTMIX_ALPHA"]
        draft.become("MIXUP.ALPHA", {"AUG.MIXUP_ALPHA": mixup}, "a clip with its neighbour")
        draft.become("MIXUP.CUTMIX_ALPHA", {"AUG.CUTMIX_ALPHA": cutmix})
        smoothing = draft["MIXUP.LABEL_SMOOTH_VALUE"]
        draft.become("MIXUP.LABEL_SMOOTH_VALUE", {"MODEL.LABEL_SMOOTHING": smoothing})
        is_half = draft["MIXUP.SWITCH_PROB"] == 0.5 or not (mixup and cutmix)
        draft.require("MIXUP.SWITCH_PROB", is_half, "CutMix has half of the steps")


def convert_test(draft: Conversion) -> None:
    """Convert TEST, DATA.TEST_CROP_SIZE, weights and precision."""
    views = draft["TEST.NUM_ENSEMBLE_VIEWS"]
    views = min(views, 1) if draft.format == "ssv2" else views
    draft.keep("TEST.NUM_ENSEMBLE_VIEWS", views, "all views of segments are the same")
    is_same = draft["TEST.DATASET"].lower() == draft["TRAIN.DATASET"].lower()
    here = "a run tests on DATA.VAL_LIST of TRAIN.DATASET"
    draft.require("TEST.DATASET", is_same or not draft["TEST.ENABLE"], here)
    name, differences = "DATA.TEST_CROP_SIZE", []
    if draft[name] != draft["DATA.TRAIN_CROP_SIZE"] and not draft["MULTIGRID.SHORT_CYCLE"]:
        differences.append("there the network classifies windows of TRAIN_CROP_SIZE, then averages")
    shortest = min(draft["DATA.TRAIN_JITTER_SCALES"], default=draft[name])
    if draft.format == "list" and draft["TEST.NUM_SPATIAL_CROPS"] == 1 and draft[name] != shortest:
        differences.append(f"there the crop is cut from a short side of {shortest} pixels")
    draft.keep(name, draft[name])
    if differences:
        draft.changed[name] = f"{draft[name]}, but {'; '.join(differences)}"
    name, path = "TRAIN.CHECKPOINT_FILE_PATH", draft["TRAIN.CHECKPOINT_FILE_PATH"]
    if not draft["TRAIN.ENABLE"]:
        for each in (name, "TEST.CHECKPOINT_FILE_PATH"):
            draft.require(each, not draft[each], "a run tests its own weights")
    elif path.endswith(".pkl"):
        ours = str(Path(path).with_suffix(".pyth"))
        draft.become(name, {"TRAIN.INIT_WEIGHTS": ours}, "a .pkl file is a pickle: docs/weights.md")
    elif path:
        draft.become(name, {"TRAIN.INIT_WEIGHTS": path}, "the weights alone, from step 0")
    if draft["TRAIN.MIXED_PRECISION"]:
        draft.become("TRAIN.MIXED_PRECISION", {"TRAIN.PRECISION": "fp16"})


def settle_by_table(draft: Conversion) -> None:
    """Settle the keys that need no rule: keys that are not read, kept, fixed, dropped or unknown."""
    names = {*draft.given, *DEFAULTS, *OTHER_DEFAULTS}
    unused = unread(draft)
    sections = tuple(key for key in unused if key.endswith("."))
    for name in names:
        if name in unused or name.startswith(sections):
            draft.dropped[name] = "PySlowFast does not read it beside the other keys"
    for name in sorted(names - draft.dropped.keys()):
        section = f"{name.split('.', maxsplit=1)[0]}."
        if name in KEPT:
            draft.keys[name] = draft[name]
        elif name in FIXED:
            value = draft.given.get(name, OTHER_DEFAULTS.get(name))
            value = from_text(value) if isinstance(value, str) else value
            value = tuple(value) if isinstance(value, list) else value
            is_off = FIXED[name] == "off" and value in (False, None, (), "", {})
            draft.require(name, is_off or value == FIXED[name], f"it is {FIXED[name]}")
        elif name in DROPPED or section in DROPPED:
            draft.dropped[name] = DROPPED.get(name) or DROPPED[section]
        elif name not in RULED:
            draft.dropped[name] = "unknown: check what your PySlowFast does with it"


def convert_all(given: Mapping[str, object]) -> Conversion:
    """Convert the ``given`` keys of PySlowFast, by dotted names."""
    draft = Conversion(given)
    settle_by_table(draft)
    convert_network(draft)
    convert_solver(draft)
    convert_batch(draft)
    convert_data(draft)
    convert_augmentation(draft)
    convert_test(draft)
    for name in RULED.keys() - draft.keys.keys() - draft.changed.keys():
        draft.dropped.setdefault(name, "other keys decide this here, or it has no effect")
    # The YAML has our keys in our order. Keys with our default values are left out.
    keys, draft.keys = draft.keys, {}
    for name, key in BY_NAME.items():
        if name in keys:
            value = keys[name]
            # A value of the wrong type stays as it is, because reading the YAML reports it.
            with suppress(ValueError):
                value = convert(key.type, value)
            if value != key.default:
                draft.keys[name] = value
    return draft


def read_pyslowfast(path: Path, overrides: Sequence[str] = ()) -> dict[str, object]:
    """Read a PySlowFast YAML, its _BASE_ and KEY VALUE pairs: values by dotted names. Raises InputError."""
    values = file_values(path)
    texts = {name: str for name, default in DEFAULTS.items() if isinstance(default, str)}
    pairs, problems = read_pairs(overrides, texts)
    raise_problems(problems)
    return values | pairs


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = ToolParser(__doc__)
    parser.add_argument("input", type=Path, metavar="INPUT", help="YAML of PySlowFast")
    parser.add_argument("--output", type=Path, help="YAML to write (default: print it)")
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE", help="keys of PySlowFast")
    return parser.parse_intermixed_args(arguments)


def problems_of(conversion: Conversion) -> list[str]:
    """List the values without a counterpart, and the problems that a run would find in the new YAML."""
    # Read the YAML from a file, so that it passes the same checks as the file of a user.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "converted.yaml"
        path.write_text(conversion.yaml_text(""), encoding="utf-8")
        cfg, of_yaml = read_config(path)
    problems = [
        *conversion.problems.values(),
        *(problem.replace(str(path), "the result") for problem in of_yaml),
    ]
    # A key with a problem has our default here. Checks between keys would then report wrong problems.
    if not problems:
        problems = cross_problems(cfg)
        with collected(problems):
            build_row_schedule(cfg, ANY_NUM_VIDEOS, conversion.num_gpus * conversion.num_machines)
    return problems


def main(arguments: list[str]) -> int:
    """Convert, and say what happened to the keys. Return 2 if the conversion is not possible."""
    options = parse(arguments)
    try:
        raise_problems(not_new({"--output": options.output}))
        conversion = convert_all(read_pyslowfast(options.input, options.overrides))
        raise_problems(problems_of(conversion))
        comment = f"From PySlowFast's {options.input.name}, by tools/convert_config.py."
        text = conversion.yaml_text(comment)
        if options.output:
            atomic_write_text(options.output, text)
    except (InputError, OSError) as error:
        say(f"nothing was written; {error}")
        return 2
    if not options.output:
        print(text, end="")
    # If the YAML goes to standard output, the list must not be mixed with it.
    print(conversion.report(), file=sys.stdout if options.output else sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(run_tool(main))
