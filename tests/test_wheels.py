"""torch and torchvision that are no pair: one message."""

import sys

import pytest

import mgexp.wheels
from mgexp.wheels import mismatch_message


def test_the_message_names_versions_reason_and_remedy():
    message = mismatch_message("2.15.0+cpu", "0.29.2", "operator torchvision::nms does not exist")
    for words in ("2.15.0+cpu", "0.29.2", "torchvision::nms", "CPU-only", "pip install"):
        assert words in message


def test_an_import_that_fails_gives_the_message(monkeypatch):
    from importlib import util

    monkeypatch.setitem(sys.modules, "torchvision.transforms.v2", None)
    spec = util.spec_from_file_location("wheels_again", mgexp.wheels.__file__)
    with pytest.raises(ImportError, match="does not import beside torch"):
        spec.loader.exec_module(util.module_from_spec(spec))
