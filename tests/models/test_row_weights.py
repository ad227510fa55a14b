"""Weights that the rows start from, by the network that each names: random ones of the same tensors fit."""

from pathlib import Path

import pytest
import torch

from mgexp.config.load import load_config
from mgexp.models.build import build_on_meta
from mgexp.models.weights import fit_weights, named_weights

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
ROWS = {
    path.relative_to(EXPERIMENTS).with_suffix("").as_posix(): load_config(path)
    for path in sorted(EXPERIMENTS.rglob("*.yaml"))
    if path.parent.name != "base"
}
STARTED = [name for name, cfg in ROWS.items() if cfg.TRAIN.INIT_WEIGHTS]


def zeros(shapes):
    """Tensors of these shapes that take no memory."""
    return {name: torch.zeros(()).expand(shape) for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def files():
    """The files by name, without their numbers."""
    import torchvision

    with torch.device("meta"):
        image = torchvision.models.resnet50().state_dict()
    video = build_on_meta(ROWS["main/k400_slowfast_8x8_r50/baseline"]).state_dict()
    return {"resnet50-0676ba61.pth": image, "SLOWFAST_8x8_R50.pyth": video}


@pytest.mark.parametrize("name", STARTED)
def test_a_row_takes_the_weights_that_it_names(name, files):
    path = Path(ROWS[name].TRAIN.INIT_WEIGHTS)
    shapes = {key: tensor.shape for key, tensor in files[path.name].items()}
    fit = fit_weights(named_weights(path, zeros(shapes)), build_on_meta(ROWS[name]))
    assert len(fit.used) > 150
    assert all("proj" in left for left in fit.left)  # the classifier alone


def test_rows_from_images_have_torchvisions_pixels():
    from torchvision.transforms._presets import ImageClassification

    preset = ImageClassification(crop_size=224)
    rows = [ROWS[name] for name in STARTED if "resnet50" in ROWS[name].TRAIN.INIT_WEIGHTS]
    assert rows != []
    assert {cfg.DATA.MEAN for cfg in rows} == {tuple(preset.mean)}
    assert {cfg.DATA.STD for cfg in rows} == {tuple(preset.std)}
