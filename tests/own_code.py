"""A fixture for tests that import files of a user: afterwards nothing is registered any more."""

import sys

import pytest

from mgexp.config import keys
from mgexp.registry import IMPORTED, LOSSES, MODELS, OPTIMIZERS


@pytest.fixture
def own_code(monkeypatch):
    """Keep what a file registers for one test."""
    for names in (MODELS, OPTIMIZERS, LOSSES):
        monkeypatch.setattr(names, "_obj_map", dict(names._obj_map))
    monkeypatch.setattr(keys, "_trees", [*keys._trees])
    monkeypatch.setattr(sys, "path", [*sys.path])
    known, imported = dict(keys.BY_NAME), dict(IMPORTED)
    yield
    for now, before in ((keys.BY_NAME, known), (IMPORTED, imported)):
        now.clear()
        now.update(before)
