"""Problems of options: by hand."""

import argparse
import errno
import subprocess
import sys
from math import inf, nan
from pathlib import Path

import pytest

from mgexp.errors import InputError
from mgexp.options import local_folder, not_positive, run_tool, too_small, without_folder


def test_numbers_below_the_least_are_named_with_it():
    found = too_small({"--steps": 0, "--processes": 1, "--workers": 2}, least=2)
    assert found == ["--steps 0: give 2 or more", "--processes 1: give 2 or more"]


def test_nothing_but_a_number_above_0_is_positive():
    found = not_positive({"--a": 0.0, "--b": -0.5, "--c": nan, "--d": inf, "--e": 2.0})
    names = ("--a 0", "--b -0.5", "--c nan", "--d inf")
    assert found == [f"{name}: give more than 0, and no infinity" for name in names]


def test_an_empty_text_is_not_the_working_folder():
    with pytest.raises(argparse.ArgumentTypeError, match="it is empty; name a folder"):
        local_folder("")
    with pytest.raises(argparse.ArgumentTypeError, match="is an address"):
        local_folder("s3://bucket/runs")
    assert local_folder(".") == Path()


def test_a_file_to_write_is_no_folder_and_needs_one(tmp_path):
    path = tmp_path / "nowhere" / "plan.json"
    found = without_folder({"--output": tmp_path, "--json": path})
    assert found == [
        f"--output {tmp_path} is a folder: name a file in it",
        f"--json {path}: there is no folder {path.parent}",
    ]


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (InputError(["--steps 0: give 1 or more"]), 2, "--steps 0: give 1 or more"),
        (OSError(errno.ENOSPC, "No space left on device", "plan.json"), 1, "plan.json "),
        (KeyboardInterrupt(), 4, "start it again"),
    ],
)
def test_an_end_has_its_code_and_no_traceback(error, code, said, capsys, monkeypatch):
    def main(arguments):
        raise error

    monkeypatch.setattr("sys.argv", ["tools/plan.py"])
    assert run_tool(main, "start it again") == code
    message = capsys.readouterr().err
    assert message.startswith("plan.py: ") and said in message
    assert "Traceback" not in message


def test_output_that_nobody_reads_gives_no_traceback():
    code = "import sys; from mgexp.options import run_tool; sys.exit(run_tool(lambda _: print('x' * 99999) or 0))"
    command = [sys.executable, "-c", code]
    tool = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    tool.stdout.close()
    assert tool.stderr.read() == b""
    assert tool.wait() == 141
    tool.stderr.close()
