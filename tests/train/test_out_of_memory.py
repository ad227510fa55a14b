"""What a message says where a mini-batch does not fit into memory."""

import pytest
import torch
from torch import nn

from mgexp.data.clips import Batch
from mgexp.multigrid.schedule import StepShape
from mgexp.train.faults import is_out_of_memory, shape_message

CPU_ERROR = (
    "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you "
    "tried to allocate 4096 bytes. Error code 12 (Cannot allocate memory)"
)


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError(CPU_ERROR), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (MemoryError(), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_errors_of_memory_are_known(error, wanted):
    assert is_out_of_memory(error) is wanted


class Step:
    """Takes ``fits`` clips at once; ``max_clips`` as TrainStep has it."""

    def __init__(self, fits, max_clips=0):
        self.fits, self.max_clips, self.tried = fits, max_clips, []
        self.optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)

    def backward(self, batch, num_bn_groups, draws):
        self.tried.append((len(batch.clips), num_bn_groups))
        if len(batch.clips) > self.fits:
            raise torch.OutOfMemoryError("CUDA out of memory.")


SHAPE = StepShape(frames=2, crop=16, clips=64, num_bn_groups=8)


def message(step, shape=SHAPE, others=(), may_try=True):
    batch = Batch(torch.zeros(shape.clips, 1), torch.zeros(shape.clips), ())
    return shape_message("why", shape, (shape, *others), step, batch, may_try)


def test_the_largest_number_that_fits_is_found_by_trying():
    step = Step(fits=20)
    text = message(step)
    assert step.tried == [(32, 4), (16, 2)]
    assert text.startswith(
        "out of memory at a mini-batch of 64x2x16², of which 64 clips went through"
    )
    assert "set TRAIN.MAX_CLIPS_PER_GPU 16 (so many fit, in whole BN groups), or TRAIN.ACTI" in text
    assert text.endswith("(why)")


def test_the_search_begins_below_what_went_through_at_once():
    step = Step(fits=8, max_clips=32)
    assert "TRAIN.MAX_CLIPS_PER_GPU 8 " in message(step)
    assert step.tried == [(16, 2), (8, 1)]


def test_nothing_is_promised_where_a_single_group_is_too_much():
    assert "set TRAIN.ACTIVATION_CHECKPOINTING True, or" in message(Step(fits=4))


def test_a_number_that_another_shape_cannot_have_is_not_said():
    """Its groups are of 32 clips."""
    coarse = StepShape(frames=2, crop=8, clips=256, num_bn_groups=8)
    assert "MAX_CLIPS_PER_GPU" not in message(Step(fits=20), others=(coarse,))
    assert "MAX_CLIPS_PER_GPU 32" in message(Step(fits=40), others=(coarse,))


def test_beside_other_processes_half_is_a_guess():
    step = Step(fits=20)
    assert "TRAIN.MAX_CLIPS_PER_GPU 32 (half as many" in message(step, may_try=False)
    assert step.tried == []


def test_a_group_that_spans_processes_cannot_be_cut():
    shape = StepShape(frames=2, crop=16, clips=4, num_bn_groups=-2)
    step = Step(fits=1)
    assert "MAX_CLIPS_PER_GPU" not in message(step, shape)
    assert step.tried == []
