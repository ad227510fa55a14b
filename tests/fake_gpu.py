"""A GPU without a GPU: its tensors have shapes and a device, but no values.

Code for a GPU runs on it and computes nothing. So a test sees on which device each result is, and an operation
whose inputs lie on two devices is an error, as on a real GPU. What waits for the GPU is recorded in ``calls``.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode

GPU = torch.device("cuda", 0)


def is_gpu(value: object) -> bool:
    """Whether a value names a GPU."""
    return isinstance(value, torch.device | str) and str(value).startswith("cuda")


class FakeTensors(FakeTensorMode):
    """Fake tensors that never look for a driver, although torch.cuda.is_available() says True."""

    avoid_device_init = True


class OnFakeGpu(TorchFunctionMode):
    """Makes every tensor that is asked for on a GPU a fake one. ``calls`` records copies to the GPU."""

    def __init__(self, calls: list[str]) -> None:
        super().__init__()
        self.calls = calls
        self.fake = FakeTensors(allow_non_fake_inputs=True)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not any(is_gpu(one) for one in (*args, *kwargs.values())):
            return func(*args, **kwargs)
        if func is torch.Tensor.to and not is_gpu(args[0].device):
            self.calls.append("copy, no wait" if kwargs.get("non_blocking") else "copy")
        with self.fake:
            return func(*args, **kwargs)


def give_gradients(loss: torch.Tensor) -> None:
    """Give a gradient to every parameter that ``loss`` depends on."""
    left, seen = [loss.grad_fn], set()
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        left += [one for one, _ in node.next_functions]
        if hasattr(node, "variable"):
            node.variable.grad = torch.zeros_like(node.variable)


class Recorded:
    """The calls to torch.cuda, in order, and its answers."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def answer(self, name: str, value: object = None):
        def call(*args: object, **kwargs: object) -> object:
            self.calls.append(name)
            return value

        return call

    def stream(self, name: str) -> object:
        """A stream or an event, whose methods are recorded."""
        found = type(name, (), {"device": GPU, "query": self.answer(f"{name}.query", True)})()
        for method in ("wait_stream", "record", "synchronize"):
            setattr(found, method, self.answer(f"{name}.{method}"))
        found.elapsed_time = self.answer(f"{name}.elapsed_time", 250.0)
        return found

    @contextmanager
    def within(self, *_: object) -> Iterator[None]:
        self.calls.append("stream begins")
        yield
        self.calls.append("stream ends")


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    """One GPU of 80 GB, newer than Ampere, for the test."""
    found, cuda = Recorded(), torch.cuda
    answers = {
        "device_count": 1,
        "get_device_name": "Fake GPU",
        "get_device_capability": (9, 0),
        "is_bf16_supported": True,
        "max_memory_allocated": 3 * 2**30,
        "memory_allocated": 2**30,
        "reset_peak_memory_stats": None,
        "empty_cache": None,
        "synchronize": None,
        "set_device": None,
        "current_stream": found.stream("computing"),
        "Stream": found.stream("copying"),
        "Event": found.stream("event"),
    }
    for name, value in answers.items():
        monkeypatch.setattr(cuda, name, found.answer(name, value))
    # torch asks this before its first fake tensor, and not again, so it is no call of ours.
    monkeypatch.setattr(cuda, "is_available", lambda: True)
    monkeypatch.setattr(cuda, "stream", found.within)
    monkeypatch.setattr(cuda, "device", lambda *_: nullcontext())
    record = lambda tensor, stream: found.calls.append("record_stream")  # noqa: E731
    monkeypatch.setattr(FakeTensor, "record_stream", record, raising=False)

    def pin_memory(tensor: torch.Tensor) -> torch.Tensor:
        found.calls.append("pin_memory")
        return tensor

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    # Kernels of triton need the values of tensors, and torch's own ask the driver in bf16.
    monkeypatch.setattr("mgexp.multigrid.batchnorm.kernels", lambda: None)
    monkeypatch.setattr("mgexp.multigrid.batchnorm.folds", lambda device: device.type == "cuda")
    # The backward pass of torch asks the driver for the GPU.
    monkeypatch.setattr(torch.Tensor, "backward", give_gradients)
    with OnFakeGpu(found.calls):
        yield found
