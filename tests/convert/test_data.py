"""Videos, colours, augmentation and tests of PySlowFast."""

import pytest
from released import keys_of, released

from mgexp.convert.pyslowfast import convert

STEPWISE = "Kinetics/SLOWFAST_8x8_R50_stepwise"
SSV2 = "SSv2/SLOWFAST_16x8_R50"
CHARADES = "Charades/SLOWFAST_16x8_R50"


def why(name, key, **changes):
    """What is said of a key."""
    conversion = convert(released(name, **changes))
    (said,) = [n.why for n in (*conversion.changed, *conversion.dropped) if n.name == key]
    return said


def test_lists_of_kinetics():
    keys = keys_of(STEPWISE, DATA__PATH_TO_DATA_DIR="lists/", DATA__PATH_PREFIX="videos")
    assert keys["DATA.TRAIN_LIST"] == "lists/train.csv"
    assert keys["DATA.VAL_LIST"] == "lists/val.csv"
    assert keys["DATA.PATH_PREFIX"] == "videos"


def test_lists_of_something_something():
    keys = keys_of(SSV2, DATA__PATH_TO_DATA_DIR="lists", DATA__PATH_PREFIX="frames")
    assert keys["DATA.FORMAT"] == "ssv2"
    assert keys["DATA.TRAIN_LIST"] == "lists/something-something-v2-train.json"
    assert keys["DATA.VAL_LIST"] == "lists/something-something-v2-validation.json"
    assert keys["DATA.CLASSES"] == "lists/something-something-v2-labels.json"
    assert "DATA.PATH_PREFIX" not in keys  # of frames there, of videos here


def test_something_something_has_segments_and_one_view():
    keys = keys_of(SSV2, TEST__NUM_ENSEMBLE_VIEWS=10)
    assert keys["DATA.TEMPORAL_GRID"] == "segments"
    assert keys["TEST.NUM_ENSEMBLE_VIEWS"] == 1


def test_charades_counts_extracted_frames_and_has_many_labels():
    keys = keys_of(CHARADES, DATA__PATH_TO_DATA_DIR="lists")
    assert (keys["DATA.FORMAT"], keys["MODEL.LOSS_FUNC"]) == ("charades", "bce_logit")
    assert keys["DATA.TARGET_FPS"] == 24
    assert "DATA.TRAIN_LIST" not in keys  # lists of frames there, the official files here


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        (STEPWISE, {"TRAIN__DATASET": "imagenet", "TEST__DATASET": "imagenet"}, "TRAIN.DATASET = imagenet"),
        (STEPWISE, {"TEST__DATASET": "ssv2"}, "TEST.DATASET = ssv2 is not TRAIN.DATASET"),
        (STEPWISE, {"DATA__MULTI_LABEL": True}, "only charades has many labels"),
        (STEPWISE, {"MODEL__HEAD_ACT": "sigmoid"}, "scores are by softmax"),
        (STEPWISE, {"DATA__TRAIN_CROP_NUM_TEMPORAL": 2}, "one clip at a time"),
        (STEPWISE, {"AUG__ENABLE": True, "AUG__AA_TYPE": "augmix-m5"}, "RandAugment has one"),
    ],
)  # fmt: skip
def test_data_without_a_counterpart(name, changes, said):
    (problem,) = convert(released(name, **changes)).problems
    assert said in problem


@pytest.mark.parametrize(
    ("name", "is_reversed", "is_same"),
    [  # extracted frames are read as BGR, videos are decoded as RGB
        (SSV2, True, True),
        (SSV2, False, False),
        (STEPWISE, False, True),
        (STEPWISE, True, False),
    ],
)
def test_order_of_colours(name, is_reversed, is_same):
    said = why(name, "DATA.REVERSE_INPUT_CHANNEL", DATA__REVERSE_INPUT_CHANNEL=is_reversed)
    assert ("here as there" in said) == is_same
    assert ("must come from a network that saw the same" in said) != is_same


def test_means_are_in_the_order_in_which_frames_are_read():
    mean = [0.1, 0.2, 0.3]
    assert keys_of(SSV2, DATA__MEAN=mean)["DATA.MEAN"] == (0.3, 0.2, 0.1)
    assert keys_of(STEPWISE, DATA__MEAN=mean)["DATA.MEAN"] == (0.1, 0.2, 0.3)


def test_augmentation_is_off_unless_it_is_on():
    of_aug = {"AUG__AA_TYPE": "rand-m7-n4-mstd0.5-inc1", "AUG__RE_PROB": 0.3}
    assert not [key for key in keys_of(STEPWISE, **of_aug) if key.startswith("AUG")]
    keys = keys_of(STEPWISE, AUG__ENABLE=True, **of_aug)
    assert keys["AUG.RANDAUGMENT_OPS"] == 2  # each of 4 takes place for half of the clips there
    assert keys["AUG.RANDAUGMENT_MAGNITUDE"] == 21
    assert keys["AUG.RE_PROB"] == 0.3


def test_augmentation_is_not_read_for_charades():
    """PySlowFast's data set of Charades has no augmentation but crops and flips."""
    of_aug = {"AUG__ENABLE": True, "AUG__AA_TYPE": "rand-m7-n4-mstd0.5-inc1", "AUG__RE_PROB": 0.3}
    assert not [key for key in keys_of(CHARADES, **of_aug) if key.startswith("AUG")]
    assert why(CHARADES, "AUG.RE_PROB", **of_aug) == "PySlowFast does not read it for this data set"


RELATIVE = {
    "DATA__TRAIN_JITTER_SCALES_RELATIVE": [0.08, 1.0],
    "DATA__TRAIN_JITTER_ASPECT_RELATIVE": [0.75, 1.3333],
}


@pytest.mark.parametrize(
    ("name", "changes", "is_read"),
    [  # datasets/kinetics.py reads them, utils.aug_frame for ssv2.py too, and no other file for videos
        (STEPWISE, {}, True),
        (STEPWISE, {"TRAIN__DATASET": "ptvkinetics", "TEST__DATASET": "ptvkinetics"}, False),
        (SSV2, {}, False),
        (SSV2, {"AUG__ENABLE": True}, True),
        ("Charades/SLOWFAST_16x8_R50", {"AUG__ENABLE": True}, False),
    ],
)
def test_relative_crops_are_kept_where_they_are_read(name, changes, is_read):
    keys = keys_of(name, **changes, **RELATIVE)
    assert (keys.get("DATA.TRAIN_JITTER_SCALES_RELATIVE") == (0.08, 1.0)) == is_read
    assert (keys.get("DATA.TRAIN_JITTER_ASPECT_RELATIVE") == (0.75, 1.3333)) == is_read
    # SSv2 and Charades draw the inverse of a short side, if they draw one.
    before = keys_of(name, **changes).get("DATA.INV_UNIFORM_SAMPLE")
    assert keys.get("DATA.INV_UNIFORM_SAMPLE") == (None if is_read else before)


def test_one_of_the_two_keys_of_relative_crops_is_a_problem():
    given = released(STEPWISE, DATA__TRAIN_JITTER_SCALES_RELATIVE=[0.08, 1.0])
    (problem,) = convert(given).problems
    assert problem.startswith("DATA.TRAIN_JITTER_SCALES_RELATIVE = [0.08, 1.0] has no counterpart")


def test_an_empty_list_of_relative_crops_is_said_to_be_empty():
    said = why(STEPWISE, "DATA.TRAIN_JITTER_SCALES_RELATIVE", DATA__TRAIN_JITTER_SCALES_RELATIVE=[])
    assert said.startswith("it is empty")


def test_a_test_batch_is_that_of_all_gpus():
    assert keys_of(STEPWISE)["TEST.BATCH_SIZE"] == 8  # 64 on 8
    assert keys_of(STEPWISE, NUM_GPUS=1)["TEST.BATCH_SIZE"] == 64


def test_what_a_larger_test_crop_means():
    assert "there it classifies windows of 224 pixels" in why(STEPWISE, "DATA.TEST_CROP_SIZE")
    assert "DATA.TEST_CROP_SIZE" in convert(released(f"{STEPWISE}_multigrid")).kept


def test_one_crop_is_cut_from_another_short_side():
    changes = {"TEST__NUM_SPATIAL_CROPS": 1, "DATA__TEST_CROP_SIZE": 224}
    said = why(STEPWISE, "DATA.TEST_CROP_SIZE", **changes)
    assert said == "224, but the crop is cut from a short side of 224 pixels; there of 256"


def test_mixup_becomes_keys_of_the_clips_and_of_the_labels():
    given = {"MIXUP__ENABLE": True, "MIXUP__ALPHA": 0.5, "MIXUP__LABEL_SMOOTH_VALUE": 0.2}
    draft = convert(released(STEPWISE, **given, MODEL__LOSS_FUNC="soft_cross_entropy"))
    assert draft.problems == []
    assert (draft.keys["AUG.MIXUP_ALPHA"], draft.keys["AUG.CUTMIX_ALPHA"]) == (0.5, 1.0)
    assert draft.keys["MODEL.LABEL_SMOOTHING"] == 0.2
    assert "MODEL.LOSS_FUNC" not in draft.keys  # cross_entropy
    off = convert(released(STEPWISE, MIXUP__ALPHA=0.5))
    assert not any("MIX" in name for name in off.keys)
    (rare,) = convert(released(STEPWISE, **given, MIXUP__PROB=0.5)).problems
    assert rare.startswith("MIXUP.PROB = 0.5 has no counterpart: every step mixes its clips")


def test_repeated_augmentation_multiplies_clips_and_epochs():
    """An epoch of N videos there takes N / 64 steps of 128 clips, and here N / 128."""

    def twice(epochs):
        return tuple(2 * one for one in epochs) if isinstance(epochs, tuple) else 2 * epochs

    on = {"AUG__ENABLE": True, "AUG__AA_TYPE": "rand-m7-n4", "AUG__NUM_SAMPLE": 2}
    before, after = keys_of(STEPWISE), keys_of(STEPWISE, **on)
    assert after["AUG.REPEATS"] == 2
    assert after["TRAIN.BATCH_SIZE"] == 128  # before, our default of 64
    for key in ("SOLVER.STEPS", "SOLVER.WARMUP_EPOCHS", "SOLVER.MAX_EPOCH"):
        assert after[key] == twice(before[key]), key
    assert after["MULTIGRID.BN_BASE_SIZE"] == 16  # clips of a GPU: 2 for each of 8 videos
    assert "AUG.REPEATS" not in keys_of(STEPWISE, AUG__NUM_SAMPLE=2)  # AUG is off
    (problem,) = convert(released(STEPWISE, **on, MULTIGRID__LONG_CYCLE=True)).problems
    assert "AUG.NUM_SAMPLE = 2 has no counterpart with multigrid" in problem
