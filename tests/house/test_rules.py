"""The rules of the house: sizes, who reads the configuration, what may be imported, what is never written."""

import ast
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = sorted((ROOT / "mgexp").rglob("*.py"))
TOOLS = sorted((ROOT / "tools").glob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 60
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

# Joined here, so that this file does not hold them.
PLACES_OF_THE_AUTHORS = ("/wo" + "rk/", "../sh" + "ared", ".lib" + "rary")

# Granularity is a unit of time, not a switch.
VARIANT = re.compile(
    r"(?<!\w)multigrid(?!\.granularity)|(long|short)_(cycle|factors)|fine_tuning", re.IGNORECASE
)


def name_of(path):
    """A path as people say it."""
    return str(path.relative_to(ROOT))


def tree(path):
    """The parsed file."""
    return ast.parse(path.read_text(), filename=str(path))


def conditions(module):
    """Source of every condition that a module branches on."""
    for node in ast.walk(module):
        if isinstance(node, ast.If | ast.IfExp | ast.While):
            yield ast.unparse(node.test)
        elif isinstance(node, ast.comprehension):
            yield from map(ast.unparse, node.ifs)
        elif isinstance(node, ast.Match):
            yield ast.unparse(node.subject)


def imports(module):
    """Full names of the imported modules."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


def public_definitions(node, prefix=""):
    """(name, node) of public classes, functions and methods; not those inside functions."""
    for child in node.body:
        if isinstance(child, (*FUNCTIONS, ast.ClassDef)) and not child.name.startswith("_"):
            yield prefix + child.name, child
            if isinstance(child, ast.ClassDef):
                yield from public_definitions(child, f"{prefix}{child.name}.")


def text_files():
    """Every text file of the repository, committed or not, but ignored ones."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for path in {ROOT / name for name in listed.stdout.split("\0") if name}:
        data = path.read_bytes() if path.is_file() else b""
        if b"\0" not in data:
            yield path, data.decode(errors="replace")


def test_files_are_short():
    lengths = {name_of(p): len(p.read_text().splitlines()) for p in (*PACKAGE, *TOOLS, *TESTS)}
    assert {name: n for name, n in lengths.items() if n > MAX_FILE_LINES} == {}


def test_functions_are_short():
    too_long = [
        f"{name_of(path)}:{node.lineno} {node.name}: {node.end_lineno - node.lineno + 1} lines"
        for path in (*PACKAGE, *TOOLS, *TESTS)
        for node in ast.walk(tree(path))
        if isinstance(node, FUNCTIONS) and node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES
    ]
    assert too_long == []


def test_only_a_few_files_read_the_configuration():
    def may_read(path):
        inside = path.relative_to(ROOT / "mgexp")
        builds = path.name == "build.py" or inside == Path("train/job.py")
        return builds or inside.parts[0] == "config"

    readers = [
        name_of(path)
        for path in PACKAGE
        if not may_read(path) and re.search(r"(?<!--)\bcfg\b", path.read_text())
    ]
    assert readers == []


def test_nothing_branches_on_the_kind_of_row():
    """The baseline is the schedule with one shape; only the schedule and its building may ask."""
    branches = [
        f"{name_of(path)}: if {condition}"
        for path in (*PACKAGE, *TOOLS)
        if path.name != "build.py" and not {"multigrid", "config"} & {p.name for p in path.parents}
        for condition in conditions(tree(path))
        if VARIANT.search(condition)
    ]
    assert branches == []


@pytest.mark.parametrize(
    ("code", "is_one"),
    [
        ("if cfg.MULTIGRID.LONG_CYCLE: pass", True),
        ("x = 1 if is_long_cycle else 2", True),
        ("if schedule.multigrid.short_factors and y: pass", True),
        ("[a for a in b if multigrid]", True),
        ("if schedule.multigrid.granularity == 'epoch': pass", False),
        ("if step > 0: multigrid()", False),
    ],
)
def test_a_branch_on_the_kind_of_row_is_recognised(code, is_one):
    assert any(VARIANT.search(one) for one in conditions(ast.parse(code))) == is_one


def test_the_core_imports_torch_and_itself_alone():
    allowed = {*sys.stdlib_module_names, "torch"}
    foreign = [
        f"{name_of(path)}: {name}"
        for path in PACKAGE
        if path.parent.name == "multigrid"
        for name in imports(tree(path))
        if name.split(".")[0] not in allowed and not name.startswith("mgexp.multigrid.")
    ]
    assert foreign == []


def test_public_code_is_documented():
    silent = [
        f"{name_of(path)}:{node.lineno} {name}"
        for path in PACKAGE
        for name, node in public_definitions(tree(path))
        if not ast.get_docstring(node) and node.name not in {"forward", "backward"}
    ]
    assert silent == []


def test_modules_say_what_they_are_for():
    silent = [
        name_of(path)
        for path in (*PACKAGE, *TOOLS)
        if path.read_text() and not ast.get_docstring(tree(path))
    ]
    assert silent == []


def test_no_file_names_a_place_of_its_authors():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    found = [
        f"{name_of(path)}: {place}"
        for path, text in text_files()
        for place in PLACES_OF_THE_AUTHORS
        if place in text
    ]
    assert sorted(found) == []


@pytest.mark.parametrize("tool", TOOLS, ids=lambda path: path.stem)
def test_tool_explains_itself(tool, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(tool), "--help"])
    with pytest.raises(SystemExit) as exited:
        runpy.run_path(str(tool), run_name="__main__")
    assert exited.value.code == 0
    assert "usage:" in capsys.readouterr().out
