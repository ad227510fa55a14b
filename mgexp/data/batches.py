"""Mini-batches: from the clips of a loader's worker to the device of training.

With AUG.DEVICE workers, a worker of the loader makes the clips. With AUG.DEVICE training, it decodes a clip, draws
everything, and sends the region of the video that the clip shows. The device makes the clip from it, with the
draws and the functions of a worker. So on a CPU the clips have the same bits as those of a worker. On a GPU they
differ by rounding, which some operations of RandAugment (such as Equalize) enlarge in a few pixels.

Regions have different sizes, and so the clips are made one after the other. Counted with torchvision 0.29, a clip
takes 4 operations on its pixels for resizing, 20 for colour jitter, up to 15 for each operation of RandAugment and
2 for erasing, however many frames it has. A GPU gets them during the step before, in the stream of the copy. Some
of these operations copy a few numbers from memory that is not page-locked, and the process waits for such a copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mgexp.data.clips import Change, Clip, Unusable, finish


@dataclass(frozen=True)
class Regions:
    """What the regions of a batch become: clips of ``crop`` pixels.

    ``sizes`` has (T, h, w) of each region, and ``seeds`` the draw of its augmentation by ``augment``.
    """

    sizes: tuple[tuple[int, int, int], ...]
    seeds: tuple[int, ...]
    crop: int
    augment: Change | None


@dataclass(frozen=True)
class Batch:
    """``clips`` uint8 (B, 3, T, S, S) in channels_last_3d memory, ``labels`` int64 (B,).

    If videos have many labels, ``labels`` is float32 (B, classes), with 1 for each class that the
    clip shows and 0 for the others.
    ``flipped`` bool (B,): the clips to mirror, left for right; None if there is none.

    ``unusable``: the videos that failed and were replaced. B is 0 if all attempts for a clip failed.

    ``regions``: None, or how ``on`` makes the clips. ``clips`` then holds uint8 (n,), one region after the other.
    """

    clips: Tensor
    labels: Tensor
    unusable: Unusable
    flipped: Tensor | None = None
    regions: Regions | None = None

    def pin_memory(self) -> Batch:
        """Return the same batch in page-locked memory; a DataLoader with ``pin_memory=True`` calls this."""
        return self.map(lambda tensor: tensor.pin_memory())

    def map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        return replace(
            self,
            clips=change(self.clips),
            labels=change(self.labels),
            flipped=None if self.flipped is None else change(self.flipped),
        )

    def on(self, device: torch.device) -> Batch:
        """Return the batch on ``device``, where the clips are made if they are regions."""
        batch, regions = self.map(lambda tensor: tensor.to(device, non_blocking=True)), self.regions
        if regions is None:
            return batch
        parts = batch.clips.split_with_sizes([3 * math.prod(size) for size in regions.sizes])
        clips = [
            finish(part.view(*size, 3), regions.crop, regions.augment, seed)
            for part, size, seed in zip(parts, regions.sizes, regions.seeds, strict=True)
        ]
        # Channels are last in the stack: the permuted view is channels_last_3d without a copy.
        return replace(batch, clips=torch.stack(clips).permute(0, 4, 1, 2, 3), regions=None)

    def tensors(self) -> list[Tensor]:
        return [self.clips, self.labels, *([] if self.flipped is None else [self.flipped])]


def collate(
    clips: Sequence[Clip], are_finished: bool = True, augment: Change | None = None
) -> Batch:
    """Make one batch of clips of one shape, or of their regions, which ``augment`` will change on a device.

    If one clip has no frames, the batch has no clips at all.
    """
    unusable = tuple(failure for clip in clips for failure in clip.unusable)
    # The loader cannot raise this itself: torch would hand on a traceback as text.
    if not all(len(clip.frames) for clip in clips):
        none = torch.empty(0, 3, 0, 0, 0, dtype=torch.uint8)
        return Batch(none, torch.empty(0, dtype=torch.long), unusable)
    frames = [clip.frames for clip in clips]
    flipped = [clip.flipped for clip in clips]
    if are_finished:
        # Channels are last in the stack: the permuted view is channels_last_3d without a copy.
        pixels, regions = torch.stack(frames).permute(0, 4, 1, 2, 3), None
    else:
        pixels = torch.cat([region.flatten() for region in frames])
        sizes = tuple((region.shape[0], region.shape[1], region.shape[2]) for region in frames)
        regions = Regions(sizes, tuple(clip.seed for clip in clips), clips[0].crop, augment)
    return Batch(
        pixels,
        # A number becomes int64, and a tuple of floats becomes a row of float32.
        labels=torch.tensor([clip.label for clip in clips]),
        unusable=unusable,
        flipped=torch.tensor(flipped) if any(flipped) else None,
        regions=regions,
    )


class DeviceBatches:
    """Batches of a loader, as uint8 on ``device``: ``take`` the next one, ``fetch_ahead`` during a step.

    On a GPU, a separate stream copies the batch from page-locked memory while the step computes.
    """

    def __init__(self, batches: Iterator[Batch], device: torch.device) -> None:
        self._batches = batches
        self._device = device
        self._stream = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._ahead: Batch | None = None

    def take(self) -> Batch:
        """Return the next batch. Raises StopIteration after the last."""
        batch = self._ahead if self._ahead is not None else self._fetch()
        self._ahead = None
        if self._stream is not None:
            # The stream that computes waits for the copy. record_stream tells the allocator that this stream
            # uses the batch, so that no later copy gets its memory before the step is done with it.
            current = torch.cuda.current_stream(self._stream.device)
            current.wait_stream(self._stream)
            for tensor in batch.tensors():
                tensor.record_stream(current)
        return batch

    def fetch_ahead(self) -> None:
        """On a GPU, wait for the next batch and start its copy. On a CPU there is nothing to gain: do nothing."""
        if self._stream is not None and self._ahead is None:
            try:
                self._ahead = self._fetch()
            # The next ``take`` asks again, and then raises it.
            except StopIteration:
                return

    def _fetch(self) -> Batch:
        if self._stream is None:
            return next(self._batches).on(self._device)
        # With AUG.DEVICE training, ``on`` also resizes and augments the clips in this stream.
        with torch.cuda.stream(self._stream):
            batch = next(self._batches)
            # non_blocking has an effect only if the batch is in page-locked memory; see
            # ``mgexp.data.loader``.
            return batch.on(self._device)
