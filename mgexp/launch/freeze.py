"""A copy of the code, that later changes of the working tree do not reach."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from mgexp.errors import InputError
from mgexp.record.environment import REPOSITORY, git_commit
from mgexp.record.sweep_dir import COMMIT_TXT

FROZEN = ("mgexp", "tools")


def freeze_code(target: Path, source: Path = REPOSITORY) -> str:
    """Copies the package and the tools from ``source``, with their commit; returns the commit.

    A copy that is there already stays as it is. A kill leaves none or a whole one.
    """
    if not target.exists():
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        for name in FROZEN:
            if (source / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source / name, temporary / name, ignore=ignored)
        (temporary / COMMIT_TXT).write_text(git_commit(source) + "\n", encoding="utf-8")
        temporary.rename(target)
    return git_commit(target)


def require_frozen(code: Path) -> None:
    """Raises InputError where this process runs other code than the copy in ``code``."""
    if code.resolve() != REPOSITORY:
        raise InputError(
            [
                f"mgexp was imported from {REPOSITORY}, not from the frozen copy in {code}: unset "
                "PYTHONSAFEPATH, and keep PYTHONPATH from naming another copy"
            ]
        )
