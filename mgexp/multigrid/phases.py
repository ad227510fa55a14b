"""The phases of a schedule: which base shape is trained from which step to which.

The durations follow the released code (slowfast/utils/multigrid.py): within a stage every long-cycle
shape gets the same number of steps, and the whole takes epoch_factor × max_epoch epochs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from mgexp.multigrid.recipe import LR_SCALINGS, CyclePer, Multigrid, Recipe
from mgexp.multigrid.shapes import ORDERS, Cycle, Turns, in_turn, long_cycle

LEAST_SHARE = 1e-9
"""A share below this part of all epochs is left out. Its two ends differ only by rounding."""


@dataclass(frozen=True)
class Share:
    """A stay at shape number ``shape`` in a stage, with steps in proportion to ``epochs`` of the recipe."""

    stage: int
    shape: int
    epochs: float


def shape_shares(
    durations: Sequence[float],
    num_shapes: int,
    per: CyclePer,
    in_order: Callable[..., tuple[int, ...]] = in_turn,
) -> list[Share]:
    """Divide stages of ``durations`` epochs among the shapes, in order.

    In total, all shapes get the same. With ``per`` "stage", every shape gets an equal part of each
    stage, as in the paper. With "training", every shape gets one equal part of all stages together,
    which is cut where one stage ends and the next begins. ``in_order`` is one of ``ORDERS``. It gives
    an order for each stage, or with "training" a single one.
    """
    if per == "stage":
        return [
            Share(stage, shape, duration / num_shapes)
            for stage, duration in enumerate(durations)
            for shape in in_order(num_shapes, stage)
        ]
    # This second way is ours. Progressive resizing of images does the same with one stage (EfficientNetV2, ICML
    # 2021, arxiv.org/abs/2104.00298).
    total = sum(durations)
    # Products, not a running sum, so rounding errors do not add up over the shapes.
    bounds = [total * place / num_shapes for place in range(num_shapes + 1)]
    ends = [*accumulate(durations)]
    shares = [
        # The overlap of a stage with the part of a shape. It is negative where they do not meet, and such
        # shares are left out below.
        Share(stage, shape, min(end, bounds[place + 1]) - max(end - duration, bounds[place]))
        for stage, (duration, end) in enumerate(zip(durations, ends, strict=True))
        for place, shape in enumerate(in_order(num_shapes, 0))
    ]
    return [share for share in shares if share.epochs > LEAST_SHARE * total]


MAX_CLIPS = 2**53
"""Largest number of clips of a run. float64 does not represent every larger whole number."""


@dataclass(frozen=True)
class Phase:
    """A maximal sequence of steps [start_step, end_step) of one (stage, base shape, lr_factor).

    ``start_epoch`` and ``end_epoch`` are epochs of the stream, and integers in epoch granularity.
    ``first_clip`` is the number of clips drawn before the phase. ``turns`` has the shapes of ``cycle``, step
    by step. ``num_bn_groups`` counts the groups of each process; with −n one group spans n processes.
    ``weight_decay_factor`` multiplies the weight decay.
    """

    stage: int
    start_step: int
    end_step: int
    start_epoch: float
    end_epoch: float
    first_clip: int
    lr_factor: float
    cycle: Cycle
    turns: Turns
    stride_range: tuple[int, int] | None
    num_bn_groups: int
    weight_decay_factor: float = 1.0

    @property
    def num_steps(self) -> int:
        return self.end_step - self.start_step

    @property
    def clips(self) -> int:
        return self.cycle.base.clips


@dataclass(frozen=True)
class _Span:
    """A share with its cycle, and the ``epochs`` that the run draws in it, before rounding."""

    share: Share
    cycle: Cycle
    epochs: float


def derive_phases(
    recipe: Recipe, multigrid: Multigrid, num_videos: int, num_processes: int = 1
) -> tuple[Phase, ...]:
    """Derive all phases in order, without empty ones.

    Raises ValueError if a shape is impossible, if a batch does not divide over the processes or
    over the groups of batch normalisation, or if the long cycle has no stage to run in.
    """
    cycles = long_cycle(recipe, multigrid)
    # The steps of the baseline are counted too, so its clips must be countable also with a factor below 1.
    epochs = max(1.0, multigrid.epoch_factor) * recipe.max_epoch
    if epochs * num_videos > MAX_CLIPS:
        raise ValueError(
            f"{epochs:g} epochs of {num_videos} videos are more clips than can be counted, 2^53: lower "
            "recipe.max_epoch or multigrid.epoch_factor"
        )
    spans = _spans(recipe, multigrid, cycles)
    by_epoch = multigrid.granularity == "epoch"
    ends = _whole_epochs(spans) if by_epoch else _whole_steps(spans, recipe.clips, num_videos)
    groups = {c: _cycle_bn_groups(c, recipe, multigrid, num_processes) for c in cycles}
    phases: list[Phase] = []
    for span, lr_factor, end in _pieces(spans, ends, recipe, multigrid):
        last = phases[-1] if phases else None
        identity = (span.share.stage, span.cycle, lr_factor)
        if last and (last.stage, last.cycle, last.lr_factor) == identity:
            # The piece between these two was empty, so they are one phase up to the later end.
            phases.pop()
        num_groups = groups[span.cycle]
        phase = _place(span, lr_factor, end, phases, recipe, multigrid, num_videos, num_groups)
        if phase.num_steps:
            phases.append(phase)
    return tuple(phases)


def count_bn_groups(clips: int, num_processes: int, base_size: int) -> int:
    """Count the groups of ``base_size`` clips in the share of each process; −n if one group spans n processes.

    If a batch has fewer clips than ``base_size``, one group spans all processes (released code). A
    ``base_size`` of 0 means plain batch normalisation: all clips of a process are one group. Raises
    ValueError if the shares or the groups are unequal.
    """
    if clips % num_processes:
        raise ValueError(f"a batch of {clips} clips does not divide over {num_processes} processes")
    share = clips // num_processes
    if base_size == 0:
        return 1
    if clips < base_size:
        return -num_processes if num_processes > 1 else 1
    if share % base_size == 0:
        return share // base_size
    if share > base_size or base_size % share:
        raise ValueError(
            f"{share} clips per process neither divide nor are a multiple of multigrid.bn_base_size = "
            f"{base_size}"
        )
    # Fewer clips than a group. torch makes the groups of processes of one size, from neighbours by rank.
    spanned = base_size // share
    if num_processes % spanned:
        raise ValueError(
            f"a group of {base_size} clips spans {spanned} processes, which do not divide {num_processes}"
        )
    return -spanned


def _spans(recipe: Recipe, multigrid: Multigrid, cycles: tuple[Cycle, ...]) -> list[_Span]:
    """Compute all durations before rounding. In total they are epoch_factor × max_epoch epochs."""
    durations = recipe.stage_durations
    num_cycled = len(durations) - multigrid.fine_tuning
    if num_cycled < 1:
        raise ValueError(
            "multigrid.fine_tuning needs at least two stages: give recipe.stage_epochs one more epoch"
        )
    # In equally many steps a shape with larger mini-batches draws more clips, and so more epochs.
    mean_ratio = sum(cycle.mean_ratio for cycle in cycles) / len(cycles)
    in_order = ORDERS[multigrid.shape_order]
    shares = shape_shares(durations[:num_cycled], len(cycles), multigrid.long_cycle_per, in_order)
    # Fine-tuning has the same ratio of steps to the baseline's steps as the stages before it.
    if multigrid.fine_tuning:
        shares.append(Share(num_cycled, len(cycles) - 1, durations[-1]))
    spans = [
        _Span(share, cycle, share.epochs * cycle.mean_ratio / mean_ratio)
        for share, cycle in ((share, cycles[share.shape]) for share in shares)
    ]
    # One factor for all spans: their proportions stay, and the whole has the length of the released schedule.
    x = multigrid.epoch_factor * recipe.max_epoch / sum(span.epochs for span in spans)
    return [replace(span, epochs=span.epochs * x) for span in spans]


def _whole_steps(spans: list[_Span], clips: int, num_videos: int) -> list[int]:
    """Round the end of each span to a whole step. Equal shares of a stage get the same number of steps."""
    # A step draws mean_ratio times the baseline's clips, as a mean over the turns of its cycle.
    steps = [span.epochs * num_videos / (clips * span.cycle.mean_ratio) for span in spans]
    # With a single shape nothing has to be equal. We round sums, so that rounding does not add up.
    if _has_one_shape(spans):
        return [round(total) for total in accumulate(steps)]
    # The steps of equal shares may differ in the last bits, and would then round differently at a
    # tie. So we round those of the first share, and the others get the same number.
    by_share: dict[tuple[int, float], int] = {}
    for span, num in zip(spans, steps, strict=True):
        # At least one step, so that a short training does not lose a shape without a message. Whole epochs may
        # lose one, as in the released code.
        by_share.setdefault((span.share.stage, span.share.epochs), max(1, round(num)))
    return list(accumulate(by_share[span.share.stage, span.share.epochs] for span in spans))


def _whole_epochs(spans: list[_Span]) -> list[int]:
    """Round the end of each span to a whole epoch, as in the released code."""
    totals = accumulate(span.epochs for span in spans)
    # A floating-point sum such as 140.99999999999997 means 141.
    # Source: released code. The short cycle alone takes int() of the longer epochs, the long cycle rounds.
    if _has_one_shape(spans):
        return [math.floor(total + 1e-9) for total in totals]
    return [round(total) for total in totals]


def _has_one_shape(spans: list[_Span]) -> bool:
    return len({span.cycle for span in spans}) == 1


def _pieces(
    spans: list[_Span], ends: list[int], recipe: Recipe, multigrid: Multigrid
) -> Iterator[tuple[_Span, float, int]]:
    """Yield (span, lr_factor, end) in order, with fine-tuning cut at its middle, rounded down.

    The first half keeps the learning rate of the stage before.
    """
    # A cosine falls by itself.
    lr_decay = recipe.gamma if recipe.policy == "steps_with_relative_lrs" else 1.0
    noise = (multigrid.noise_scale or 0.0) / recipe.clips
    for span, start, end in zip(spans, [0, *ends], ends, strict=False):
        decayed = lr_decay**span.share.stage
        # The base of the phase alone decides. The short cycle changes the clips in every step, and the paper
        # lets the rate follow the long cycle only.
        scale = LR_SCALINGS[multigrid.lr_scaling](span.cycle.base.ratio, noise)
        # A cosine has no decay between the halves. They would have one rate, and so be one phase again.
        if multigrid.fine_tuning and span is spans[-1] and lr_decay != 1:
            yield span, decayed / lr_decay * scale, (start + end) // 2
        yield span, decayed * scale, end


def _place(
    span: _Span,
    lr_factor: float,
    end: int,
    before: list[Phase],
    recipe: Recipe,
    multigrid: Multigrid,
    num_videos: int,
    groups: int,
) -> Phase:
    """Return the phase from the end of ``before`` to ``end``, in steps or epochs. It may be empty."""
    last = before[-1] if before else None
    start_step = last.end_step if last else 0
    first_clip = last.first_clip + last.turns.clips_before(last.num_steps) if last else 0
    turns = Turns(span.cycle.shapes, span.share.stage, multigrid.shape_order)
    if multigrid.granularity == "epoch":
        # The last step may draw clips of the next epoch. The next phase draws fewer for them, so
        # the surplus never adds up.
        num_steps = _steps_to_draw(end * num_videos - first_clip, turns)
        start_epoch, end_epoch = float(last.end_epoch) if last else 0.0, float(end)
    else:
        num_steps = end - start_step
        drawn = turns.clips_before(num_steps)
        start_epoch, end_epoch = first_clip / num_videos, (first_clip + drawn) / num_videos
    base, stride_range = span.cycle.base, None
    if recipe.stride is not None:
        # A clip with 1/k of the frames gets up to k times the stride. So some of the coarse clips
        # span about as much of the video as a full clip.
        longest = recipe.stride * (recipe.frames // base.frames)
        stride_range = (recipe.stride if multigrid.random_stride else longest, longest)
    return Phase(
        stage=span.share.stage,
        start_step=start_step,
        end_step=start_step + num_steps,
        start_epoch=start_epoch,
        end_epoch=end_epoch,
        first_clip=first_clip,
        lr_factor=lr_factor,
        cycle=span.cycle,
        turns=turns,
        stride_range=stride_range,
        num_bn_groups=groups,
        # The noise scale is that of the learning rate; the weight decay has no rule with noise.
        weight_decay_factor=LR_SCALINGS[multigrid.weight_decay_scaling](base.ratio, 0.0),
    )


def _remedy(recipe: Recipe, multigrid: Multigrid, num_processes: int) -> str:
    """Say which clips or processes leave each process an equal share of every shape, in whole BN groups."""
    size = multigrid.bn_base_size
    # Ratios of pixels are whole with groups. All others may be quarters. Without groups, each quarter has two
    # clips, so that mixup finds pairs.
    parts = 1 if multigrid.costs is None and size else 4
    unit = parts * (size or 2)
    clips = math.ceil(recipe.clips / (unit * num_processes)) * unit * num_processes
    fewer, rest = divmod(recipe.clips, unit)
    others = "" if rest else f", or take {fewer} processes"
    return f"set recipe.clips {clips}, with a recipe.base_lr for it{others}"


def _steps_to_draw(num_clips: int, turns: Turns) -> int:
    """Return the least number of steps that draw at least ``num_clips``; 0 for no clips."""
    per_turn = turns.clips_before(len(turns.shapes))
    # A phase may have millions of steps, so we count whole turns at once, and only the rest step by
    # step.
    steps = max(0, num_clips // per_turn) * len(turns.shapes)
    # At most one more turn: the whole turns before it draw no more than the clips that are wanted.
    while turns.clips_before(steps) < num_clips:
        steps += 1
    return steps


def _cycle_bn_groups(cycle: Cycle, recipe: Recipe, multigrid: Multigrid, num_processes: int) -> int:
    """Count the BN groups of a phase by its base batch, so short-cycle batches have larger groups."""
    base, size = cycle.base, multigrid.bn_base_size
    remedy = _remedy(recipe, multigrid, num_processes)
    try:
        groups = count_bn_groups(base.clips, num_processes, size)
    except ValueError as error:
        if base.ratio == 1:
            raise ValueError(f"{error}: {remedy}") from error
        shape = f"{base.frames} frames x {base.crop}²"
        raise ValueError(
            f"recipe.clips = {recipe.clips} becomes {base.clips} clips at {shape}, which take "
            f"{base.ratio:g} times as many: {error}: {remedy}"
        ) from error
    for clips in (shape.clips for shape in cycle.shapes):
        # Where a group spans processes, each of them must still take an equal part of every batch.
        if clips % (num_processes * max(1, groups)):
            raise ValueError(
                f"a short-cycle batch of {clips} clips does not divide over {num_processes} processes "
                f"with {max(1, groups)} BN groups each: "
                + ("choose other multigrid.short_factors" if size else remedy)
            )
    return groups
