"""A training step on a GPU: its numbers, its precisions, its compiled forms, its memory and its clock."""

import time

import pytest
import torch
import torch.nn.functional as F
from operators import operator_times
from tiny import tiny_config

from mgexp.data.augment import Augment
from mgexp.data.batches import Batch, DeviceBatches, Regions
from mgexp.multigrid import batchnorm
from mgexp.multigrid.batchnorm import GroupedBatchNorm3d
from mgexp.multigrid.schedule import StepShape
from mgexp.plan.timing import Stopwatch
from mgexp.plan.ways import build_training_step
from mgexp.run.clock import StepTimer
from mgexp.train.compiled import compiled
from mgexp.train.faults import is_out_of_memory

pytestmark = pytest.mark.gpu

CPU = torch.device("cpu")
SHAPES = (
    StepShape(frames=4, crop=16, clips=8, num_bn_groups=2),
    StepShape(frames=8, crop=32, clips=4, num_bn_groups=1),
)
EXACT = {"TRAIN.PRECISION": "fp32", "MODEL.DROPOUT_RATE": 0.0}


def gradients_of(cfg, device, shape):
    """The loss and the gradients of the first step, in float64 on the CPU."""
    way = build_training_step(cfg, device)
    loss = way.gradients(shape)()
    model = way.step.model
    return float(loss), {
        name: value.grad.detach().cpu().double() for name, value in model.named_parameters()
    }


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_fp32_gradients_are_those_of_the_cpu(device, shape, tmp_path):
    cfg = tiny_config(tmp_path, EXACT)
    loss, found = gradients_of(cfg, device, shape)
    wanted_loss, wanted = gradients_of(cfg, CPU, shape)
    assert loss == pytest.approx(wanted_loss, rel=1e-4)
    for name, value in wanted.items():
        error = (found[name] - value).norm() / value.norm().clamp(min=1e-6)
        assert error < 2e-3, name


@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
def test_low_precisions_point_the_same_way(device, precision, tmp_path):
    """All gradients as one vector: the cosine to fp32."""
    cfg = tiny_config(tmp_path, EXACT | {"TRAIN.PRECISION": precision})
    exact = tiny_config(tmp_path, EXACT)
    (loss, found), (wanted_loss, wanted) = (
        gradients_of(one, device, SHAPES[1]) for one in (cfg, exact)
    )
    assert loss == pytest.approx(wanted_loss, rel=0.02)
    one, other = (torch.cat([each.flatten() for each in part.values()]) for part in (found, wanted))
    assert torch.cosine_similarity(one, other, dim=0) > 0.98


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_groups", [2, 8])
def test_kernels_normalise_groups_like_torch(device, dtype, num_groups, monkeypatch):
    """Forward, backward and running statistics, in channels_last_3d, against float64 on the CPU."""
    generator = torch.Generator().manual_seed(0)
    clips, grad = (torch.randn(16, 32, 4, 7, 7, generator=generator) for _ in range(2))
    clips += torch.arange(16.0).view(-1, 1, 1, 1, 1) / 4

    def run(device, dtype, way="kernels"):
        monkeypatch.setattr(batchnorm, "folds", lambda device: way == "at once")
        if way != "kernels":
            monkeypatch.setattr(batchnorm, "kernels", lambda: None)
        norm = GroupedBatchNorm3d(32)
        norm = norm.double() if dtype is torch.float64 else norm
        norm = norm.to(device)
        norm.num_groups = num_groups
        x = clips.to(device, dtype).to(memory_format=torch.channels_last_3d).requires_grad_()
        out = norm(x)
        out.backward(grad.to(device, dtype))
        assert out.is_contiguous(memory_format=torch.channels_last_3d)
        results = (out, x.grad, norm.weight.grad, norm.running_mean, norm.running_var)
        return [value.detach().cpu().double() for value in results]

    exact = run(CPU, torch.float64)
    tolerance = 0.02 if dtype is torch.bfloat16 else 1e-4
    for way in ("kernels", "one by one", "at once"):
        for found, wanted in zip(run(device, dtype, way), exact, strict=True):
            assert (found - wanted).norm() < tolerance * wanted.norm()


@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize("mode", ["default", "cuda_graphs"])
def test_compiled_steps_have_the_losses_of_eager_ones(device, mode, tmp_path):
    """Two shapes in turns, with updates: a graph must not read what another one has overwritten."""
    cfg = tiny_config(tmp_path, EXACT)
    ours, theirs = build_training_step(cfg, device), build_training_step(cfg, device)
    with compiled(theirs.step.model, mode, num_graphs=2 * len(SHAPES)):
        pairs = [(ours(shape), theirs(shape)) for shape in SHAPES]
        found = [(float(one()), float(other())) for _ in range(4) for one, other in pairs]
    for eager, other in found:
        assert other == pytest.approx(eager, rel=1e-3)


def test_batches_arrive_whole_and_in_order(device):
    """The copy of the next batch overlaps with the step, and must not overwrite the batch of the step."""

    def make(number):
        clips = torch.full((4, 8, 64, 64, 3), number, dtype=torch.uint8)
        pinned = clips.pin_memory() if device.type == "cuda" else clips
        return Batch(pinned.permute(0, 4, 1, 2, 3), torch.full((4,), number), ())

    source = DeviceBatches(iter([make(number) for number in range(12)]), device)
    work = torch.randn(512, 512, device=device)
    sums = []
    for _ in range(12):
        batch = source.take()
        work = work @ work / 512  # keeps the device busy while the next batch is copied
        sums.append((batch.clips.float().mean(), batch.labels.float().mean()))
        source.fetch_ahead()
        assert batch.clips.device.type == device.type
    assert [(float(clips), float(labels)) for clips, labels in sums] == [
        (number, number) for number in range(12)
    ]
    with pytest.raises(StopIteration):
        source.take()


@pytest.mark.parametrize(
    "augment", [None, Augment(1, 9, 0.4, 0.5, (115,) * 3, full=(4, 32))], ids=["plain", "augmented"]
)
def test_a_gpu_makes_the_clips_of_a_cpu(device, augment):
    """Rounding differs. An operation such as posterize makes a large difference of a small one, but rarely."""
    rng = torch.Generator().manual_seed(0)
    # Smooth pictures, as those of videos: few pixels lie at the edge from which an operation takes its value.
    small = torch.randint(0, 256, (16 * 4, 3, 6, 8), generator=rng).float()
    pixels = F.interpolate(small, (30, 40), mode="bicubic").clamp(0, 255).to(torch.uint8)
    labels = torch.zeros(16, dtype=torch.long)
    clips = pixels.permute(0, 2, 3, 1).reshape(-1)
    regions = Regions(((4, 30, 40),) * 16, tuple(range(16)), 32, augment)
    batch = Batch(clips, labels, (), regions=regions)
    wanted = batch.on(CPU).clips.int()
    found = batch.on(device).clips.cpu().int()
    apart = (found - wanted).abs()
    assert (apart > 2).float().mean() < 0.01
    assert apart.float().mean() < 0.5


def test_clocks_count_what_the_device_does(device):
    """Python queues the work at once. The timer of a run and the stopwatch of the tools must wait for its end."""
    left = torch.randn(1024, 1024, device=device)

    def work():
        result = left
        for _ in range(40):
            result = result @ left / 1024
        return result.sum()

    float(work())
    begin = time.perf_counter()
    float(work())
    true = time.perf_counter() - begin
    timer = StepTimer(device)
    timer.start()
    work()
    timer.computed()
    time.sleep(3 * true)  # a wait for clips, of which the device works through a third
    timer.stop()
    ((seconds, waited),) = timer.read()
    stopped = Stopwatch(device).time(work).seconds
    assert seconds == pytest.approx((4 if device.type == "cpu" else 3) * true, rel=0.7)
    assert waited == pytest.approx((3 if device.type == "cpu" else 2) * true, rel=0.7)
    assert stopped == pytest.approx(true, rel=0.7)


def test_operators_are_those_of_the_device(device):
    left = torch.randn(512, 512, device=device)
    found = operator_times(lambda: [left @ left for _ in range(3)], device)
    assert found[0].calls == 3
    assert found[0].milliseconds > 0
    assert not any(one.name.startswith("cuda") for one in found)


@pytest.mark.usefixtures("on_gpu")
def test_the_stopwatch_tells_what_was_used_above_what_was_held(device):
    held = torch.zeros(2**20, device=device)
    assert Stopwatch(device).time(held.clone).used_bytes == held.nbytes


@pytest.mark.usefixtures("on_gpu")
def test_too_little_memory_is_recognised(device, tmp_path):
    way = build_training_step(tiny_config(tmp_path, EXACT), device)
    shape = StepShape(frames=8, crop=128, clips=256, num_bn_groups=64)
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(2e9 / total, device)
    try:
        with pytest.raises(RuntimeError) as error:
            way(shape)()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
    assert is_out_of_memory(error.value)
