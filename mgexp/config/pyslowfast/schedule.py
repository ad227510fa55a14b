"""The mini-batches of a PySlowFast YAML: how many clips, how they vary, and how many share BN statistics."""

from __future__ import annotations

from mgexp.config.pyslowfast.draft import Draft

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
