"""The rules for tools: a help that fits a screen and shows an example, and mgexp before torch."""

import ast
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = sorted((ROOT / "tools").glob("*.py"))
ROW = ROOT / "experiments" / "quickstart" / "long.yaml"
MAX_LINES, MAX_COLUMNS, LAST_LINE_OF_EXAMPLE = 60, 120, 12
TORCH = {"torch", "torchvision", "pytorchvideo", "fvcore", "submitit", "lightning", "timm"}
"""Packages that import torch, or are torch."""

each_tool = pytest.mark.parametrize("tool", TOOLS, ids=lambda path: path.stem)


@each_tool
def test_help_fits_a_screen_and_starts_with_an_example(tool, monkeypatch, capsys):
    """On a terminal of 80 columns."""
    monkeypatch.setattr(sys, "argv", [str(tool), "--help"])
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as exited:
        runpy.run_path(str(tool), run_name="__main__")
    assert exited.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("usage:")
    assert len(lines) <= MAX_LINES
    assert max(map(len, lines)) <= MAX_COLUMNS
    assert re.search(rf"python tools/{tool.name}\b", "\n".join(lines[1:LAST_LINE_OF_EXAMPLE]))


@each_tool
def test_ctrl_c_gives_no_traceback(tool):
    assert re.search(r"    sys\.exit\(run_tool\(main(, \"[^\"]+\")?\)\)\n", tool.read_text())


KILLED = (
    # A shell starts a program in the background with SIGINT ignored, and the tests may run there.
    "import os, signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "os.kill(os.getpid(), signal.SIGINT)"
)


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        (KILLED, 4, "run_net.py: stopped by Ctrl-C"),
        ("raise OSError('a library is missing')", 1, "OSError: a library is missing"),
    ],
)
def test_ctrl_c_while_torch_is_imported_is_one_line(fault, code, said, tmp_path):
    """Another error keeps its traceback."""
    (tmp_path / "torch.py").write_text(fault)
    paths = os.pathsep.join(map(str, (tmp_path, ROOT)))
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "run_net.py", "--cfg", ROW],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.splitlines()[-1] == said
    assert (len(done.stderr.splitlines()) == 1) == (code == 4)


@each_tool
def test_a_tool_imports_mgexp_before_torch(tool):
    """mgexp says how torch's threads wait, and torch reads this when it is imported."""
    names = [
        name.split(".")[0]
        for node in ast.parse(tool.read_text()).body
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    ]
    first = next(name for name in names if name in TORCH | {"mgexp"})
    assert first == "mgexp"
