"""The device of the tests in this folder, which pytest --gpu names."""

import os

import pytest
import torch

# torch refuses deterministic products on a GPU without it, and cuBLAS reads it only once.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> torch.device:
    kind = request.config.getoption("--gpu")
    return torch.device(kind, 0) if kind == "cuda" else torch.device(kind)


@pytest.fixture
def on_gpu(device: torch.device) -> None:
    """For tests that mean nothing on a CPU."""
    if device.type == "cpu":
        pytest.skip("a CPU has no such thing")
