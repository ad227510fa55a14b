"""Silence for one warning that is no news for users of mgexp."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_jit_warning() -> Iterator[None]:
    """For imports of fvcore.nn and pytorchvideo: fvcore compiles a loss, which is not used here, with
    ``torch.jit.script``, and torch says on every start that this is deprecated."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"`torch\.jit\.script`", category=FutureWarning)
        yield
