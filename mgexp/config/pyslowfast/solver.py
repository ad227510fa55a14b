"""The solver of a PySlowFast YAML: learning rate, stages, weight decay."""

from __future__ import annotations

import math
from itertools import pairwise

from mgexp.config.pyslowfast.draft import Draft


def convert_solver(draft: Draft) -> None:
    """SOLVER, and what MULTIGRID does to it."""
    draft.keep("SOLVER.LR_POLICY", "SOLVER.MAX_EPOCH", "SOLVER.MOMENTUM", "SOLVER.NESTEROV")
    draft.keep("SOLVER.WEIGHT_DECAY", "SOLVER.WARMUP_EPOCHS")
    draft.keep("SOLVER.ZERO_WD_1D_PARAM", "SOLVER.CLIP_GRAD_L2NORM")
    if draft.value("SOLVER.LR_POLICY") == "cosine":
        first = _cosine(draft)
    else:
        first = _stages(draft)
        draft.drop("of the cosine policy", "SOLVER.COSINE_END_LR", "SOLVER.COSINE_AFTER_WARMUP")
    _rates(draft, first)


def _stages(draft: Draft) -> float:
    """STEPS, LRS and GAMMA; gives the first of LRS, that all rates are multiplied by."""
    steps, last = draft.value("SOLVER.STEPS"), draft.value("SOLVER.MAX_EPOCH")
    reached = tuple(step for step in steps if step < last)
    if not reached:
        draft.refuse(
            "SOLVER.STEPS", "has no stage: it takes the first epochs of the stages, 0 and on"
        )
    elif reached != steps:
        why = f"[{', '.join(f'{step:g}' for step in reached)}]: MAX_EPOCH = {last:g} comes before the rest"
        draft.change("SOLVER.STEPS", why, SOLVER__STEPS=reached)
    else:
        draft.keep("SOLVER.STEPS")
    if draft.value("MULTIGRID.LONG_CYCLE"):
        draft.keep("SOLVER.GAMMA")
        why = "with the long cycle PySlowFast computes GAMMA to the power of the stage instead, as here"
        draft.drop(why, "SOLVER.LRS")
        return 1.0
    draft.drop("PySlowFast reads SOLVER.LRS instead", "SOLVER.GAMMA")
    return _decay(draft, len(reached))


def _decay(draft: Draft, num_stages: int) -> float:
    """SOLVER.GAMMA by the LRS of the stages, which must fall by one factor; gives the first of them."""
    rates = draft.value("SOLVER.LRS")[:num_stages]
    if len(rates) < num_stages or not rates or min(rates) <= 0:
        draft.refuse("SOLVER.LRS", f"has no rate above 0 for each of {num_stages} stages")
        return 1.0
    factors = [after / before for before, after in pairwise(rates)]
    if any(not math.isclose(factor, factors[0], rel_tol=1e-6) for factor in factors):
        why = "has no counterpart: the learning rate falls by one factor, SOLVER.GAMMA, from stage to stage"
        draft.refuse("SOLVER.LRS", why)
        return 1.0
    gamma = float(f"{factors[0]:.9g}") if factors else 0.1
    scaled = "" if rates[0] == 1 else f", and SOLVER.BASE_LR times {rates[0]:g}"
    draft.change("SOLVER.LRS", f"SOLVER.GAMMA {gamma:g}{scaled}", SOLVER__GAMMA=gamma)
    return float(rates[0])


def _cosine(draft: Draft) -> float:
    if draft.value("SOLVER.COSINE_END_LR"):
        draft.refuse("SOLVER.COSINE_END_LR", "has no counterpart: the cosine ends at 0")
    if draft.value("SOLVER.COSINE_AFTER_WARMUP") and draft.value("SOLVER.WARMUP_EPOCHS"):
        draft.refuse(
            "SOLVER.COSINE_AFTER_WARMUP", "has no counterpart: the cosine starts at epoch 0"
        )
    settled = draft.settled()
    draft.drop("the cosine ends at 0", *{"SOLVER.COSINE_END_LR"} - settled)
    draft.drop("the cosine starts at epoch 0", *{"SOLVER.COSINE_AFTER_WARMUP"} - settled)
    draft.drop("not of the cosine policy", "SOLVER.LRS", "SOLVER.GAMMA")
    if draft.value("MULTIGRID.LONG_CYCLE"):
        why = (
            "stages that the long cycle runs in, as there; but there the learning rate stays where batches grow "
            "(or the run fails), and here it follows them: MULTIGRID.LR_SCALING linear"
        )
        draft.change("SOLVER.STEPS", why, SOLVER__STEPS=draft.value("SOLVER.STEPS") or (0.0,))
    else:
        draft.drop("not of the cosine policy", "SOLVER.STEPS")
    return 1.0


def _rates(draft: Draft, first: float) -> None:
    """BASE_LR and WARMUP_START_LR, times ``first`` of LRS and the number of machines."""
    shards = draft.value("NUM_SHARDS")
    machines = shards if draft.value("SOLVER.BASE_LR_SCALE_NUM_SHARDS") else 1
    draft.drop(f"NUM_SHARDS = {shards}", "SOLVER.BASE_LR_SCALE_NUM_SHARDS")
    for name, factor in (("BASE_LR", first * machines), ("WARMUP_START_LR", machines)):
        if factor == 1:
            draft.keep(f"SOLVER.{name}")
            continue
        value = float(f"{draft.value(f'SOLVER.{name}') * factor:.9g}")
        draft.change(f"SOLVER.{name}", f"{value:g}: times {factor:g}", **{f"SOLVER__{name}": value})
