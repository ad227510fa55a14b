"""torch and torchvision that are no pair: one message."""

import sys
from importlib.metadata import version

import pytest

import mgexp.wheels


def test_an_import_that_fails_names_versions_reason_and_remedy(monkeypatch):
    from importlib import util

    monkeypatch.setitem(sys.modules, "torchvision.transforms.v2", None)
    spec = util.spec_from_file_location("wheels_again", mgexp.wheels.__file__)
    with pytest.raises(ImportError) as raised:
        spec.loader.exec_module(util.module_from_spec(spec))
    versions = (
        f"torchvision {version('torchvision')} does not import beside torch {version('torch')}"
    )
    for words in (versions, "transforms.v2", "CPU-only", "pip install"):
        assert words in str(raised.value)
