"""Define every configuration key: type, default, meaning with its unit, legal values and source.

``Config`` is the whole configuration, a frozen tree. ``cfg.SOLVER.BASE_LR`` is a float, and mypy knows it. A key
has PySlowFast's name wherever the meaning is the same (source "PySlowFast"). The source of other keys is "mgexp".
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from mgexp.config.values import IntOrAuto, convert

T = TypeVar("T")
SQRT_HALF = 0.5**0.5
FOLD = "{fold}"
"""In the names of the lists, this text stands for the number of the fold, from 0."""


@dataclass(frozen=True)
class Legal:
    """The values that a key may take, in words and as a test. The test gets a value of the key's type."""

    words: str
    allows: Callable[[Any], bool]


def between(least: float, most: float) -> Legal:
    """Allow numbers from ``least`` to ``most``. Larger numbers would fill the memory, or a run would never end."""
    return Legal(f"{least:,} to {most:,}", lambda value: least <= value <= most)


def count(most: int) -> Legal:
    return between(1, most)


ANY = Legal("any", lambda value: True)
POSITIVE = Legal("more than 0", lambda value: value > 0)
NOT_NEGATIVE = Legal("0 or more", lambda value: value >= 0)
AT_LEAST_1 = Legal("1 or more", lambda value: value >= 1)
SHARE = Legal("0 to 1", lambda value: 0 <= value <= 1)
SHARE_NOT_0 = Legal("more than 0, at most 1", lambda value: 0 < value <= 1)
BELOW_1 = Legal("in [0, 1)", lambda value: 0 <= value < 1)
WORKERS = Legal("auto, or 0 to 1,000", lambda value: value == "auto" or 0 <= value <= 1000)
ODD = Legal("an odd number, 1 to 99", lambda value: 1 <= value <= 99 and value % 2 == 1)
NOT_EMPTY = Legal("one character or more", bool)
W_AND_B_NAME = Legal(
    "1 to 128 letters, digits, _, - and .",
    lambda text: bool(re.fullmatch(r"[\w.-]{1,128}", text, re.ASCII)),
)
W_AND_B_NAME_OR_NONE = Legal(
    f"{W_AND_B_NAME.words}, or nothing", lambda text: not text or W_AND_B_NAME.allows(text)
)
FACTORS = Legal(
    "numbers in (0, 1], one or more",
    lambda values: len(values) > 0 and all(0 < value <= 1 for value in values),
)
FACTOR_PAIRS = Legal(
    "pairs of numbers in (0, 1]",
    lambda pairs: len(pairs) > 0 and all(0 < value <= 1 for pair in pairs for value in pair),
)
# Weights are float32, whose largest number is 3.4e38.
MAX_LR = 1e38
RATE = Legal("more than 0, at most 1e38", lambda value: 0 < value <= MAX_LR)
RATE_OR_0 = Legal("0 to 1e38", lambda value: 0 <= value <= MAX_LR)
FACTOR = between(0.01, 100)
EPOCHS = Legal("0.000001 or more", lambda value: value >= 1e-6)
EPOCH_FACTOR = Legal("0.000001 to 1,000,000", lambda value: 1e-6 <= value <= 1e6)
STAGES = Legal(
    "increasing, the first 0",
    lambda values: len(values) > 0 and values[0] == 0 and list(values) == sorted(set(values)),
)
ALL_POSITIVE = Legal("three numbers more than 0", lambda values: min(values) > 0)
POOL = Legal("three numbers, 1 to 100", lambda values: min(values) >= 1 and max(values) <= 100)
BLOCKS = Legal(
    "four lists of different numbers, 0 or more",
    lambda lists: all(
        min(items, default=0) >= 0 and len({*items}) == len(items) for items in lists
    ),
)
JITTER = Legal(
    "[min, max] with 0 < min <= max <= 10,000",
    lambda values: 0 < values[0] <= values[1] <= 10_000,
)
RANGE_OR_NONE = Legal(
    "[min, max] with 0 < min <= max, or []",
    lambda values: not values or (len(values) == 2 and 0 < values[0] <= values[1]),
)
SHARES_OR_NONE = Legal(
    "[min, max] with 0 < min <= max <= 1, or []",
    lambda values: RANGE_OR_NONE.allows(values) and max(values, default=1) <= 1,
)
CLIP_SECONDS = Legal(
    "(frames, crop, seconds), each more than 0",
    lambda rows: all(value > 0 for row in rows for value in row),
)
BETAS = Legal("two numbers in [0, 1)", lambda values: all(0 <= value < 1 for value in values))
METRICS = Legal(
    "metrics top1, top5 or map, tolerance 0 or more",
    lambda rows: all(row[0] in {"top1", "top5", "map"} and row[2] >= 0 for row in rows),
)


def key(default: T, meaning: str, legal: Legal = ANY, source: str = "PySlowFast") -> T:
    """Define a key of a section. A value must have the type of the key, and ``legal`` must allow it."""
    about = {"meaning": meaning, "legal": legal, "source": source}
    return dataclasses.field(default=default, metadata=about)


def own(default: T, meaning: str, legal: Legal = ANY) -> T:
    """Define a key that PySlowFast does not have, or that has another meaning there."""
    return key(default, meaning, legal, "mgexp")


# The sections read like tables with one key on each line. So the formatter must not break these lines.
# fmt: off
@dataclass(frozen=True)
class TensorboardKeys:
    """Curves of a run for TensorBoard: mgexp/run/trackers.py."""

    ENABLE: bool = key(False, "write events for TensorBoard")
    LOG_DIR: str = key("", "folder for the events of many runs; empty: the run folder")


@dataclass(frozen=True)
class WandbKeys:
    """Weights & Biases (W&B): mgexp/run/trackers.py."""

    ENABLE: bool = own(False, "send the run to W&B")
    MODE: Literal["online", "offline"] = own("online", "offline: keep the run here until `wandb sync`")
    PROJECT: str = own("mgexp", "project at W&B", W_AND_B_NAME)
    ENTITY: str = own("", "user or team at W&B; empty: the user that is logged in", W_AND_B_NAME_OR_NONE)


@dataclass(frozen=True)
class TrainKeys:
    """Training, its evaluations and checkpoints."""

    ENABLE: bool = key(True, "False: evaluate the final model of a finished run")
    INIT_WEIGHTS: str = own("", "file of weights to start from, or its address")
    BATCH_SIZE: int = key(64, "clips of the baseline's mini-batch", AT_LEAST_1)
    NUM_EVALUATIONS: int = own(10, "evaluations, evenly spaced by cost", count(10_000))
    EVALUATION_VIDEOS: int = own(0, "videos of each evaluation but the last; 0: all", NOT_NEGATIVE)
    PATIENCE: int = own(0, "evaluations in a row without a better one that end training; 0: off", NOT_NEGATIVE)
    EMA_DECAY: float = own(0.0, "decay of an average of the weights that is evaluated; 0: off", BELOW_1)
    CHECKPOINT_MINUTES: float = own(10.0, "minutes between checkpoints", POSITIVE)
    CHECKPOINTS_KEPT: int = own(2, "last checkpoints to keep, beside the best one", AT_LEAST_1)
    PRECISION: Literal["auto", "fp32", "tf32", "bf16", "fp16"] = own(
        "auto", "number format of products; auto: bf16 on GPUs that have it, else fp32")
    BF16_ALLREDUCE: bool = own(
        False, "exchange gradients in bf16: faster over a slow network, and less exact")
    NUM_THREADS: int = own(0, "CPU threads of training; 0: one for each core", between(0, 1000))
    MAX_CLIPS_PER_GPU: int = own(
        0, "clips that go through the network at once, in whole BN groups; 0: all", NOT_NEGATIVE)
    COMPILE: Literal["off", "default", "cuda_graphs"] = own(
        "off", "before the first step, for each shape: torch.compile, or a CUDA graph of eager steps")
    ACTIVATION_CHECKPOINTING: bool = own(
        False, "compute activations again in the backward pass: less memory, more time")


@dataclass(frozen=True)
class DataKeys:
    """The lists of videos, and how a clip is cut from a video."""

    FORMAT: Literal[
        "list", "rawframes", "kinetics", "ssv2", "charades", "ucf101", "hmdb51", "folders", "coco"] = own(
        "list", "'path label' lines, MMAction2's 'path num_frames label', the official files, folders by class, "
        "or COCO's boxes")
    TRAIN_LIST: str = own("", "list of training videos (hmdb51: DIR/*_test_split1.txt; folders: DIR)")
    VAL_LIST: str = own("", "list of validation videos, in the same format")
    FRAMES_FPS: float = own(30.0, "frames per second of folders of numbered images", POSITIVE)
    NUM_FOLDS: int = own(
        0, "folds of a cross-validation: {fold} in both lists is RNG_SEED modulo this; 0: none",
        between(0, 1000))
    CLASSES: str = own(
        "", "labels.json (ssv2), classInd.txt (ucf101), or names in order (empty: none in lists, else sorted)")
    PATH_PREFIX: str = key("", "folder that the paths of the lists are relative to")
    STORE: str = own("", "clip store to read the videos from; empty: none")
    PATH_LABEL_SEPARATOR: str = key(" ", "text between path and label; a space: spaces and tabs", NOT_EMPTY)
    NUM_VIDEOS: int = own(0, "training videos of a schedule that is made without lists", NOT_NEGATIVE)
    MAX_TRAIN_VIDEOS: int = own(0, "training videos to use, evenly spaced; 0: all", NOT_NEGATIVE)
    MAX_VAL_VIDEOS: int = own(0, "validation videos to use; 0: all", NOT_NEGATIVE)
    MAX_UNUSABLE_SHARE: float = own(0.0, "share of training videos that may be missing or broken", SHARE)
    VIDEO_TIMEOUT_SECONDS: float = own(
        120.0, "seconds without a frame that end the run; 0: no limit (120: assumption)", NOT_NEGATIVE)
    QUARANTINE: str = own(
        "", "list of videos that count as missing, by tools/check_data.py")
    NUM_FRAMES: int = key(32, "T: frames of a clip", count(10_000))
    SAMPLING_RATE: int = key(2, "τ: stride between frames, in frames of the TARGET_FPS grid", count(10_000))
    TEMPORAL_GRID: Literal["stride", "segments"] = own(
        "stride", "segments: a frame from each of T equal segments of the video (SSv2)")
    TARGET_FPS: float = key(30.0, "frames per second of the temporal grid", POSITIVE)
    TRAIN_JITTER_SCALES: tuple[int, int] = key(
        (256, 320), "smallest and largest short side in pixels, for the full crop", JITTER)
    TRAIN_JITTER_SCALES_RELATIVE: tuple[float, ...] = key(
        (), "range of the area of a crop / that of its frame; []: off", SHARES_OR_NONE)
    TRAIN_JITTER_ASPECT_RELATIVE: tuple[float, ...] = key(
        (), "range of the width / height of such a crop; of coco: / that of the image", RANGE_OR_NONE)
    INV_UNIFORM_SAMPLE: bool = key(False, "draw the inverse of the short side uniformly")
    RANDOM_FLIP: bool = key(True, "mirror half of the training clips")
    TRAIN_CROP_SIZE: int = key(224, "S: crop of a clip in pixels", count(10_000))
    TEST_CROP_SIZE: int = key(224, "crop and short side in pixels, for the full protocol", count(10_000))
    ENSEMBLE_METHOD: Literal["sum", "max"] = key("sum", "how the scores of a video's views become one")
    MEAN: tuple[float, float, float] = key((0.45, 0.45, 0.45), "mean of R, G and B in [0, 1]")
    STD: tuple[float, float, float] = key(
        (0.225, 0.225, 0.225), "standard deviation of R, G and B in [0, 1]", ALL_POSITIVE)


@dataclass(frozen=True)
class DataLoaderKeys:
    """The processes that decode videos."""

    NUM_WORKERS: IntOrAuto = key(
        2, "decoding processes of each training process; auto: its cores, at most 8", WORKERS)
    PREFETCH_FACTOR: int = own(2, "batches that each worker keeps ready", count(1000))


@dataclass(frozen=True)
class AugKeys:
    """Augmentation of training clips, the same for all frames of a clip: mgexp/data/augment.py."""

    RANDAUGMENT_OPS: int = own(
        0, "operations of torchvision's RandAugment on a clip; 0: off (PySlowFast: n of timm's AUG.AA_TYPE)",
        between(0, 100))
    RANDAUGMENT_MAGNITUDE: int = own(
        9, "strength of these operations, of 30 (PySlowFast: m of AUG.AA_TYPE, of 10: rand-m7-n4 is near 21)",
        between(0, 30))
    COLOR_JITTER: float = own(
        0.0, "x: brightness, contrast and saturation times 1 − x to 1 + x; 0: off (PySlowFast: images only)",
        SHARE)
    RE_PROB: float = key(0.0, "share of the clips in which a random rectangle gets DATA.MEAN", SHARE)
    DEVICE: Literal["workers", "training"] = own(
        "workers", "where clips are augmented: in the loader's workers, or on the training device")
    REPEATS: int = own(
        1, "clips of a video that are drawn together (PySlowFast: NUM_SAMPLE)", count(64))
    MIXUP_ALPHA: float = own(0.0, "α of mixup; 0: off (PySlowFast: MIXUP.ALPHA)", NOT_NEGATIVE)
    CUTMIX_ALPHA: float = own(
        0.0, "α of CutMix; with both, each in half of the steps; 0: off", NOT_NEGATIVE)
    COARSE_STRENGTH: float = own(
        1.0, "c: for clips of t × s² the three strengths are times c + (1 − c)·t·s²/(T·S²); 1: no change",
        between(0, 10))


@dataclass(frozen=True)
class ModelKeys:
    """The network, its loss and its classifier."""

    MODEL_NAME: str = key(
        "SlowFast", "SlowFast, I3D, C2D, Slow, TSM, X3D, ViT, MViT, FasterRCNN, RetinaNet, or custom",
        NOT_EMPTY)
    NUM_CLASSES: int = key(400, "classes; labels are 0 … NUM_CLASSES − 1", count(1_000_000))
    LOSS_FUNC: str = key(
        "cross_entropy", "cross_entropy: one label, softmax, top-1 and top-5; bce_logit: many labels, sigmoid, "
        "mAP; detection: boxes, COCO's mAP; or a custom loss", NOT_EMPTY)
    LABEL_SMOOTHING: float = own(
        0.0, "share of the target that all classes get (PySlowFast: MIXUP.LABEL_SMOOTH_VALUE)", BELOW_1)
    DROPOUT_RATE: float = key(0.5, "dropout before the classifier", SHARE)
    FC_INIT_STD: float = key(0.01, "standard deviation of the classifier's first weights", POSITIVE)
    FREEZE: int = own(
        0, "first blocks, and all before them, that stay as in TRAIN.INIT_WEIGHTS; -1: all but the classifier. "
        "FLOPs count a backward pass for them too", between(-1, 1000))


@dataclass(frozen=True)
class ResnetKeys:
    """The residual network under SlowFast, I3D, C2D, Slow, TSM and detectors. X3D reads ZERO_INIT_FINAL_BN."""

    DEPTH: Literal[18, 50, 101] = key(50, "layers; 18 for SlowFast and detectors only")
    WIDTH_PER_GROUP: int = key(64, "channels of the first stage", count(10_000))
    ZERO_INIT_FINAL_BN: bool = key(True, "the last BN of each residual block starts at 0")


@dataclass(frozen=True)
class NonlocalKeys:
    """Non-local blocks (I3D, C2D, Slow, TSM)."""

    LOCATION: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]] = key(
        ((), (), (), ()), "for res2 to res5: blocks, from 0, that a non-local block follows", BLOCKS)
    POOL: tuple[int, int, int] = key(
        (1, 2, 2), "pooling of the positions that are looked at: frames, height, width", POOL)
    INSTANTIATION: Literal["softmax", "dot_product"] = key("softmax", "how positions are weighted")


@dataclass(frozen=True)
class SlowFastKeys:
    """The two pathways of SlowFast."""

    ALPHA: int = key(4, "frames of the fast pathway per frame of the slow one", count(10_000))
    BETA_INV: int = key(8, "channels of the slow pathway per fast channel", count(10_000))
    FUSION_CONV_CHANNEL_RATIO: int = key(2, "channels of the fusion / channels of the fast pathway", count(1000))
    FUSION_KERNEL_SZ: int = key(7, "frames of the fusion's convolution", ODD)


@dataclass(frozen=True)
class VitKeys:
    """The plain video transformer (MODEL.MODEL_NAME ViT): mgexp/models/vit.py."""

    EMBED_DIM: int = own(384, "channels (Ti 192, S 384, B 768)", count(100_000))
    DEPTH: int = own(12, "number of blocks", count(1000))
    NUM_HEADS: int = own(6, "heads of attention (Ti 3, S 6, B 12)", count(1000))
    MLP_RATIO: float = own(4.0, "hidden channels of a block / channels", FACTOR)
    TUBELET: tuple[int, int, int] = own(
        (2, 16, 16), "frames, height and width of what becomes a token", POOL)
    POSITIONS: Literal["learned", "rotary", "vjepa2"] = own(
        "learned", "an interpolated table, or rotations: ours, or V-JEPA 2's")
    CLS_EMBED_ON: bool = own(False, "classify a class token; else the mean of all tokens")
    DROPPATH_RATE: float = own(
        0.0, "share of the clips that skip a branch of the last block", BELOW_1)


@dataclass(frozen=True)
class MvitKeys:
    """MViTv2 (MODEL.MODEL_NAME MViT), as it is in torchvision: mgexp/models/mvit.py. The defaults are MViTv2-S."""

    EMBED_DIM: int = key(96, "channels of the first block", count(100_000))
    DEPTH: int = key(16, "number of blocks", between(2, 1000))
    NUM_HEADS: int = key(1, "heads of attention in the first block", count(1000))
    STAGES: tuple[int, ...] = own(
        (1, 3, 14), "blocks, from 0, that halve height and width (DIM_MUL there)")
    DROPPATH_RATE: float = key(
        0.0, "share of the clips that skip a branch of the last block", BELOW_1)


@dataclass(frozen=True)
class X3dKeys:
    """X3D (MODEL.MODEL_NAME X3D): mgexp/models/build.py."""

    WIDTH_FACTOR: float = key(2.0, "channels / those of the smallest network (XS, S, M and L 2)", FACTOR)
    DEPTH_FACTOR: float = key(2.2, "blocks / those of the smallest network (XS, S and M 2.2, L 5)", FACTOR)


@dataclass(frozen=True)
class DetectorKeys:
    """Detectors (MODEL.MODEL_NAME FasterRCNN or RetinaNet): mgexp/models/detector.py."""

    CHANNELS: int = own(
        256, "channels of the pyramid; the second stage has 4 × as many hidden ones", count(10_000))
    ANCHORS: tuple[int, int, int, int, int] = own(
        (32, 64, 128, 256, 512), "pixels of a side of the anchors of each level, the finest first",
        Legal("five numbers more than 0", lambda values: min(values) > 0))
    NUM_REGIONS: int = own(512, "regions of an image that the second stage learns from", count(10_000))


@dataclass(frozen=True)
class BnKeys:
    """Batch normalisation (BN)."""

    WEIGHT_DECAY: float = key(0.0, "weight decay of BN", NOT_NEGATIVE)
    USE_PRECISE_STATS: bool = key(True, "estimate BN statistics anew before each evaluation")
    NUM_BATCHES_PRECISE: int = key(200, "mini-batches of that estimate, at most an epoch", AT_LEAST_1)


@dataclass(frozen=True)
class MultigridKeys:
    """The changes in the shape of a mini-batch during training: mgexp/multigrid."""

    LONG_CYCLE: bool = key(False, "vary frames and crop from phase to phase")
    SHORT_CYCLE: bool = key(False, "vary the crop from step to step")
    LONG_CYCLE_FACTORS: tuple[tuple[float, float], ...] = key(
        ((0.25, SQRT_HALF), (0.5, SQRT_HALF), (0.5, 1.0), (1.0, 1.0)),
        "(frames, crop) relative to the full shape; a pair given twice gets twice the steps", FACTOR_PAIRS)
    LONG_CYCLE_PER: Literal["stage", "training"] = own(
        "stage", "the shapes share the steps of each stage, or once those of all but fine-tuning")
    SHORT_CYCLE_FACTORS: tuple[float, ...] = key((0.5, SQRT_HALF), "crop / full crop", FACTORS)
    MAX_BATCH_RATIO: int = own(
        0, "largest clips of a mini-batch / TRAIN.BATCH_SIZE; 0: no limit", between(0, 1_000_000))
    BATCH_RATIO: Literal["pixels", "macs", "measured"] = own(
        "pixels", "what a step keeps: clips x frames x crop² (paper), multiply-accumulates, or CLIP_SECONDS")
    CLIP_SECONDS: tuple[tuple[int, int, float], ...] = own(
        (), "for BATCH_RATIO measured: (frames, crop, seconds of a clip) of all shapes; tools/plan.py prints it",
        CLIP_SECONDS)
    EPOCH_FACTOR: float = key(1.5, "epochs relative to the baseline's; no effect without a cycle", EPOCH_FACTOR)
    BN_BASE_SIZE: int = key(
        8, "clips per group of BN statistics; 0: no groups, all clips of a process (0: mgexp)", NOT_NEGATIVE)
    GRANULARITY: Literal["step", "epoch"] = own(
        "step", "where phases may end; epoch rounds as the released code does")
    FINE_TUNING: bool = own(True, "the last stage has the full shape (long cycle)")
    RANDOM_STRIDE: bool = own(True, "draw the stride of coarse clips from τ … kτ; False: kτ")
    SHAPE_ORDER: Literal["coarse_to_fine", "random"] = own(
        "coarse_to_fine", "random: another order in each stage and turn, for all seeds")
    SHORT_CROPS_OF: Literal["full", "phase"] = own("full", "the crop that the short cycle's factors multiply")
    LR_SCALING: Literal["linear", "sqrt", "noise", "none"] = own(
        "linear", "how the learning rate follows the long cycle's clips; linear: SGD, LARS; sqrt: AdamW, LAMB; "
        "noise: linear for few clips, constant for many (arXiv 1812.06162)")
    NOISE_SCALE: float = own(
        0.0, "N of LR_SCALING noise: gradient noise scale in clips; b·B clips "
        "have the rate of B times (1 + N/B) / (1 + N/(b·B)); 0: unknown", NOT_NEGATIVE)
    WD_SCALING: Literal["none", "sqrt", "linear"] = own(
        "none", "how the weight decay follows the long cycle's clips; sqrt: AdamW with LR_SCALING sqrt "
        "(arXiv 2505.13738)")


@dataclass(frozen=True)
class SolverKeys:
    """Learning rate, epochs and optimizer."""

    BASE_LR: float = key(0.1, "learning rate of the baseline's mini-batch", RATE)
    LR_POLICY: Literal["steps_with_relative_lrs", "cosine"] = key(
        "steps_with_relative_lrs", "how the learning rate falls; SOLVER.STEPS places the stages of both")
    STEPS: tuple[float, ...] = key((0.0,), "first epoch of each stage", STAGES)
    MAX_EPOCH: float = key(300.0, "epochs of the baseline", EPOCHS)
    GAMMA: float = key(0.1, "factor of the learning rate from stage to stage",
                       Legal("in (0, 1)", lambda value: 0 < value < 1))
    MOMENTUM: float = key(0.9, "momentum of SGD and LARS", BELOW_1)
    NESTEROV: bool = key(True, "Nesterov momentum of SGD and LARS (the paper of LARS: False)")
    WEIGHT_DECAY: float = key(1e-4, "weight decay of all parameters but BN's (see ZERO_WD_1D_PARAM)", NOT_NEGATIVE)
    ZERO_WD_1D_PARAM: bool = key(False, "biases have no weight decay")
    LAYER_DECAY: float = key(
        1.0, "learning rate of a block / that of the next one; 1: the same for all", SHARE_NOT_0)
    BIAS_LR_FACTOR: float = own(1.0, "factor of the learning rate of biases but BN's (TSM: 2)", POSITIVE)
    HEAD_LR_FACTOR: float = own(
        1.0, "factor of the learning rate of the classifier, its bias as well (TSM: 5)", POSITIVE)
    CLASS_WEIGHTS: Literal["none", "loss", "sampling"] = own(
        "none", "balance classes: loss weighs a clip by videos / (classes x videos of its class), "
        "sampling draws as many videos of each class")
    CLIP_GRAD_L2NORM: float = key(
        0.0, "largest norm of all gradients together; 0: no limit (TSM: 20)", NOT_NEGATIVE)
    COSINE_END_LR: float = key(0.0, "learning rate of the baseline where the cosine ends", RATE_OR_0)
    COSINE_AFTER_WARMUP: bool = key(False, "the cosine starts where the warm-up ends, not at epoch 0")
    WARMUP_EPOCHS: float = key(0.0, "epochs of linear warm-up", NOT_NEGATIVE)
    WARMUP_STEPS: int = own(
        0, "least steps of that warm-up; 0: epochs alone", NOT_NEGATIVE)
    WARMUP_START_LR: float = key(0.01, "learning rate at step 0 of a warm-up", RATE_OR_0)
    OPTIMIZING_METHOD: str = key(
        "sgd", "sgd, adamw, lars, lamb, pmd_lamb, or a custom optimizer (PySlowFast has sgd, adamw, and a "
        "LARS with the rate outside the momentum)", NOT_EMPTY)
    TRUST_COEFFICIENT: float = own(
        0.001, "η of LARS: a tensor's rate is η·|w| / (|g| + decay·|w|) times the learning rate", POSITIVE)
    BETAS: tuple[float, float] = key(
        (0.9, 0.999), "decay rates per step of the two moments of AdamW and LAMB", BETAS)
    EPS: float = own(
        1e-6, "added to the root of that second moment (LAMB in Paddle: 1e-6; AdamW in torch: 1e-8)", POSITIVE)
    PMD_PERIOD: int = own(
        200, "steps in which PMD-LAMB's factor of BETAS goes from 1 to 0 (200: LargeDet, figure 2)",
        between(2, 1_000_000))
    PMD_CURVE: Literal["cosine", "linear"] = own(
        "cosine", "curve of that factor; the published curve is unknown")


@dataclass(frozen=True)
class EvaluationKeys:
    """The clips of an evaluation at a time, the views of the full protocol, and the controls."""

    BATCH_SIZE: int = key(16, "clips evaluated at a time", count(1_000_000))
    NUM_ENSEMBLE_VIEWS: int = key(10, "clips along the video, in the full protocol", count(1000))
    NUM_SPATIAL_CROPS: Literal[1, 3] = key(3, "crops of each clip, in the full protocol")
    FRAME_ORDER: Literal["forward", "repeated", "shuffled", "reversed"] = own(
        "forward", "controls on a trained model: one frame repeated, shuffled, or the last frame first")


@dataclass(frozen=True)
class Config:
    """The configuration of a run. It is frozen and hashable. Two of them are equal if all values are equal."""

    ROW: str = own("", "the line of the table that this file is")
    EXPECTED: tuple[tuple[str, float, float], ...] = own(
        (), "values that the result must reach: [metric, percent, tolerance in percent]", METRICS)
    RNG_SEED: int = key(0, "seed of the run; --seed sets it", NOT_NEGATIVE)
    LOG_PERIOD: int = key(10, "steps from one log line and record to the next", AT_LEAST_1)
    DEVICE: Literal["auto", "cpu", "cuda"] = own("auto", "auto: cuda where there is a GPU")
    # Sections are frozen, so all configurations may share one default.
    TENSORBOARD: TensorboardKeys = TensorboardKeys()
    WANDB: WandbKeys = WandbKeys()
    TRAIN: TrainKeys = TrainKeys()
    DATA: DataKeys = DataKeys()
    DATA_LOADER: DataLoaderKeys = DataLoaderKeys()
    AUG: AugKeys = AugKeys()
    MODEL: ModelKeys = ModelKeys()
    RESNET: ResnetKeys = ResnetKeys()
    NONLOCAL: NonlocalKeys = NonlocalKeys()
    SLOWFAST: SlowFastKeys = SlowFastKeys()
    VIT: VitKeys = VitKeys()
    MVIT: MvitKeys = MvitKeys()
    X3D: X3dKeys = X3dKeys()
    DETECTOR: DetectorKeys = DetectorKeys()
    BN: BnKeys = BnKeys()
    MULTIGRID: MultigridKeys = MultigridKeys()
    SOLVER: SolverKeys = SolverKeys()
    TEST: EvaluationKeys = EvaluationKeys()
# fmt: on


@dataclass(frozen=True)
class Key:
    """One configuration key, as ``Config`` defines it. ``type`` is its annotation."""

    name: str
    type: Any
    default: Any
    legal: Legal
    meaning: str
    source: str

    def read(self, value: object) -> Any:
        """Convert a value to the type of the key. Raises a ValueError that says what the key takes."""
        takes = f"; it takes {self.legal.words}: " if self.legal is not ANY else ": "
        try:
            converted = convert(self.type, value)
        except ValueError as error:
            raise ValueError(f"{error}{takes}{self.meaning}") from error
        if not self.legal.allows(converted):
            raise ValueError(f"is not allowed{takes}{self.meaning}")
        return converted


def _keys(section: Any, prefix: str = "") -> Iterator[Key]:
    # `from __future__ import annotations` turns annotations into text, so resolve them.
    types = get_type_hints(section)
    for field in dataclasses.fields(section):
        kind = types[field.name]
        if dataclasses.is_dataclass(kind):
            yield from _keys(kind, f"{field.name}.")
            continue
        key = Key(f"{prefix}{field.name}", kind, field.default, **field.metadata)
        if get_origin(kind) is Literal:
            words = f"one of {', '.join(map(str, get_args(kind)))}"
            key = dataclasses.replace(key, legal=Legal(words, get_args(kind).__contains__))
        yield key


KEYS = tuple(_keys(Config))
BY_NAME = {key.name: key for key in KEYS}
"""All keys, with those of ``add_section``."""
_trees: list[type[Config]] = [Config]


def add_section(name: str, section: type) -> None:
    """Add a section of keys, a frozen dataclass with fields by ``own``, to every configuration from now on.

    Raises ValueError for a name that is taken or not in capitals, or for another class.
    """
    if not name.isupper():
        raise ValueError(f"{name} is no name of a section: it takes capitals, such as MY_MODEL")
    if hasattr(_trees[-1], name):
        raise ValueError(f"there is a section {name} already")
    for key in (added := list(_keys(section, f"{name}."))):
        try:
            key.read(key.default)
        except ValueError as error:
            raise ValueError(f"{key.name} = {key.default!r} {error}") from error
    fields = [(name, section, dataclasses.field(default=section()))]
    _trees.append(dataclasses.make_dataclass("Config", fields, bases=(_trees[-1],), frozen=True))
    BY_NAME.update({key.name: key for key in added})


def default_config() -> Config:
    """Return the configuration in which every key has its default, also in sections that were added."""
    return _trees[-1]()
