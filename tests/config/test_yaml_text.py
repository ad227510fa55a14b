"""YAML that does not run, does not grow, and is not read twice as something else."""

import os
import time

import pytest

from mgexp.config.load import load_config, read_config
from mgexp.config.values import MAX_YAML_BYTES, parse_yaml

LAUGHS = "\n".join(
    ["a0: &a0 [lol]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10))]
)


def problem(tmp_path, text, name="row.yaml"):
    """The one problem of a file."""
    path = tmp_path / name
    path.write_text(text)
    _, found = read_config(path)
    (told,) = found
    assert len(told) < 1000
    return told


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LAUGHS, "aliases such as *a0 are not read; write the value out"),
        ("ROW: &me [*me]", "aliases such as *me are not read"),
        ("TRAIN: {ENABLE: True}\nTRAIN: {BATCH_SIZE: 8}", "the key TRAIN is there twice"),
        ("TRAIN: {BATCH_SIZE: 4, BATCH_SIZE: 8}", "the key BATCH_SIZE is there twice"),
        ("ROW: " + "[" * 5000, "is nested too deeply"),
        ("# " + "x" * MAX_YAML_BYTES, "is larger than 131,072 bytes"),
        ("ROW: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
        ("ROW: 2024-13-45", "month must be in 1..12"),
        ("ROW: !!bool maybe", "maybe"),
        ("ROW: !!timestamp x", "has no attribute"),
        ("LOG_PERIOD: " + "1" * 5000, "Exceeds the limit"),
        ("? 0x" + "f" * 5000 + "\n: 1", "Exceeds the limit"),
        ("\n".join(f"K{number}: 1" for number in range(1001)), "sets 1001 keys: there are"),
    ],
)
def test_a_hostile_file_is_one_short_message_at_once(text, said, tmp_path):
    start = time.monotonic()
    assert said in problem(tmp_path, text)
    assert time.monotonic() - start < 5


def test_a_file_that_is_no_utf8_is_a_message(tmp_path):
    (tmp_path / "row.yaml").write_bytes(b"ROW: \xff\xfe")
    _, (told,) = read_config(tmp_path / "row.yaml")
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


def test_plain_values_are_those_of_safe_yaml():
    assert parse_yaml("{a: [1, 2.5, x], b: yes}") == {"a": [1, 2.5, "x"], "b": True}


def test_merge_keys_within_the_file_work():
    assert parse_yaml("{<<: {a: 1}, b: 2}") == {"a": 1, "b": 2}
