"""Layers in two dimensions compute what layers in three compute, from the same weights and without copies."""

import copy
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from fake_gpu import GPU
from tiny import tiny_config
from torch import nn

from mgexp.models import forms
from mgexp.models.build import build_model, on_device
from mgexp.models.cost import count_macs
from mgexp.models.forms import FORM, drop_forms, kind_of, take_forms
from mgexp.models.resnet import ShiftConv3d, fuse_norms
from mgexp.train.compiled import take_graph_forms

CPU = torch.device("cpu")
LAST = torch.channels_last_3d

LAYERS = {
    "time": [
        ((6, 8, (3, 1, 1)), {"padding": (1, 0, 0), "bias": False}),
        ((6, 8, (7, 1, 1)), {"padding": (3, 0, 0), "stride": (4, 1, 1)}),
    ],
    "strided": [((8, 8, 1), {"stride": (1, 2, 2)})],
    "space": [
        ((6, 8, (1, 3, 3)), {"padding": (0, 1, 1), "bias": False}),
        ((3, 8, (1, 7, 7)), {"padding": (0, 3, 3), "stride": (1, 2, 2)}),
    ],
    "point": [((6, 8, 1), {}), ((6, 8, 1), {"bias": False})],
    "stem": [
        ((3, 8, (5, 7, 7)), {"padding": (2, 3, 3), "stride": (1, 2, 2), "bias": False}),
        ((3, 8, (3, 7, 7)), {"padding": (1, 3, 3), "stride": (1, 2, 2)}),
    ],
}
"""The arguments of layers of each kind."""
FORMS = {
    "time": [forms.TimeConv3d],
    "strided": [forms.FramesConv3d],
    "space": [forms.FramesConv3d],
    "point": [forms.RowsConv3d],
    "stem": [forms.BlockConv3d, forms.Block4Conv3d],
}
"""Every form of each kind, whether a device takes it or not."""
CASES = [
    pytest.param(kind, arguments, form, id=f"{kind} {place} {form.__name__}")
    for kind in LAYERS
    for (place, arguments), form in product(enumerate(LAYERS[kind]), FORMS[kind])
]
VIEWS = [case for case in CASES if case.values[0] != "stem"]


def plain_layer(arguments, dtype=torch.float64):
    """A layer of torch, with its weights in channels_last_3d."""
    torch.manual_seed(0)
    positional, named = arguments
    return nn.Conv3d(*positional, **named).to(dtype).to(memory_format=LAST)


def in_form(layer, form):
    clone = copy.deepcopy(layer)
    clone.__class__ = form
    return clone


def clips_for(layer, frames, crop, dtype=torch.float64):
    torch.manual_seed(1)
    frames = max(frames, layer.kernel_size[0] - 2 * layer.padding[0])
    return torch.randn(2, layer.in_channels, frames, crop, crop, dtype=dtype).to(memory_format=LAST)


def computed(layer, x):
    """The output, and the gradients of the input and of the weights, for an output gradient of random numbers."""
    x = x.detach().requires_grad_()
    y = layer(x)
    torch.manual_seed(2)
    # The memory format does not matter to these numbers, as it does to those of randn_like.
    grad_out = torch.randn(y.shape, dtype=y.dtype).to(memory_format=LAST)
    return [y.detach(), *torch.autograd.grad(y, [x, *layer.parameters()], grad_out)]


def assert_near(ours, theirs, limit):
    for one, other in zip(ours, theirs, strict=True):
        assert one.shape == other.shape
        difference, size = (one - other).abs().max().item(), other.abs().max().item()
        assert difference <= limit * size


def test_every_form_of_the_table_is_tested():
    assert {(kind, form) for (kind, _), form in FORM.items()} == {
        (kind, form) for kind, forms_of_kind in FORMS.items() for form in forms_of_kind
    }


@pytest.mark.parametrize(("kind", "arguments", "form"), CASES)
def test_a_layer_has_its_kind(kind, arguments, form):
    layer = plain_layer(arguments)
    assert kind_of(layer) == kind
    assert kind_of(in_form(layer, form)) == ""


@pytest.mark.parametrize("shape", [(8, 16), (7, 45), (1, 9)], ids=str)
@pytest.mark.parametrize(("kind", "arguments", "form"), CASES)
def test_a_form_computes_what_three_dimensions_compute(kind, arguments, form, shape):
    layer = plain_layer(arguments)
    x = clips_for(layer, *shape)
    assert_near(computed(in_form(layer, form), x), computed(layer, x), 1e-13)


@pytest.mark.parametrize(("kind", "arguments", "form"), CASES)
def test_clips_in_another_memory_format_are_right_too(kind, arguments, form):
    layer = plain_layer(arguments)
    x = clips_for(layer, 7, 9)
    for other in (x.contiguous(), x.transpose(3, 4).contiguous().transpose(3, 4), x[:, :, ::2]):
        assert_near(computed(in_form(layer, form), other), computed(layer, other), 1e-13)


BITWISE = [case for case in CASES if case.values[0] in {"strided", "space"}]


@pytest.mark.parametrize(("kind", "arguments", "form"), BITWISE)
def test_frames_have_the_bits_of_fp32(kind, arguments, form):
    layer = plain_layer(arguments, torch.float32)
    x = clips_for(layer, 6, 45, torch.float32)
    for one, other in zip(computed(in_form(layer, form), x), computed(layer, x), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("frames", [1, 4])
@pytest.mark.parametrize(("kind", "arguments", "form"), VIEWS)
def test_neither_clips_nor_weights_are_copied(kind, arguments, form, frames, monkeypatch):
    layer = in_form(plain_layer(arguments), form)
    x, seen = clips_for(layer, frames, 9), []
    name = "linear" if form is forms.RowsConv3d else "conv2d"
    plain = getattr(F, name)

    def watched(*args):
        result = plain(*args)
        seen.append((args[0], args[1], result))
        return result

    monkeypatch.setattr(F, name, watched)
    y = layer(x)
    ((clips, weight, result),) = seen
    assert clips.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert y.untyped_storage().data_ptr() == result.untyped_storage().data_ptr()
    assert weight.untyped_storage().data_ptr() == layer.weight.untyped_storage().data_ptr()


@pytest.mark.parametrize("frames", [1, 4, 5])
@pytest.mark.parametrize(("kind", "arguments", "form"), CASES)
def test_outputs_and_gradients_stay_channels_last(kind, arguments, form, frames):
    layer = in_form(plain_layer(arguments, torch.float32), form)
    x = clips_for(layer, frames, 9, torch.float32).requires_grad_()
    y = layer(x)
    y.backward(torch.ones(y.shape).to(memory_format=LAST))
    assert y.is_contiguous(memory_format=LAST)
    assert x.grad.is_contiguous(memory_format=LAST)


class OwnConv3d(nn.Conv3d):
    """A custom class may do something else in its forward pass."""


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv3d(8, 8, (3, 1, 1), groups=8),
        nn.Conv3d(8, 8, (3, 1, 1), dilation=(2, 1, 1)),
        nn.Conv3d(8, 8, (1, 3, 3), padding=(0, 1, 1), padding_mode="replicate"),
        nn.Conv3d(8, 8, (1, 3, 3), padding="same"),
        nn.Conv3d(8, 8, 3),
        nn.Conv3d(3, 8, (5, 7, 7), stride=2),
        nn.Conv3d(64, 8, (5, 7, 7)),
        nn.Conv3d(64, 8, (2, 4, 4), stride=(2, 4, 4)),
        nn.Conv3d(3, 8, (2, 4, 4), stride=(2, 4, 4), padding=(0, 1, 1)),
        OwnConv3d(8, 8, (3, 1, 1)),
        ShiftConv3d(8, 8, 1, stride=(1, 2, 2)),
        nn.MaxPool3d(2),
        nn.MaxPool3d((1, 2, 2), return_indices=True),
        nn.MaxPool3d((1, 2, 2), dilation=(1, 2, 2)),
        nn.AvgPool3d((1, 2, 2)),
        nn.Conv3d(6, 8, 1, stride=(1, 2, 2)),
    ],
    ids=str,
)
def test_other_layers_stay_as_they_are(layer):
    kind = type(layer)
    take_forms(layer, "cpu")
    assert kind_of(layer) == ""
    assert type(layer) is kind


SMALL = {"MODEL.DROPOUT_RATE": 0.0, "RESNET.ZERO_INIT_FINAL_BN": False}
NETWORKS = {"SlowFast": SMALL, "I3D": {**SMALL, "MODEL.MODEL_NAME": "I3D", "RESNET.DEPTH": 50}}


@pytest.mark.parametrize("place", ["cpu", "cuda graph"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_has_the_logits_and_gradients_of_three_dimensions(name, place, tmp_path):
    plain = build_model(tiny_config(tmp_path, NETWORKS[name])).double()
    ours = copy.deepcopy(plain)
    if place == "cpu":
        take_forms(ours, place)
    else:
        take_graph_forms(ours)
        fuse_norms(ours)
        assert not any(isinstance(one, nn.ReLU) for one in ours.modules())
        # A copy must not compute with the layers of its original.
        original, ours = ours, copy.deepcopy(ours)
        for one in original.parameters():
            one.data.zero_()
    torch.manual_seed(0)
    clips = torch.randn(4, 3, 8, 45, 45, dtype=torch.float64).to(memory_format=LAST)
    labels = torch.arange(4) % 2
    logits = [model(clips) for model in (plain, ours)]
    tested = [copy.deepcopy(model).eval()(clips) for model in (plain, ours)]
    assert_near(tested[1:], tested[:1], 1e-12)
    for one in logits:
        F.cross_entropy(one, labels).backward()
    assert_near(logits[1:], logits[:1], 1e-12)
    gradients = [[one.grad for one in model.parameters()] for model in (ours, plain)]
    # A bias or weight whose gradient is 0 but for rounding has no relative error.
    scale = max(float(one.abs().max()) for one in gradients[1])
    for one, other in zip(*gradients, strict=True):
        limit = max(float(other.abs().max()), 1e-3 * scale)
        assert float((one - other).abs().max()) <= 1e-11 * limit


def test_layers_that_train_on_a_cpu_take_their_forms(tmp_path):
    model = on_device(build_model(tiny_config(tmp_path, NETWORKS["SlowFast"])), CPU)
    found = {type(one) for one in model.modules() if isinstance(one, nn.Conv3d)}
    assert found == {nn.Conv3d, forms.TimeConv3d, forms.FramesConv3d, forms.BlockConv3d}
    # A dilation is for what still goes through the convolutions in three dimensions.
    dilated = {type(one) for one in model.modules() if getattr(one, "dilation", 1) == (1, 2, 2)}
    assert dilated == {nn.Conv3d}


def test_copies_have_the_forms_and_lose_them_on_request(tmp_path):
    model = on_device(build_model(tiny_config(tmp_path, NETWORKS["SlowFast"])), CPU)
    clone = copy.deepcopy(model)
    assert [type(one) for one in clone.modules()] == [type(one) for one in model.modules()]
    plain = build_model(tiny_config(tmp_path, NETWORKS["SlowFast"]))
    assert [type(one) for one in drop_forms(clone).modules()] == [type(o) for o in plain.modules()]


def test_flops_do_not_depend_on_the_form(tmp_path):
    plain = build_model(tiny_config(tmp_path, NETWORKS["I3D"]))
    ours = on_device(copy.deepcopy(plain), CPU)
    assert count_macs(ours, [(4, 32)]) == count_macs(plain, [(4, 32)])


@pytest.mark.parametrize(("kind", "arguments", "form"), CASES)
def test_a_form_computes_in_bf16_under_autocast(kind, arguments, form):
    layer = plain_layer(arguments, torch.float32)
    x = clips_for(layer, 4, 9, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        y, expected = in_form(layer, form)(x), layer(x)
    assert y.dtype == expected.dtype == (torch.bfloat16)
    torch.testing.assert_close(y, expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize(("kind", "arguments", "form"), CASES)
def test_torch_traces_a_form_without_a_break(kind, arguments, form):
    layer = in_form(plain_layer(arguments), form)
    x = clips_for(layer, 5, 9)
    traced = torch.compile(layer, backend="eager", fullgraph=True, dynamic=False)
    assert_near([traced(x).detach()], [layer(x).detach()], 1e-13)


@pytest.mark.parametrize(("kind", "arguments", "form"), CASES)
def test_a_form_stays_on_a_gpu_and_takes_cudnn(kind, arguments, form, fake_gpu, monkeypatch):
    taken, conv2d = [], F.conv2d  # in fp16: of bf16, torch asks the GPU itself

    def noted(x, weight, bias, stride, padding):
        more = ([*stride], [*padding], [1, 1], False, [0, 0], 1, None)
        taken.append(torch._C._select_conv_backend(x, weight, bias, *more).name)
        return conv2d(x, weight, bias, stride, padding)

    monkeypatch.setattr(F, "conv2d", noted)
    layer = in_form(plain_layer(arguments, torch.float16), form).to(GPU)
    x = clips_for(layer, 5, 9, torch.float16).to(GPU)
    ours, plain = layer(x), drop_forms(layer)(x)
    assert (ours.device, ours.shape) == (plain.device, plain.shape)
    if torch.version.cuda:  # torch for a CPU knows no kernels of cuDNN
        assert taken == ([] if kind == "point" else ["Cudnn"])
