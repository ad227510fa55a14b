"""What only a GPU does, on a GPU that computes nothing: on which device tensors are, and what waits for what."""

from types import SimpleNamespace

import pytest
import torch
from fake_gpu import GPU
from tiny import tiny_config
from torch import nn

from mgexp import dist
from mgexp.data.batches import Batch, DeviceBatches, Regions
from mgexp.data.loader import build_train_loader
from mgexp.dist import Processes
from mgexp.errors import InputError
from mgexp.launch.resources import Resources, add_resource_arguments, local_problems, read_resources
from mgexp.multigrid.schedule import StepShape
from mgexp.optim.build import build_optimizer
from mgexp.options import ToolParser
from mgexp.plan.ways import build_training_step
from mgexp.train.precision import Precision, resolve_precision
from mgexp.train.step import keeping_random_state
from mgexp.video.pyav import PyavReader

FEW = StepShape(frames=4, crop=16, clips=8, num_bn_groups=2)
MANY = StepShape(frames=4, crop=16, clips=8, num_bn_groups=8)
AUGMENTED = {"AUG.RANDAUGMENT_OPS": 2, "AUG.COLOR_JITTER": 0.4, "AUG.RE_PROB": 1.0}
MODELS = {
    "SlowFast": {},
    "I3D": {"MODEL.MODEL_NAME": "I3D", "RESNET.DEPTH": 50},
    "TSM": {"MODEL.MODEL_NAME": "TSM", "RESNET.DEPTH": 50},
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("shape", [FEW, MANY], ids=str)
@pytest.mark.usefixtures("fake_gpu")
def test_a_step_stays_on_its_gpu(model, shape, tmp_path):
    # The fake backend has no batch norm in bf16.
    keys = {"TRAIN.PRECISION": "fp32", "SOLVER.CLIP_GRAD_L2NORM": 1.0}
    cfg = tiny_config(tmp_path, {**MODELS[model], **keys})
    way = build_training_step(cfg, GPU)
    loss = way(shape)()
    parameters = [*way.step.model.parameters()]
    state = [
        value for one in way.step.optimizer.state.values() for value in one.values() if value.dim()
    ]
    tensors = [loss, *parameters, *(one.grad for one in parameters), *way.step.model.buffers()]
    assert {tensor.device for tensor in tensors + state} == {GPU}
    assert len(state) == len(parameters)


@pytest.mark.parametrize(
    ("name", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16), ("tf32", torch.float32)]
)
@pytest.mark.usefixtures("fake_gpu")
def test_a_layer_computes_in_the_precision_of_the_run(name, dtype, tmp_path):
    way = build_training_step(tiny_config(tmp_path, {"TRAIN.PRECISION": name}), GPU)
    convolution = next(one for one in way.step.model.modules() if isinstance(one, nn.Conv3d))
    seen = []
    convolution.register_forward_hook(lambda *args: seen.append((args[2].dtype, args[2].device)))
    assert way.gradients(MANY)().device == GPU
    assert seen == [(dtype, GPU)]
    assert {one.dtype for one in way.step.model.parameters()} == {torch.float32}
    assert way.step.scaler.is_enabled() == (name == "fp16")


@pytest.mark.usefixtures("fake_gpu")
def test_the_default_precision_of_a_gpu_with_bf16_is_bf16():
    assert resolve_precision("auto", GPU) == Precision("bf16")


def test_a_gpu_without_bf16_units_has_none(fake_gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", fake_gpu.answer("bf16", False))
    monkeypatch.setattr(torch.cuda, "get_device_capability", fake_gpu.answer("old", (7, 0)))
    assert resolve_precision("auto", GPU) == Precision("fp32")
    for name, words in (("bf16", "does not compute with it"), ("tf32", "older than Ampere")):
        with pytest.raises(InputError, match=f"Fake GPU .*{words}|{words}"):
            resolve_precision(name, GPU)


def test_the_next_batch_is_copied_while_a_step_computes(fake_gpu):
    def make(number):
        clips = torch.zeros(2, 3, 4, 8, 8, dtype=torch.uint8)
        return Batch(clips, torch.full((2,), number), (), flipped=torch.tensor([True, False]))

    def loader():
        for number in range(2):
            fake_gpu.calls.append("next")
            yield make(number)

    source = DeviceBatches(loader(), GPU)
    fake_gpu.calls.clear()
    taken = source.take()
    assert {tensor.device for tensor in taken.tensors()} == {GPU}
    # A tensor of the copying stream must not be given away before the computing stream is done with it.
    fetched = ["stream begins", "next", *["copy, no wait"] * 3, "stream ends"]
    waited = ["current_stream", "computing.wait_stream", *["record_stream"] * 3]
    assert fake_gpu.calls == [*fetched, *waited]
    fake_gpu.calls.clear()
    source.fetch_ahead()
    assert fake_gpu.calls == fetched
    source.take()
    source.fetch_ahead()
    with pytest.raises(StopIteration):
        source.take()


def test_clips_that_the_gpu_makes_are_on_the_gpu(fake_gpu, tmp_path):
    cfg = tiny_config(tmp_path, {**AUGMENTED, "AUG.DEVICE": "training"})
    loader = build_train_loader(cfg, [], [], GPU, PyavReader)
    made_from = loader.collate_fn.keywords
    labels = torch.zeros(20, dtype=torch.long)
    pixels = torch.zeros(20 * 4 * 9 * 9 * 3, dtype=torch.uint8)
    seen = []

    def augment(frames, seed):
        seen.append((frames.device, seed))
        return made_from["augment"](frames, seed)

    # The seeds reach every operation of RandAugment.
    regions = Regions(((4, 9, 9),) * 20, tuple(range(20)), 8, augment)
    source = DeviceBatches(iter([Batch(pixels, labels, (), regions=regions)]), GPU)
    fake_gpu.calls.clear()
    batch = source.take()
    assert batch.clips.shape == (20, 3, 4, 8, 8)
    assert batch.clips.dtype == torch.uint8
    assert batch.clips.is_contiguous(memory_format=torch.channels_last_3d)
    assert {tensor.device for tensor in batch.tensors()} == {GPU}
    # The GPU makes the clips in the stream of the copy. They are not made on the CPU and copied afterwards.
    assert seen == [(GPU, seed) for seed in range(20)]
    made = fake_gpu.calls[: fake_gpu.calls.index("stream ends")]
    assert made[:2] == ["stream begins", "copy, no wait"]
    assert "copy, no wait" in made[2:]  # the labels


@pytest.mark.usefixtures("fake_gpu")
def test_batches_for_a_gpu_lie_in_page_locked_memory(tmp_path):
    cfg = tiny_config(tmp_path)
    assert build_train_loader(cfg, [], [], GPU, PyavReader).pin_memory
    assert not build_train_loader(cfg, [], [], torch.device("cpu"), PyavReader).pin_memory


def test_the_random_state_of_the_gpu_is_kept(monkeypatch):
    seen = []
    monkeypatch.setattr(torch.random, "fork_rng", seen.append)
    for device in (GPU, torch.device("cpu")):
        keeping_random_state(device)
    assert seen == [[GPU], []]


@pytest.mark.usefixtures("fake_gpu")
def test_each_process_of_a_node_has_a_gpu_of_its_own():
    assert dist.device_of("auto", Processes(local_rank=3)) == torch.device("cuda", 3)
    assert dist.device_of("cpu") == torch.device("cpu")


def test_gpus_talk_over_nccl(fake_gpu, monkeypatch):
    begun = []
    monkeypatch.setattr(dist.dist, "init_process_group", lambda name, timeout: begun.append(name))
    monkeypatch.setattr(dist.dist, "destroy_process_group", lambda: begun.append("end"))
    fake_gpu.calls.clear()
    with dist.joined(Processes(0, 2), GPU):
        # Otherwise all processes of a node would use GPU 0.
        assert fake_gpu.calls == ["set_device"]
    assert begun == ["nccl", "end"]


@pytest.mark.usefixtures("fake_gpu")
def test_a_run_takes_one_gpu_and_no_more_than_there_are():
    parser = ToolParser("", "")
    add_resource_arguments(parser)
    found, _ = read_resources(parser.parse_args([], SimpleNamespace(launcher="here")))
    assert found.gpus_per_node == 1
    assert [*local_problems(found)] == []
    (problem,) = local_problems(Resources(gpus_per_node=2))
    assert "there are 1" in problem


@pytest.mark.parametrize("method", ["sgd", "adamw"])
@pytest.mark.usefixtures("fake_gpu")
def test_the_update_on_a_gpu_is_not_fused(method, tmp_path):
    """The scaler of fp16 treats the fused update differently."""
    cfg, model = tiny_config(tmp_path, {"SOLVER.OPTIMIZING_METHOD": method}), nn.Linear(2, 2)
    assert build_optimizer(cfg, model).param_groups[0]["fused"]
    assert not build_optimizer(cfg, model.to(GPU)).param_groups[0]["fused"]
