"""Check keys against each other, and compare two configurations. Each key alone is checked when it is read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress

from mgexp.config.keys import BY_NAME, FOLD, Config
from mgexp.config.load import FORMER_KEYS, flatten
from mgexp.config.values import as_lists
from mgexp.run.files import json_line

RESNETS = ("I3D", "C2D", "Slow", "TSM")
DETECTORS = ("FasterRCNN", "RetinaNet")
MOMENTUM, ADAM, PMD = ("sgd", "lars"), ("adamw", "lamb", "pmd_lamb"), ("pmd_lamb",)
OUR_OPTIMIZERS = MOMENTUM + ADAM
OFFICIAL = ("kinetics", "ssv2", "charades", "ucf101", "hmdb51")

OF_VIDEOS = (
    *("AUG.RANDAUGMENT_OPS", "AUG.MIXUP_ALPHA", "AUG.CUTMIX_ALPHA"),
    *("DATA.STORE", "DATA.TEMPORAL_GRID"),
    *("TRAIN.COMPILE", "TRAIN.ACTIVATION_CHECKPOINTING"),
)
"""Keys that images with boxes do not take: boxes must stay where their objects are."""

READ_WITH = {
    **dict.fromkeys(OF_VIDEOS, ("DATA.FORMAT", ("list", "rawframes", "folders", *OFFICIAL))),
    "DATA.CLASSES": ("DATA.FORMAT", ("list", "rawframes", "kinetics", "ssv2", "ucf101", "folders")),
    "DATA.PATH_PREFIX": ("DATA.FORMAT", ("list", "rawframes", "coco", *OFFICIAL)),
    "DATA.PATH_LABEL_SEPARATOR": ("DATA.FORMAT", ("list", "rawframes")),
    "SOLVER.GAMMA": ("SOLVER.LR_POLICY", ("steps_with_relative_lrs",)),
    "SOLVER.COSINE_END_LR": ("SOLVER.LR_POLICY", ("cosine",)),
    "SOLVER.COSINE_AFTER_WARMUP": ("SOLVER.LR_POLICY", ("cosine",)),
    "MULTIGRID.NOISE_SCALE": ("MULTIGRID.LR_SCALING", ("noise",)),
    "MULTIGRID.CLIP_SECONDS": ("MULTIGRID.BATCH_RATIO", ("measured",)),
    "MODEL.LABEL_SMOOTHING": ("MODEL.LOSS_FUNC", ("cross_entropy",)),
    "SOLVER.CLASS_WEIGHTS": ("MODEL.LOSS_FUNC", ("cross_entropy",)),
    "SOLVER.MOMENTUM": ("SOLVER.OPTIMIZING_METHOD", MOMENTUM),
    "SOLVER.NESTEROV": ("SOLVER.OPTIMIZING_METHOD", MOMENTUM),
    "SOLVER.TRUST_COEFFICIENT": ("SOLVER.OPTIMIZING_METHOD", ("lars",)),
    "SOLVER.BETAS": ("SOLVER.OPTIMIZING_METHOD", ADAM),
    "SOLVER.EPS": ("SOLVER.OPTIMIZING_METHOD", ADAM),
    "SOLVER.PMD_PERIOD": ("SOLVER.OPTIMIZING_METHOD", PMD),
    "SOLVER.PMD_CURVE": ("SOLVER.OPTIMIZING_METHOD", PMD),
}
"""For each of these keys: the key that decides whether it is read, and the values with which it is."""


def cross_problems(cfg: Config) -> list[str]:
    """List every problem between keys that can be found without data and without a schedule."""
    parts = (
        *(_model_problems, _list_problems, _clip_problems, _augment_problems, _box_problems),
        *(_solver_problems, _unread_problems),
    )
    return [problem for part in parts for problem in part(cfg)]


def _unread_problems(cfg: Config) -> Iterator[str]:
    values = dict(flatten(cfg))
    for key, (deciding, readers) in READ_WITH.items():
        value = values[deciding]
        # What an optimizer of the user reads is unknown.
        is_custom = deciding == "SOLVER.OPTIMIZING_METHOD" and value not in OUR_OPTIMIZERS
        if value not in readers and not is_custom:
            yield from _unread(key, values[key], f"{deciding} = {value}")


def _unread(key: str, value: object, deciding: str) -> Iterator[str]:
    """Yield a problem if ``key``, which is not read, has a value: people would believe in its effect."""
    default = BY_NAME[key].default
    if value != default:
        given, usual = as_lists(value), as_lists(default)
        yield f"{key} = {given} is not read with {deciding}: leave it at {usual!r}"


def _model_problems(cfg: Config) -> Iterator[str]:
    name, width, beta_inv = cfg.MODEL.MODEL_NAME, cfg.RESNET.WIDTH_PER_GROUP, cfg.SLOWFAST.BETA_INV
    if name in RESNETS and cfg.RESNET.DEPTH == 18:
        yield f"RESNET.DEPTH = 18 exists for SlowFast only: {name} takes 50 or 101"
    if name in {"SlowFast", "X3D", "ViT", "MViT", *DETECTORS} and any(cfg.NONLOCAL.LOCATION):
        yield f"NONLOCAL.LOCATION: {name} has no non-local blocks here"
    # TSM shifts an eighth of the channels each way, and the fast pathway needs whole channels.
    if name == "TSM" and width % 8:
        yield f"RESNET.WIDTH_PER_GROUP = {width} does not divide by 8"
    if name == "SlowFast" and width % beta_inv:
        yield f"SLOWFAST.BETA_INV = {beta_inv} does not divide RESNET.WIDTH_PER_GROUP = {width}"
    if cfg.TRAIN.ACTIVATION_CHECKPOINTING and cfg.TRAIN.COMPILE != "off":
        yield "TRAIN.COMPILE cannot compile blocks of TRAIN.ACTIVATION_CHECKPOINTING"
    if cfg.MODEL.FREEZE and not cfg.TRAIN.INIT_WEIGHTS:
        yield f"MODEL.FREEZE = {cfg.MODEL.FREEZE} without TRAIN.INIT_WEIGHTS"
    format_, loss = cfg.DATA.FORMAT, cfg.MODEL.LOSS_FUNC
    is_ours = loss in {"cross_entropy", "bce_logit", "detection"}
    # Videos of charades have many labels, those of a list may have many, and those of all other formats have one.
    takes = {
        "charades": ("bce_logit",),
        "coco": ("detection",),
        "list": ("cross_entropy", "bce_logit"),
    }
    losses = takes.get(format_, ("cross_entropy",))
    if is_ours and loss not in losses:
        yield f"MODEL.LOSS_FUNC = {loss}: DATA.FORMAT = {format_} takes {', '.join(losses)}"


def _box_problems(cfg: Config) -> Iterator[str]:
    """Yield the problems of images with boxes; `READ_WITH` has the keys that they do not take."""
    are_boxes, name = cfg.DATA.FORMAT == "coco", cfg.MODEL.MODEL_NAME
    if are_boxes != (name in DETECTORS):
        yield f"DATA.FORMAT = {cfg.DATA.FORMAT} with MODEL.MODEL_NAME = {name}: boxes need a detector"
    if not are_boxes:
        return
    values = dict(flatten(cfg))
    for key in ("DATA.NUM_FRAMES", "TEST.NUM_ENSEMBLE_VIEWS", "TEST.NUM_SPATIAL_CROPS"):
        if values[key] != 1:
            yield f"{key} = {values[key]} with DATA.FORMAT = coco: an image has one frame and one view"


def _list_problems(cfg: Config) -> Iterator[str]:
    data = cfg.DATA
    for key, path in (("TRAIN_LIST", data.TRAIN_LIST), ("VAL_LIST", data.VAL_LIST)):
        if path and (FOLD in path) != bool(data.NUM_FOLDS):
            folds = f"DATA.NUM_FOLDS = {data.NUM_FOLDS}"
            yield f"DATA.{key} = {path} with {folds}: {FOLD} stands for a fold"
    # Split files of hmdb51 have the videos of both.
    if data.FORMAT == "hmdb51" and data.VAL_LIST and data.TRAIN_LIST not in {"", data.VAL_LIST}:
        yield f"DATA.VAL_LIST = {data.VAL_LIST} must be DATA.TRAIN_LIST for hmdb51"


def _clip_problems(cfg: Config) -> Iterator[str]:
    data, shortest = cfg.DATA, cfg.DATA.TRAIN_JITTER_SCALES[0]
    areas, aspects = data.TRAIN_JITTER_SCALES_RELATIVE, data.TRAIN_JITTER_ASPECT_RELATIVE
    # The short side of a video is drawn from the jitter scales, and then the crop is cut out of the resized
    # image.
    if shortest < data.TRAIN_CROP_SIZE and not areas:
        crop = f"DATA.TRAIN_CROP_SIZE = {data.TRAIN_CROP_SIZE}"
        yield f"DATA.TRAIN_JITTER_SCALES starts at {shortest} pixels, less than {crop}"
    if bool(areas) != bool(aspects):
        both = "DATA.TRAIN_JITTER_SCALES_RELATIVE and DATA.TRAIN_JITTER_ASPECT_RELATIVE"
        yield f"{both}: a crop of a random area needs both"
    elif areas:
        deciding = "DATA.TRAIN_JITTER_SCALES_RELATIVE"
        yield from _unread("DATA.INV_UNIFORM_SAMPLE", data.INV_UNIFORM_SAMPLE, deciding)
    views = cfg.TEST.NUM_ENSEMBLE_VIEWS
    if data.TEMPORAL_GRID == "segments" and views > 1:
        yield f"TEST.NUM_ENSEMBLE_VIEWS = {views} with DATA.TEMPORAL_GRID = segments"
    order = cfg.TEST.FRAME_ORDER
    if cfg.TRAIN.ENABLE and order != "forward":
        yield f"TEST.FRAME_ORDER = {order} is a control: add TRAIN.ENABLE False"


def _augment_problems(cfg: Config) -> Iterator[str]:
    aug = cfg.AUG
    if not aug.RANDAUGMENT_OPS:
        key, deciding = "AUG.RANDAUGMENT_MAGNITUDE", "AUG.RANDAUGMENT_OPS = 0"
        yield from _unread(key, aug.RANDAUGMENT_MAGNITUDE, deciding)
    # The strengths of coarse clips change by up to this factor, and the products must be legal too.
    strength = aug.COARSE_STRENGTH
    strengths = {
        "RANDAUGMENT_MAGNITUDE": aug.RANDAUGMENT_MAGNITUDE if aug.RANDAUGMENT_OPS else 0,
        "COLOR_JITTER": aug.COLOR_JITTER,
        "RE_PROB": aug.RE_PROB,
    }
    if not any(strengths.values()):
        yield from _unread("AUG.COARSE_STRENGTH", strength, "all augmentation off")
    for name, value in strengths.items():
        legal = BY_NAME[f"AUG.{name}"].legal
        if not legal.allows(value * strength):
            coarse = f"times AUG.COARSE_STRENGTH = {strength:g} is {value * strength:g}"
            yield f"AUG.{name} = {value:g} {coarse}; it takes {legal.words}"
    # A random rectangle is painted with the mean, which must be a colour.
    if aug.RE_PROB and not all(0 <= value <= 1 for value in cfg.DATA.MEAN):
        yield f"DATA.MEAN = {list(cfg.DATA.MEAN)} with AUG.RE_PROB = {aug.RE_PROB:g}: not in [0, 1]"


def _solver_problems(cfg: Config) -> Iterator[str]:
    solver = cfg.SOLVER
    start = solver.WARMUP_START_LR
    if (solver.WARMUP_EPOCHS or solver.WARMUP_STEPS) and start > solver.BASE_LR:
        yield f"SOLVER.WARMUP_START_LR = {start:g} is above SOLVER.BASE_LR = {solver.BASE_LR:g}"
    # torch's SGD refuses this too, but only when it is made, which is after the lists are read and the network
    # is built.
    if solver.OPTIMIZING_METHOD in MOMENTUM and solver.NESTEROV and solver.MOMENTUM == 0:
        yield "SOLVER.NESTEROV needs SOLVER.MOMENTUM > 0"


KEYS_WITHOUT_EFFECT_ON_RESULT = {
    # The name of a row, what it is judged by, and how often its run writes.
    *("ROW", "EXPECTED", "LOG_PERIOD", "TRAIN.CHECKPOINT_MINUTES", "TRAIN.CHECKPOINTS_KEPT"),
    *("TENSORBOARD.ENABLE", "TENSORBOARD.LOG_DIR"),
    *("WANDB.ENABLE", "WANDB.MODE", "WANDB.PROJECT", "WANDB.ENTITY"),
    # The seed has its own column in results.csv. A trained run may be evaluated again.
    *("RNG_SEED", "TRAIN.ENABLE"),
    # Where the videos are and how they are listed. dataset.json identifies the videos.
    *("DATA.FORMAT", "DATA.CLASSES", "DATA.PATH_PREFIX", "DATA.NUM_VIDEOS"),
    *("DATA.MAX_UNUSABLE_SHARE", "DATA.VIDEO_TIMEOUT_SECONDS"),
    # A clip depends on the seed and on its position. It does not depend on the process that decodes it.
    *("DATA_LOADER.NUM_WORKERS", "DATA_LOADER.PREFETCH_FACTOR"),
    *FORMER_KEYS,
}
"""Two runs of a row may differ in these keys. Apart from the seed, they cannot change accuracy, steps or FLOPs."""
PLACE_KEYS = ("DATA.TRAIN_LIST", "DATA.VAL_LIST", "DATA.STORE", "DATA.QUARANTINE")
"""Keys that say where lists and copies are. A YAML may leave them empty for the command line, as for Kinetics."""


def recipe_digest(values: Mapping[str, object]) -> str:
    """Hash the values, by dotted names, that make two runs the same recipe.

    A key with its default does not count, so that the digest stays when a version adds a key.
    """
    kept = {}
    for key, value, _ in differing_keys(values, {}):
        if key not in PLACE_KEYS:
            kept[key] = value
            # Files may write 10.0 as 10. A value that is no longer legal stays as it is.
            with suppress(KeyError, ValueError):
                kept[key] = as_lists(BY_NAME[key].read(value))
    return hashlib.sha256(json_line(kept).encode()).hexdigest()[:16]


def value_of(values: Mapping[str, object], key: str) -> object:
    """Return the value of a key in ``values``; its default if they are older; "absent" if the key is gone."""
    return as_lists(values.get(key, BY_NAME[key].default if key in BY_NAME else "absent"))


def differing_keys(
    first: Mapping[str, object],
    second: Mapping[str, object],
    ignored: Set[str] = KEYS_WITHOUT_EFFECT_ON_RESULT,
) -> Iterator[tuple[str, object, object]]:
    """Yield (key, value in first, value in second) for each key that differs and can change a result."""
    for key in sorted((first.keys() | second.keys()) - ignored):
        left, right = value_of(first, key), value_of(second, key)
        if left != right:
            yield key, left, right
