"""The rules for tools: a help that fits a screen and shows an example, and mgexp before torch."""

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = sorted((ROOT / "tools").glob("*.py"))
MAX_LINES, MAX_COLUMNS, LAST_LINE_OF_EXAMPLE = 60, 120, 12

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


IMPORT = re.compile(
    r"^(?:from|import) (mgexp|torch|torchvision|pytorchvideo|fvcore|submitit|lightning|timm)\b",
    re.MULTILINE,
)


@each_tool
def test_a_tool_imports_mgexp_before_torch(tool):
    """mgexp says how torch's threads wait, and torch reads this when it is imported."""
    assert IMPORT.search(tool.read_text())[1] == "mgexp"
