"""The network of a PySlowFast YAML: SlowFast, I3D, C2D or Slow, with or without non-local blocks."""

from __future__ import annotations

from dataclasses import dataclass

from mgexp.convert.draft import Draft

STAGES = ("res2", "res3", "res4", "res5")
BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}


@dataclass(frozen=True)
class Architecture:
    """A value of MODEL.ARCH. ``kernels``: by pathway and stage, frames of its blocks' first convolutions."""

    name: str
    classes: tuple[str, ...]
    kernels: tuple[tuple[tuple[int, ...], ...], ...]

    @property
    def num_pathways(self) -> int:
        """2 for SlowFast."""
        return len(self.kernels)


RESNETS = ("ResNet", "PTVResNet")
SLOW = ((1,), (1,), (3,), (3,))
ARCHITECTURES = {
    # Source: PySlowFast 287ec00, video_model_builder.py, _TEMPORAL_KERNEL_BASIS; PTV…: ptv_model_builder.py.
    "slowfast": Architecture("SlowFast", ("SlowFast", "PTVSlowFast"), (SLOW, ((3,),) * 4)),
    "i3d": Architecture("I3D", RESNETS, (((3,), (3, 1), (3, 1), (1, 3)),)),
    "c2d": Architecture("C2D", RESNETS, (((1,),) * 4,)),
    "slow": Architecture("Slow", RESNETS, (SLOW,)),
    "slowonly": Architecture("Slow", RESNETS, (SLOW,)),  # its name until 2020
}


def convert_network(draft: Draft) -> None:
    """MODEL, RESNET, NONLOCAL and SLOWFAST."""
    found = _architecture(draft)
    draft.keep("MODEL.NUM_CLASSES", "MODEL.DROPOUT_RATE", "MODEL.FC_INIT_STD")
    draft.keep("RESNET.WIDTH_PER_GROUP")
    _checkpointing(draft)
    if found is None:
        _leave_unread(draft)
        return
    is_pytorchvideo = draft.value("MODEL.MODEL_NAME").startswith("PTV")
    _initialisation(draft, is_pytorchvideo)
    _blocks(draft, found, is_pytorchvideo)
    _pathways(draft, found)
    _nonlocal(draft, found, is_pytorchvideo)


def _architecture(draft: Draft) -> Architecture | None:
    """The architecture, or a problem. Files of before MODEL_NAME existed (2020) have MODEL.ARCH alone."""
    found = ARCHITECTURES.get(draft.value("MODEL.ARCH"))
    if found is None:
        draft.refuse("MODEL.ARCH", f"has no counterpart: {', '.join(ARCHITECTURES)} have one")
        draft.drop("of a network without a counterpart", "MODEL.MODEL_NAME")
        return None
    draft.change("MODEL.ARCH", f"MODEL.MODEL_NAME {found.name}", MODEL__MODEL_NAME=found.name)
    if "MODEL.MODEL_NAME" not in draft.given:
        return found
    if draft.value("MODEL.MODEL_NAME") not in found.classes:
        arch = draft.value("MODEL.ARCH")
        draft.refuse(
            "MODEL.MODEL_NAME",
            f"has no counterpart with MODEL.ARCH = {arch}: {', '.join(found.classes)}",
        )
    else:
        draft.drop("MODEL.ARCH says it", "MODEL.MODEL_NAME")
    return found


def _leave_unread(draft: Draft) -> None:
    for section in ("RESNET.", "NONLOCAL.", "SLOWFAST."):
        names = [name for name in draft.given if name.startswith(section)]
        draft.drop("of a network without a counterpart", *set(names) - draft.settled())
    draft.drop("of a network without a counterpart", "DATA.INPUT_CHANNEL_NUM")


def _checkpointing(draft: Draft) -> None:
    if draft.value("MODEL.ACT_CHECKPOINT"):
        why = "TRAIN.ACTIVATION_CHECKPOINTING"
        draft.change("MODEL.ACT_CHECKPOINT", why, TRAIN__ACTIVATION_CHECKPOINTING=True)
    else:
        draft.drop("TRAIN.ACTIVATION_CHECKPOINTING is off", "MODEL.ACT_CHECKPOINT")


def _initialisation(draft: Draft, is_pytorchvideo: bool) -> None:
    if is_pytorchvideo and not draft.value("RESNET.ZERO_INIT_FINAL_BN"):
        why = "True: pytorchvideo's networks start with it whatever the key says"
        draft.change("RESNET.ZERO_INIT_FINAL_BN", why, RESNET__ZERO_INIT_FINAL_BN=True)
    else:
        draft.keep("RESNET.ZERO_INIT_FINAL_BN")


def _blocks(draft: Draft, found: Architecture, is_pytorchvideo: bool) -> None:
    depth = draft.value("RESNET.DEPTH")
    if depth not in BLOCKS:
        draft.refuse("RESNET.DEPTH", "has no counterpart: networks of 50 and 101 layers have one")
    else:
        draft.keep("RESNET.DEPTH")
    for name, want in (
        ("RESNET.SPATIAL_STRIDES", [1, 2, 2, 2]),
        ("RESNET.SPATIAL_DILATIONS", [1] * 4),
    ):
        if any(
            _column(draft.value(name), pathway) != want for pathway in range(found.num_pathways)
        ):
            draft.refuse(name, f"has no counterpart: res2 to res5 have {want} here")
        else:
            draft.drop("as in every network here", name)
    name = "RESNET.NUM_BLOCK_TEMP_KERNEL"
    flattened = (
        None if is_pytorchvideo else _flattened_stage(draft, found, BLOCKS.get(depth, BLOCKS[50]))
    )
    if flattened:
        draft.refuse(
            name,
            f"has no counterpart: it takes convolutions along time out of blocks of {flattened}",
        )
    else:
        draft.drop("no block loses a convolution along time by it", name)


def _flattened_stage(draft: Draft, found: Architecture, blocks: tuple[int, ...]) -> str | None:
    """The first stage with a block whose kernel over several frames becomes one over a single frame."""
    for pathway, kernels in enumerate(found.kernels):
        limits = _column(draft.value("RESNET.NUM_BLOCK_TEMP_KERNEL"), pathway)
        if limits is None or not all(isinstance(limit, int) for limit in limits):
            return "res2 to res5: it takes four lists of whole numbers"
        for stage, num, limit, kernel in zip(STAGES, blocks, limits, kernels, strict=True):
            if any(kernel[i % len(kernel)] != 1 for i in range(limit, num)):
                return stage
    return None


def _pathways(draft: Draft, found: Architecture) -> None:
    channels = draft.value("DATA.INPUT_CHANNEL_NUM")[: found.num_pathways]
    if set(channels) != {3}:
        draft.refuse("DATA.INPUT_CHANNEL_NUM", "has no counterpart: clips have red, green and blue")
    else:
        draft.drop("clips have red, green and blue", "DATA.INPUT_CHANNEL_NUM")
    names = ("ALPHA", "BETA_INV", "FUSION_CONV_CHANNEL_RATIO", "FUSION_KERNEL_SZ")
    of_slowfast = [f"SLOWFAST.{name}" for name in names]
    if found.num_pathways == 2:
        draft.keep(*of_slowfast)
    else:
        draft.drop("of SlowFast networks", *of_slowfast)


def _nonlocal(draft: Draft, found: Architecture, is_pytorchvideo: bool) -> None:
    location = draft.value("NONLOCAL.LOCATION")
    places = [_column(location, pathway) for pathway in range(found.num_pathways)]
    if is_pytorchvideo or not any(any(one or [True]) for one in places):
        why = "pytorchvideo's networks have none" if is_pytorchvideo else "no block is non-local"
        draft.drop(why, *_of_nonlocal(draft))
    elif found.num_pathways == 2 or places[0] is None:
        why = (
            "SlowFast has no non-local blocks here"
            if places[0]
            else "it takes four lists of lists of blocks"
        )
        draft.refuse("NONLOCAL.LOCATION", f"has no counterpart: {why}")
        draft.drop("of non-local blocks without a counterpart", *_of_nonlocal(draft))
    else:
        stages = places[0]
        why = f"{stages}: a list for each stage, as there is one pathway"
        draft.change("NONLOCAL.LOCATION", why, NONLOCAL__LOCATION=stages)
        draft.keep("NONLOCAL.INSTANTIATION")
        _nonlocal_sizes(draft, [number for number, blocks in enumerate(stages) if blocks])


def _nonlocal_sizes(draft: Draft, used: list[int]) -> None:
    """Groups and pools of the stages that have non-local blocks."""
    groups = _column(draft.value("NONLOCAL.GROUP"), 0)
    if groups is None or any(groups[stage] != 1 for stage in used):
        draft.refuse(
            "NONLOCAL.GROUP", "has no counterpart: all frames of a clip are looked at together"
        )
    else:
        draft.drop("all frames of a clip are looked at together", "NONLOCAL.GROUP")
    pools = _column(draft.value("NONLOCAL.POOL"), 0)
    sizes = [pools[stage] for stage in used] if pools else []
    if not sizes or any(size != sizes[0] for size in sizes):
        draft.refuse("NONLOCAL.POOL", "has no counterpart: all stages have one pool here")
    elif "NONLOCAL.POOL" in draft.given:
        draft.change("NONLOCAL.POOL", f"{sizes[0]} in every stage", NONLOCAL__POOL=sizes[0])


def _of_nonlocal(draft: Draft) -> list[str]:
    settled = draft.settled()
    return [name for name in draft.given if name.startswith("NONLOCAL.") and name not in settled]


def _column(rows: object, pathway: int) -> list | None:  # type: ignore[type-arg]
    """What each of the four stages has for a pathway; one value counts for both. None: it is no such table."""
    if not isinstance(rows, list | tuple) or len(rows) != len(STAGES):
        return None
    if not all(isinstance(row, list | tuple) and row for row in rows):
        return None
    return [row[min(pathway, len(row) - 1)] for row in rows]
