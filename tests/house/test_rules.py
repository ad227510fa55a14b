"""The rules of the house: layers, who reads the configuration, size, and what is never written."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = sorted(path for path in (ROOT / "mgexp").rglob("*.py") if path.stat().st_size)
TOOLS = [*sorted((ROOT / "tools").glob("*.py")), ROOT / "experiments" / "overview.py"]

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

LAYERS = (
    {"multigrid", "config", "run"},
    {"video", "data", "models", "optim"},
    {"train"},
    {"plan"},
    {"launch"},
)
"""From the bottom to the top. A package may import its own layer and those below it."""
FOR_TOOLS = {"results", "figures"}
"""What reads finished runs. Tools import it, and the packages of LAYERS do not."""
# These strings are joined, so that this file does not hold them.
PLACES_OF_THE_AUTHORS = ("/wo" + "rk/", "../sh" + "ared", ".lib" + "rary")

# Granularity is a unit of time, not a switch.
VARIANT = re.compile(
    r"(?<!\w)multigrid(?!\.granularity)|(long|short)_(cycle|factors)|fine_tuning", re.IGNORECASE
)


def name_of(path):
    return str(path.relative_to(ROOT))


def tree(path):
    return ast.parse(path.read_text(), filename=str(path))


def package_of(module):
    """Return the package of mgexp that a dotted name lies in; "" for mgexp's own modules."""
    parts = module.split(".")
    return parts[1] if len(parts) > 2 or (ROOT / "mgexp" / parts[-1]).is_dir() else ""


def imports(module):
    """Yield the full names of the imported modules, at the top of a file and in its functions."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


def imported_packages(path):
    """Yield the packages of mgexp that a file imports, but its own."""
    own = path.relative_to(ROOT / "mgexp").parts[0]
    for name in imports(tree(path)):
        if name.startswith("mgexp.") and package_of(name) not in {"", own}:
            yield package_of(name)


def height(package):
    return next(i for i, layer in enumerate(LAYERS) if package in layer)


def functions(path):
    return (node for node in ast.walk(tree(path)) if isinstance(node, FUNCTIONS))


def text_files():
    """Yield every text file of the repository that git does not ignore."""
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


def test_no_import_goes_up():
    up = [
        f"{name_of(path)} imports {imported}"
        for path in PACKAGE
        if (own := path.relative_to(ROOT / "mgexp").parts[0]) in set.union(*LAYERS)
        for imported in imported_packages(path)
        if imported in FOR_TOOLS or height(imported) > height(own)
    ]
    assert up == []
    for path in PACKAGE:
        if path.parent.name in FOR_TOOLS:
            assert {"models", "train"}.isdisjoint(imported_packages(path)), path


def test_no_import_goes_round():
    """Packages form no circle; modules are then ordered too, since Python would not import them."""
    edges = {
        (path.relative_to(ROOT / "mgexp").parts[0], imported)
        for path in PACKAGE
        for imported in imported_packages(path)
    }
    left, before = edges, set()
    while left != before:  # what begins nowhere or ends nowhere lies on no circle
        before = left
        importers, imported = {a for a, _ in left}, {b for _, b in left}
        left = {(a, b) for a, b in left if a in imported and b in importers}
    assert left == set()


def test_the_core_imports_torch_and_itself_alone():
    allowed = {*sys.stdlib_module_names, "torch", "triton"}  # which comes with torch for a GPU
    foreign = [
        f"{name_of(path)}: {name}"
        for path in PACKAGE
        if path.parent.name == "multigrid"
        for name in imports(tree(path))
        if name.split(".")[0] not in allowed and not name.startswith("mgexp.multigrid")
    ]
    assert foreign == []


def takes_the_configuration(function):
    """Whether a parameter is annotated with the whole configuration."""
    arguments = function.args
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    texts = [ast.unparse(one.annotation) for one in every if one.annotation]
    return any(re.search(r"\bConfig\b", text) for text in texts)


def test_few_functions_take_the_whole_configuration():
    """A function that does is called build_…, or stands in config, launch or train/job."""

    def may(path, function):
        inside = path.relative_to(ROOT / "mgexp")
        at_home = inside.parts[0] in {"config", "launch"} or inside == Path("train/job.py")
        return at_home or function.name.lstrip("_").startswith("build_")

    takers = [
        f"{name_of(path)}:{function.lineno} {function.name}"
        for path in PACKAGE
        for function in functions(path)
        if takes_the_configuration(function) and not may(path, function)
    ]
    assert takers == []
    (probe,) = ast.parse("def f(x: int, *, cfg: 'Config | None' = None) -> None: ...").body
    assert takes_the_configuration(probe)


def conditions(module):
    """Yield the source of every condition that a module branches on."""
    for node in ast.walk(module):
        if isinstance(node, ast.If | ast.IfExp | ast.While):
            yield ast.unparse(node.test)
        elif isinstance(node, ast.comprehension):
            yield from map(ast.unparse, node.ifs)
        elif isinstance(node, ast.Match):
            yield ast.unparse(node.subject)


def test_nothing_branches_on_the_kind_of_row():
    """The baseline is the schedule with one shape. Only what builds the schedule asks for the kind."""
    branches = [
        f"{name_of(path)}: {function.name}: if {condition}"
        for path in (*PACKAGE, *TOOLS)
        if path.name != "convert_config.py"
        if not {"multigrid", "config"} & {p.name for p in path.parents}
        for function in functions(path)
        if not function.name.startswith("build_")
        for condition in conditions(function)
        if VARIANT.search(condition)
    ]
    assert branches == []
    probe = ast.parse("if cfg.MULTIGRID.LONG_CYCLE: x = 1 if is_long_cycle else 2")
    assert all(map(VARIANT.search, conditions(probe)))


def test_the_package_stays_within_its_budget():
    """docs/design.md has the budget of all lines of mgexp."""
    design = (ROOT / "docs" / "design.md").read_text()
    (budget,) = re.findall(r"at most ([\d,]+) lines in all of `mgexp/`", design)
    num_lines = sum(len(path.read_text().splitlines()) for path in PACKAGE)
    assert num_lines <= int(budget.replace(",", ""))


def test_nothing_unpickles():
    """What flake8-bandit does not look for: torch and numpy read plain values unless they are told otherwise."""
    unsafe = re.compile(r"weights_only=(?!True)|allow_pickle=(?!False)|\bUnpickler\b|shell=")
    assert [name_of(p) for p in (*PACKAGE, *TOOLS) if unsafe.search(p.read_text())] == []


def test_modules_say_what_they_are_for():
    silent = [name_of(path) for path in (*PACKAGE, *TOOLS) if not ast.get_docstring(tree(path))]
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
