"""Odd values and damaged YAML: one short message that names the key or the file."""

import pytest
from tiny import EXPERIMENTS

from mgexp.config.load import load_config, read_config
from mgexp.config.values import from_text, parse_yaml
from mgexp.errors import InputError


def problem(tmp_path, text, name="row.yaml"):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_config(path)
    (told,) = caught.value.problems
    assert len(told) < 1000
    return told


def test_a_key_that_is_repeated_with_its_value_is_read_once():
    assert parse_yaml("SOLVER:\n  GAMMA: 0.1\n  GAMMA: 0.1\n") == {"SOLVER": {"GAMMA": 0.1}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("TRAIN: {ENABLE: True}\nTRAIN: {BATCH_SIZE: 8}", "the key TRAIN appears twice"),
        ("TRAIN: {BATCH_SIZE: 4, BATCH_SIZE: 8}", "the key BATCH_SIZE appears twice"),
        ("ROW: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
        ("ROW: 2024-13-45", "month must be in 1..12"),
        ("ROW: !!bool maybe", "maybe"),
        ("ROW: !!timestamp x", "has no attribute"),
    ],
)
def test_a_damaged_file_is_one_short_message(text, said, tmp_path):
    assert said in problem(tmp_path, text)


def test_a_file_that_is_no_utf8_is_a_message(tmp_path):
    (tmp_path / "row.yaml").write_bytes(b"ROW: \xff\xfe")
    with pytest.raises(InputError) as caught:
        read_config(tmp_path / "row.yaml")
    (told,) = caught.value.problems
    assert "is not a YAML file of configuration keys: 'utf-8' codec can't decode" in told


@pytest.mark.parametrize("base", ["/dev/zero", "/", "http://a/b.yaml"])
def test_a_base_is_a_regular_file(base, tmp_path):
    told = problem(tmp_path, f"_BASE_: {base}")
    assert "row.yaml: its _BASE_" in told
    assert "cannot be read: " in told


def test_a_bad_base_is_named(tmp_path):
    (tmp_path / "base.yaml").write_text("ROW: [")
    assert "base.yaml: while parsing" in problem(tmp_path, "_BASE_: base.yaml")


def test_two_bases_may_have_the_same_base(tmp_path):
    """And two sections may be one by an alias: only one of them changes."""
    (tmp_path / "low.yaml").write_text("TRAIN: &section {BATCH_SIZE: 3}\nTEST: *section")
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(f"_BASE_: low.yaml\nROW: {name}")
    (tmp_path / "row.yaml").write_text("_BASE_: [a.yaml, b.yaml]\nTRAIN: {BATCH_SIZE: 4}")
    cfg = load_config(tmp_path / "row.yaml")
    assert (cfg.ROW, cfg.TRAIN.BATCH_SIZE, cfg.TEST.BATCH_SIZE) == ("b", 4, 3)


def test_anchors_and_merge_keys_within_the_file_work():
    assert parse_yaml("{<<: &one {a: 1}, b: *one}") == {"a": 1, "b": {"a": 1}}


ROW = EXPERIMENTS / "quickstart" / "long_short.yaml"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("TRAIN.BATCH_SIZE", str(2**53 + 1), "is further from 0 than 2^53"),
        ("SOLVER.BASE_LR", "1e400", "is not finite"),
        ("SOLVER.STEPS", "{[]: 1}", "is not a list"),
        ("SOLVER.STEPS", "!!bool maybe", "is not a list"),
        ("DATA.TRAIN_LIST", "a\x00b", "'a\\x00b' holds control characters"),
        ("DATA.TRAIN_LIST", "\x1b[2J", "holds control characters"),
        ("DATA.PATH_PREFIX", "\udcff", "or bytes that are no UTF-8"),
        ("SOLVER.BASE_LR", "1.7e308", "it takes more than 0, at most 1e38"),
        ("WANDB.PROJECT", "../other", "it takes 1 to 128 letters, digits, _, - and ."),
        ("WANDB.ENTITY", "a b", "or nothing"),
    ],
)
def test_an_odd_value_is_one_short_message(name, text, said):
    _, (told,) = read_config(ROW, [name, text])
    assert told.startswith(f"the command line: {name} = ")
    assert said in told
    assert told.isprintable()
    assert len(told) < 600


def test_text_that_is_no_value_stays_text():
    assert from_text("[1, 2") == "[1, 2"


def test_an_override_does_not_run():
    code = "__import__('os').getcwd()"
    assert from_text(code) == code
    assert code == load_config(ROW, ["ROW", code]).ROW
