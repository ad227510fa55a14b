"""Whole runs on a GPU: what they record, how they resume, and several processes over NCCL."""

import copy
import json

import pytest
import torch
from run_files import assert_bit_identical, losses, read_lines, stop_in, torchrun
from tiny import VIT, command, data_keys, run_net, write_config

from mgexp import dist
from mgexp.dist import Processes
from mgexp.errors import InputError
from mgexp.train.precision import resolve_precision

pytestmark = pytest.mark.gpu

EXACT = ("TRAIN.PRECISION", "fp32")


@pytest.fixture(scope="module")
def cfg(tiny_data, device, tmp_path_factory):
    keys = {**data_keys(tiny_data), "DEVICE": device.type}
    return write_config(tmp_path_factory.mktemp("gpu") / "tiny.yaml", keys)


@pytest.fixture(scope="module")
def whole(cfg, tmp_path_factory):
    """The folder of an uninterrupted run in fp32."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert run_net().main(command(cfg, folder, *EXACT)) == 0
    return folder


def test_a_run_records_its_device_and_its_memory(whole, device):
    result = json.loads((whole / "result.json").read_text())
    last = read_lines(whole / "metrics.jsonl")[-1]
    if device.type == "cuda":
        assert result["device"] == torch.cuda.get_device_name()
        assert last["max_memory_bytes"] > 2**20
    assert result["precision"] == "fp32"


def test_a_gpu_computes_in_the_precisions_for_which_it_has_units(device):
    def is_there(name):
        try:
            return resolve_precision(name, device).name == name
        except InputError as error:
            assert name in str(error)
            return False

    if device.type == "cpu":
        wanted = {"fp32", "bf16", "fp16"}  # a CPU emulates the last two
    else:
        is_ampere = torch.cuda.get_device_capability(device) >= (8, 0)
        wanted = {"fp32", "fp16", *(("bf16", "tf32") if is_ampere else ())}
    assert {name for name in ("fp32", "tf32", "bf16", "fp16") if is_there(name)} == wanted


@pytest.mark.parametrize("workers", [0, 2])
def test_an_interrupted_run_continues(cfg, whole, workers, device, tmp_path):
    """Kernels of a GPU may add in another order in each run, so there the losses are only close."""
    folder = tmp_path / "run"
    pairs = (*EXACT, "DATA_LOADER.NUM_WORKERS", workers)
    stop_in(4, run_net().main, command(cfg, folder, *pairs))
    assert run_net().main(command(cfg, folder, *pairs)) == 0
    found, wanted = losses(folder), losses(whole)
    assert [step for step, _ in found] == [step for step, _ in wanted]
    for (_, one), (_, other) in zip(found, wanted, strict=True):
        assert one == pytest.approx(other, rel=0.05)
    if device.type == "cpu":
        assert_bit_identical(folder, whole)


def test_an_interrupted_transformer_has_the_same_bits(tiny_data, device, tmp_path):
    """torch can add in a fixed order in all its operations, but not in the AdaptiveAvgPool3d of other networks."""
    keys = {**data_keys(tiny_data), **VIT, "VIT.POSITIONS": "rotary", "DEVICE": device.type}
    cfg = write_config(tmp_path / "vit.yaml", keys)
    whole, folder = tmp_path / "whole", tmp_path / "run"
    torch.use_deterministic_algorithms(True)
    try:
        assert run_net().main(command(cfg, whole, *EXACT)) == 0
        stop_in(4, run_net().main, command(cfg, folder, *EXACT))
        assert run_net().main(command(cfg, folder, *EXACT)) == 0
    finally:
        torch.use_deterministic_algorithms(False)
    assert_bit_identical(folder, whole)


@pytest.fixture
def one_of_two(device, tmp_path):
    """A group of one process that takes itself for one of two. So it uses every collective, on one GPU too."""
    backend = "nccl" if device.type == "cuda" else "gloo"
    store = f"file://{tmp_path / 'store'}"
    torch.distributed.init_process_group(backend, init_method=store, rank=0, world_size=1)
    yield Processes(count=2)
    torch.distributed.destroy_process_group()


def test_collectives_of_the_device(device, one_of_two):
    assert dist.any_true(one_of_two, (True, False), device) == (True, False)
    assert dist.from_main(one_of_two, {"step": 3}) == {"step": 3}
    ones = torch.ones(3, device=device)
    found = [way(one_of_two, ones.clone()).tolist() for way in (dist.sum_, dist.max_, dist.mean_)]
    assert found == [[1.0] * 3, [1.0] * 3, [0.5] * 3]


@pytest.mark.parametrize("in_bf16", [False, True])
def test_gradients_of_a_shared_network(device, one_of_two, in_bf16):
    torch.manual_seed(0)
    plain = torch.nn.Conv3d(3, 4, 3).to(device)
    shared = dist.shared(one_of_two, copy.deepcopy(plain), in_bf16=in_bf16)
    clips = torch.randn(2, 3, 4, 8, 8, device=device)
    for model in (plain, shared):
        model(clips).square().mean().backward()
    wanted = [parameter.grad for parameter in plain.parameters()]
    found = [parameter.grad for parameter in shared.parameters()]
    torch.testing.assert_close(found, wanted, rtol=1e-2 if in_bf16 else 1e-5, atol=1e-6)


def test_all_gpus_train_together(cfg, whole, device, tmp_path):
    count = torch.cuda.device_count() if device.type == "cuda" else 2
    if count < 2:
        pytest.skip("one GPU")
    folder = tmp_path / "run"
    torchrun(command(cfg, folder, *EXACT), 2)
    assert losses(folder)[0][1] == pytest.approx(losses(whole)[0][1], rel=1e-3)
