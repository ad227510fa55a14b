"""The two inputs of a schedule: the baseline's recipe, and the settings of multigrid."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args, get_type_hints

# The names of the policies are PySlowFast's.
Policy = Literal["steps_with_relative_lrs", "cosine"]
Scaling = Literal["linear", "sqrt", "noise", "none"]
WeightDecayScaling = Literal["linear", "sqrt", "none"]
Granularity = Literal["step", "epoch"]
CyclePer = Literal["stage", "training"]
CropBase = Literal["full", "phase"]
ShapeOrder = Literal["coarse_to_fine", "random"]

FULL: tuple[tuple[float, float], ...] = ((1.0, 1.0),)
"""The long cycle of a baseline: one shape, the full one."""

LONG_FACTORS = ((0.25, 0.5**0.5), (0.5, 0.5**0.5), (0.5, 1.0), (1.0, 1.0))
"""The paper's long cycle: (frames, crop) relative to the full shape."""

SHORT_FACTORS = (0.5, 0.5**0.5)
"""The paper's short cycle: crops relative to the full crop. The third crop of the cycle is the
phase's own."""

LR_SCALINGS: dict[Scaling, Callable[[float, float], float]] = {
    "linear": lambda ratio, noise: ratio,  # SGD; paper section 3.3, released code
    "sqrt": lambda ratio, noise: ratio**0.5,  # Adam-like optimizers (arXiv 2205.10287)
    # The best rate of SGD is proportional to 1 / (1 + N / clips) (arXiv 1812.06162, section 2.2).
    "noise": lambda ratio, noise: (1 + noise) / (1 + noise / ratio),
    "none": lambda ratio, noise: 1.0,
}
"""The factor of the learning rate, and of the weight decay, for ``ratio`` times the baseline's clips.

``noise`` is the gradient noise scale N divided by the baseline's clips. For a large N, "noise" is
"linear"; for a small N it is "none".
"""


@dataclass(frozen=True)
class Recipe:
    """A baseline: its mini-batch and its learning rate over the epochs.

    The mini-batch has B ``clips`` of T ``frames`` and a ``crop`` of S×S pixels. ``stage_epochs``
    are the first epochs of the learning-rate stages, beginning with 0. ``stride`` is None if a clip
    takes one frame from each equal segment of the whole video (Something-Something V2). ``jitter``
    is the range of the short side in pixels at the full crop. It is None if crops are random shares
    of a frame. The warm-up lasts ``warmup_epochs``, or ``warmup_steps`` if these take longer.
    The cosine policy ends at ``cosine_end_lr``. It starts at epoch 0, or with
    ``cosine_after_warmup`` where the warm-up ends.
    """

    clips: int
    frames: int
    crop: int
    stride: int | None
    jitter: tuple[int, int] | None
    base_lr: float
    stage_epochs: tuple[float, ...]
    max_epoch: float
    gamma: float = 0.1
    policy: Policy = "steps_with_relative_lrs"
    warmup_epochs: float = 0.0
    warmup_start_lr: float = 0.0
    warmup_steps: int = 0
    cosine_end_lr: float = 0.0
    cosine_after_warmup: bool = False

    def __post_init__(self) -> None:
        _check_words("recipe", self)
        bounds = (*self.stage_epochs, self.max_epoch)
        for name in ("clips", "frames", "crop", "stride"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"recipe.{name} = {value} is less than 1")
        for name, value in vars(self).items():
            numbers = value if name == "stage_epochs" else (value,)
            # math.isfinite raises an error for an int that no float can hold, and every int is finite.
            if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
                raise ValueError(f"recipe.{name} = {value} is not a finite number")
        if not self.stage_epochs or self.stage_epochs[0] != 0:
            raise ValueError(f"recipe.stage_epochs starts at epoch 0, not {self.stage_epochs[:1]}")
        if any(end <= start for start, end in pairwise(bounds)):
            raise ValueError(
                "recipe.stage_epochs and then recipe.max_epoch must increase: stages start at, and training "
                f"ends at, {bounds}"
            )
        # Source: released code, slowfast/utils/lr_policy.py, which asserts this.
        if self.policy == "cosine" and self.cosine_end_lr >= self.base_lr:
            raise ValueError(
                f"recipe.cosine_end_lr = {self.cosine_end_lr:g} is not below recipe.base_lr = {self.base_lr:g}"
            )

    @property
    def stage_durations(self) -> tuple[float, ...]:
        """Return D_k, the epochs of the baseline in each stage."""
        return tuple(b - a for a, b in pairwise((*self.stage_epochs, self.max_epoch)))


@dataclass(frozen=True)
class ClipCosts:
    """What a clip costs at each (frames, crop), in units of ``name``, such as multiply-accumulates."""

    name: str
    # Pairs in place of a dict, because frozen settings are hashed, and a dict cannot be.
    by_size: tuple[tuple[tuple[int, int], int], ...]

    def of(self, frames: int, crop: int) -> int:
        """Return the cost of a clip. Raises ValueError if it is unknown."""
        cost = dict(self.by_size).get((frames, crop))
        if not cost:
            raise ValueError(f"the cost of a clip of {frames} x {crop}² in {self.name} is unknown")
        return cost


@dataclass(frozen=True)
class Multigrid:
    """Settings that vary the shape.

    With the defaults nothing varies: this is the baseline, with one shape.

    - ``fine_tuning``: the last stage stays at the full shape. Its first half keeps the learning
      rate of the stage before (released code).
    - ``random_stride``: a clip of T/k frames draws its stride from τ…kτ. If False, it is kτ.
    - ``shape_order`` "random": every stage takes the long shapes in another order, and every turn
      of the short cycle takes the crops in another order. The orders are the same in every run.
    - ``bn_base_size``: clips in a group of batch normalisation. If 0, there are no groups.
    - ``long_cycle_per``: the shapes share each "stage" (the paper), or all of "training" before
      fine-tuning.
    - ``max_batch_ratio``: largest number of clips of a mini-batch, relative to the baseline's. With
      None the ratio keeps the work of a step constant (the paper).
    - ``costs``: what the ratio keeps constant in place of the pixels of a step (None).
    - ``noise_scale``: the gradient noise scale N in clips, for ``lr_scaling`` "noise".
    - ``weight_decay_scaling``: how the weight decay follows the clips of the long cycle. AdamW forgets its
      weights over 1 / (rate × decay) steps. With "sqrt" for both, that is the same number of clips at every shape
      (arXiv 2505.13738).
    """

    long_factors: tuple[tuple[float, float], ...] = FULL
    short_factors: tuple[float, ...] = ()
    short_crops_of: CropBase = "full"
    epoch_factor: float = 1.0
    granularity: Granularity = "step"
    fine_tuning: bool = False
    random_stride: bool = True
    lr_scaling: Scaling = "linear"
    bn_base_size: int = 8
    shape_order: ShapeOrder = "coarse_to_fine"
    long_cycle_per: CyclePer = "stage"
    max_batch_ratio: int | None = None
    costs: ClipCosts | None = None
    noise_scale: float | None = None
    weight_decay_scaling: WeightDecayScaling = "none"

    def __post_init__(self) -> None:
        _check_words("multigrid", self)
        if not self.long_factors:
            raise ValueError(
                "multigrid.long_factors is empty: without the long cycle it is ((1, 1),)"
            )
        if not 0 < self.epoch_factor < math.inf:
            raise ValueError(
                f"multigrid.epoch_factor = {self.epoch_factor} is not a finite number above 0"
            )
        if self.max_batch_ratio is not None and self.max_batch_ratio < 1:
            raise ValueError(
                f"multigrid.max_batch_ratio = {self.max_batch_ratio} is less than 1: None sets no limit"
            )
        if self.bn_base_size < 0:
            raise ValueError(f"multigrid.bn_base_size = {self.bn_base_size} is less than 0")
        if self.lr_scaling == "noise" and not self.noise_scale:
            raise ValueError(
                "multigrid.lr_scaling noise needs multigrid.noise_scale: benchmarks/gradient_noise.py measures it"
            )
        # Fine-tuning stays at the last shape of the long cycle.
        if self.fine_tuning and self.long_factors[-1] != (1.0, 1.0):
            raise ValueError(
                f"multigrid.long_factors ends with the full shape (1, 1), not {self.long_factors[-1]}"
            )

    def exact_sizes(self, frames: int, crop: int) -> Iterator[list[tuple[float, float]]]:
        """Yield (frames, crop) before rounding of the clips of each cycle; the base comes last."""
        for temporal, spatial in self.long_factors:
            t, s = temporal * frames, spatial * crop
            reference = crop if self.short_crops_of == "full" else s
            yield [*((t, factor * reference) for factor in self.short_factors), (t, s)]

    def clip_cost(self, frames: int, crop: int) -> int:
        """Return what a clip counts: its pixels, or its ``costs``."""
        return self.costs.of(frames, crop) if self.costs else frames * crop**2


def _check_words(owner: str, settings: Recipe | Multigrid) -> None:
    # Python itself does not check a Literal, and a misspelt word would silently be another rule.
    for name, hint in get_type_hints(type(settings)).items():
        words, value = get_args(hint), getattr(settings, name)
        if isinstance(value, str) and value not in words:
            raise ValueError(f"{owner}.{name} = {value!r} is none of {', '.join(words)}")


BASELINE = Multigrid()
"""One shape: the schedule without multigrid."""

# In the three rows below, 1.5 is EPOCH_FACTOR of the released code.
SHORT = Multigrid(short_factors=SHORT_FACTORS, epoch_factor=1.5)
"""The paper's short cycle alone."""

LONG = Multigrid(LONG_FACTORS, epoch_factor=1.5, fine_tuning=True)
"""The paper's long cycle alone."""

LONG_SHORT = Multigrid(LONG_FACTORS, SHORT_FACTORS, epoch_factor=1.5, fine_tuning=True)
"""The paper's default: both cycles."""
