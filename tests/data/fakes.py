"""Frames of videos that are made up."""

import numpy as np


class FakeFrames:
    """Pixels uint8 (T, H, W, 3) in the place of decoded frames; ``region`` is the one that was asked for."""

    level = "source"

    def __init__(self, pixels: np.ndarray):
        self.pixels = pixels
        self.size = pixels.shape[1:3]
        self.region = None

    def rgb(self, region=None):
        self.region = region
        return self.pixels if region is None else self.pixels[:, region.rows, region.columns]
