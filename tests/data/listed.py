"""Small data sets in official formats, written by the tests of the readers."""

import os

import pytest

from mgexp.errors import InputError

BOM = b"\xef\xbb\xbf"


def write_videos(folder, *names):
    """Files of one byte."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return folder


def written(path, content):
    """The path of a file with this text, or these bytes."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def names_and_labels(root, videos):
    """(path from the root, label) of the records, that there must be no problem with."""
    assert videos.problems == ()
    return [(os.path.relpath(record.path, root), record.label) for record in videos.records]


def the_problem_of(read):
    with pytest.raises(InputError) as caught:
        read()
    (problem,) = caught.value.problems
    return problem


def the_problem(videos):
    (problem,) = videos.problems
    return problem


def assert_at(place, value, videos):
    """The one problem begins with the place, and shows the value."""
    problem = the_problem(videos)
    assert problem.startswith(f"{place}: ")
    assert value in problem


def windows(text):
    """The text as Windows programs save it: a byte order mark and \\r\\n."""
    return BOM + text.replace("\n", "\r\n").encode()
