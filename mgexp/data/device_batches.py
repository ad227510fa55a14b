"""Training batches on the device that trains; on a GPU the next one is copied there while it still computes."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from mgexp.data.clips import Batch


class DeviceBatches:
    """Batches of a loader, as uint8 on ``device``: ``take`` the next, ``fetch_ahead`` when a step is under way.

    On a GPU the copy is made from page-locked memory on a stream of its own.
    """

    def __init__(self, batches: Iterator[Batch], device: torch.device) -> None:
        self._batches = batches
        self._device = device
        self._stream = _new_stream(device) if device.type == "cuda" else None
        self._ahead: Batch | None = None

    def take(self) -> Batch:
        """The next batch; raises StopIteration after the last."""
        batch = self._ahead if self._ahead is not None else self._fetch()
        self._ahead = None
        if self._stream is not None:
            _hand_over(batch, self._stream)
        return batch

    def fetch_ahead(self) -> None:
        """On a GPU, waits for the next batch and starts its copy; else nothing, as nothing runs meanwhile."""
        if self._stream is not None and self._ahead is None:
            try:
                self._ahead = self._fetch()
            except StopIteration:
                return

    def _fetch(self) -> Batch:
        batch = next(self._batches)
        if self._stream is None:
            return batch
        with torch.cuda.stream(self._stream):
            return batch.map(lambda tensor: tensor.to(self._device, non_blocking=True))


def _new_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _hand_over(batch: Batch, stream: torch.cuda.Stream) -> None:
    """The stream that computes waits for the copy, and the memory is not given away before it is done with it."""
    current = torch.cuda.current_stream(stream.device)
    current.wait_stream(stream)
    for tensor in batch.tensors():
        tensor.record_stream(current)
