"""Odd values and hostile YAML: one short message, at once, that names the key or the file."""

import os
import time

import pytest
from tiny import EXPERIMENTS

from mgexp.config.load import load_config, read_config
from mgexp.config.values import MAX_YAML_CHARS, from_text, parse_yaml
from mgexp.errors import InputError

LAUGHS = "\n".join(
    ["a0: &a0 [lol]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10))]
)


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
        (LAUGHS, "aliases such as *a0 are not read; write the value out"),
        ("ROW: &me [*me]", "aliases such as *me are not read"),
        ("TRAIN: {ENABLE: True}\nTRAIN: {BATCH_SIZE: 8}", "the key TRAIN appears twice"),
        ("TRAIN: {BATCH_SIZE: 4, BATCH_SIZE: 8}", "the key BATCH_SIZE appears twice"),
        ("ROW: " + "[" * 5000, "is nested too deeply"),
        ("# " + "x" * MAX_YAML_CHARS, "is larger than 131,072 characters"),
        ("ROW: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
        ("ROW: 2024-13-45", "month must be in 1..12"),
        ("ROW: !!bool maybe", "maybe"),
        ("ROW: !!timestamp x", "has no attribute"),
        ("LOG_PERIOD: " + "1" * 5000, "Exceeds the limit"),
        ("? 0x" + "f" * 5000 + "\n: 1", "Exceeds the limit"),
    ],
)
def test_a_hostile_file_is_one_short_message_at_once(text, said, tmp_path):
    start = time.monotonic()
    assert said in problem(tmp_path, text)
    assert time.monotonic() - start < 5


def test_a_file_that_is_no_utf8_is_a_message(tmp_path):
    (tmp_path / "row.yaml").write_bytes(b"ROW: \xff\xfe")
    with pytest.raises(InputError) as caught:
        read_config(tmp_path / "row.yaml")
    (told,) = caught.value.problems
    assert "is not a YAML file of configuration keys: 'utf-8' codec can't decode" in told


@pytest.mark.parametrize("base", ["/dev/zero", "/", "http://a/b.yaml", "fifo", "x" * 300, '"\\0"'])
def test_a_base_is_a_regular_file(base, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    told = problem(tmp_path, f"_BASE_: {base}")
    assert "row.yaml: its _BASE_" in told
    assert "cannot be read: " in told


def test_bases_are_not_read_without_end(tmp_path):
    """Each names the next one twice: 2^30 files."""
    for number in range(30):
        (tmp_path / f"{number}.yaml").write_text(f"_BASE_: [{number + 1}.yaml, {number + 1}.yaml]")
    (tmp_path / "30.yaml").write_text("ROW: last")
    assert "or to too many files" in problem(tmp_path, "_BASE_: 0.yaml")


def test_a_bad_base_is_named(tmp_path):
    (tmp_path / "base.yaml").write_text("ROW: [")
    assert "base.yaml: while parsing" in problem(tmp_path, "_BASE_: base.yaml")


def test_two_bases_may_have_the_same_base(tmp_path):
    (tmp_path / "low.yaml").write_text("LOG_PERIOD: 3")
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(f"_BASE_: low.yaml\nROW: {name}")
    (tmp_path / "row.yaml").write_text("_BASE_: [a.yaml, b.yaml]")
    cfg = load_config(tmp_path / "row.yaml")
    assert (cfg.ROW, cfg.LOG_PERIOD) == ("b", 3)


def test_merge_keys_within_the_file_work():
    assert parse_yaml("{<<: {a: 1}, b: 2}") == {"a": 1, "b": 2}


ROW = EXPERIMENTS / "quickstart" / "long_short.yaml"


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
        ("SOLVER.STEPS", "{[]: 1}", "is not a list"),
        ("SOLVER.STEPS", "!!bool maybe", "is not a list"),
        ("DATA.TRAIN_LIST", "a\x00b", "'a\\x00b' holds control characters"),
        ("DATA.TRAIN_LIST", "\x1b[2J", "holds control characters"),
        ("DATA.PATH_PREFIX", "\udcff", "or bytes that are no UTF-8"),
        ("ROW", "a\nb", "holds control characters"),
        ("SOLVER.BASE_LR", "1.7e308", "it takes more than 0, at most 1e38"),
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


@pytest.mark.parametrize("text", ["x" * 20_000, "[1, 2", "&a [*a]"])
def test_text_that_is_no_value_stays_text(text):
    assert from_text(text) == text


def test_an_override_does_not_run():
    code = "__import__('os').getcwd()"
    assert from_text(code) == code
    assert code == load_config(ROW, ["ROW", code]).ROW
