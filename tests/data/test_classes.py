"""Lists of classes in their official forms."""

import pytest
from listed import the_problem_of, windows, written

from mgexp.data.classes import class_list, read_class_names, read_classes
from mgexp.errors import InputError


@pytest.fixture
def read(tmp_path):
    def read(content, num_classes=2, name="classes.txt"):
        return read_classes(written(tmp_path / name, content), num_classes)

    return read


OFFICIAL = pytest.mark.parametrize(
    ("name", "content"),
    [
        ("classInd.txt", windows("1 air drumming\n2 zumba\n")),
        ("classes.txt", "air drumming\nzumba\n\n"),
        ("classes.txt", "0 air drumming\n1 zumba"),
        ("labels.json", '{"air drumming": "0", "zumba": "1"}'),  # Something-Something V2
        ("kinetics_classnames.json", r'{"\"air drumming\"": 0, "zumba": 1}'),  # PySlowFast
        ("LABELS.JSON", '{\n"zumba": 1,\n"air drumming": 0\n}'),
        ("labels.json", windows('{\n"zumba": 1,\n"air drumming": 0\n}')),
    ],
)


@OFFICIAL
def test_official_forms(name, content, read):
    assert read(content, name=name) == {"air drumming": 0, "zumba": 1}


@OFFICIAL
def test_names_alone_are_read_from_the_same_forms(name, content, tmp_path):
    written(tmp_path / name, content)
    assert read_class_names(tmp_path / name) == ("air drumming", "zumba")


@pytest.mark.parametrize(
    ("content", "words"), [("a\n\nb\n", "a line before 'b' is empty"), ("\n", "0 names")]
)
def test_names_that_are_missing_are_refused(content, words, tmp_path):
    (tmp_path / "classes.txt").write_text(content)
    with pytest.raises(InputError, match=words):
        read_class_names(tmp_path / "classes.txt")


@pytest.mark.parametrize("names", [("1 jump", "10 push", "2 run"), ("3 steps", "zumba")])
def test_names_with_numbers_are_read_as_they_were_written(names, tmp_path):
    (tmp_path / "classes.txt").write_text(class_list(names))
    assert read_class_names(tmp_path / "classes.txt") == names


def test_names_that_start_with_numbers_in_some_lines_are_names(read):
    assert read("3 steps\nzumba\n") == {"3 steps": 0, "zumba": 1}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("run\nwalk\njump\n", "3 names, but MODEL.NUM_CLASSES = 2"),
        ("", "0 names, but MODEL.NUM_CLASSES = 2"),
        ("run\nrun\n", "run: named twice"),
        ("1 run\n3 walk\n", "numbers [1, 3] have a gap"),
        ("1 run\n1 walk\n", "numbers [1, 1] have a gap or repeat"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_a_bad_list_is_one_problem(content, said, read):
    assert said in the_problem_of(lambda: read(content))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not a class list, an object of names and whole numbers (JSONDecodeError"),
        ("[1, 2]", "an object of names and whole numbers (TypeError: a list)"),
        ('[["run", 0], ["walk", 1]]', "an object of names and whole numbers (TypeError: a list)"),
        ('{"run": {"walk": 0}}', "run without a whole number"),
        ('{"run": "one", "walk": 2}', "run without a whole number"),
        ('{"run": 0, "walk": 1.0}', "walk without a whole number"),
        ('{"run": false, "walk": true}', "run, walk without a whole number"),
        ('{"run": 0, "run": 1}', "run: named twice"),
    ],
)
def test_bad_json_is_one_problem(content, said, read):
    assert said in the_problem_of(lambda: read(content, name="labels.json"))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("deep.json", "[" * 100_000, "an object of names and whole numbers (RecursionError"),
        ("inf.json", '{"a": 1e400, "b": 1}', "a without a whole number"),
        ("long.json", '{"a": ' + "1" * 5000 + "}", "whole numbers (ValueError: Exceeds"),
        ("long.txt", "1" * 5000 + " a\n2 b\n", "MODEL.NUM_CLASSES = 3"),
    ],
)
def test_absurd_numbers_and_nesting_are_problems(name, text, said, tmp_path):
    (tmp_path / name).write_text(text)
    assert said in the_problem_of(lambda: read_classes(tmp_path / name, 3))
