"""gpu.sh: pieces that are done, failed, stopped or too long, and the page. The pieces here take no time."""

from __future__ import annotations

import signal
import sys
import time
from multiprocessing import get_context
from pathlib import Path

import gpu
import pytest

SCRIPT = Path(gpu.__file__).with_name("gpu.sh")
OPTIONS = ("--device", "cpu", "--tiny")


def python(text):
    return [sys.executable, "-c", text]


def piece(name, *texts):
    return gpu.Piece(name, f"The {name}", lambda _: [python(text) for text in texts])


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run these pieces; the exit code and the folder."""

    def call(*pieces, options=()):
        monkeypatch.setattr(gpu, "PIECES", pieces)
        code = gpu.main([*OPTIONS, "--output", str(tmp_path / "found"), *options])
        return code, tmp_path / "found"

    return call


def test_the_page_has_what_each_piece_printed(run):
    code, folder = run(piece("first", "print('a table')"), piece("second", "print('another')"))
    text = (folder / "page.md").read_text()
    assert code == 0
    assert (
        "## The first\n\n```text\n$ python -c 'print('\"'\"'a table'\"'\"')'\na table\n```" in text
    )
    assert "\nanother\n" in text
    assert "Shapes are small" in text
    assert (folder / "second.txt").read_text().endswith("another\n\n")


def test_a_piece_that_is_done_is_not_run_again_unless_it_is_wanted(run, tmp_path):
    marks = tmp_path / "marks"
    once = piece("once", f"open({str(marks)!r}, 'a').write('x')")
    for _ in range(2):
        assert run(once)[0] == 0
    assert marks.read_text() == "x"
    assert run(once, options=["--again"])[0] == 0
    assert marks.read_text() == "xx"


def test_a_failure_stops_its_piece_alone_and_is_tried_again(run, tmp_path):
    fails = piece("bad", "print('so far')\nraise SystemExit(2)", "print('never')")
    good = piece("good", "print('fine')")
    code, folder = run(fails, good)
    text = (folder / "page.md").read_text()
    assert code == 1
    assert "**This piece is not complete:**" in text
    assert "so far" in text
    assert "never\n```" not in text
    assert "fine" in text
    assert not (folder / "bad.done.json").exists()
    code, folder = run(piece("bad", "print('mended')"), good)
    assert code == 0
    assert "**" not in (folder / "page.md").read_text()


def test_a_piece_that_takes_too_long_saves_and_continues(run, monkeypatch):
    """Its command saves after SIGTERM, as run_net.py does."""
    monkeypatch.setattr(gpu, "LIMIT_SECONDS", 1.0)
    text = """
import signal, time
signal.signal(signal.SIGTERM, signal.default_int_handler)
try:
    time.sleep(60)
except KeyboardInterrupt:
    print("saved")
    raise SystemExit(4)
"""
    begin = time.monotonic()
    code, folder = run(piece("long", text), piece("next", "print('fine')"))
    assert code == 4
    assert time.monotonic() - begin < 30
    assert "saved" in (folder / "long.txt").read_text()
    assert (folder / "next.done.json").exists()


def test_a_killed_piece_continues_with_the_command_that_did_not_end(run, tmp_path):
    """The second command kills the script that runs it, as a machine that is switched off would."""
    marks, mended = tmp_path / "marks", tmp_path / "mended"
    first = f"open({str(marks)!r}, 'a').write('x'); print('first')"
    second = (
        "import os, pathlib, signal; print('second'); "
        f"pathlib.Path({str(mended)!r}).exists() or os.kill(os.getppid(), signal.SIGKILL)"
    )
    two = piece("two", first, second)
    script = get_context("fork").Process(target=run, args=(two,))
    script.start()
    script.join()
    assert script.exitcode == -signal.SIGKILL
    mended.touch()
    code, folder = run(two)
    assert code == 0
    assert marks.read_text() == "x"
    text = (folder / "two.txt").read_text()
    assert text.index("\nfirst\n") < text.index("\nsecond\n")
    assert run(two, options=["--again"])[0] == 0
    assert marks.read_text() == "xx"
