"""The kernels for a GPU, run by triton's interpreter on a CPU, and compiled for GPUs that are not here."""

import re
import subprocess
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch

from mgexp.multigrid import batchnorm
from mgexp.multigrid.batchnorm import GroupedBatchNorm3d, keeping

triton = pytest.importorskip("triton")
bn_kernels = pytest.importorskip("mgexp.multigrid.bn_kernels")


@pytest.fixture(scope="module")
def interpreter():
    """A process whose triton interprets kernels: triton asks for that once, when it is imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            yield pool


@contextmanager
def on_kernels():
    """In the block, layers take the kernels on this CPU."""
    with pytest.MonkeyPatch.context() as patch:
        # Few rows and channels then have several parts, tiles and blocks.
        patch.setattr(bn_kernels, "TILE", 512)
        patch.setattr(batchnorm, "kernels", lambda: bn_kernels)
        patch.setattr(GroupedBatchNorm3d, "_has_kernel", lambda self, x: bn_kernels.takes(x))
        yield


def trained(norm, clips, shortcut, grad):
    """One step: (output, gradients of clips, shortcut, weight and bias, running statistics), in float64."""
    x = clips.clone(memory_format=torch.channels_last_3d).requires_grad_()
    added = None if shortcut is None else shortcut.clone().requires_grad_()
    out = norm.finish(added, x)
    out.backward(grad)
    assert norm.num_batches_tracked == 1
    through = x.grad if added is None else added.grad
    affine = (norm.weight.grad, norm.bias.grad)
    results = (out, x.grad, through, *affine, norm.running_mean, norm.running_var)
    return [value.detach().double() for value in results]


def norms_of(num_channels, num_groups):
    """Two equal layers, of which one is exact."""
    torch.manual_seed(0)
    exact = GroupedBatchNorm3d(num_channels).double()
    torch.nn.init.uniform_(exact.weight, 0.5, 1.5)
    torch.nn.init.normal_(exact.bias)
    ours = GroupedBatchNorm3d(num_channels)
    ours.load_state_dict(exact.state_dict())
    ours.num_groups = exact.num_groups = num_groups
    return ours, exact


@pytest.mark.parametrize("way", ["alone", "relu", "sum"])
@pytest.mark.parametrize(
    ("num_channels", "num_groups", "size", "dtype"),
    [
        (8, 2, (4, 3, 5, 7), torch.float32),
        (64, 1, (2, 2, 6, 6), torch.float32),
        (72, 4, (8, 1, 5, 5), torch.float32),
        (16, 8, (8, 1, 9, 9), torch.bfloat16),
    ],
)
def test_they_are_exact(num_channels, num_groups, size, dtype, way, interpreter):
    """The clips have means of 5 to 12, which a difference of squares would not survive."""
    errors = interpreter.submit(errors_of, num_channels, num_groups, size, dtype, way).result()
    # Clips and their gradients have the precision of the clips, sums that of float32.
    assert max(errors[:3]) < (0.005 if dtype is torch.bfloat16 else 2e-6)
    assert max(errors[3:]) < 2e-6


def errors_of(num_channels, num_groups, size, dtype, way):
    """Relative errors of what ``trained`` returns, against torch in float64."""
    ours, exact = norms_of(num_channels, num_groups)
    clips = 5 + torch.randn(size[0], num_channels, *size[1:])
    clips += torch.arange(float(size[0])).view(-1, 1, 1, 1, 1)
    grad = torch.randn_like(clips).to(dtype)
    clips = clips.to(dtype)
    shortcut = torch.randn_like(clips) if way == "sum" else None
    ours.relu = exact.relu = way != "alone"
    with on_kernels():
        found = trained(ours, clips, shortcut, grad)
    if shortcut is not None:
        shortcut = shortcut.double()
    wanted = trained(exact, clips.double(), shortcut, grad.double())
    return [
        float((value - other).norm() / other.norm())
        for value, other in zip(found, wanted, strict=True)
    ]


def test_a_relu_keeps_nan(interpreter):
    """At a loss of NaN a training stops."""
    shown = interpreter.submit(shown_with_nan).result()
    assert shown[:, 3].isnan().all() and not shown[:, :3].isnan().any()


def shown_with_nan():
    norm, _ = norms_of(8, 1)
    norm.relu = True
    clips = torch.randn(2, 8, 1, 3, 3)
    clips[0, 3] = torch.nan
    with on_kernels(), torch.no_grad():
        return norm(clips)


def test_their_statistics_can_be_kept(interpreter):
    ours, exact = interpreter.submit(kept_statistics).result()
    for found, wanted in zip(ours, exact, strict=True):
        torch.testing.assert_close(found, wanted, check_dtype=False)


def kept_statistics():
    """The statistics that layers on the kernels and in float64 keep. The running ones must not move."""
    ours, exact = norms_of(8, 2)
    clips = torch.randn(4, 8, 1, 5, 5)
    with keeping(ours), keeping(exact):
        with on_kernels():
            ours(clips)
        exact(clips.double())
        kept = ours.kept[0], exact.kept[0]
    assert ours.running_mean.abs().max() == 0
    return [[*map(torch.as_tensor, statistics)] for statistics in kept]


def test_only_a_gpu_takes_them_and_only_for_several_groups(monkeypatch):
    layer = GroupedBatchNorm3d(8)
    layer.num_groups = 2
    clips = torch.empty(2, 8, 1, 4, 4, device="meta")
    assert not layer._has_kernel(clips)
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True))
    monkeypatch.setattr(batchnorm, "kernels", lambda: bn_kernels)
    assert layer._has_kernel(clips)
    assert not layer._has_kernel(torch.empty(2, 12, 1, 4, 4, device="meta"))
    assert not layer._has_kernel(clips.double())
    layer.num_groups = 1
    assert not layer._has_kernel(clips)
    layer.kernel_from = 1
    assert layer._has_kernel(clips)


NAMES = ("_sum_up", "_combine", "_normalize", "_sum_up_gradients", "_differentiate")
KERNELS = [*((name, False) for name in NAMES), ("_normalize", True), ("_sum_up_gradients", True)]
CLIPS, NUMBERS = {"x", "out", "grad", "shortcut", "through_relu"}, {"eps", "momentum"}
SIZES = {"num_groups", "num_parts", "num_rows", "eighths", "part"}


@pytest.mark.slow
@pytest.mark.parametrize("num_channels", [8, 64])
@pytest.mark.parametrize(("name", "adds"), KERNELS)
def test_they_compile_for_an_a100_without_spills(name, adds, num_channels):
    """Loads of clips are 16 bytes wide, and the registers suffice."""
    *_, tile = bn_kernels._grid(torch.empty(8, num_channels, 2, 4, 4), 2)
    if name == "_sum_up_gradients":
        tile = bn_kernels.smaller(tile, adds)
    constants = {**tile, "PARTS": bn_kernels.PARTS, "TRACK": True, "RELU": True, "ADDS": adds}
    signature, constexprs, attributes = {}, {}, {}
    kernel = getattr(bn_kernels, name)
    for place, parameter in enumerate(kernel.params):
        own = parameter.name
        if own in constants or (own, num_channels) == ("eighths", 8):  # triton makes 1 a constant
            signature[own], constexprs[(place,)] = "constexpr", constants.get(own, 1)
        elif own in NUMBERS:
            signature[own] = "fp32"
        elif own in SIZES:
            signature[own] = "i32"
        else:
            signature[own] = "*bf16" if own in CLIPS else "*fp32"
        if signature[own].startswith("*") or own == "part":
            attributes[(place,)] = [["tt.divisibility", 16]]
    source = triton.compiler.ASTSource(kernel, signature, constexprs, attributes)
    target = triton.backends.compiler.GPUTarget("cuda", 80, 32)
    ptx = triton.compile(source, target=target).asm["ptx"]
    if CLIPS & {parameter.name for parameter in kernel.params}:
        assert re.search(r"ld\.global[\w.:]*\.v4\.b32", ptx)
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(ptx)
        file.flush()
        ptxas = next(Path(triton.__file__).parent.rglob("ptxas"))
        command = [ptxas, "-v", "-arch=sm_80", file.name, "-o", "/dev/null"]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert int(re.search(r"(\d+) bytes spill stores", told)[1]) == 0
    assert int(re.search(r"Used (\d+) registers", told)[1]) <= 128
