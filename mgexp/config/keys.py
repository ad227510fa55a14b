"""Every configuration key: default, unit or meaning, legal values, source.

Keys are PySlowFast's wherever the meaning is the same (source "PySlowFast"); "mgexp" marks ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mgexp.config.values import (
    BOOL,
    EXPECTATIONS,
    FLOAT,
    FLOATS,
    INT,
    INT_LISTS,
    INT_OR_AUTO,
    INTS,
    PAIRS,
    PATH,
    STR,
    Kind,
)


@dataclass(frozen=True)
class Legal:
    """Which values a key may take, in words and as a test."""

    words: str
    allows: Callable[[Any], bool]


@dataclass(frozen=True)
class Key:
    """One configuration key."""

    name: str
    kind: Kind
    default: Any
    legal: Legal
    meaning: str
    source: str = "PySlowFast"


def _one_of(*values: str | int) -> Legal:
    return Legal("one of " + ", ".join(map(str, values)), lambda value: value in values)


def _at_most(most: int, least: int = 1) -> Legal:
    """Whole numbers up to ``most``: more of them would fill memory, or take for ever, before it shows."""
    return Legal(f"{least} to {most:,}", lambda value: least <= value <= most)


ANY = Legal("any", lambda value: True)
POSITIVE = Legal("more than 0", lambda value: value > 0)
NOT_NEGATIVE = Legal("0 or more", lambda value: value >= 0)
WORKERS = Legal("auto, or 0 to 1,000", lambda value: value == "auto" or 0 <= value <= 1000)
AT_LEAST_1 = Legal("1 or more", lambda value: value >= 1)
ODD = Legal("an odd number, 1 to 99", lambda value: 1 <= value <= 99 and value % 2 == 1)
NOT_EMPTY = Legal("one character or more", bool)
W_AND_B_NAME = Legal(
    "1 to 128 letters, digits, _, - and .",
    lambda v: bool(re.fullmatch(r"[\w.-]{1,128}", v, re.ASCII)),
)
OR_NONE = Legal(f"{W_AND_B_NAME.words}, or nothing", lambda v: not v or W_AND_B_NAME.allows(v))
SHARE = Legal("0 to 1", lambda value: 0 <= value <= 1)
MAGNITUDE = Legal("0 to 30", lambda value: 0 <= value <= 30)
STRENGTH = Legal("0 to 10", lambda value: 0 <= value <= 10)
FACTORS = Legal(
    "numbers in (0, 1], one or more", lambda vs: len(vs) > 0 and all(0 < v <= 1 for v in vs)
)
PIXELS = _at_most(10_000)
MAX_LR = 1e38  # float32, which weights are, ends at 3.4e38
RATE = Legal("more than 0, at most 1e38", lambda value: 0 < value <= MAX_LR)
RATE_OR_0 = Legal("0 to 1e38", lambda value: 0 <= value <= MAX_LR)
EPOCHS = Legal("0.000001 or more", lambda value: value >= 1e-6)
SCALE = Legal("0.000001 to 1,000,000", lambda value: 1e-6 <= value <= 1e6)
FACTOR_PAIRS = Legal(
    "pairs of numbers in (0, 1]",
    lambda pairs: len(pairs) > 0 and all(0 < v <= 1 for pair in pairs for v in pair),
)
RGB = Legal("three numbers", lambda values: len(values) == 3)
RGB_POSITIVE = Legal("three numbers more than 0", lambda v: len(v) == 3 and min(v) > 0)
FOUR = Legal(
    "four lists of numbers, 0 or more", lambda v: len(v) == 4 and all(n >= 0 for x in v for n in x)
)
TRIPLE = Legal("three numbers, 1 to 100", lambda v: len(v) == 3 and min(v) >= 1 and max(v) <= 100)
RANGE = Legal(
    "[min, max] with 0 < min <= max <= 10,000",
    lambda values: len(values) == 2 and 0 < values[0] <= values[1] <= 10_000,
)
INCREASING = Legal(
    "increasing, the first 0",
    lambda values: len(values) > 0 and values[0] == 0 and list(values) == sorted(set(values)),
)
BETAS = Legal("two numbers in [0, 1)", lambda v: len(v) == 2 and all(0 <= n < 1 for n in v))
PERIOD = Legal("2 to 1,000,000", lambda value: 2 <= value <= 1_000_000)
METRICS = Legal(
    "metrics top1, top5 or map, tolerance 0 or more",
    lambda rows: all(row[0] in {"top1", "top5", "map"} and row[2] >= 0 for row in rows),
)
SQRT_HALF = 0.5**0.5

KEYS = (
    Key("ROW", STR, "", ANY, "the line of the table that this file is", "mgexp"),
    Key("EXPECTED", EXPECTATIONS, (), METRICS, "judged after training: [metric, %, ±%]", "mgexp"),
    Key("RNG_SEED", INT, 0, NOT_NEGATIVE, "seed of the run; --seed sets it"),
    Key("LOG_PERIOD", INT, 10, AT_LEAST_1, "steps from one log line and record to the next"),
    Key("DEVICE", STR, "auto", _one_of("auto", "cpu", "cuda"), "auto: cuda where present", "mgexp"),
    # --- who is told of a run besides its folder; see mgexp/record/tracking
    Key("TENSORBOARD.ENABLE", BOOL, False, ANY, "write events for TensorBoard"),
    Key("TENSORBOARD.LOG_DIR", PATH, "", ANY, "folder for those of many runs; none: tensorboard in the run's"),
    Key("WANDB.ENABLE", BOOL, False, ANY, "tell W&B of the run", "mgexp"),
    Key("WANDB.MODE", STR, "online", _one_of("online", "offline"), "offline: kept until `wandb sync`", "mgexp"),
    Key("WANDB.PROJECT", STR, "mgexp", W_AND_B_NAME, "project at W&B", "mgexp"),
    Key("WANDB.ENTITY", STR, "", OR_NONE, "user or team at W&B; none: the one that is logged in", "mgexp"),
    # --- training
    Key("TRAIN.ENABLE", BOOL, True, ANY, "False: evaluate the last checkpoint only"),
    Key("TRAIN.INIT_WEIGHTS", PATH, "", ANY, "weights to start from, .pyth, .pt or .safetensors; none: random",
        "mgexp"),
    Key("TRAIN.BATCH_SIZE", INT, 64, AT_LEAST_1, "clips of the baseline's mini-batch, global"),
    Key("TRAIN.NUM_EVALUATIONS", INT, 10, _at_most(10_000), "evenly spaced by cost, the end one", "mgexp"),
    Key("TRAIN.EVALUATION_VIDEOS", INT, 0, NOT_NEGATIVE, "videos of each but the last; 0: all", "mgexp"),
    Key("TRAIN.CHECKPOINT_MINUTES", FLOAT, 10.0, POSITIVE, "minutes between checkpoints", "mgexp"),
    Key("TRAIN.CHECKPOINTS_KEPT", INT, 2, AT_LEAST_1, "of the last ones, beside that of the best evaluation",
        "mgexp"),
    Key("TRAIN.PRECISION", STR, "auto", _one_of("auto", "fp32", "tf32", "bf16", "fp16"),
        "of products; auto: bf16 on GPUs that have it, else fp32", "mgexp"),
    Key("TRAIN.NUM_THREADS", INT, 0, _at_most(1000, least=0), "CPU threads of training; 0: all cores", "mgexp"),
    Key("TRAIN.MAX_CLIPS_PER_GPU", INT, 0, NOT_NEGATIVE,
        "clips that go through the network at once, in whole BN groups; the result is the same. 0: all", "mgexp"),
    Key("TRAIN.COMPILE", STR, "off", _one_of("off", "default", "cuda_graphs"),
        "torch.compile, a graph for each shape, before the first step; cuda_graphs: on a GPU", "mgexp"),
    Key("TRAIN.ACTIVATION_CHECKPOINTING", BOOL, False, ANY, "keep less for the backward pass, compute it twice",
        "mgexp"),
    # --- data
    Key("DATA.FORMAT", STR, "list",
        _one_of("list", "kinetics", "ssv2", "charades", "ucf101", "hmdb51", "folders"),
        "of the lists: 'path label' lines, official files, or a folder per class", "mgexp"),
    Key("DATA.TRAIN_LIST", PATH, "", ANY, "list file (hmdb51: DIR/*_test_split1.txt; folders: folder)", "mgexp"),
    Key("DATA.VAL_LIST", PATH, "", ANY, "that of the validation videos", "mgexp"),
    Key("DATA.CLASSES", PATH, "", ANY,
        "labels.json (ssv2), classInd.txt (ucf101), or names in turn (kinetics, folders; none: sorted)", "mgexp"),
    Key("DATA.PATH_PREFIX", PATH, "", ANY, "folder that the paths of the lists are relative to"),
    Key("DATA.ALLOW_OUTSIDE", BOOL, False, ANY,
        "videos of the lists may lie outside DATA.PATH_PREFIX, also by links", "mgexp"),
    Key("DATA.STORE", PATH, "", ANY, "clip store (tools/prepare_data.py) to read the videos from; none: off",
        "mgexp"),
    Key("DATA.PATH_LABEL_SEPARATOR", STR, " ", NOT_EMPTY, "between path and label in a list"),
    Key("DATA.NUM_VIDEOS", INT, 0, NOT_NEGATIVE, "training videos, for a schedule without lists", "mgexp"),
    Key("DATA.MAX_TRAIN_VIDEOS", INT, 0, NOT_NEGATIVE, "train on so many, evenly spaced; 0: all", "mgexp"),
    Key("DATA.MAX_VAL_VIDEOS", INT, 0, NOT_NEGATIVE, "validate on so many; 0: all", "mgexp"),
    Key("DATA.MAX_UNUSABLE_SHARE", FLOAT, 0.0, SHARE, "missing or broken training videos tolerated", "mgexp"),
    Key("DATA.VIDEO_TIMEOUT_SECONDS", FLOAT, 120.0, NOT_NEGATIVE,
        "a video that gives no frames for so long counts as unusable; 0: no limit (120: assumption)", "mgexp"),
    Key("DATA.QUARANTINE", PATH, "", ANY, "file of videos that count as missing, a path a line; see check_data.py",
        "mgexp"),
    Key("DATA.NUM_FRAMES", INT, 32, _at_most(10_000), "T: frames of a clip"),
    Key("DATA.SAMPLING_RATE", INT, 2, _at_most(10_000), "τ: stride between frames, on the TARGET_FPS grid"),
    Key("DATA.TEMPORAL_GRID", STR, "stride", _one_of("stride", "segments"),
        "segments: a frame from each of T segments of the video (SSv2)", "mgexp"),
    Key("DATA.TARGET_FPS", FLOAT, 30.0, POSITIVE, "frames per second of the temporal grid"),
    Key("DATA.TRAIN_JITTER_SCALES", INTS, (256, 320), RANGE, "short side in pixels, at the full crop"),
    Key("DATA.INV_UNIFORM_SAMPLE", BOOL, False, ANY, "draw the short side inverse-uniformly"),
    Key("DATA.RANDOM_FLIP", BOOL, True, ANY, "mirror half of the training clips"),
    Key("DATA.TRAIN_CROP_SIZE", INT, 224, PIXELS, "S: crop of a clip in pixels"),
    Key("DATA.TEST_CROP_SIZE", INT, 224, PIXELS, "crop, and short side, of the full protocol"),
    Key("DATA.DECODING_BACKEND", STR, "pyav", _one_of("auto", "pyav", "torchcodec"),
        "video decoder; the frames are the same. auto: torchcodec where it works, else pyav"),
    Key("DATA.ENSEMBLE_METHOD", STR, "sum", _one_of("sum", "max"), "of the scores of a video's views"),
    Key("DATA.MEAN", FLOATS, (0.45, 0.45, 0.45), RGB, "of RGB in [0, 1]"),
    Key("DATA.STD", FLOATS, (0.225, 0.225, 0.225), RGB_POSITIVE, "of RGB in [0, 1]"),
    Key("DATA_LOADER.NUM_WORKERS", INT_OR_AUTO, 2, WORKERS,
        "decoding processes per process; auto: as many as keep up, measured"),
    Key("DATA_LOADER.PREFETCH_FACTOR", INT, 2, _at_most(1000), "batches each worker keeps ready", "mgexp"),
    # --- augmentation of training clips, the same for all frames of one: mgexp/data/augment.py
    Key("AUG.RANDAUGMENT_OPS", INT, 0, _at_most(100, least=0),
        "operations of torchvision's RandAugment on a clip; 0: off (PySlowFast: n of timm's text AUG.AA_TYPE)",
        "mgexp"),
    Key("AUG.RANDAUGMENT_MAGNITUDE", INT, 9, MAGNITUDE,
        "strength of those, of 30 (PySlowFast: m of AUG.AA_TYPE, of 10: rand-m7-n4-mstd0.5-inc1 is near 21)",
        "mgexp"),
    Key("AUG.COLOR_JITTER", FLOAT, 0.0, SHARE,
        "x: brightness, contrast and saturation times 1 − x to 1 + x; 0: off (PySlowFast: images only)", "mgexp"),
    Key("AUG.RE_PROB", FLOAT, 0.0, SHARE, "share of the clips in which a random rectangle gets DATA.MEAN"),
    Key("AUG.COARSE_STRENGTH", FLOAT, 1.0, STRENGTH,
        "c: the three for a clip of t x s² are times c + (1 − c)·t·s²/(T·S²); 1: the same for all clips", "mgexp"),
    # --- model
    Key("MODEL.MODEL_NAME", STR, "SlowFast", _one_of("SlowFast", "I3D", "C2D", "Slow", "TSM"), "architecture"),
    Key("MODEL.NUM_CLASSES", INT, 400, _at_most(1_000_000), "classes; labels are 0 … NUM_CLASSES − 1"),
    Key("MODEL.LOSS_FUNC", STR, "cross_entropy", _one_of("cross_entropy", "bce_logit"),
        "cross_entropy: one label, softmax, top-1 and top-5; bce_logit: many labels, sigmoid, mAP"),
    Key("MODEL.DROPOUT_RATE", FLOAT, 0.5, SHARE, "before the classifier"),
    Key("MODEL.FC_INIT_STD", FLOAT, 0.01, POSITIVE, "standard deviation of the classifier's weights"),
    Key("RESNET.DEPTH", INT, 50, _one_of(18, 50, 101), "layers; 18 for SlowFast only"),
    Key("RESNET.WIDTH_PER_GROUP", INT, 64, _at_most(10_000), "channels of the first stage"),
    Key("RESNET.ZERO_INIT_FINAL_BN", BOOL, True, ANY, "last BN of each residual block starts at 0"),
    Key("NONLOCAL.LOCATION", INT_LISTS, ((), (), (), ()), FOUR,
        "blocks of res2 to res5, from 0, that a non-local block follows (I3D, C2D, Slow, TSM)"),
    Key("NONLOCAL.POOL", INTS, (1, 2, 2), TRIPLE, "pool of the positions looked at: frames, height, width"),
    Key("NONLOCAL.INSTANTIATION", STR, "softmax", _one_of("softmax", "dot_product"), "weights of positions"),
    Key("SLOWFAST.ALPHA", INT, 4, _at_most(10_000), "frames of the fast pathway per frame of the slow one"),
    Key("SLOWFAST.BETA_INV", INT, 8, _at_most(10_000), "channels of the slow pathway per fast channel"),
    Key("SLOWFAST.FUSION_CONV_CHANNEL_RATIO", INT, 2, _at_most(1000), "channels of fusion / of fast"),
    Key("SLOWFAST.FUSION_KERNEL_SZ", INT, 7, ODD, "frames of the fusion convolution"),
    Key("BN.WEIGHT_DECAY", FLOAT, 0.0, NOT_NEGATIVE, "weight decay of batch normalisation"),
    Key("BN.USE_PRECISE_STATS", BOOL, True, ANY, "re-estimate statistics before each evaluation"),
    Key("BN.NUM_BATCHES_PRECISE", INT, 200, AT_LEAST_1, "mini-batches for that, at most an epoch"),
    # --- multigrid
    Key("MULTIGRID.LONG_CYCLE", BOOL, False, ANY, "vary frames and crop from phase to phase"),
    Key("MULTIGRID.SHORT_CYCLE", BOOL, False, ANY, "vary the crop from step to step"),
    Key("MULTIGRID.LONG_CYCLE_FACTORS", PAIRS,
        ((0.25, SQRT_HALF), (0.5, SQRT_HALF), (0.5, 1.0), (1.0, 1.0)), FACTOR_PAIRS,
        "(frames, crop) relative to the full shape"),
    Key("MULTIGRID.LONG_CYCLE_PER", STR, "stage", _one_of("stage", "training"),
        "the shapes share the steps of each stage equally, or once those of all stages but fine-tuning", "mgexp"),
    Key("MULTIGRID.SHORT_CYCLE_FACTORS", FLOATS, (0.5, SQRT_HALF), FACTORS, "crop / full crop"),
    Key("MULTIGRID.EPOCH_FACTOR", FLOAT, 1.5, SCALE, "epochs relative to the baseline's"),
    Key("MULTIGRID.BN_BASE_SIZE", INT, 8, NOT_NEGATIVE,
        "clips per group of BN statistics; 0: no groups, all clips of a process (0: mgexp)"),
    Key("MULTIGRID.GRANULARITY", STR, "step", _one_of("step", "epoch"),
        "where phases may end; epoch: as the released code rounds", "mgexp"),
    Key("MULTIGRID.FINE_TUNING", BOOL, True, ANY, "last stage at the full shape (long cycle)", "mgexp"),
    Key("MULTIGRID.RANDOM_STRIDE", BOOL, True, ANY, "coarse clips: stride of τ … kτ, else kτ", "mgexp"),
    Key("MULTIGRID.SHAPE_ORDER", STR, "coarse_to_fine", _one_of("coarse_to_fine", "random"),
        "random: another order in each stage, and in each turn of the short cycle, not the seed's", "mgexp"),
    Key("MULTIGRID.SHORT_CROPS_OF", STR, "full", _one_of("full", "phase"),
        "what the short cycle's crops are relative to", "mgexp"),
    Key("MULTIGRID.LR_SCALING", STR, "linear", _one_of("linear", "sqrt", "none"),
        "of the learning rate with the clips of the long cycle's batch; linear: SGD, LARS; sqrt: LAMB", "mgexp"),
    # --- solver
    Key("SOLVER.BASE_LR", FLOAT, 0.1, RATE, "learning rate of the baseline's mini-batch"),
    Key("SOLVER.LR_POLICY", STR, "steps_with_relative_lrs",
        _one_of("steps_with_relative_lrs", "cosine"), "STEPS place the stages of either"),
    Key("SOLVER.STEPS", FLOATS, (0.0,), INCREASING, "first epoch of each stage"),
    Key("SOLVER.MAX_EPOCH", FLOAT, 300.0, EPOCHS, "epochs of the baseline"),
    Key("SOLVER.GAMMA", FLOAT, 0.1, Legal("in (0, 1)", lambda v: 0 < v < 1), "decay per stage"),
    Key("SOLVER.MOMENTUM", FLOAT, 0.9, Legal("in [0, 1)", lambda v: 0 <= v < 1), "of SGD and LARS"),
    Key("SOLVER.NESTEROV", BOOL, True, ANY, "Nesterov momentum of SGD and LARS (the paper of LARS: False)"),
    Key("SOLVER.WEIGHT_DECAY", FLOAT, 1e-4, NOT_NEGATIVE, "of all but batch normalisation (see the next)"),
    Key("SOLVER.ZERO_WD_1D_PARAM", BOOL, False, ANY, "no decay of biases"),
    Key("SOLVER.BIAS_LR_FACTOR", FLOAT, 1.0, POSITIVE,
        "of the learning rate of biases but batch normalisation's (TSM: 2)", "mgexp"),
    Key("SOLVER.HEAD_LR_FACTOR", FLOAT, 1.0, POSITIVE,
        "of the learning rate of the classifier, its bias as well (TSM: 5)", "mgexp"),
    Key("SOLVER.CLIP_GRAD_L2NORM", FLOAT, 0.0, NOT_NEGATIVE,
        "largest norm of all gradients together; 0: any (TSM: 20)"),
    Key("SOLVER.WARMUP_EPOCHS", FLOAT, 0.0, NOT_NEGATIVE, "epochs of linear warm-up"),
    Key("SOLVER.WARMUP_START_LR", FLOAT, 0.01, RATE_OR_0, "learning rate at step 0 of a warm-up"),
    Key("SOLVER.OPTIMIZING_METHOD", STR, "sgd", _one_of("sgd", "lars", "lamb", "pmd_lamb"),
        "optimizer: mgexp/optim (PySlowFast has sgd of these, and a LARS with the rate outside the momentum)"),
    Key("SOLVER.TRUST_COEFFICIENT", FLOAT, 0.001, POSITIVE,
        "η of LARS: a tensor's rate is η·|w| / (|g| + decay·|w|) times the learning rate (PySlowFast's: 0.001)",
        "mgexp"),
    Key("SOLVER.BETAS", FLOATS, (0.9, 0.999), BETAS, "decay rates per step of LAMB's two moments"),
    Key("SOLVER.EPS", FLOAT, 1e-6, POSITIVE, "added to the root of LAMB's second moment (Paddle, GluonNLP: 1e-6)",
        "mgexp"),
    Key("SOLVER.PMD_PERIOD", INT, 200, PERIOD,
        "steps in which PMD-LAMB's factor of BETAS goes from 1 to 0 (200: unverified)", "mgexp"),
    Key("SOLVER.PMD_CURVE", STR, "cosine", _one_of("cosine", "linear"),
        "how it does; the published curve is unknown: mgexp/optim/large_batch.py", "mgexp"),
    # --- evaluation
    Key("TEST.BATCH_SIZE", INT, 16, _at_most(1_000_000), "clips evaluated at a time"),
    Key("TEST.NUM_ENSEMBLE_VIEWS", INT, 10, _at_most(1000), "clips along the video, full protocol"),
    Key("TEST.NUM_SPATIAL_CROPS", INT, 3, _one_of(1, 3), "crops of each clip, full protocol"),
    Key("TEST.FRAME_ORDER", STR, "forward", _one_of("forward", "repeated", "shuffled"),
        "controls: one frame repeated, frames shuffled", "mgexp"),
)  # fmt: skip

BY_NAME = {key.name: key for key in KEYS}
