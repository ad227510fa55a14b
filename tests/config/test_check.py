"""Problems between keys."""

import pytest
from tiny import EXPERIMENTS

from mgexp.config.check import cross_problems
from mgexp.config.load import load_config

LONG_SHORT = EXPERIMENTS / "quickstart" / "long_short.yaml"


def problems_of(*pairs):
    """Problems between the keys of the quickstart's long+short row, with some changed."""
    return cross_problems(load_config(LONG_SHORT, pairs))


RELATIVE = (
    "DATA.TRAIN_JITTER_SCALES_RELATIVE [0.08,1] DATA.TRAIN_JITTER_ASPECT_RELATIVE [0.75,1.3333]"
)
TSM = "MODEL.MODEL_NAME TSM RESNET.DEPTH 50 RESNET.WIDTH_PER_GROUP 36"
STRONG = "AUG.RANDAUGMENT_OPS 1 AUG.RANDAUGMENT_MAGNITUDE 20 AUG.COARSE_STRENGTH 2"
CHARADES = "DATA.FORMAT charades MODEL.LOSS_FUNC bce_logit"
BOXES = (
    "DATA.FORMAT coco MODEL.LOSS_FUNC detection MODEL.MODEL_NAME FasterRCNN DATA.NUM_FRAMES 1 "
    "TEST.NUM_ENSEMBLE_VIEWS 1 TEST.NUM_SPATIAL_CROPS 1"
)


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ("MODEL.MODEL_NAME I3D RESNET.DEPTH 18", "RESNET.DEPTH = 18 exists for SlowFast only"),
        ("NONLOCAL.LOCATION [[],[1],[],[]]", "SlowFast has no non-local blocks here"),
        ("SOLVER.LR_POLICY cosine SOLVER.GAMMA 0.5", "SOLVER.GAMMA = 0.5 is not read"),
        ("MULTIGRID.CLIP_SECONDS [[8,64,0.1]]", "not read with MULTIGRID.BATCH_RATIO = pixels"),
        ("MODEL.LOSS_FUNC own MODEL.LABEL_SMOOTHING 0.1", "MODEL.LABEL_SMOOTHING = 0.1 "),
        ("SOLVER.BASE_LR 1e-3 SOLVER.WARMUP_START_LR 0.01", "SOLVER.WARMUP_START_LR = 0.01 "),
        (TSM, "RESNET.WIDTH_PER_GROUP = 36 does not divide by 8"),
        ("RESNET.WIDTH_PER_GROUP 36", "does not divide RESNET.WIDTH_PER_GROUP = 36"),
        ("TRAIN.COMPILE default TRAIN.ACTIVATION_CHECKPOINTING True", "TRAIN.COMPILE "),
        ("DATA.TRAIN_CROP_SIZE 80", "less than DATA.TRAIN_CROP_SIZE = 80"),
        ("DATA.TRAIN_JITTER_SCALES_RELATIVE [0.08,1.0]", "a crop of a random area needs both"),
        (f"{RELATIVE} DATA.INV_UNIFORM_SAMPLE True", "DATA.INV_UNIFORM_SAMPLE = True is not read"),
        ("TEST.FRAME_ORDER shuffled", "add TRAIN.ENABLE False"),
        ("SOLVER.MOMENTUM 0", "SOLVER.NESTEROV needs SOLVER.MOMENTUM > 0"),
        (f"{CHARADES} DATA.CLASSES a.txt", "DATA.CLASSES = a.txt is not read"),
        ("DATA.FORMAT charades", "DATA.FORMAT = charades takes bce_logit"),
        ("DATA.FORMAT rawframes MODEL.LOSS_FUNC bce_logit", "LOSS_FUNC = bce_logit: DATA."),
        ("DATA.FORMAT folders", "DATA.PATH_PREFIX = data/quickstart is not read"),
        ("DATA.VAL_LIST val_{fold}.csv", "DATA.VAL_LIST = val_{fold}.csv with DATA.NUM_FOLDS = 0"),
        ("DATA.NUM_FOLDS 5 DATA.TRAIN_LIST train_{fold}.csv", "val.csv with DATA.NUM_FOLDS = 5"),
        ("DATA.FORMAT hmdb51", "must be DATA.TRAIN_LIST for hmdb51"),
        ("MULTIGRID.NOISE_SCALE 40", "MULTIGRID.NOISE_SCALE = 40.0 is not read"),
        ("SOLVER.TRUST_COEFFICIENT 0.02", "SOLVER.TRUST_COEFFICIENT = 0.02 is not read"),
        ("SOLVER.BETAS [0.9,0.99] SOLVER.OPTIMIZING_METHOD lars", "SOLVER.BETAS = "),
        ("AUG.RANDAUGMENT_MAGNITUDE 15", "AUG.RANDAUGMENT_MAGNITUDE = 15 is not read"),
        ("AUG.RE_PROB 0.25 DATA.MEAN [115,115,115]", "with AUG.RE_PROB = 0.25: not in [0, 1]"),
        ("AUG.COARSE_STRENGTH 0.5", "AUG.COARSE_STRENGTH = 0.5 is not read"),
        ("AUG.COLOR_JITTER 0.6 AUG.COARSE_STRENGTH 2", "AUG.COARSE_STRENGTH = 2 is 1.2"),
        ("AUG.RE_PROB 0.75 AUG.COARSE_STRENGTH 2", "AUG.COARSE_STRENGTH = 2 is 1.5"),
        (BOXES.replace("FasterRCNN", "ViT"), "MODEL.MODEL_NAME = ViT: boxes need a detector"),
        (BOXES.replace("detection", "bce_logit"), "DATA.FORMAT = coco takes detection"),
        (BOXES.replace("FRAMES 1", "FRAMES 8"), "DATA.NUM_FRAMES = 8 with DATA.FORMAT = coco"),
        (BOXES.replace("CROPS 1", "CROPS 3"), "TEST.NUM_SPATIAL_CROPS = 3 with"),
        (f"{BOXES} AUG.RANDAUGMENT_OPS 2", "AUG.RANDAUGMENT_OPS = 2 is not read with DATA.FORMAT"),
        (f"{BOXES} AUG.CUTMIX_ALPHA 1", "AUG.CUTMIX_ALPHA = 1.0 is not read"),
        (f"{BOXES} DATA.STORE copies", "DATA.STORE = copies is not read"),
        (f"{BOXES} TRAIN.COMPILE default", "TRAIN.COMPILE = default is not read"),
        (f"{BOXES} MODEL.LABEL_SMOOTHING 0.1", "MODEL.LABEL_SMOOTHING = 0.1 is not read"),
        (f"{BOXES} SOLVER.CLASS_WEIGHTS loss", "SOLVER.CLASS_WEIGHTS = loss is not read"),
        (STRONG, "AUG.RANDAUGMENT_MAGNITUDE = 20 times AUG.COARSE_STRENGTH = 2 is 40"),
    ],
)
def test_keys_that_contradict_each_other_are_one_problem(pairs, said):
    (problem,) = problems_of(*pairs.split())
    assert said in problem


@pytest.mark.parametrize(
    "pairs",
    [
        BOXES,
        "TEST.FRAME_ORDER shuffled TRAIN.ENABLE False",
        "MULTIGRID.NOISE_SCALE 40 MULTIGRID.LR_SCALING noise",
        "DATA.NUM_FOLDS 5 DATA.TRAIN_LIST train_{fold}.csv DATA.VAL_LIST val_{fold}.csv",
        "SOLVER.MOMENTUM 0 SOLVER.NESTEROV False",
        "SOLVER.BASE_LR 1e-3 SOLVER.WARMUP_START_LR 0.01 SOLVER.WARMUP_EPOCHS 0",
        f"{CHARADES} EXPECTED [['map',38.9,0.5]]",
        "DATA.FORMAT hmdb51 DATA.VAL_LIST data/quickstart/train.csv",
        "SOLVER.STEPS [0] MULTIGRID.LONG_CYCLE False",
        "SOLVER.STEPS [0] MULTIGRID.FINE_TUNING False",
        "MODEL.MODEL_NAME I3D RESNET.DEPTH 50 RESNET.WIDTH_PER_GROUP 36",
        "MODEL.MODEL_NAME I3D RESNET.DEPTH 50 NONLOCAL.LOCATION [[],[1],[],[]]",
        "DATA.TRAIN_CROP_SIZE 64",
        f"{RELATIVE} DATA.TRAIN_CROP_SIZE 80",
        "SOLVER.LR_POLICY cosine SOLVER.COSINE_AFTER_WARMUP True SOLVER.COSINE_END_LR 1e-6",
        "SOLVER.OPTIMIZING_METHOD lars SOLVER.TRUST_COEFFICIENT 0.02 SOLVER.MOMENTUM 0.8",
        "SOLVER.OPTIMIZING_METHOD pmd_lamb SOLVER.PMD_PERIOD 100 SOLVER.PMD_CURVE linear SOLVER.EPS 1e-8",
        "AUG.RANDAUGMENT_MAGNITUDE 15 AUG.RANDAUGMENT_OPS 1",
        "AUG.COLOR_JITTER 0.5 AUG.RE_PROB 0.5 AUG.COARSE_STRENGTH 2",
    ],
)
def test_their_remedies_have_no_problem(pairs):
    assert problems_of(*pairs.split()) == []


def test_every_problem_is_reported():
    assert len(problems_of("SOLVER.MOMENTUM", "0", "DATA.TRAIN_CROP_SIZE", "100")) == 2
