"""Convert the solver, mini-batches, multigrid and BN groups of a PySlowFast YAML."""

from __future__ import annotations

import math
from itertools import pairwise

from mgexp.convert.conversion import Conversion


def convert_solver(draft: Conversion) -> None:
    """Convert SOLVER."""
    draft.keep("SOLVER.LR_POLICY", "SOLVER.LAYER_DECAY")
    _optimizer(draft)
    for name in ("SOLVER.MAX_EPOCH", "SOLVER.WARMUP_EPOCHS"):
        epochs = draft.value(name) * draft.num_samples
        draft.keep_as(name, epochs, f"{epochs:g}: times AUG.NUM_SAMPLE")
    draft.keep("SOLVER.WEIGHT_DECAY")
    draft.keep("SOLVER.ZERO_WD_1D_PARAM", "SOLVER.CLIP_GRAD_L2NORM")
    first = 1.0
    if draft.value("SOLVER.LR_POLICY") == "cosine":
        _cosine(draft)
    else:
        first = _stages(draft)
        why = "only the cosine policy has it"
        draft.drop(why, "SOLVER.COSINE_END_LR", "SOLVER.COSINE_AFTER_WARMUP")
    shards = draft.value("NUM_SHARDS")
    machines = shards if draft.value("SOLVER.BASE_LR_SCALE_NUM_SHARDS") else 1
    draft.drop(f"NUM_SHARDS = {shards}", "SOLVER.BASE_LR_SCALE_NUM_SHARDS")
    rates = {"SOLVER.BASE_LR": first * machines, "SOLVER.WARMUP_START_LR": machines}
    if draft.value("SOLVER.LR_POLICY") == "cosine":
        rates["SOLVER.COSINE_END_LR"] = machines
    for name, factor in rates.items():
        # Nine digits are kept, because 0.1 times 3 would be written 0.30000000000000004.
        rate = draft.value(name)
        value = rate if factor == 1 else float(f"{rate * factor:.9g}")
        draft.keep_as(name, value, f"{value:g}: times {factor:g}")


def _optimizer(draft: Conversion) -> None:
    """Convert the optimizer with the keys that it reads."""
    method = draft.value("SOLVER.OPTIMIZING_METHOD")
    of_sgd, of_adam = ("SOLVER.MOMENTUM", "SOLVER.NESTEROV"), ("SOLVER.BETAS",)
    if method not in {"sgd", "adamw"}:
        draft.refuse("SOLVER.OPTIMIZING_METHOD", "has no counterpart: sgd and adamw have one")
        draft.drop("the optimizer has no counterpart", *of_sgd, *of_adam)
        return
    draft.keep("SOLVER.OPTIMIZING_METHOD")
    draft.keep_if(method == "sgd", f"{method} does not read it", *of_sgd)
    draft.keep_if(method == "adamw", f"{method} does not read it", *of_adam)
    if method == "adamw":
        # PySlowFast has no key for it: slowfast/models/optimizer.py writes the number.
        draft.keys["SOLVER.EPS"] = 1e-8


def _stages(draft: Conversion) -> float:
    """Convert STEPS, LRS and GAMMA; return the first of LRS, which multiplies all learning rates."""
    # A stage that begins after the last epoch never takes place in PySlowFast. Here it would be an
    # error.
    steps, last = draft.value("SOLVER.STEPS"), draft.value("SOLVER.MAX_EPOCH")
    reached = tuple(step for step in steps if step < last)
    if not reached:
        draft.refuse(
            "SOLVER.STEPS", "has no stage: it takes the first epochs of the stages, 0 and on"
        )
    else:
        epochs = tuple(step * draft.num_samples for step in reached)
        why = f"[{', '.join(f'{step:g}' for step in epochs)}]: " + (
            "times AUG.NUM_SAMPLE"
            if draft.num_samples > 1
            else f"MAX_EPOCH = {last:g} comes before the rest"
        )
        draft.keep_as("SOLVER.STEPS", epochs, why)
    if draft.value("MULTIGRID.LONG_CYCLE"):
        draft.keep("SOLVER.GAMMA")
        why = "with the long cycle PySlowFast computes GAMMA to the power of the stage instead, as here"
        draft.drop(why, "SOLVER.LRS")
        return 1.0
    draft.drop("PySlowFast reads SOLVER.LRS instead", "SOLVER.GAMMA")
    return _decay(draft, len(reached))


def _decay(draft: Conversion, num_stages: int) -> float:
    """Compute SOLVER.GAMMA from the LRS of the stages, which must fall by one factor; return the first of LRS."""
    rates = draft.value("SOLVER.LRS")[:num_stages]
    if len(rates) < num_stages or not rates or min(rates) <= 0:
        draft.refuse("SOLVER.LRS", f"has no rate above 0 for each of {num_stages} stages")
        return 1.0
    # The ratios of 0.1, 0.01 and 0.001 differ in floating point, so they are compared with a
    # tolerance.
    factors = [after / before for before, after in pairwise(rates)]
    if any(not math.isclose(factor, factors[0], rel_tol=1e-6) for factor in factors):
        why = "has no counterpart: the learning rate falls by one factor, SOLVER.GAMMA, from stage to stage"
        draft.refuse("SOLVER.LRS", why)
        return 1.0
    # With a single stage the rate never falls, so any GAMMA will do.
    gamma = float(f"{factors[0]:.9g}") if factors else 0.1
    scaled = "" if rates[0] == 1 else f", and SOLVER.BASE_LR times {rates[0]:g}"
    draft.change("SOLVER.LRS", f"SOLVER.GAMMA {gamma:g}{scaled}", SOLVER__GAMMA=gamma)
    return float(rates[0])


def _cosine(draft: Conversion) -> None:
    """Convert the keys of the cosine policy, in which STEPS only places the stages of the long cycle."""
    draft.keep("SOLVER.COSINE_AFTER_WARMUP")
    draft.drop("the cosine policy does not have it", "SOLVER.LRS", "SOLVER.GAMMA")
    if draft.value("MULTIGRID.LONG_CYCLE"):
        why = (
            "stages that the long cycle runs in, as there; but there the learning rate stays where batches grow "
            "(or the run fails), and here it follows them: MULTIGRID.LR_SCALING linear"
        )
        last = draft.value("SOLVER.MAX_EPOCH")
        reached = (step for step in draft.value("SOLVER.STEPS") if step < last)
        epochs = tuple(step * draft.num_samples for step in reached) or (0.0,)
        draft.change("SOLVER.STEPS", why, SOLVER__STEPS=epochs)
    else:
        draft.drop("the cosine policy does not have it", "SOLVER.STEPS")


OF_NORM = ("BN.NORM_TYPE", "BN.NUM_SPLITS", "BN.NUM_SYNC_DEVICES", "BN.GLOBAL_SYNC")


def convert_schedule(draft: Conversion) -> None:
    """Convert TRAIN.BATCH_SIZE, NUM_GPUS, NUM_SHARDS, MULTIGRID and BN."""
    _batch(draft)
    _multigrid(draft)
    if draft.value("MODEL.ARCH") == "mvit":
        why = "MULTIGRID.BN_BASE_SIZE 0: the network has no batch normalisation"
        draft.change("BN.NORM_TYPE", why, MULTIGRID__BN_BASE_SIZE=0, BN__USE_PRECISE_STATS=False)
        of_bn = (name for name in draft.given if name.startswith("BN."))
        draft.drop("the network has no batch normalisation", "MULTIGRID.BN_BASE_SIZE", *of_bn)
        return
    draft.keep("BN.WEIGHT_DECAY", "BN.USE_PRECISE_STATS")
    is_precise, why = draft.value("BN.USE_PRECISE_STATS"), "BN.USE_PRECISE_STATS is False"
    draft.keep_if(is_precise, why, "BN.NUM_BATCHES_PRECISE")
    if draft.value("MULTIGRID.LONG_CYCLE"):
        draft.keep("MULTIGRID.BN_BASE_SIZE")
        draft.drop("the long cycle sets it by MULTIGRID.BN_BASE_SIZE, in PySlowFast too", *OF_NORM)
    else:
        draft.drop("PySlowFast reads it with the long cycle only", "MULTIGRID.BN_BASE_SIZE")
        _bn_group(draft)


def _batch(draft: Conversion) -> None:
    """Convert the mini-batch: PySlowFast counts the videos of one machine, and we count all clips."""
    clips, gpus, machines = (draft.value(n) for n in ("TRAIN.BATCH_SIZE", "NUM_GPUS", "NUM_SHARDS"))
    if clips % max(1, gpus):
        draft.refuse("TRAIN.BATCH_SIZE", f"does not divide over NUM_GPUS = {gpus}")
    else:
        factors = {"NUM_SHARDS": max(1, machines), "AUG.NUM_SAMPLE": draft.num_samples}
        given = " and ".join(f"{name} = {factor}" for name, factor in factors.items() if factor > 1)
        whole = clips * math.prod(factors.values())
        draft.keep_as("TRAIN.BATCH_SIZE", whole, f"{whole}: times {given}")
    start = "processes are chosen at the start: torchrun --nproc-per-node {} tools/run_net.py --launcher torchrun"
    draft.drop(start.format(max(1, gpus)), "NUM_GPUS")
    draft.drop("machines are chosen at the start: torchrun --nnodes", "NUM_SHARDS")


def _multigrid(draft: Conversion) -> None:
    """Convert the cycles, and set the granularity that PySlowFast has."""
    has_long, has_short = (draft.value(f"MULTIGRID.{n}_CYCLE") for n in ("LONG", "SHORT"))
    draft.keep("MULTIGRID.LONG_CYCLE", "MULTIGRID.SHORT_CYCLE")
    draft.keep_if(has_long, "its cycle is off", "MULTIGRID.LONG_CYCLE_FACTORS")
    draft.keep_if(has_short, "its cycle is off", "MULTIGRID.SHORT_CYCLE_FACTORS")
    draft.keep_if(has_long or has_short, "its cycle is off", "MULTIGRID.EPOCH_FACTOR")
    if has_long or has_short:
        why = "epoch: phases end at epochs, as PySlowFast rounds; step ends them at steps and loses none"
        draft.change("MULTIGRID.GRANULARITY", why, MULTIGRID__GRANULARITY="epoch")


def _bn_group(draft: Conversion) -> None:
    """Compute MULTIGRID.BN_BASE_SIZE: how many clips share statistics in the baseline's mini-batch."""
    # PySlowFast's plain batch norm takes the statistics of the clips of one GPU. Sub-batch norm splits these
    # clips, and synchronised batch norm joins the clips of several GPUs.
    norm = draft.value("BN.NORM_TYPE")
    whole = draft.value("TRAIN.BATCH_SIZE") * max(1, draft.value("NUM_SHARDS")) * draft.num_samples
    clips = whole / draft.num_processes
    if norm == "sub_batchnorm":
        clips /= max(1, draft.value("BN.NUM_SPLITS"))
    elif norm.startswith("sync_batchnorm"):
        clips = (
            whole if draft.value("BN.GLOBAL_SYNC") else clips * draft.value("BN.NUM_SYNC_DEVICES")
        )
    elif norm != "batchnorm":
        draft.refuse("BN.NORM_TYPE", "is none of batchnorm, sub_batchnorm and sync_batchnorm")
        draft.drop("BN.NORM_TYPE is unknown", *OF_NORM[1:])
        return
    if clips < 1 or clips != int(clips):
        draft.refuse("BN.NORM_TYPE", f"gives groups of {clips:g} clips; they must be whole")
    else:
        why = f"MULTIGRID.BN_BASE_SIZE {clips:g}: so many clips of the full shape share statistics"
        draft.change("BN.NORM_TYPE", why, MULTIGRID__BN_BASE_SIZE=int(clips))
    draft.drop("MULTIGRID.BN_BASE_SIZE decides this", *OF_NORM[1:])
