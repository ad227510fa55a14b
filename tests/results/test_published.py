"""published.csv: lines written out by hand."""

from __future__ import annotations

import pytest

from mgexp.errors import InputError
from mgexp.results.table import Published, read_published

HEADER = "experiment,metric,value,source,note\n"


@pytest.fixture
def table(tmp_path):
    def write(text):
        path = tmp_path / "published.csv"
        path.write_text(text)
        return path

    return write


def test_a_line_is_a_number_with_its_source(table):
    path = table(HEADER + 'main/x,top1,76.8,"A zoo, column ""standard""",\n')
    assert read_published(path) == (
        Published("main/x", "top1", "76.8", 'A zoo, column "standard"', ""),
    )


def test_no_file_is_no_number(tmp_path):
    assert read_published(tmp_path / "published.csv") == ()


def test_every_problem_is_told(table):
    path = table(HEADER + "x,top3,many,,\ny,map,1.5,a zoo,column, standard\n")
    with pytest.raises(InputError) as caught:
        read_published(path)
    assert [problem.partition(": ")[2] for problem in caught.value.problems] == [
        "the metric 'top3' is none of top1, top5, map",
        "the value 'many' is no number of percent",
        "has no source",
        "has too many cells; put text with a comma into quotes",
    ]
    assert "published.csv, line 3" in caught.value.problems[3]


def test_other_columns_are_bad_input(table):
    with pytest.raises(InputError, match="first line is not 'experiment,metric,value,source,note'"):
        read_published(table("row,value\nx,1\n"))
