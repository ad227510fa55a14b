"""A batch of clips: what it says of unusable videos, and its tensors."""

import torch

from mgexp.data.clips import Batch, Clip, collate


def test_a_batch_names_all_unusable_videos_in_order():
    frames = torch.zeros((1, 2, 2, 3), dtype=torch.uint8)
    clips = [
        Clip(frames, 0, 5, ((1, "short"), (4, "empty"))),
        Clip(frames, 1, 6, ()),
        Clip(frames, 0, 7, ((2, "gone"),)),
    ]
    assert collate(clips).unusable == ((1, "short"), (4, "empty"), (2, "gone"))


class _Pinned(torch.Tensor):
    """Stands in for page-locked memory, which needs an accelerator."""

    def pin_memory(self):
        return "pinned " + str(self.dtype)


def test_pinning_pins_all_tensors_and_keeps_the_rest():
    clips = torch.zeros(1, dtype=torch.uint8).as_subclass(_Pinned)
    labels = torch.zeros(1, dtype=torch.int64).as_subclass(_Pinned)
    flipped = torch.zeros(1, dtype=torch.bool).as_subclass(_Pinned)
    pinned = Batch(clips, labels, ((1, "short"),), {"160": 1}, flipped).pin_memory()
    names = [f"pinned torch.{name}" for name in ("uint8", "int64", "bool")]
    assert pinned == Batch(*names[:2], ((1, "short"),), {"160": 1}, names[2])
