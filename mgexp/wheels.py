"""Import torchvision and torch, or say what is wrong (``python -m mgexp.wheels`` checks it)."""

from __future__ import annotations

from mgexp.run.environment import version_of

__all__ = ["transforms_v2"]


# If the two do not fit together, torch reports a missing operator (RuntimeError), or a library cannot be loaded.
try:
    import torchvision.transforms.v2 as transforms_v2
except (ImportError, RuntimeError, OSError) as error:
    versions = f"torchvision {version_of('torchvision')} does not import beside torch {version_of('torch')}"
    # A CPU-only torch (+cpu) beside PyPI's torchvision is the usual cause.
    raise ImportError(f"{versions} ({error}): install both from the same index") from error


if __name__ == "__main__":
    print(f"torch {version_of('torch')} and torchvision {version_of('torchvision')} work together")
