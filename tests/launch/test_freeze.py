"""A frozen copy of the code: what it holds, and that it says what it is."""

import os
import subprocess
import sys

import pytest

from mgexp.errors import InputError
from mgexp.launch.run import freeze_code, require_frozen
from mgexp.run.environment import REPOSITORY, git_commit


@pytest.fixture
def source(tmp_path):
    """A repository without a commit."""
    for name in ("mgexp", "tools", "tests", "experiments/base", "experiments/main"):
        (tmp_path / "source" / name / "__pycache__").mkdir(parents=True)
        (tmp_path / "source" / name / "a.py").write_text("first\n")
    return tmp_path / "source"


def test_package_tools_and_bases_are_copied_and_nothing_else(source, tmp_path):
    target = tmp_path / "code"
    freeze_code(target, source)
    files = {str(path.relative_to(target)) for path in target.rglob("*")}
    assert files == {
        "commit.txt",
        *("mgexp", "mgexp/a.py", "tools", "tools/a.py"),
        *("experiments", "experiments/base", "experiments/base/a.py"),
    }
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    (source / "mgexp/a.py").write_text("second\n")
    freeze_code(target, source)
    assert (target / "mgexp/a.py").read_text() == "first\n"  # a copy stays as it is


def test_what_a_kill_left_of_a_copy_with_the_same_process_number_is_replaced(source, tmp_path):
    left = tmp_path / f".code.{os.getpid()}.tmp"
    (left / "mgexp").mkdir(parents=True)
    (left / "mgexp/b.py").write_text("of the killed start")
    freeze_code(tmp_path / "code", source)
    assert [path.name for path in (tmp_path / "code/mgexp").iterdir()] == ["a.py"]


def test_other_code_than_the_copy_is_refused(tmp_path):
    require_frozen(REPOSITORY)
    with pytest.raises(InputError, match="not from the frozen copy"):
        require_frozen(tmp_path)


def test_a_copy_says_its_commit_and_python_started_in_it_imports_it(tmp_path):
    """As submitit starts it: with -m, from inside the copy, whatever is installed."""
    freeze_code(tmp_path / "code")
    assert git_commit(tmp_path / "code") == git_commit(REPOSITORY)
    (tmp_path / "code/probe.py").write_text("import mgexp; print(mgexp.__file__)\n")
    found = subprocess.run(
        [sys.executable, "-m", "probe"],
        cwd=tmp_path / "code",
        env={"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert found.strip() == str(tmp_path / "code/mgexp/__init__.py")
