"""Files of weights, and weights into models: PySlowFast's own logits, torchvision's networks, what is refused."""

import argparse

import pytest
import torch
from fill import GOLDEN, filled, sine_clip
from safetensors.torch import load_file
from test_names import network
from torch import nn

from mgexp.errors import InputError
from mgexp.models.resnet import TEMPORAL, insert_nonlocals, resnet
from mgexp.models.weights import fit_weights, named_weights, read_weights, write_weights

OURS = {"blocks.0.conv.weight": torch.arange(6.0).view(2, 3), "blocks.0.norm.bias": torch.ones(2)}
PYSLOWFAST = {"s1.pathway0_stem.conv.weight": torch.ones(2)}
TORCHVISION = {"conv1.weight": torch.ones(2), "layer1.0.conv1.weight": torch.ones(2)}


class Foreign:
    """A class that no file of weights needs."""


@pytest.mark.parametrize("wrapper", [None, "model_state", "model", "state_dict", "module"])
@pytest.mark.parametrize(
    ("tensors", "naming"),
    [(OURS, "pytorchvideo"), (PYSLOWFAST, "PySlowFast"), (TORCHVISION, "torchvision")],
)
def test_files_of_every_kind(tensors, naming, wrapper, tmp_path):
    path = tmp_path / "weights.pyth"
    content = {wrapper: tensors, "epoch": 196, "cfg": "TRAIN: {}"} if wrapper else tensors
    torch.save(content, path)
    file = read_weights(path)
    assert (file.naming, file.tensors.keys()) == (naming, tensors.keys())
    assert all(torch.equal(file.tensors[name], value) for name, value in tensors.items())


@pytest.mark.parametrize("ending", [".safetensors", ".pyth", ".pt"])
def test_what_is_written_is_read_again(ending, tmp_path):
    path = tmp_path / f"weights{ending}"
    write_weights(path, OURS)
    tensors = read_weights(path).tensors
    assert all(torch.equal(tensors[name], value) for name, value in OURS.items())
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_torch_files_are_written_as_pytorchvideos_hub_has_them(tmp_path):
    write_weights(tmp_path / "a.pyth", OURS)
    assert torch.load(tmp_path / "a.pyth", weights_only=True)["model_state"].keys() == OURS.keys()


def test_channels_last_weights_are_written_in_their_order(tmp_path):
    kernel = torch.randn(4, 3, 2, 3, 3).contiguous(memory_format=torch.channels_last_3d)
    write_weights(tmp_path / "a.safetensors", {"blocks.0.conv.weight": kernel})
    assert torch.equal(load_file(tmp_path / "a.safetensors")["blocks.0.conv.weight"], kernel)


def refusal(path):
    with pytest.raises(InputError) as caught:
        read_weights(path)
    return str(caught.value)


@pytest.mark.parametrize("ending", [".pyth", ".safetensors"])
def test_a_truncated_file(ending, tmp_path):
    path = tmp_path / f"weights{ending}"
    write_weights(path, {"blocks.0.conv.weight": torch.randn(1000)})
    path.write_bytes(path.read_bytes()[:2000])
    assert f"{path}: is damaged" in refusal(path)


def test_the_arguments_of_a_training_are_passed_over(tmp_path):
    """VideoMAE's code saves what argparse gave it."""
    arguments = argparse.Namespace(lr=0.1, output_dir="runs")
    torch.save({"model": OURS, "args": arguments}, tmp_path / "weights.pth")
    assert read_weights(tmp_path / "weights.pth").tensors.keys() == OURS.keys()


def test_a_foreign_class(tmp_path):
    torch.save({"model_state": OURS, "extra": Foreign()}, tmp_path / "weights.pyth")
    message = refusal(tmp_path / "weights.pyth")
    assert "holds test_weights.Foreign" in message


def test_a_checkpoint_with_an_average_gives_the_average(tmp_path):
    """It is what such a run evaluates and saves at its end. The average has floating-point tensors alone."""
    average = {name: value + 1 for name, value in OURS.items() if value.is_floating_point()}
    torch.save({"model": OURS, "average": average}, tmp_path / "step_1.pt")
    found = read_weights(tmp_path / "step_1.pt").tensors
    for name, value in OURS.items():
        torch.testing.assert_close(found[name], average.get(name, value))


@pytest.mark.parametrize(
    "prefix", ["module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."]
)
def test_what_wrappers_put_before_all_names_is_taken_off(prefix, tmp_path):
    torch.save({prefix + name: value for name, value in OURS.items()}, tmp_path / "weights.pyth")
    assert read_weights(tmp_path / "weights.pyth").tensors.keys() == OURS.keys()


@pytest.mark.parametrize(
    ("tensors", "some"), [({"a.b": torch.ones(1)}, "a.b"), ({}, "no tensors at all")]
)
def test_names_of_no_convention(tensors, some):
    with pytest.raises(InputError, match=rf"its names \({some}\) are not those of pytorchvideo"):
        named_weights("w.pyth", tensors)


SMALL = {"num_classes": 5, "depth": 50, "width": 8, "dropout": 0.0}


def small(name: str = "I3D", seed: int = 0, **changes) -> torch.nn.Module:
    torch.manual_seed(seed)
    model = resnet(TEMPORAL[name], **{**SMALL, **changes}).eval()
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.dim():
                tensor.uniform_(0.5, 1.5).div_(max(1, tensor[0].numel()))
    return model


def fit_into(model, tensors, path="weights.pyth"):
    return fit_weights(named_weights(path, tensors), model)


@pytest.mark.parametrize("golden_name", [name for name in GOLDEN if GOLDEN[name]["logits"]])
def test_logits_are_those_of_pyslowfast_with_the_same_weights(golden_name):
    model = network(golden_name).to_empty(device="cpu").eval()
    fit_into(model, filled(golden_name)).load_into(model)
    for shape, expected in GOLDEN[golden_name]["logits"].items():
        with torch.no_grad():
            logits = model(sine_clip(*map(int, shape.split("x"))))[0].double()
        first = torch.tensor(expected["first_16"], dtype=torch.float64)
        scale = expected["std"]
        assert ((logits[:16] - first).abs().max() / scale).item() < 1e-4
        assert logits.mean().item() == pytest.approx(expected["mean"], abs=1e-4 * scale)
        assert logits.std(correction=0).item() == pytest.approx(scale, rel=2e-3)
        assert logits.argmax().item() == expected["argmax"]


def image_network() -> torch.nn.Module:
    """torchvision's ResNet-50 whose every layer counts."""
    import torchvision

    torch.manual_seed(1)
    image = torchvision.models.ResNet(
        torchvision.models.resnet.Bottleneck, [3, 4, 6, 3], num_classes=5, width_per_group=64
    ).eval()
    for parameter in image.parameters():
        if parameter.dim() == 1:
            torch.nn.init.uniform_(parameter, 0.5, 1.0)
    return image


@pytest.mark.parametrize("name", ["C2D", "Slow", "I3D", "TSM"])
def test_a_video_of_one_picture_gives_what_the_image_network_gave(name):
    """The middle frame of a long clip, before the head: no border of zeros in time has reached it yet."""
    image = image_network()
    video = resnet(TEMPORAL[name], **{**SMALL, "width": 64}).eval()
    fit_into(video, dict(image.state_dict())).load_into(video)
    picture = torch.randn(1, 3, 32, 32)
    clip = picture.unsqueeze(2).repeat(1, 1, 40, 1, 1)
    with torch.no_grad():
        *body, head = video.blocks
        for block in body:
            clip = block(clip)
        middle = clip[:, :, clip.shape[2] // 2].mean((-2, -1))
        expected = image(picture)
    torch.testing.assert_close(head.proj(middle), expected, rtol=1e-4, atol=1e-4)


def test_a_head_of_another_size_is_left_and_named():
    ours, model = small(num_classes=7), small(seed=1)
    before = model.state_dict()["blocks.6.proj.weight"].clone()
    fit = fit_into(model, dict(ours.state_dict()))
    fit.load_into(model)
    head = ("blocks.6.proj.weight", "blocks.6.proj.bias")
    assert fit.left == fit.unused == head
    assert torch.equal(model.state_dict()["blocks.6.proj.weight"], before)
    assert torch.equal(model.blocks[0].conv.weight, ours.blocks[0].conv.weight)
    assert (
        "2 of the classifier keep their initial values: the file has no classifier for as many"
        in fit.summary()
    )


class OwnPositions(torch.nn.Module):
    """A custom model, whose positions are no grid: (1, tokens, channels)."""

    def __init__(self, num_tokens: int):
        super().__init__()
        self.positions = torch.nn.Parameter(torch.randn(1, num_tokens, 4))
        self.head = torch.nn.Linear(4, 2)


def test_positions_of_a_network_of_ones_own_are_loaded_as_they_are(tmp_path):
    theirs, ours = OwnPositions(6), OwnPositions(6)
    write_weights(tmp_path / "own.pyth", theirs.state_dict())
    file = read_weights(tmp_path / "own.pyth", ours.state_dict())
    fit_weights(file, ours).load_into(ours)
    assert torch.equal(ours.positions, theirs.positions)
    with pytest.raises(InputError, match=r"positions is \(1, 6, 4\) in the file and \(1, 9, 4\)"):
        fit_weights(file, OwnPositions(9))


def small_nonlocal() -> torch.nn.Module:
    return insert_nonlocals(
        small(), places=((), (1,), (), ()), pool=(1, 2, 2), instantiation="softmax"
    )


def test_non_local_blocks_that_the_file_lacks_are_named_and_stay():
    model = small_nonlocal()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    fit = fit_into(model, dict(small(seed=1).state_dict()))
    fit.load_into(model)
    assert len(fit.missing) == 13
    assert all(name.startswith("blocks.3.nonlocals.1.") for name in fit.missing)
    assert all(torch.equal(model.state_dict()[name], before[name]) for name in fit.missing)


def test_half_a_non_local_block_is_refused():
    model = small_nonlocal()
    tensors = {n: v for n, v in model.state_dict().items() if not n.endswith("conv_phi.weight")}
    with pytest.raises(InputError, match=r"1 tensors of the model are not in .*conv_phi\.weight"):
        fit_into(model, tensors)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite_are_refused(value):
    tensors = {**small().state_dict()}
    tensors["blocks.0.conv.weight"] = torch.full_like(tensors["blocks.0.conv.weight"], value)
    with pytest.raises(InputError, match=r"hold no finite floats: blocks\.0\.conv\.weight"):
        fit_into(small(), tensors)


def test_half_precision_is_read():
    model = small(seed=1)
    fit_into(model, {n: v.half() for n, v in small().state_dict().items()}).load_into(model)
    expected = small().blocks[0].conv.weight
    torch.testing.assert_close(model.blocks[0].conv.weight, expected, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize(
    ("theirs", "ours", "message"),
    [
        (
            {"name": "C2D"},
            {"name": "I3D"},
            r"blocks\.0\.conv\.weight is \(8, 3, 1, 7, 7\) in the file and \(8, 3, 5, 7, 7\) in the model",
        ),
        ({}, {"depth": 101}, r"tensors of the model are not in the file: .*res_blocks\.6"),
        ({"depth": 101}, {}, r"tensors of the file are not in the model: .*res_blocks\.6"),
    ],
)
def test_another_architecture_is_refused(theirs, ours, message):
    with pytest.raises(InputError, match=message):
        fit_into(small(**ours), dict(small(**theirs).state_dict()))


@pytest.mark.parametrize("ending", [".safetensors", ".pyth"])
def test_tied_weights_have_all_their_names(ending, tmp_path):
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    write_weights(tmp_path / f"tied{ending}", model.state_dict())
    own = model.state_dict().keys()
    other = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    other.load_state_dict(read_weights(tmp_path / f"tied{ending}", own).tensors)
    assert other[0].weight.equal(model[0].weight) and other[1].weight.equal(model[0].weight)
