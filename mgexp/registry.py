"""Networks, optimizers and losses by name, and custom files that add to them: docs/own_model.md."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fvcore.common.registry import Registry

from mgexp.errors import InputError


class Names(Registry):  # type: ignore[misc]
    """fvcore's registry. Its name is the configuration key whose value is looked up."""

    def add(self, name: str, entry: Callable[..., Any]) -> None:
        """Register ``entry`` under another name than its own."""
        self._do_register(name, entry)

    def find(self, name: str) -> Callable[..., Any]:
        """Return the entry. Raises InputError, with all names, if there is none."""
        if name in self:
            entry: Callable[..., Any] = self.get(name)
            return entry
        known = ", ".join(known for known, _ in self)
        problem = f"{self._name} = {name}: there are {known}"
        raise InputError([f"{problem}; --import FILE.py adds those of a file"])


MODELS = Names("MODEL.MODEL_NAME")
"""Functions of the configuration that return a network with its initial weights. It turns float clips
(B, 3, T, S, S) of every shape of its schedule into logits (B, MODEL.NUM_CLASSES)."""
OPTIMIZERS = Names("SOLVER.OPTIMIZING_METHOD")
"""Functions of (parameter groups, SOLVER section) that return a torch.optim.Optimizer. The step sets its rate."""
LOSSES = Names("MODEL.LOSS_FUNC")
"""Functions of (number of classes, DATA.ENSEMBLE_METHOD) that return a ``Task``: see mgexp/train/task.py."""


@dataclass(frozen=True)
class OwnFile:
    """A custom file, and the SHA-256 of what it held when it was imported."""

    path: Path
    digest: str

    def __str__(self) -> str:
        return f"{self.path} ({self.digest[:12]})"

    @staticmethod
    def paths_in(text: str) -> list[Path]:
        """Read the paths back from files as text, with commas between them."""
        return [Path(path) for path in re.findall(r"(?:, |^)(.+?) \([0-9a-f]{12}\)", text)]


IMPORTED: dict[Path, OwnFile] = {}
"""The files that this process has imported, by absolute path."""


def imported() -> tuple[OwnFile, ...]:
    return tuple(IMPORTED.values())


def import_file(path: Path, digest: str = "") -> OwnFile:
    """Run a Python file once, so that it registers what it defines. Raises InputError if it fails or changed."""
    path = path.resolve()
    try:
        file = OwnFile(path, hashlib.sha256(path.read_bytes()).hexdigest())
    except OSError as error:
        raise InputError([f"{path}: {error.strerror}"]) from error
    known = IMPORTED.get(path)
    if file.digest != (digest or (known or file).digest):
        raise InputError([f"{path}: the file has changed since the command was given"])
    if known is None:
        _run(path)
        IMPORTED[path] = file
    return file


def _run(path: Path) -> None:
    # Modules that lie beside the file come last, so that none can hide a module that is installed.
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    name = f"imported_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError([f"{path}: not a Python file; its name must end in .py"])
    # Dataclasses look up the module of their class.
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    # The file may raise anything.
    except Exception as error:
        raise InputError([f"{path}: {type(error).__name__}: {error}"]) from error
