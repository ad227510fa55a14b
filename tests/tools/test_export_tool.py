"""tools/export.py: the logits through torch.export and ONNX Runtime, and what is refused."""

import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny import load_tool
from torch import nn

from mgexp.config.load import config_of
from mgexp.errors import TrainingError
from mgexp.models.build import build_model
from mgexp.run.folder import RunDir
from mgexp.train.checkpoint import best_step
from mgexp.train.precision import Precision
from mgexp.train.step import Normalizer

export = load_tool("export")

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
    """A small network in eval mode, none of whose values is as it was made, and clips of its shape."""
    cfg = config_of({**BASE, **NETWORKS[name]})
    model, generator = build_model(cfg).eval(), torch.Generator().manual_seed(0)
    for tensor_name, values in model.state_dict().items():
        if values.is_floating_point():
            noise = 0.1 * torch.randn(values.shape, generator=generator)
            values.add_(noise.abs() if tensor_name.endswith("running_var") else noise)
    normalize = Normalizer(cfg.DATA.MEAN, cfg.DATA.STD, torch.device("cpu"))
    return model, export.Clips(cfg.DATA.NUM_FRAMES, cfg.DATA.TRAIN_CROP_SIZE, normalize)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_has_its_logits_in_torch_export_and_in_onnx_runtime(name, tmp_path):
    pytest.importorskip("onnxruntime")
    model, clips = network(name)
    program, traced = export.export_program(model, clips, tmp_path / "model.pt2")
    export.export_onnx(program, model, clips, tmp_path / "model.onnx")
    assert "at once" not in traced
    with zipfile.ZipFile(tmp_path / "model.pt2") as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    # A pickle of protocol 2 or later begins with 0x80 and ends with a dot; an archive of torch.save begins with PK
    assert [name for name, data in contents.items() if data[:4] == b"PK\x03\x04"] == []
    assert [
        name for name, data in contents.items() if (data[:1], data[-1:]) == (b"\x80", b".")
    ] == []


class Gap(nn.Module):
    """A network that another number of clips breaks, and whose logits change where it is traced."""

    def __init__(self, change: float = 0.0) -> None:
        super().__init__()
        self.head, self.change = nn.Linear(3, 2), change

    def forward(self, clips):
        x = self.head(clips.mean((2, 3, 4)))
        if self.change and torch.compiler.is_compiling():
            return x + self.change
        return torch.stack([x[number] for number in range(int(clips.shape[0]))])


SMALL = export.Clips(2, 4, Normalizer((0.5,) * 3, (0.2,) * 3, torch.device("cpu")))


@pytest.mark.slow
def test_a_network_that_fixes_the_number_of_clips_is_exported_for_one_in_the_process_that_trained_it(
    tmp_path,
):
    """torch refuses to read the older switch of TF32 after this setting, which each run makes."""
    with Precision("fp32").backends():
        before = torch.backends.cudnn.conv.fp32_precision
        model = Gap().eval()
        program, line = export.export_program(model, SMALL, tmp_path / "model.pt2")
        assert "takes 1 clip at once" in line
        pytest.importorskip("onnxruntime")
        export.export_onnx(program, model, SMALL, tmp_path / "model.onnx")
        assert torch.backends.cudnn.conv.fp32_precision == before == "ieee"


@pytest.mark.parametrize("change", [0.1, float("nan")])
def test_a_file_whose_logits_differ_is_not_kept(change, tmp_path):
    with pytest.raises(TrainingError, match="the logits differ"):
        export.export_program(Gap(change).eval(), SMALL, tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []


def test_the_best_checkpoint_is_exported_with_its_precise_statistics(
    finished_run, monkeypatch, tmp_path
):
    """Its weights are those of the checkpoint, and only its statistics of batch norm are new."""

    def fail(model, clips, path):  # in place of minutes of tracing
        raise TrainingError("torch.export cannot export Own: UserError: no")

    monkeypatch.setattr(export, "export_program", fail)
    words = ["--run", finished_run, "--output", tmp_path / "out", "--checkpoint", "best"]
    assert export.main([*map(str, words), "--formats", "torch"]) == 1
    found = load_file(tmp_path / "out" / "model.safetensors")
    best = best_step(RunDir(finished_run))
    saved = torch.load(RunDir(finished_run).checkpoint(best), weights_only=True)["model"]
    last = torch.load(finished_run / "model.pt", weights_only=True)
    changed = {name for name in saved if not torch.equal(saved[name], found[name])}
    assert changed
    assert all(".running_" in name for name in changed)
    assert any(not torch.equal(last[name], found[name]) for name in saved if "conv" in name)


def test_all_problems_come_in_one_message_before_anything_is_written(
    finished_run, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(export, "ONNX_PACKAGES", ("no_such_package",))
    (tmp_path / "classes.txt").write_text("one\ntwo\nthree\n")
    paths = ("--run", finished_run, "--output", tmp_path / "out")
    assert export.main([*map(str, paths), "--classes", str(tmp_path / "classes.txt")]) == 2
    message = capsys.readouterr().err
    assert "no_such_package" in message and "3 classes" in message
    assert not (tmp_path / "out").exists()


PAGE = (Path(__file__).parents[2] / "docs" / "predict.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_export_of_the_page_runs_and_its_python_loads_the_files(
    finished_run, tmp_path, monkeypatch
):
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished_run, "runs/quickstart/long/seed0")
    Path("data/quickstart").mkdir(parents=True)
    Path("data/quickstart/classes.txt").write_text("to the right\nto the left\n")
    (exporting, loading) = re.findall(r"^python (.*export.*)$", PAGE, re.MULTILINE)
    assert load_tool("export").main(shlex.split(exporting, comments=True)[1:]) == 0
    loader = shlex.split(loading, comments=True)[0]
    subprocess.run([sys.executable, loader], check=True, capture_output=True)
    state = torch.load(finished_run / "model.pt", weights_only=True)
    (weights,) = Path().rglob("*.safetensors")
    assert all(torch.equal(value, state[name]) for name, value in load_file(weights).items())
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    checks = (
        "assert probabilities.shape == logits.shape == (4, 2)\nassert 'mgexp' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", f"{code}\n{checks}"], check=True)
