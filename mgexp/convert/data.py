"""Convert the lists, clips, augmentation and tests of a PySlowFast YAML."""

from __future__ import annotations

import math
import re

from mgexp.convert.conversion import Conversion

FORMATS = {"kinetics": "list", "ssv2": "ssv2", "charades": "charades"}
"""DATA.FORMAT by TRAIN.DATASET. PySlowFast's lists of Kinetics have lines of path and label."""
RAND_AUGMENT = re.compile(r"rand(?:-(?:m(?P<m>\d+(?:\.\d+)?)|n(?P<n>\d+)|mstd[\d.]+|inc\d))*")
"""RandAugment in the notation of timm, such as rand-m7-n4-mstd0.5-inc1: its magnitude m and its
number n of operations."""
UNREAD = "PySlowFast does not read it for this data set"


def convert_data(draft: Conversion) -> None:
    """Convert DATA, DATA_LOADER, AUG and TEST."""
    draft.keep("DATA.NUM_FRAMES", "DATA.TRAIN_JITTER_SCALES")
    draft.keep("DATA.RANDOM_FLIP", "DATA.TRAIN_CROP_SIZE", "DATA.ENSEMBLE_METHOD")
    draft.keep("DATA_LOADER.NUM_WORKERS")
    name = draft.value("TRAIN.DATASET").lower().removeprefix("ptv")
    if name in FORMATS:
        format_ = FORMATS[name]
        grid = "segments" if format_ == "ssv2" else "stride"
        why = f"DATA.FORMAT {format_}, DATA.TEMPORAL_GRID {grid}"
        draft.change("TRAIN.DATASET", why, DATA__FORMAT=format_, DATA__TEMPORAL_GRID=grid)
    else:
        # With any format the other keys can be judged too, so that one message has all problems.
        format_ = "list"
        draft.refuse("TRAIN.DATASET", f"has no counterpart: {', '.join(FORMATS)} have one")
    _lists(draft, format_)
    _sampling(draft, format_)
    _crops(draft, format_)
    _labels(draft, format_)
    _colours(draft, format_)
    _augmentation(draft, format_)
    _mixing(draft)
    _test(draft, format_)


def _lists(draft: Conversion, format_: str) -> None:
    """Convert the folders of lists and videos."""
    folder = draft.value("DATA.PATH_TO_DATA_DIR").rstrip("/")
    if format_ == "list":
        draft.keep("DATA.PATH_PREFIX", "DATA.PATH_LABEL_SEPARATOR")
        names = ("train.csv", "val.csv")
    else:
        why = (
            "it is about extracted frames; here DATA.PATH_PREFIX is the folder of the videos, "
            f"with DATA.FORMAT {format_}"
        )
        draft.drop(why, "DATA.PATH_PREFIX", "DATA.PATH_LABEL_SEPARATOR")
        names = ("something-something-v2-train.json", "something-something-v2-validation.json")
    if format_ == "charades" or not draft.value("DATA.PATH_TO_DATA_DIR"):
        why = "DATA.TRAIN_LIST and DATA.VAL_LIST, as the formats of docs/data_sets.md have them"
        draft.drop(why, "DATA.PATH_TO_DATA_DIR")
        return
    train, val = (f"{folder}/{name}" for name in names)
    why = f"DATA.TRAIN_LIST {train} and DATA.VAL_LIST {val}, which the final test uses too"
    draft.change("DATA.PATH_TO_DATA_DIR", why, DATA__TRAIN_LIST=train, DATA__VAL_LIST=val)
    if format_ == "ssv2":
        draft.keys["DATA.CLASSES"] = f"{folder}/something-something-v2-labels.json"


def _sampling(draft: Conversion, format_: str) -> None:
    """Convert the keys that decide which frames of a video a clip has."""
    if format_ == "ssv2":
        why = "frames are drawn from segments of the video, in PySlowFast too"
        draft.drop(why, "DATA.SAMPLING_RATE", "DATA.TARGET_FPS")
        return
    draft.keep("DATA.SAMPLING_RATE")
    if format_ == "charades":
        # Whatever value is given, ours is 24: PySlowFast does not read the key for extracted
        # frames.
        why = "24: charades' frames are counted as they were extracted, 24 a second"
        draft.change("DATA.TARGET_FPS", why, DATA__TARGET_FPS=24.0)
    else:
        draft.keep("DATA.TARGET_FPS")


def _crops(draft: Conversion, format_: str) -> None:
    """Convert the keys of crops that are a share of the frame, which PySlowFast reads in some of its data sets."""
    names = ("DATA.TRAIN_JITTER_SCALES_RELATIVE", "DATA.TRAIN_JITTER_ASPECT_RELATIVE")
    is_pytorchvideo = draft.value("TRAIN.DATASET").lower().startswith("ptv")
    has_them = format_ == "list" or (format_ == "ssv2" and draft.value("AUG.ENABLE"))
    is_read = has_them and not is_pytorchvideo
    # There, a file that gives one of the two ends in a TypeError.
    given = [name for name in names if draft.value(name)]
    for name in given if is_read and len(given) == 1 else ():
        draft.refuse(name, "has no counterpart alone: a crop of a random area needs both keys")
    is_used = is_read and len(given) == len(names)
    empty = "it is empty: each frame gets a random short side"
    draft.keep_if(is_used, empty if is_read else UNREAD, *names)
    why = "no short side is drawn, in PySlowFast too"
    draft.keep_if(not is_used, why, "DATA.INV_UNIFORM_SAMPLE")


def _labels(draft: Conversion, format_: str) -> None:
    """Convert the keys that decide whether a video has several labels, and how logits become scores."""
    if draft.value("DATA.MULTI_LABEL") != (format_ == "charades"):
        why = f"has no counterpart with DATA.FORMAT = {format_}: only charades has many labels"
        draft.refuse("DATA.MULTI_LABEL", why)
    draft.drop(f"DATA.FORMAT {format_} decides this", "DATA.MULTI_LABEL")
    # For mixed labels PySlowFast has another name for the same loss.
    loss = draft.value("MODEL.LOSS_FUNC").removeprefix("soft_")
    draft.keep_as("MODEL.LOSS_FUNC", loss, f"{loss}: of two labels with their weights")
    activations = {"cross_entropy": "softmax", "bce_logit": "sigmoid"}
    activation = activations.get(loss)
    if activation is None:
        draft.refuse("MODEL.LOSS_FUNC", f"has no counterpart: {' and '.join(activations)} have one")
    elif activation != draft.value("MODEL.HEAD_ACT"):
        why = f"has no counterpart with that loss: scores are by {activation}"
        draft.refuse("MODEL.HEAD_ACT", why)
    draft.drop("MODEL.LOSS_FUNC decides this", "MODEL.HEAD_ACT")


def _colours(draft: Conversion, format_: str) -> None:
    """Convert the order of colours. Ours is RGB. PySlowFast reads videos as RGB, but extracted frames as BGR."""
    is_video = format_ == "list" or draft.value("TRAIN.DATASET").lower().startswith("ptv")
    is_read_reversed = not is_video
    for name in ("DATA.MEAN", "DATA.STD"):
        values = draft.value(name)[:: -1 if is_read_reversed else 1]
        draft.keep_as(name, values, f"{list(values)}: in the order red, green, blue")
    if draft.value("DATA.REVERSE_INPUT_CHANNEL") == is_read_reversed:
        draft.drop("the network sees red, green, blue, here as there", "DATA.REVERSE_INPUT_CHANNEL")
    else:
        why = (
            "nothing: the network there sees blue, green, red, and here red, green, blue; from random weights "
            "that is the same, and other weights must come from a network that saw the same"
        )
        draft.change("DATA.REVERSE_INPUT_CHANNEL", why)


def _augmentation(draft: Conversion, format_: str) -> None:
    """Convert AUG, which PySlowFast reads only if AUG.ENABLE is True, and not for Charades."""
    names = ("AUG.NUM_SAMPLE", "AUG.AA_TYPE", "AUG.RE_PROB", "AUG.RE_MODE", "AUG.RE_COUNT")
    if not draft.value("AUG.ENABLE"):
        draft.drop("AUG.ENABLE is False", "AUG.ENABLE", *names)
        return
    if format_ == "charades":
        draft.drop(UNREAD, "AUG.ENABLE", *names)
        return
    draft.drop("AUG.RANDAUGMENT_OPS and AUG.RE_PROB decide this", "AUG.ENABLE")
    draft.require("AUG.RE_COUNT", draft.value("AUG.RE_COUNT") == 1, "each clip is erased once")
    _repeats(draft)
    draft.keep("AUG.RE_PROB")
    draft.change(
        "AUG.RE_MODE",
        "nothing: a rectangle gets the colour DATA.MEAN; there, with pixel, random colours",
    )
    found = RAND_AUGMENT.fullmatch(draft.value("AUG.AA_TYPE"))
    if found is None:
        draft.refuse("AUG.AA_TYPE", "has no counterpart: RandAugment has one, written rand-m7-n4")
        return
    # The notation is timm's, where the largest strength is 10, and an operation takes place for half of the clips.
    # In torchvision, which we use, the largest strength is 30, and every operation takes place.
    num, magnitude = int(found["n"] or 2), round(float(found["m"] or 10) * 3)
    ops = math.ceil(num / 2)
    why = (
        f"AUG.RANDAUGMENT_OPS {ops}, AUG.RANDAUGMENT_MAGNITUDE {magnitude} of 30: similar; there each of {num} "
        "operations takes place for half of the clips, and its strength varies"
    )
    draft.change("AUG.AA_TYPE", why, AUG__RANDAUGMENT_OPS=ops, AUG__RANDAUGMENT_MAGNITUDE=magnitude)


def _repeats(draft: Conversion) -> None:
    """Convert repeated augmentation, which multiplies the clips of a mini-batch and of an epoch there."""
    name, num = "AUG.NUM_SAMPLE", draft.num_samples
    if num > 1 and (draft.value("MULTIGRID.LONG_CYCLE") or draft.value("MULTIGRID.SHORT_CYCLE")):
        why = "has no counterpart with multigrid: its phases would end at other epochs"
        draft.refuse(name, why)
    elif num < 1:
        draft.refuse(name, "has no counterpart: each video gives at least one clip")
    else:
        why = f"AUG.REPEATS {num}; an epoch has one clip of each video here, so epochs are {num} times as many"
        draft.change(name, why, AUG__REPEATS=num)


def _mixing(draft: Conversion) -> None:
    """Convert MIXUP, whose keys PySlowFast reads only if MIXUP.ENABLE is True."""
    names = ("ALPHA", "CUTMIX_ALPHA", "PROB", "SWITCH_PROB", "LABEL_SMOOTH_VALUE")
    if not draft.value("MIXUP.ENABLE"):
        draft.drop("clips are not mixed", "MIXUP.ENABLE", *(f"MIXUP.{name}" for name in names))
        return
    mixup, cutmix, _, _, smoothing = (draft.value(f"MIXUP.{name}") for name in names)
    why = f"AUG.MIXUP_ALPHA {mixup:g}, a clip with its neighbour and not with the opposite one"
    draft.change("MIXUP.ALPHA", why, AUG__MIXUP_ALPHA=mixup)
    draft.change("MIXUP.CUTMIX_ALPHA", f"AUG.CUTMIX_ALPHA {cutmix:g}", AUG__CUTMIX_ALPHA=cutmix)
    why = f"MODEL.LABEL_SMOOTHING {smoothing:g}"
    draft.change("MIXUP.LABEL_SMOOTH_VALUE", why, MODEL__LABEL_SMOOTHING=smoothing)
    draft.require("MIXUP.PROB", draft.value("MIXUP.PROB") == 1, "every step mixes its clips")
    is_half = draft.value("MIXUP.SWITCH_PROB") == 0.5 or not (mixup and cutmix)
    draft.require("MIXUP.SWITCH_PROB", is_half, "CutMix has half of the steps")
    draft.drop("AUG.MIXUP_ALPHA and AUG.CUTMIX_ALPHA decide this", "MIXUP.ENABLE")


def _test(draft: Conversion, format_: str) -> None:
    """Convert TEST and DATA.TEST_CROP_SIZE."""
    draft.keep("TEST.NUM_SPATIAL_CROPS")
    views = draft.value("TEST.NUM_ENSEMBLE_VIEWS")
    why = "1: all views of the segments of a video are the same"
    draft.keep_as("TEST.NUM_ENSEMBLE_VIEWS", min(views, 1) if format_ == "ssv2" else views, why)
    train, test = (draft.value(f"{one}.DATASET").lower() for one in ("TRAIN", "TEST"))
    if draft.value("TEST.ENABLE") and test != train:
        draft.refuse("TEST.DATASET", "is not TRAIN.DATASET: a run tests on DATA.VAL_LIST")
    draft.drop("a run tests on DATA.VAL_LIST", "TEST.DATASET")
    draft.drop("every run tests once it is trained", "TEST.ENABLE")
    # PySlowFast's batch is that of all GPUs of a machine, ours that of one process.
    gpus = max(1, draft.value("NUM_GPUS"))
    if gpus == 1:
        draft.keep("TEST.BATCH_SIZE")
    else:
        clips = max(1, draft.value("TEST.BATCH_SIZE") // gpus)
        why = f"{clips}: of one process of {gpus}"
        draft.change("TEST.BATCH_SIZE", why, TEST__BATCH_SIZE=clips)
    crop, trained = draft.value("DATA.TEST_CROP_SIZE"), draft.value("DATA.TRAIN_CROP_SIZE")
    shortest = min(draft.value("DATA.TRAIN_JITTER_SCALES"), default=crop)
    differences = []
    if crop != trained and not draft.value("MULTIGRID.SHORT_CYCLE"):
        differences.append(
            "the network averages over the whole crop, then classifies; there it classifies windows of "
            f"{trained} pixels, then averages"
        )
    if format_ == "list" and draft.value("TEST.NUM_SPATIAL_CROPS") == 1 and crop != shortest:
        differences.append(
            f"the crop is cut from a short side of {crop} pixels; there of {shortest}"
        )
    if differences:
        why = f"{crop}, but {'; and '.join(differences)}"
        draft.change("DATA.TEST_CROP_SIZE", why, DATA__TEST_CROP_SIZE=crop)
    else:
        draft.keep("DATA.TEST_CROP_SIZE")
