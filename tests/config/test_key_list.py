"""The list of all keys: what a terminal shows, and the page that is made from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgexp.config.key_list import keys_page, listed_keys
from mgexp.config.keys import KEYS
from mgexp.errors import InputError

ROOT = Path(__file__).parents[2]


def test_the_whole_list_has_every_key_and_fits_a_terminal():
    text = listed_keys()
    assert [key.name for key in KEYS if f"  {key.name} = " not in text] == []
    assert max(map(len, text.splitlines())) <= 120


def test_a_section_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(InputError, match=r"--list-keys solvr: .* there are .*SOLVER"):
        listed_keys("solvr")


def test_the_page_is_current():
    page = (ROOT / "docs" / "keys.md").read_text(encoding="utf-8")
    assert page == keys_page(), "run: python -m mgexp.config.key_list > docs/keys.md"
