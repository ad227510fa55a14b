"""A custom model, with a section of keys of its own: docs/own_model.md.

python tools/run_net.py --import examples/own_model.py --cfg examples/own_model.yaml
"""

from dataclasses import dataclass

from torch import Tensor, nn

from mgexp.config.keys import Config, add_section, own
from mgexp.registry import MODELS


@dataclass(frozen=True)
class PatchNetKeys:
    """Keys of PatchNet. cfg.PATCHNET.WIDTH is then an int, and a YAML or KEY VALUE may set it."""

    WIDTH: int = own(32, "channels")
    DEPTH: int = own(4, "layers")


add_section("PATCHNET", PatchNetKeys)


@MODELS.register()
class PatchNet(nn.Module):
    """Convolutions on patches of 2 frames of 4 × 4 pixels. It takes clips (B, 3, T, S, S) of any shape."""

    def __init__(self, cfg: Config) -> None:
        super().__init__()
        width = cfg.PATCHNET.WIDTH
        layers: list[nn.Module] = [nn.Conv3d(3, width, (2, 4, 4), stride=(2, 4, 4))]
        for _ in range(cfg.PATCHNET.DEPTH):
            layers += [nn.BatchNorm3d(width), nn.ReLU(), nn.Conv3d(width, width, 3, padding=1)]
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(width, cfg.MODEL.NUM_CLASSES)

    def forward(self, clips: Tensor) -> Tensor:
        return self.head(self.layers(clips).mean(dim=(2, 3, 4)))
