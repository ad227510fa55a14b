"""Every key: a legal default, a source, and an effect somewhere in the code."""

import ast
from pathlib import Path

import pytest

from mgexp.config.keys import BY_NAME, KEYS

ROOT = Path(__file__).parents[2]
CODE = [
    path
    for folder in ("mgexp", "tools")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if ROOT / "mgexp" / "config" not in path.parents
]


def words(path):
    """Names of attributes and whole strings: how a module may spell a key's section and name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


WORDS = {path: set(words(path)) for path in CODE}


def test_names_are_unique():
    assert len(BY_NAME) == len(KEYS)


def test_every_default_is_a_legal_value_of_its_type():
    for key in KEYS:
        assert key.read(key.default) == key.default, key.name
        assert type(key.read(key.default)) is type(key.default), key.name


def test_every_key_is_read_outside_of_the_configuration():
    # cfg.SECTION.NAME, node = cfg.SECTION … node.NAME, or the section with "NAME", all in one module.
    for key in KEYS:
        used = [path for path, found in WORDS.items() if set(key.name.split(".")) <= found]
        assert used, f"{key.name} has no effect: nothing in mgexp/ or tools/ reads it"


def test_default_factors_are_those_of_the_paper():
    half_area = pytest.approx(2**-0.5)
    assert BY_NAME["MULTIGRID.LONG_CYCLE_FACTORS"].default == (
        (0.25, half_area),
        (0.5, half_area),
        (0.5, 1.0),
        (1.0, 1.0),
    )
    assert BY_NAME["MULTIGRID.SHORT_CYCLE_FACTORS"].default == (0.5, half_area)
    assert BY_NAME["MULTIGRID.EPOCH_FACTOR"].default == 1.5
    assert BY_NAME["MULTIGRID.BN_BASE_SIZE"].default == 8
