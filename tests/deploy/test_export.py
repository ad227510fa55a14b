"""Exported networks: the logits through torch.export and ONNX Runtime, and files that are refused."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from mgexp.config.load import config_of
from mgexp.deploy import export
from mgexp.deploy.export import (
    ExportDir,
    Shape,
    build_preprocessing,
    export_onnx,
    export_program,
    write_loader,
    write_plain_files,
)
from mgexp.errors import InputError, TrainingError
from mgexp.models.build import build_model
from mgexp.train.precision import Precision
from mgexp.train.step import Normalizer

BASE = {
    "DATA.NUM_FRAMES": 8, "DATA.TRAIN_CROP_SIZE": 32, "MODEL.NUM_CLASSES": 3, "RESNET.WIDTH_PER_GROUP": 8,
}  # fmt: skip
VIT = {
    "MODEL.MODEL_NAME": "ViT", "VIT.EMBED_DIM": 24, "VIT.DEPTH": 2, "VIT.NUM_HEADS": 2, "VIT.TUBELET": [2, 8, 8],
}  # fmt: skip
NETWORKS = {
    "SlowFast": {"RESNET.DEPTH": 18, "SLOWFAST.ALPHA": 2, "SLOWFAST.BETA_INV": 4},
    "I3D": {"MODEL.MODEL_NAME": "I3D", "RESNET.DEPTH": 50},
    "I3D, non-local": {
        "MODEL.MODEL_NAME": "I3D", "RESNET.DEPTH": 50, "NONLOCAL.LOCATION": [[], [], [1], [1]],
        "DATA.TRAIN_CROP_SIZE": 64,
    },
    "TSM": {"MODEL.MODEL_NAME": "TSM", "RESNET.DEPTH": 50},
    "ViT, learned": {**VIT, "VIT.POSITIONS": "learned"},
    "ViT, V-JEPA 2": {**VIT, "VIT.POSITIONS": "vjepa2"},
    "ViT, rotary": {**VIT, "VIT.POSITIONS": "rotary", "VIT.CLS_EMBED_ON": True},
    "MViT": {
        "MODEL.MODEL_NAME": "MViT", "MVIT.EMBED_DIM": 16, "MVIT.DEPTH": 4, "MVIT.NUM_HEADS": 2,
        "MVIT.STAGES": [1, 2], "DATA.TRAIN_CROP_SIZE": 64,
    },
    "X3D": {"MODEL.MODEL_NAME": "X3D", "X3D.WIDTH_FACTOR": 1.0, "X3D.DEPTH_FACTOR": 1.0},
}  # fmt: skip


def network(name):
    """A small network in eval mode, none of whose values is as it was made, and its shape."""
    cfg = config_of({**BASE, **NETWORKS[name]})
    model, generator = build_model(cfg).eval(), torch.Generator().manual_seed(0)
    for tensor_name, values in model.state_dict().items():
        if values.is_floating_point():
            noise = 0.1 * torch.randn(values.shape, generator=generator)
            values.add_(noise.abs() if tensor_name.endswith("running_var") else noise)
    return model, Shape(cfg.DATA.NUM_FRAMES, cfg.DATA.TRAIN_CROP_SIZE, normalizer(cfg)), cfg


def normalizer(cfg):
    return Normalizer(cfg.DATA.MEAN, cfg.DATA.STD, torch.device("cpu"))


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_has_its_logits_in_torch_export_and_in_onnx_runtime(name, tmp_path):
    pytest.importorskip("onnxruntime")
    model, shape, _ = network(name)
    program, traced = export_program(model, shape, tmp_path / "model.pt2")
    written = export_onnx(program, model, shape, tmp_path / "model.onnx", traced)
    print(f"{traced.as_text()}\n{written.as_text()}")
    for check in (traced, written):
        assert check.num_clips is None
        assert check.scale > 0
        assert check.deviation <= 1e-5 * check.scale


@pytest.mark.slow
def test_the_folder_is_enough_to_load_the_network_in_another_program(tmp_path):
    model, shape, cfg = network("ViT, learned")
    folder = ExportDir(tmp_path / "out")
    write_plain_files(folder, model, build_preprocessing(cfg, ()))
    export_program(model, shape, folder.program)
    write_loader(folder)
    clips = torch.randint(256, (2, 3, 8, 32, 32), dtype=torch.uint8)
    torch.save(clips, tmp_path / "clips.pt")
    code = (
        "import sys, torch; sys.path.insert(0, 'out'); from load_model import load_model, normalize\n"
        "torch.save(load_model()(normalize(torch.load('clips.pt'))), 'logits.pt')\n"
        "assert not [name for name in sys.modules if name.split('.')[0] == 'mgexp']"
    )
    subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, check=True)
    with torch.no_grad():
        wanted = model(shape.normalize(clips))
    difference = (torch.load(tmp_path / "logits.pt") - wanted).abs().max()
    assert difference <= 1e-5 * wanted.abs().max()


def test_the_loader_takes_the_weights_of_safetensors(tmp_path):
    model, _, cfg = network("ViT, learned")
    folder = ExportDir(tmp_path)
    write_plain_files(folder, model, build_preprocessing(cfg, ()))
    state = load_file(folder.weights)
    assert state.keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(state[name], tensor, rtol=0, atol=0)


def test_no_file_holds_a_pickle_of_objects(tmp_path):
    model, shape, _ = network("ViT, rotary")
    export_program(model, shape, tmp_path / "model.pt2")
    with zipfile.ZipFile(tmp_path / "model.pt2") as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    # A pickle of protocol 2 or later begins with 0x80, and torch.save makes an archive of its own.
    assert [name for name, data in contents.items() if data[:4] == b"PK\x03\x04"] == []
    assert [name for name, data in contents.items() if data[:1] == b"\x80"] == []


class Gap(nn.Module):
    """A network that another number of clips breaks, and that differs where it is exported."""

    def __init__(self, is_wrong: bool) -> None:
        super().__init__()
        self.head, self.is_wrong = nn.Linear(3, 2), is_wrong

    def forward(self, clips):
        x = self.head(clips.mean((2, 3, 4)))
        if self.is_wrong and torch.compiler.is_compiling():
            return x + 0.1
        return torch.stack([x[number] for number in range(int(clips.shape[0]))])


def small_shape():
    return Shape(2, 4, Normalizer((0.5,) * 3, (0.2,) * 3, torch.device("cpu")))


def test_a_network_that_fixes_the_number_of_clips_is_exported_for_one_and_that_is_said(tmp_path):
    _, check = export_program(Gap(False).eval(), small_shape(), tmp_path / "model.pt2")
    assert check.num_clips == 1
    assert "takes 1 clip at once (UserError: Constraints violated (num_clips)!" in check.as_text()


def test_a_network_is_exported_in_the_process_that_trained_it(tmp_path):
    """torch refuses to read the older switch of TF32 after this setting, which each run makes."""
    with Precision("fp32").backends():
        before = torch.backends.cudnn.conv.fp32_precision
        model = Gap(False).eval()
        program, check = export_program(model, small_shape(), tmp_path / "model.pt2")
        pytest.importorskip("onnxruntime")
        export_onnx(program, model, small_shape(), tmp_path / "model.onnx", check)
        assert torch.backends.cudnn.conv.fp32_precision == before == "ieee"


def test_a_file_whose_logits_differ_is_not_kept(tmp_path):
    with pytest.raises(TrainingError, match="the logits differ, so the file was deleted"):
        export_program(Gap(True).eval(), small_shape(), tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []


def test_a_network_that_cannot_be_traced_is_named_with_the_reason(tmp_path):
    class Untraceable(nn.Module):
        def forward(self, clips):
            return clips[:, 0, 0, 0, : 2 if clips.sum().item() > 0 else 3]

    with pytest.raises(TrainingError, match=r"torch.export cannot export Untraceable: \w+"):
        export_program(Untraceable(), small_shape(), tmp_path / "model.pt2")


def test_logits_that_are_no_numbers_differ(tmp_path):
    check = export.Check(tmp_path, float("nan"), 1.0)
    assert not check.is_good


def test_what_an_earlier_export_left_is_deleted_before(tmp_path):
    model, _, cfg = network("ViT, learned")
    (tmp_path / "model.onnx").write_text("old")
    write_plain_files(ExportDir(tmp_path), model, build_preprocessing(cfg, ()))
    assert not (tmp_path / "model.onnx").exists()


def test_preprocessing_says_how_clips_are_made(tmp_path):
    model, _, cfg = network("ViT, learned")
    folder = ExportDir(tmp_path)
    write_plain_files(folder, model, build_preprocessing(cfg, ("a", "b", "c")))
    found = json.loads(folder.preprocessing.read_text())
    assert (found["frames"], found["crop"], found["stride"]) == (8, 32, cfg.DATA.SAMPLING_RATE)
    assert (found["mean"], found["std"]) == (list(cfg.DATA.MEAN), list(cfg.DATA.STD))
    assert (found["classes"], found["probabilities"]) == (["a", "b", "c"], "softmax")


def test_a_segment_grid_has_no_stride():
    cfg = config_of({**BASE, **NETWORKS["TSM"], "DATA.TEMPORAL_GRID": "segments"})
    assert build_preprocessing(cfg, ())["stride"] is None


@pytest.mark.parametrize(("loss", "expected"), [("bce_logit", "sigmoid"), ("own", None)])
def test_probabilities_follow_from_the_loss(loss, expected):
    cfg = config_of({**BASE, "MODEL.LOSS_FUNC": "bce_logit"})
    cfg = replace(cfg, MODEL=replace(cfg.MODEL, LOSS_FUNC=loss))
    assert build_preprocessing(cfg, ())["probabilities"] == expected


def test_missing_packages_of_onnx_are_named_with_the_remedy(monkeypatch):
    monkeypatch.setattr(export, "ONNX_PACKAGES", ("torch", "no_such_package"))
    (problem,) = export.onnx_problems()
    assert "no_such_package is not installed: pip install --editable '.[export]'" in problem


def test_a_folder_that_cannot_be_made_is_a_problem_of_the_input(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="the folder cannot be made"):
        write_plain_files(ExportDir(tmp_path / "file" / "out"), nn.Linear(1, 1), {})
