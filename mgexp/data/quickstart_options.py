"""What the quickstart set shows: its classes, the size of its videos, and how hard they are."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from mgexp.errors import InputError

HEIGHT_PIXELS = 64
WIDTH_PIXELS = 80
NUM_FRAMES = 40
FRAME_RATE = 30
"""Frames per second."""

SPLITS = ("train", "val")

MOTIONS = (
    ("fall", "rise"),
    ("approach", "recede"),
    ("slide_right", "slide_left"),
)
"""Pairs: a video of the second motion is one of the first with its frames in reverse order."""

TEXTURES = ("horizontal", "vertical")
"""Which way the fine stripes run."""

CLASS_NAMES = tuple(
    f"{name}_{texture}" for pair in MOTIONS for name in pair for texture in TEXTURES
)
"""The name of each label."""

Range = tuple[float, float]
"""Each video draws a value from here, uniformly."""


@dataclass(frozen=True)
class QuickstartOptions:
    """Everything that the pixels of the set follow from. Lengths are pixels of the 80 × 64 video.

    Brightness is H.264 luma, 16 (black) to 235 (white). The ranges are assumptions, tried with small
    networks on motions and textures apart. Raises InputError for values that no video can have.
    """

    num_train: int = 1200
    """Training videos."""

    num_val: int = 1200
    """Validation videos."""

    seed: int = 0
    """Of all draws; not negative."""

    stripe_period_pixels: Range = (2.2, 2.45)
    """Below 64/45 × 2 = 2.84, a resize of the short side to 45 cannot show the stripes as they are: it
    leaves a weak alias (a fifth of the amplitude, as bilinear antialiasing is not a sharp filter)."""

    stripe_luma: Range = (20.0, 30.0)
    """Amplitude of the fine stripes, which are the class."""

    plaid_period_pixels: Range = (3.3, 4.1)
    """The coarse stripes, nuisance: where a resize to 45 puts the alias of the fine ones
    (aliases of periods 2.2 to 2.45 look like 3.4 to 4.0), so that what is left tells less of the class."""

    plaid_luma: Range = (0.0, 10.0)
    """Amplitude of the coarse stripes: one draw for the horizontal, another for the vertical ones."""

    fall_pixels: Range = (28.0, 38.0)
    """Covered by a falling or rising object in a video."""

    zoom_ratio: Range = (2.4, 3.2)
    """Largest size / smallest size of the object in a video."""

    slide_pixels: Range = (34.0, 46.0)
    """Covered by an object that slides to the right or left in a video."""

    sway: float = 0.05
    """Motions that are not the class's are present too, either way, at up to this share of their own
    range: 0 is none, below 1 the class's motion stays the largest."""

    unevenness: float = 0.15
    """Speed varies within a video by up to this share of its mean; below 1, so nothing turns back."""

    size_pixels: Range = (14.0, 20.0)
    """Half the length of the object, at the middle of its zoom."""

    edge_pixels: float = 8.0
    """Width of the soft edge of the object and of the clutter. What moves by less than its edge between two
    frames shows a network of few steps which way: with edges of 1 pixel long+short got 2.2 points less
    (measured, seed 0, all else equal)."""

    place_pixels: float = 4.0
    """The middle of the object's path is up to this far from that of the frame, in x and in y."""

    background_luma: Range = (50.0, 110.0)
    """Mean of the background."""

    object_luma: Range = (65.0, 90.0)
    """How much brighter the object is than the mean background. Never darker: after 12 epochs of 1,200
    videos a network of four 3D convolutions told 83 % of the motions so, 26 % with either sign (measured
    on paler, more cluttered videos with turning objects instead of falling ones)."""

    hidden_share: float = 0.015
    """Share of the videos in which the object is not to be seen and nobody can tell the motion: what keeps
    every network below 100 %."""

    clutter_shapes: tuple[int, int] = (0, 3)
    """Least and largest number of shapes in the background, both included."""

    drift_pixels: float = 1.0
    """The camera moves up to this far in a video, any way."""

    noise_luma: float = 2.5
    """Standard deviation of the sensor noise, drawn for each pixel of each frame."""

    quantizer: int = 28
    """H.264 QP, the same for every frame: 0 is lossless, 51 the coarsest."""

    def __post_init__(self) -> None:
        problems = [*self._problems()]
        if problems:
            raise InputError(problems)

    def _problems(self) -> list[str]:
        counts = {"num_train": self.num_train, "num_val": self.num_val}
        problems = [
            f"quickstart {name} is {value}: a split needs at least 1 video"
            for name, value in counts.items()
            if value < 1
        ]
        if self.seed < 0:
            problems.append(f"quickstart seed is {self.seed}: use 0 or more")
        problems += [
            f"quickstart {name} is {share}: use at least 0 and less than 1"
            for name, share in self._shares().items()
            if not 0 <= share < 1
        ]
        if self.edge_pixels <= 0:
            problems.append(f"quickstart edge_pixels is {self.edge_pixels}: use more than 0")
        problems += [
            f"quickstart {name} is {value}: give the least first"
            for name, value in asdict(self).items()
            if isinstance(value, tuple) and value[0] > value[1]
        ]
        return problems

    def _shares(self) -> dict[str, float]:
        names = ("sway", "unevenness", "hidden_share")
        return {name: getattr(self, name) for name in names}

    def num_videos(self, split: str) -> int:
        """Videos of "train" or "val"."""
        return {"train": self.num_train, "val": self.num_val}[split]


def draw_label(options: QuickstartOptions, split: str, index: int) -> int:
    """The class of a video: each 12 in a row are the 12 classes in an order of their own.

    So classes are balanced, and stay so, nearly, in any evenly spaced part of a list.
    """
    block, place = divmod(index, len(CLASS_NAMES))
    rng = np.random.default_rng((options.seed, SPLITS.index(split), block))
    return int(rng.permutation(len(CLASS_NAMES))[place])
