"""Every key: a legal default, an effect somewhere in the code, and its place in the list and on the page."""

import ast

import pytest
from keys_page import keys_page
from tiny import ROOT

from mgexp.config.key_list import listed_keys
from mgexp.config.keys import BY_NAME, KEYS, default_config
from mgexp.errors import InputError

CODE = [
    path
    for folder in ("mgexp", "tools")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if ROOT / "mgexp" / "config" not in path.parents
]


def words(path):
    """Attributes, whole strings and types of sections: how a module may spell a key's section and name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name) and node.id.endswith("Keys"):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


WORDS = {path: set(words(path)) for path in CODE}
CONFIG = default_config()


def test_names_are_unique():
    assert len(BY_NAME) == len(KEYS)


def test_every_default_is_a_legal_value_of_its_type():
    for key in KEYS:
        assert key.read(key.default) == key.default, key.name
        assert type(key.read(key.default)) is type(key.default), key.name


def test_every_key_is_read_outside_of_the_configuration():
    # cfg.SECTION.NAME, node = cfg.SECTION … node.NAME, node: SectionKeys … node.NAME, or the section with "NAME",
    # all in one module.
    for key in KEYS:
        section, _, name = key.name.rpartition(".")
        spelled = {section, type(getattr(CONFIG, section)).__name__} if section else {name}
        used = [found for found in WORDS.values() if name in found and spelled & found]
        assert used, f"{key.name} has no effect: nothing in mgexp/ or tools/ reads it"


def test_default_factors_are_those_of_the_paper():
    half_area = pytest.approx(2**-0.5)
    long = ((0.25, half_area), (0.5, half_area), (0.5, 1.0), (1.0, 1.0))
    assert BY_NAME["MULTIGRID.LONG_CYCLE_FACTORS"].default == long
    assert BY_NAME["MULTIGRID.SHORT_CYCLE_FACTORS"].default == (0.5, half_area)
    assert BY_NAME["MULTIGRID.EPOCH_FACTOR"].default == 1.5
    assert BY_NAME["MULTIGRID.BN_BASE_SIZE"].default == 8


def test_the_whole_list_has_every_key_and_fits_a_terminal():
    text = listed_keys()
    assert [key.name for key in KEYS if f"  {key.name} = " not in text] == []
    assert max(map(len, text.splitlines())) <= 120


def test_a_section_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(InputError, match=r"--list-keys solvr: the sections are .*SOLVER"):
        listed_keys("solvr")


def test_the_page_is_current():
    page = (ROOT / "docs" / "keys.md").read_text(encoding="utf-8")
    assert page == keys_page(), "run: python tests/config/keys_page.py > docs/keys.md"
