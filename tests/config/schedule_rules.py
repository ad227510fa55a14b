"""What holds of every schedule, by the definition of multigrid training and not by how it is computed."""

from __future__ import annotations

import contextlib
import itertools
import math

from mgexp.multigrid.shapes import BatchShape

SCALING = {
    "linear": lambda b, _: b,
    "sqrt": lambda b, _: math.sqrt(b),
    "noise": lambda b, n: b * (1 + n) / (b + n),
    "none": lambda b, _: 1,
}


def broken_rules(schedule, num_processes):
    """A sentence for each rule that ``schedule`` breaks."""
    rules = (
        *(phases_meet, stages_in_order, shapes_are_those_of_the_cycles, batches_cost_the_same),
        *(steps_are_equal, epochs_are_those_asked_for, rates_follow_the_batch),
        *(groups_divide, strides_reach, plans_follow_the_phases, warm_up_is_linear),
    )
    return [
        f"{rule.__name__}: {broken}" for rule in rules for broken in rule(schedule, num_processes)
    ]


def phases_meet(schedule, _):
    """No gap, no overlap, nothing empty; clips are counted on from phase to phase; each phase is maximal."""
    phases = schedule.phases
    if (phases[0].start_step, phases[0].start_epoch, phases[0].first_clip) != (0, 0, 0):
        yield f"starts at {phases[0]}"
    if any(phase.end_step <= phase.start_step for phase in phases):
        yield "an empty phase"
    if schedule.total_steps != sum(phase.end_step - phase.start_step for phase in phases):
        yield "steps are missing"
    for one, two in itertools.pairwise(phases):
        if (one.end_step, one.end_epoch) != (two.start_step, two.start_epoch):
            yield f"{one} does not meet {two}"
        if one.first_clip + clips_of(schedule, one) != two.first_clip:
            yield f"clips are lost between {one} and {two}"
        if (one.stage, one.cycle, one.lr_factor) == (two.stage, two.cycle, two.lr_factor):
            yield f"{one} and {two} are one"


def clips_of(schedule, phase):
    """Clips that a phase draws, summed turn by turn."""
    ratios = [shape.ratio for shape in phase.cycle.shapes]
    turns, rest = divmod(phase.end_step - phase.start_step, len(ratios))
    begun = range(phase.end_step - rest, phase.end_step)
    last = sum(schedule.plan_at(step).clips for step in begun)
    return schedule.recipe.clips * turns * sum(ratios) + last


def stages_in_order(schedule, _):
    """Stages and, inside of one, base shapes come in the order in which they are given."""
    stages = [phase.stage for phase in schedule.phases]
    if stages != sorted(stages) or not set(stages) <= set(range(len(schedule.recipe.stage_epochs))):
        yield f"stages {stages}"
    sizes = [base_size(recipe_and(schedule), pair) for pair in schedule.multigrid.long_factors]
    for stage in set(stages):
        bases = [(p.cycle.base.frames, p.cycle.base.crop) for p in of_stage(schedule, stage)]
        places = [sizes.index(size) for size in bases]
        is_permuted = schedule.multigrid.shape_order == "random"
        if len(set(sizes)) == len(sizes) and places != sorted(places) and not is_permuted:
            yield f"shapes of stage {stage}: {bases}"


def recipe_and(schedule):
    return schedule.recipe.frames, schedule.recipe.crop


def base_size(full, pair):
    """(frames, crop) of a pair of factors."""
    return round(pair[0] * full[0]), round(pair[1] * full[1])


def of_stage(schedule, stage):
    return [phase for phase in schedule.phases if phase.stage == stage]


def shapes_are_those_of_the_cycles(schedule, _):
    """Frames divide those of the full shape; crops are those of the factors; the largest batch comes first."""
    (frames, crop), multigrid = recipe_and(schedule), schedule.multigrid
    for phase in schedule.phases:
        base, shapes = phase.cycle.base, phase.cycle.shapes
        if frames % base.frames or any(shape.frames != base.frames for shape in shapes):
            yield f"frames of {phase}"
        if phase.clips != schedule.recipe.clips * base.ratio or base not in shapes:
            yield f"base of {phase}"
        if [s.ratio for s in shapes] != sorted((s.ratio for s in shapes), reverse=True):
            yield f"order of {shapes}"
        legal = [
            sorted(
                [s * crop, *(f * reference(multigrid, s, crop) for f in multigrid.short_factors)]
            )
            for t, s in multigrid.long_factors
            if base_size((frames, crop), (t, s)) == (base.frames, base.crop)
        ]
        if sorted(shape.crop for shape in shapes) not in [[round(c) for c in one] for one in legal]:
            yield f"crops of {shapes}, not of {legal}"


def reference(multigrid, spatial, crop):
    """What short-cycle crops are relative to."""
    return crop if multigrid.short_crops_of == "full" else spatial * crop


def batches_cost_the_same(schedule, _):
    """b is within 5 % of T S² / (t s²), s being the real-valued crop, at most half a pixel off the whole one.

    With costs of clips, b is within 5 % of the full clip's cost over that of the shape. Where b would be more
    than the largest ratio, b is the largest ratio.
    """
    frames, crop = recipe_and(schedule)
    limit = schedule.multigrid.max_batch_ratio or float("inf")
    costs = schedule.multigrid.costs and dict(schedule.multigrid.costs.by_size)
    for shape in {shape for phase in schedule.phases for shape in phase.cycle.shapes}:
        work = frames * crop**2 / shape.frames
        most, least = work / max(shape.crop - 0.5, 1e-9) ** 2, work / (shape.crop + 0.5) ** 2
        if costs:
            most = least = costs[frames, crop] / costs[shape.frames, shape.crop]
        is_equal = 0.95 * least <= shape.ratio <= 1.05 * most
        is_limited = shape.ratio == limit <= 1.05 * most
        if shape.ratio < 1 or shape.ratio > limit or not (is_equal or is_limited):
            yield f"{shape} for {frames} x {crop}²"


def steps_are_equal(schedule, _):
    """Every shape of the long cycle gets as many steps in each stage but fine-tuning, or in all of them."""
    multigrid = schedule.multigrid
    num_cycled = len(schedule.recipe.stage_epochs) - multigrid.fine_tuning
    if multigrid.granularity == "epoch" or len(multigrid.long_factors) == 1:
        return
    if multigrid.long_cycle_per == "training":
        yield from steps_of_training_are_equal(schedule, num_cycled)
        return
    for stage in range(num_cycled):
        steps = [phase.end_step - phase.start_step for phase in of_stage(schedule, stage)]
        part = max(sum(steps), 1) / len(multigrid.long_factors)
        # A shape that meets itself, as given or in a random order, is one phase of twice the steps.
        parts = [max(1, round(n / part)) for n in steps]
        differ = len(steps) == len(multigrid.long_factors)
        slack = 0 if differ else 1
        is_uneven = any(abs(n - k * part) > k * slack for n, k in zip(steps, parts, strict=True))
        if steps and (sum(parts) != len(multigrid.long_factors) or is_uneven):
            yield f"steps {steps} in stage {stage}"


def steps_of_training_are_equal(schedule, num_cycled):
    """Each shape comes in one piece across stages, all as long, up to a step for each stage in it.

    A shape that meets itself, as given or in a random order, is one piece of twice the steps.
    """
    cycled = [phase for phase in schedule.phases if phase.stage < num_cycled]
    pieces = [[*group] for _, group in itertools.groupby(cycled, key=lambda phase: phase.cycle)]
    steps = [sum(phase.end_step - phase.start_step for phase in piece) for piece in pieces]
    slack = max(len(piece) for piece in pieces)
    factors = schedule.multigrid.long_factors
    part = sum(steps) / len(factors)
    parts = [1] * len(steps)
    if len(pieces) < len(factors):
        parts = [max(1, round(n / part)) for n in steps]
    is_uneven = any(abs(n - k * part) > 2 * slack for n, k in zip(steps, parts, strict=True))
    if sum(parts) != len(factors) or is_uneven:
        yield f"steps {steps} of shapes"


def epochs_are_those_asked_for(schedule, _):
    """EPOCH_FACTOR × MAX_EPOCH, up to what rounding each phase to steps or to epochs may change."""
    wanted = schedule.multigrid.epoch_factor * schedule.recipe.max_epoch
    if schedule.multigrid.granularity == "epoch":
        found = [(phase.start_epoch, phase.end_epoch) for phase in schedule.phases]
        if any(end != round(end) or end < start for start, end in found):
            yield f"epochs {found}"
        ratios = [shape.ratio for phase in schedule.phases for shape in phase.cycle.shapes]
        # By a straddling batch.
        drawn_before = schedule.recipe.clips * max(ratios) / schedule.num_videos
        if not wanted - 1 - drawn_before <= schedule.total_epochs <= wanted + 0.5 + 1e-6 * wanted:
            yield f"{schedule.total_epochs} epochs, not {wanted}"
        return
    slack = 0
    for stage in range(len(schedule.recipe.stage_epochs)):
        for phase in of_stage(schedule, stage):
            slack += 2 * sum(shape.ratio for shape in phase.cycle.shapes)
    slack_epochs = schedule.recipe.clips * slack / schedule.num_videos
    if abs(schedule.total_epochs - wanted) > slack_epochs + 1e-6 * wanted:
        yield f"{schedule.total_epochs} epochs, not {wanted} ± {slack_epochs}"


def rates_follow_the_batch(schedule, _):
    """decay^stage × scaling(b); the first half of fine-tuning keeps the decay of the stage before."""
    recipe, multigrid = schedule.recipe, schedule.multigrid
    decay = recipe.gamma if recipe.policy == "steps_with_relative_lrs" else 1.0
    last = len(recipe.stage_epochs) - 1
    for phase in schedule.phases:
        noise = (multigrid.noise_scale or 0) / recipe.clips
        scale = SCALING[multigrid.lr_scaling](phase.cycle.base.ratio, noise)
        decays = [phase.stage]
        if multigrid.fine_tuning and phase.stage == last:
            decays.append(last - 1)
        if not any(math.isclose(phase.lr_factor, decay**k * scale) for k in decays):
            yield f"{phase.lr_factor} in stage {phase.stage} at b = {phase.cycle.base.ratio}"
        if not 0 < recipe.base_lr * phase.lr_factor < math.inf:
            yield f"learning rate {recipe.base_lr * phase.lr_factor}"
    if multigrid.fine_tuning and decay != 1:
        factors = [phase.lr_factor for phase in of_stage(schedule, last)]
        if factors != sorted(factors, reverse=True):
            yield f"fine-tuning at {factors}"


def groups_divide(schedule, num_processes):
    """Each process has whole groups of each batch, of BN_BASE_SIZE clips where a base batch has so many."""
    size = schedule.multigrid.bn_base_size
    for phase in schedule.phases:
        groups = phase.num_bn_groups
        for shape in phase.cycle.shapes:
            clips = schedule.recipe.clips * shape.ratio
            if clips % num_processes or clips // num_processes % max(1, groups):
                yield f"{clips} clips over {num_processes} processes in {groups} groups"
        share = phase.clips // num_processes
        if size == 0:
            if groups != 1:
                yield f"{groups} groups where there are none"
            continue
        if groups < 0 and num_processes % -groups:
            yield f"{num_processes} processes in groups of {-groups}"
        if share % size == 0 and groups * size != share:
            yield f"{groups} groups of {share} clips"


def strides_reach(schedule, _):
    """Strides are τ … kτ for T/k frames, so that a coarse clip may span what a full one does."""
    recipe = schedule.recipe
    for phase in schedule.phases:
        if recipe.stride is None:
            wanted = None
        else:
            longest = recipe.stride * recipe.frames // phase.cycle.base.frames
            wanted = (recipe.stride if schedule.multigrid.random_stride else longest, longest)
        if phase.stride_range != wanted:
            yield f"{phase.stride_range}, not {wanted}"


def some_steps(schedule):
    """Steps at and beside the ends of phases, not all of them where there are many."""
    ends = [phase.start_step for phase in schedule.phases[:50]]
    near = {step + off for step in (*ends, schedule.total_steps) for off in (-2, -1, 0, 1, 2)}
    return sorted(step for step in near if 0 <= step < schedule.total_steps)


def shape_in_turn(schedule, phase, step):
    """The shape of a step by its place in the cycle; in a random order, what is left of the cycle at its turn."""
    shapes = phase.cycle.shapes
    offset = (step - phase.start_step) % len(shapes)
    if schedule.multigrid.shape_order != "random":
        return shapes[offset]
    left = list(shapes)
    for earlier in range(step - offset, step + 1):
        plan = schedule.plan_at(earlier)
        # Crops of few pixels may round to one size, and still have different numbers of clips.
        size = (plan.frames, plan.crop, plan.clips / schedule.recipe.clips)
        found = next((s for s in left if (s.frames, s.crop, s.ratio) == size), None)
        if found is None:
            return BatchShape(0, 0, 0, 0)
        left.remove(found)
    return found


def plans_follow_the_phases(schedule, _):
    """The plan of a step is its phase's, at its place in the cycle; the next draws where it ends."""
    for step in some_steps(schedule):
        plan = schedule.plan_at(step)
        phase = schedule.phases[plan.phase]
        shape = shape_in_turn(schedule, phase, step)
        if not phase.start_step <= step < phase.end_step or plan.step != step:
            yield f"step {step} in phase {plan.phase}"
        found = (plan.frames, plan.crop, plan.clips, plan.stage, plan.num_bn_groups)
        clips = schedule.recipe.clips * shape.ratio
        if found != (shape.frames, shape.crop, clips, phase.stage, phase.num_bn_groups):
            yield f"step {step}: {plan}"
        if plan.epoch != plan.first_clip / schedule.num_videos or not math.isfinite(plan.lr):
            yield f"step {step}: {plan}"
        if schedule.epoch_before(step + 1) != (plan.first_clip + plan.clips) / schedule.num_videos:
            yield f"epochs after step {step}"
        if step + 1 < schedule.total_steps:
            following = schedule.plan_at(step + 1).first_clip
            if following != plan.first_clip + plan.clips:
                yield f"step {step + 1} draws from {following}"
    for outside in (-1, schedule.total_steps):
        with contextlib.suppress(IndexError):
            yield f"step {outside}: {schedule.plan_at(outside)}"


def warm_up_is_linear(schedule, _):
    """From WARMUP_START_LR towards the rate at its end, never beyond it, never back; then the policy's rate.

    It is over when WARMUP_EPOCHS and WARMUP_STEPS are.
    """
    recipe = schedule.recipe
    plans = [schedule.plan_at(step) for step in some_steps(schedule)]
    is_warming = [
        plan.epoch < recipe.warmup_epochs or plan.step < recipe.warmup_steps for plan in plans
    ]
    warming = [plan.lr for plan, warms in zip(plans, is_warming, strict=True) if warms]
    if warming and not math.isclose(warming[0], recipe.warmup_start_lr, abs_tol=1e-300):
        yield f"starts at {warming[0]}"
    if warming not in (sorted(warming), sorted(warming, reverse=True)):
        yield f"goes back: {warming}"
    for plan, warms in zip(plans, is_warming, strict=True):
        if not warms:
            most = recipe.base_lr * schedule.phases[plan.phase].lr_factor
            is_right = plan.lr == most if recipe.policy != "cosine" else 0 <= plan.lr <= most
            if not is_right:
                yield f"step {plan.step} at {plan.lr}, not {most}"
