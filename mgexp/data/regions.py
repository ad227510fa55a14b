"""Batches of regions: clips that the device of training resizes and augments, and not a worker of the loader.

A worker decodes a clip, draws everything, and sends the region of the video that the clip shows. The device makes
the clip from it, with the draws of the worker and the functions of the worker. So on a CPU the clips have the same
bits as those of a worker. On a GPU they differ by rounding, which some operations of RandAugment (such as
Equalize) enlarge in a few pixels.

Regions have different sizes, and so the clips are made one after the other. Counted with torchvision 0.29, a clip
takes 4 operations on its pixels for resizing, 20 for colour jitter, up to 15 for each operation of RandAugment and
2 for erasing, however many frames it has. A GPU gets them during the step before, in the stream of the copy. Some
of these operations copy a few numbers from memory that is not page-locked, and the process waits for such a copy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mgexp.data.clips import Batch, Change, Clip, collate_without_pixels, finish

SOURCE_SHORT_SIDE = 256
"""Pixels of the short side of a video, or of its copy in a store. Assumption: most copies of Kinetics-400 have it.
A video of full size sends larger regions, so it should be read from a store."""


def region_side(full_crop: int, least_short_side: int) -> int:
    """Return the pixels along a side of the largest region that a worker sends.

    It is the same for crops of all sizes, because a smaller crop is cut from a frame that is as much smaller; see
    ``TrainingClips.draw_short_side``. ``least_short_side``: the first of DATA.TRAIN_JITTER_SCALES.
    """
    return math.ceil(SOURCE_SHORT_SIDE * full_crop / least_short_side)


@dataclass(frozen=True)
class Regions:
    """A batch whose clips are not finished: ``batch`` has everything but the pixels.

    ``pixels`` uint8 (n,) holds the regions one after the other. ``sizes`` has (T, h, w) of each, and ``seeds`` the
    draw of its augmentation. ``crop``: the pixels of a finished clip.
    """

    pixels: Tensor
    sizes: tuple[tuple[int, int, int], ...]
    seeds: tuple[int, ...]
    crop: int
    batch: Batch

    def pin_memory(self) -> Regions:
        """Return the same in page-locked memory; a DataLoader with ``pin_memory=True`` calls this."""
        return replace(self, pixels=self.pixels.pin_memory(), batch=self.batch.pin_memory())

    def finished(self, device: torch.device, augment: Change | None) -> Batch:
        pixels = self.pixels.to(device, non_blocking=True)
        parts = pixels.split_with_sizes([3 * math.prod(size) for size in self.sizes])
        clips = [
            finish(part.view(*size, 3), self.crop, augment, seed)
            for part, size, seed in zip(parts, self.sizes, self.seeds, strict=True)
        ]
        batch = self.batch.map(lambda tensor: tensor.to(device, non_blocking=True))
        # Channels are last in the stack: the permuted view is channels_last_3d without a copy.
        return replace(batch, clips=torch.stack(clips).permute(0, 4, 1, 2, 3))


def collate_regions(clips: Sequence[Clip]) -> Regions | Batch:
    """Make one batch of clips that are not finished. If one clip has no frames, it is a batch without clips."""
    batch = collate_without_pixels(clips)
    if not len(batch.labels):
        return batch
    frames = [clip.frames for clip in clips]
    pixels = torch.cat([region.flatten() for region in frames])
    sizes = tuple((region.shape[0], region.shape[1], region.shape[2]) for region in frames)
    return Regions(pixels, sizes, tuple(clip.seed for clip in clips), clips[0].crop, batch)


@dataclass(frozen=True)
class FinishedBatches:
    """The batches of a loader of regions, finished on ``device`` with ``augment``."""

    loader: Iterable[Regions | Batch]
    device: torch.device
    augment: Change | None

    def __iter__(self) -> Iterator[Batch]:
        # iter() of the loader starts its workers, so it must not wait for the first batch.
        return map(self._finish, iter(self.loader))

    def _finish(self, batch: Regions | Batch) -> Batch:
        return batch if isinstance(batch, Batch) else batch.finished(self.device, self.augment)
