"""Text of strangers on one line, and numbers for people."""

import pytest

from mgexp.errors import InputError, listed
from mgexp.text import escaped, is_plain, shown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("déjà vu 视频.mp4", "déjà vu 视频.mp4"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\u202egpj.mp4", "\\u202egpj.mp4"),
        ("a\u2028b", "a\\u2028b"),
        ("\udcff", "\\udcff"),
    ],
)
def test_what_a_terminal_does_not_print_is_escaped(text, said):
    assert escaped(text) == said
    assert escaped(text).isprintable()


@pytest.mark.parametrize("text", ["a b.mp4", "视频 \u00a0 é.mp4", "\u200dzero width"])
def test_names_in_any_script_are_plain(text):
    assert is_plain(text)


@pytest.mark.parametrize("text", ["a\nb", "\x1b", "\x00", "a\tb", "\x9b31m", "\udcff", "\u2028"])
def test_control_characters_and_broken_bytes_are_not_plain(text):
    assert not is_plain(text)


def test_a_long_value_is_cut():
    assert shown("x" * 10**6) == "'" + "x" * 199 + "…"


def test_a_number_that_python_does_not_write_is_no_error():
    assert shown(10**5000) == "a value too large to show"


def test_lines_after_the_first_are_indented():
    assert InputError(["one\n  - two\x1b"]).problems == ("one\n      - two\\x1b",)


def test_no_name_can_forge_a_problem_of_a_message():
    missing = listed(["a\n  - b.mp4"])
    message = str(InputError([f"missing: {missing}", "x\n  - y"]))
    assert message.startswith("2 problems found:")
    assert [line for line in message.splitlines() if line.startswith("  - ")] == [
        "  - missing: a\\n  - b.mp4",
        "  - x",
    ]
