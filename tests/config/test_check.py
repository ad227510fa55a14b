"""Problems between keys, and the smoke run that changes three of them."""

from pathlib import Path

import pytest

from mgexp.config.check import cross_problems
from mgexp.config.load import flatten, load_config, smoke
from mgexp.train.setup import build_row_schedule

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
ROWS = sorted(path for path in EXPERIMENTS.rglob("*.yaml") if path.parent.name != "base")
IN_STEPS = [path for path in ROWS if load_config(path).MULTIGRID.GRANULARITY == "step"]
LONG_SHORT = EXPERIMENTS / "quickstart" / "long_short.yaml"


def problems_of(*pairs):
    """Problems between the keys of the quickstart's long+short row, with some changed."""
    return cross_problems(load_config(LONG_SHORT, pairs))


@pytest.mark.parametrize("path", ROWS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_no_experiment_has_a_problem(path):
    assert cross_problems(load_config(path)) == []


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ("MODEL.MODEL_NAME I3D RESNET.DEPTH 18", "RESNET.DEPTH = 18 exists for SlowFast only"),
        ("MODEL.MODEL_NAME TSM RESNET.DEPTH 18", "SlowFast only: TSM takes 50 or 101"),
        ("NONLOCAL.LOCATION [[],[1],[],[]]", "SlowFast has no non-local blocks here"),
        (
            "MODEL.MODEL_NAME TSM RESNET.DEPTH 50 RESNET.WIDTH_PER_GROUP 36",
            "RESNET.WIDTH_PER_GROUP = 36 does not divide by 8",
        ),
        ("RESNET.WIDTH_PER_GROUP 36", "RESNET.WIDTH_PER_GROUP = 36 is not a multiple of"),
        ("DATA.TRAIN_CROP_SIZE 80", "less than DATA.TRAIN_CROP_SIZE = 80"),
        ("TEST.FRAME_ORDER shuffled", "add TRAIN.ENABLE False"),
        ("SOLVER.WARMUP_EPOCHS 12", "SOLVER.WARMUP_EPOCHS = 12 is not less than"),
        ("SOLVER.STEPS [0,5,12]", "SOLVER.STEPS ends with epoch 12, not before"),
        ("SOLVER.MOMENTUM 0", "SOLVER.NESTEROV needs SOLVER.MOMENTUM > 0"),
        (
            "DATA.FORMAT charades DATA.CLASSES a.txt MODEL.LOSS_FUNC bce_logit",
            "DATA.CLASSES is not read",
        ),
        ("DATA.FORMAT charades", "charades have many labels and need bce_logit"),
        ("MODEL.LOSS_FUNC bce_logit", "of all other formats have one and need cross_entropy"),
        ("EXPECTED [['map',38.9,0.5]]", "cross_entropy is judged by top1 and top5, not by map"),
        ("DATA.FORMAT folders", "DATA.PATH_PREFIX is not read with DATA.FORMAT = folders"),
        (
            "DATA.FORMAT ssv2 DATA.PATH_LABEL_SEPARATOR ,",
            "DATA.PATH_LABEL_SEPARATOR is not read with DATA.FORMAT = ssv2",
        ),
        ("DATA.FORMAT hmdb51", "split files of hmdb51 have the videos of both"),
        ("SOLVER.STEPS [0]", "MULTIGRID.LONG_CYCLE needs at least two stages"),
        (
            "SOLVER.TRUST_COEFFICIENT 0.02",
            "SOLVER.TRUST_COEFFICIENT = 0.02 is not read with SOLVER.OPTIMIZING_METHOD = sgd, but with "
            "lars: leave it at 0.001",
        ),
        ("SOLVER.BETAS [0.9,0.99] SOLVER.OPTIMIZING_METHOD lars", "with lamb and pmd_lamb"),
        ("SOLVER.EPS 1e-8", "SOLVER.EPS = 1e-08 is not read"),
        ("SOLVER.MOMENTUM 0.8 SOLVER.OPTIMIZING_METHOD lamb", "sgd and lars: leave it at 0.9"),
        ("SOLVER.NESTEROV False SOLVER.OPTIMIZING_METHOD pmd_lamb", "leave it at True"),
        ("SOLVER.PMD_PERIOD 100 SOLVER.OPTIMIZING_METHOD lamb", "with pmd_lamb: leave it at 200"),
        ("SOLVER.PMD_CURVE linear", "SOLVER.PMD_CURVE = linear is not read"),
        ("SOLVER.MOMENTUM 0 SOLVER.OPTIMIZING_METHOD lars", "SOLVER.NESTEROV needs"),
    ],
)
def test_keys_that_contradict_each_other_are_one_problem(pairs, said):
    (problem,) = problems_of(*pairs.split())
    assert said in problem


@pytest.mark.parametrize(
    "pairs",
    [
        "TEST.FRAME_ORDER shuffled TRAIN.ENABLE False",
        "SOLVER.MOMENTUM 0 SOLVER.NESTEROV False",
        "DATA.FORMAT charades MODEL.LOSS_FUNC bce_logit EXPECTED [['map',38.9,0.5]]",
        "DATA.FORMAT hmdb51 DATA.VAL_LIST data/quickstart/train.csv",
        "SOLVER.STEPS [0] MULTIGRID.LONG_CYCLE False",
        "SOLVER.STEPS [0] MULTIGRID.FINE_TUNING False",
        "MODEL.MODEL_NAME I3D RESNET.DEPTH 50 RESNET.WIDTH_PER_GROUP 36",
        "MODEL.MODEL_NAME I3D RESNET.DEPTH 50 NONLOCAL.LOCATION [[],[1],[],[]]",
        "DATA.TRAIN_CROP_SIZE 64",
        "SOLVER.OPTIMIZING_METHOD lars SOLVER.TRUST_COEFFICIENT 0.02 SOLVER.MOMENTUM 0.8",
        "SOLVER.OPTIMIZING_METHOD lamb SOLVER.BETAS [0.9,0.99] SOLVER.EPS 1e-8",
        "SOLVER.OPTIMIZING_METHOD pmd_lamb SOLVER.PMD_PERIOD 100 SOLVER.PMD_CURVE linear SOLVER.EPS 1e-8",
    ],
)
def test_their_remedies_have_no_problem(pairs):
    assert problems_of(*pairs.split()) == []


def test_every_problem_is_reported():
    assert len(problems_of("SOLVER.WARMUP_EPOCHS", "20", "DATA.TRAIN_CROP_SIZE", "100")) == 2


@pytest.mark.parametrize("path", ROWS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_smoke_changes_only_videos_width_and_the_verdict(path):
    cfg = load_config(path)
    before, after = dict(flatten(cfg)), dict(flatten(smoke(cfg)))
    changed = {name for name in before if before[name] != after[name]}
    assert changed <= {
        "DATA.MAX_TRAIN_VIDEOS",
        "DATA.MAX_VAL_VIDEOS",
        "RESNET.WIDTH_PER_GROUP",
        "TRAIN.INIT_WEIGHTS",
        "EXPECTED",
    }
    assert before.keys() == after.keys()


@pytest.mark.parametrize("path", IN_STEPS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_smoke_has_every_phase_of_the_row_in_few_steps(path):
    # Phases of whole epochs are lost where a mini-batch has more videos than these epochs.
    cfg = load_config(path)
    small = smoke(cfg)
    full = build_row_schedule(cfg, num_videos=10_000)
    quick = build_row_schedule(small, small.DATA.MAX_TRAIN_VIDEOS)
    assert [(p.stage, p.cycle) for p in quick.phases] == [(p.stage, p.cycle) for p in full.phases]
    assert quick.total_steps <= 60


def test_smoke_keeps_whole_channels_of_the_fast_pathway():
    cfg = load_config(LONG_SHORT, ("RESNET.WIDTH_PER_GROUP", "96"))
    assert smoke(cfg).RESNET.WIDTH_PER_GROUP == 8


@pytest.mark.parametrize("path", ROWS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_smoke_has_no_problem(path):
    assert cross_problems(smoke(load_config(path))) == []
