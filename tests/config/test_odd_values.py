"""Values that are too large, too long, or no text: a message, at once, that names the key."""

import time
import warnings
from pathlib import Path

import pytest

from mgexp.config.keys import BY_NAME
from mgexp.config.load import flatten, load_config, read_config
from mgexp.config.values import from_text

ROW = Path(__file__).parents[2] / "experiments" / "quickstart" / "long_short.yaml"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("TRAIN.BATCH_SIZE", "1" * 5000, "is not a whole number"),
        ("TRAIN.BATCH_SIZE", "0x" + "f" * 5000, "= a value too large to show is further from 0"),
        ("TRAIN.BATCH_SIZE", str(2**53 + 1), "is further from 0 than 2^53"),
        ("SOLVER.BASE_LR", "0x" + "f" * 5000, "= a value too large to show is not finite"),
        ("SOLVER.BASE_LR", "1" + "0" * 400, "is not finite"),
        ("SOLVER.BASE_LR", "1e400", "is not finite"),
        ("SOLVER.STEPS", str(list(range(1001))), "is a list of more than 1000 values"),
        ("SOLVER.STEPS", "[" * 9999, "is not a list"),
        ("SOLVER.STEPS", "-" * 9999 + "1", "is not a list"),
        ("SOLVER.STEPS", "{[]: 1}", "is not a list"),
        ("SOLVER.STEPS", "2024-13-45", "is not a list"),
        ("SOLVER.STEPS", "!!bool maybe", "is not a list"),
        ("DATA.TRAIN_LIST", "a\x00b", "'a\\x00b' holds control characters"),
        ("DATA.TRAIN_LIST", "\x1b[2J", "holds control characters"),
        ("DATA.PATH_PREFIX", "\udcff", "or bytes that are no UTF-8"),
        ("ROW", "a\nb", "holds control characters"),
        ("MODEL.NUM_CLASSES", "10000000", "it takes 1 to 1,000,000"),
        ("TRAIN.NUM_EVALUATIONS", "1000000000", "it takes 1 to 10,000"),
        ("DATA.TRAIN_JITTER_SCALES", "[1, 100000]", "max <= 10,000"),
        ("SOLVER.MAX_EPOCH", "1e-9", "it takes 0.000001 or more"),
        ("SOLVER.BASE_LR", "1.7e308", "it takes more than 0, at most 1e38"),
        ("SOLVER.WARMUP_START_LR", "1e308", "it takes 0 to 1e38"),
        ("MULTIGRID.EPOCH_FACTOR", "1e300", "it takes 0.000001 to 1,000,000"),
        ("WANDB.PROJECT", "../other", "it takes 1 to 128 letters, digits, _, - and ."),
        ("WANDB.ENTITY", "a b", "or nothing"),
    ],
)
def test_an_odd_value_is_one_short_message_at_once(name, text, said):
    start = time.monotonic()
    _, (told,) = read_config(ROW, [name, text])
    assert time.monotonic() - start < 5
    assert told.startswith(f"the command line: {name} = ")
    assert said in told
    assert told.isprintable()
    assert len(told) < 600


def test_a_name_of_no_key_is_shown_short_and_plain():
    _, (told,) = read_config(ROW, ["\x1b[2J" + "A" * 10**5, "1"])
    assert told.isprintable()
    assert len(told) < 600


def test_what_python_thinks_of_a_text_is_not_said():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert from_text("'C:\\data'") == "C:\\data"


@pytest.mark.parametrize("text", ["x" * 20_000, "[1, 2", "&a [*a]"])
def test_text_that_is_no_value_stays_text(text):
    assert from_text(text) == text


def test_an_override_does_not_run():
    code = "__import__('os').getcwd()"
    assert from_text(code) == code
    assert code == load_config(ROW, ["ROW", code]).ROW


def test_the_largest_values_are_legal():
    pairs = ["RNG_SEED", str(2**53), "SOLVER.MAX_EPOCH", "1e300", "WANDB.PROJECT", "x" * 128]
    values = dict(flatten(load_config(ROW, pairs)))
    assert values["RNG_SEED"] == 2**53
    assert BY_NAME["RNG_SEED"].legal.allows(2**53)
