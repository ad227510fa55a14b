"""Files of weights: what is read, what is refused, what is written."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from mgexp.errors import InputError
from mgexp.models.weights import named_weights, read_weights, write_weights

OURS = {"blocks.0.conv.weight": torch.arange(6.0).view(2, 3), "blocks.0.norm.bias": torch.ones(2)}
PYSLOWFAST = {"s1.pathway0_stem.conv.weight": torch.ones(2)}
TORCHVISION = {"conv1.weight": torch.ones(2), "layer1.0.conv1.weight": torch.ones(2)}


class Foreign:
    """A class that no file of weights needs."""


@pytest.mark.parametrize("wrapper", [None, "model_state", "model", "state_dict"])
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


def test_safetensors(tmp_path):
    save_file(OURS, tmp_path / "weights.safetensors")
    file = read_weights(tmp_path / "weights.safetensors")
    assert (file.naming, file.tensors.keys()) == ("pytorchvideo", OURS.keys())


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


def test_a_missing_file(tmp_path):
    assert f"{tmp_path / 'no.pyth'}: there is no such file" in refusal(tmp_path / "no.pyth")


@pytest.mark.parametrize("ending", [".pyth", ".safetensors"])
def test_a_truncated_file(ending, tmp_path):
    path = tmp_path / f"weights{ending}"
    write_weights(path, {"blocks.0.conv.weight": torch.randn(1000)})
    path.write_bytes(path.read_bytes()[:2000])
    assert f"{path}: is damaged" in refusal(path)


def test_a_foreign_class(tmp_path):
    torch.save({"model_state": OURS, "extra": Foreign()}, tmp_path / "weights.pyth")
    message = refusal(tmp_path / "weights.pyth")
    assert "holds test_weight_files.Foreign: objects may run any code" in message


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod."])
def test_what_wrappers_put_before_all_names_is_taken_off(prefix, tmp_path):
    torch.save({prefix + name: value for name, value in OURS.items()}, tmp_path / "weights.pyth")
    assert read_weights(tmp_path / "weights.pyth").tensors.keys() == OURS.keys()


def test_a_pickle_is_sent_to_the_converter(tmp_path):
    import pickle

    (tmp_path / "weights.pkl").write_bytes(pickle.dumps({"blobs": {}}))
    assert "tools/convert_weights.py" in refusal(tmp_path / "weights.pkl")


def test_a_list(tmp_path):
    torch.save([1, 2], tmp_path / "weights.pyth")
    assert "holds a list, not a dict of tensors" in refusal(tmp_path / "weights.pyth")


@pytest.mark.parametrize(
    ("tensors", "some"), [({"a.b": torch.ones(1)}, "a.b"), ({}, "no tensors at all")]
)
def test_names_of_no_convention(tensors, some):
    with pytest.raises(InputError, match=rf"its names \({some}\) are not those of pytorchvideo"):
        named_weights("w.pyth", tensors)
