"""The mini-batches of a PySlowFast YAML: how many clips, how they vary, and how many share BN statistics."""

from __future__ import annotations

import math
from itertools import pairwise

from mgexp.convert.draft import Draft


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


OF_NORM = ("BN.NORM_TYPE", "BN.NUM_SPLITS", "BN.NUM_SYNC_DEVICES", "BN.GLOBAL_SYNC")


def convert_schedule(draft: Draft) -> None:
    """TRAIN.BATCH_SIZE, NUM_GPUS, NUM_SHARDS, MULTIGRID and BN."""
    _batch(draft)
    _multigrid(draft)
    draft.keep("BN.WEIGHT_DECAY", "BN.USE_PRECISE_STATS")
    if draft.value("BN.USE_PRECISE_STATS"):
        draft.keep("BN.NUM_BATCHES_PRECISE")
    else:
        draft.drop("BN.USE_PRECISE_STATS is False", "BN.NUM_BATCHES_PRECISE")
    if draft.value("MULTIGRID.LONG_CYCLE"):
        draft.keep("MULTIGRID.BN_BASE_SIZE")
        draft.drop("the long cycle sets it by MULTIGRID.BN_BASE_SIZE, in PySlowFast too", *OF_NORM)
    else:
        draft.drop("PySlowFast reads it with the long cycle only", "MULTIGRID.BN_BASE_SIZE")
        _bn_group(draft)


def num_processes(draft: Draft) -> int:
    """GPUs of all machines; 1 on a CPU."""
    machines: int = draft.value("NUM_SHARDS")
    gpus: int = draft.value("NUM_GPUS")
    return max(1, machines) * max(1, gpus)


def _batch(draft: Draft) -> None:
    """PySlowFast's mini-batch is that of a machine; ours is that of all."""
    clips, gpus, machines = (draft.value(n) for n in ("TRAIN.BATCH_SIZE", "NUM_GPUS", "NUM_SHARDS"))
    if clips % max(1, gpus):
        draft.refuse("TRAIN.BATCH_SIZE", f"does not divide over NUM_GPUS = {gpus}")
    elif machines > 1:
        why = f"{clips * machines}: times NUM_SHARDS = {machines} machines"
        draft.change("TRAIN.BATCH_SIZE", why, TRAIN__BATCH_SIZE=clips * machines)
    else:
        draft.keep("TRAIN.BATCH_SIZE")
    start = "processes are chosen at the start: torchrun --nproc-per-node {} tools/run_net.py --launcher torchrun"
    draft.drop(start.format(max(1, gpus)), "NUM_GPUS")
    draft.drop("machines are chosen at the start: torchrun --nnodes", "NUM_SHARDS")


def _multigrid(draft: Draft) -> None:
    has_long, has_short = (draft.value(f"MULTIGRID.{n}_CYCLE") for n in ("LONG", "SHORT"))
    draft.keep("MULTIGRID.LONG_CYCLE", "MULTIGRID.SHORT_CYCLE")
    for is_on, name in (
        (has_long, "LONG_CYCLE_FACTORS"),
        (has_short, "SHORT_CYCLE_FACTORS"),
        (has_long or has_short, "EPOCH_FACTOR"),
    ):
        if is_on:
            draft.keep(f"MULTIGRID.{name}")
        else:
            draft.drop("its cycle is off", f"MULTIGRID.{name}")
    if has_long or has_short:
        why = "epoch: phases end at epochs, as PySlowFast rounds; step ends them at steps and loses none"
        draft.change("MULTIGRID.GRANULARITY", why, MULTIGRID__GRANULARITY="epoch")


def _bn_group(draft: Draft) -> None:
    """MULTIGRID.BN_BASE_SIZE: the clips that share statistics in the baseline's mini-batch."""
    norm = draft.value("BN.NORM_TYPE")
    whole = draft.value("TRAIN.BATCH_SIZE") * max(1, draft.value("NUM_SHARDS"))
    clips = whole / num_processes(draft)
    if norm == "sub_batchnorm":
        clips /= max(1, draft.value("BN.NUM_SPLITS"))
    elif norm.startswith("sync_batchnorm"):
        clips = (
            whole if draft.value("BN.GLOBAL_SYNC") else clips * draft.value("BN.NUM_SYNC_DEVICES")
        )
    elif norm != "batchnorm":
        draft.refuse("BN.NORM_TYPE", "is none of batchnorm, sub_batchnorm and sync_batchnorm")
        draft.drop("of an unknown BN.NORM_TYPE", *OF_NORM[1:])
        return
    if clips < 1 or clips != int(clips):
        draft.refuse("BN.NORM_TYPE", f"gives groups of {clips:g} clips; they must be whole")
    else:
        why = f"MULTIGRID.BN_BASE_SIZE {clips:g}: so many clips of the full shape share statistics"
        draft.change("BN.NORM_TYPE", why, MULTIGRID__BN_BASE_SIZE=int(clips))
    draft.drop("MULTIGRID.BN_BASE_SIZE says it", *OF_NORM[1:])
