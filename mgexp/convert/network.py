"""Convert the network of a PySlowFast YAML: SlowFast, I3D, C2D, Slow, X3D or MViTv2."""

from __future__ import annotations

from dataclasses import dataclass

from mgexp.convert.conversion import Conversion

STAGES = ("res2", "res3", "res4", "res5")
BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
"""Number of residual blocks in each stage, by the depth of the network."""


@dataclass(frozen=True)
class Architecture:
    """A value of MODEL.ARCH: ``name`` is our MODEL.MODEL_NAME for it, and ``classes`` are PySlowFast's.

    ``kernels``: for each pathway and stage, the frames of the first convolutions of its blocks,
    which they take in turn.
    """

    name: str
    classes: tuple[str, ...]
    kernels: tuple[tuple[tuple[int, ...], ...], ...]

    @property
    def num_pathways(self) -> int:
        """Number of pathways: 2 for SlowFast, 1 for all others."""
        return len(self.kernels)


RESNET_CLASSES = ("ResNet", "PTVResNet")
X3D = "x3d"
OF_X3D = {
    "X3D.BOTTLENECK_FACTOR": (2.25, "the inner channels of a block are 2.25 times its outer ones"),
    "X3D.DIM_C1": (12, "the smallest network begins with 12 channels"),
    "X3D.DIM_C5": (2048, "the classifier sees 2,048 channels"),
    "X3D.SCALE_RES2": (False, "res2 has the channels of the stem"),
    "X3D.BN_LIN5": (False, "there is no BN before the classifier"),
    "X3D.CHANNELWISE_3x3x3": (True, "the 3 x 3 x 3 convolutions are by channel"),
}
"""Keys of X3D that have one value here, that of all released networks."""
MVIT = "mvit"
OF_MVIT = {
    "MVIT.PATCH_KERNEL": ((3, 7, 7), "a token is made of 3 x 7 x 7 pixels"),
    "MVIT.PATCH_STRIDE": ((2, 4, 4), "tokens are 2 frames and 4 x 4 pixels apart"),
    "MVIT.PATCH_PADDING": ((1, 3, 3), "clips are padded by 1 frame and 3 x 3 pixels"),
    "MVIT.PATCH_2D": (False, "tokens are made along time, too"),
    "MVIT.MODE": ("conv", "convolutions pool queries, keys and values"),
    "MVIT.POOL_KVQ_KERNEL": ([3, 3, 3], "convolutions of 3 x 3 x 3 pool"),
    "MVIT.POOL_FIRST": (False, "the projection comes before the pool"),
    "MVIT.CLS_EMBED_ON": (True, "the class token classifies"),
    "MVIT.USE_MEAN_POOLING": (False, "the class token classifies"),
    "MVIT.MLP_RATIO": (4.0, "the inner channels of a block are 4 times its outer ones"),
    "MVIT.QKV_BIAS": (True, "queries, keys and values have a bias"),
    "MVIT.NORM": ("layernorm", "normalisation is by layer"),
    "MVIT.NORM_STEM": (False, "tokens enter the first block as they are"),
    "MVIT.DROPOUT_RATE": (0.0, "only the classifier has dropout"),
    "MVIT.USE_ABS_POS": (False, "positions are relative (MViTv2)"),
    "MVIT.REL_POS_SPATIAL": (True, "positions are relative in space (MViTv2)"),
    "MVIT.REL_POS_TEMPORAL": (True, "positions are relative in time (MViTv2)"),
    "MVIT.REL_POS_ZERO_INIT": (False, "positions start at random"),
    "MVIT.RESIDUAL_POOLING": (True, "pooled queries are added to the result of attention (MViTv2)"),
    "MVIT.DIM_MUL_IN_ATT": (True, "channels are doubled in attention (MViTv2)"),
}
"""Keys of MViT that have one value here, that of the released networks of version 2."""
SLOW = ((1,), (1,), (3,), (3,))
ARCHITECTURES = {
    # Source: PySlowFast 287ec00, video_model_builder.py, _TEMPORAL_KERNEL_BASIS; PTV…: ptv_model_builder.py.
    "slowfast": Architecture("SlowFast", ("SlowFast", "PTVSlowFast"), (SLOW, ((3,),) * 4)),
    "i3d": Architecture("I3D", RESNET_CLASSES, (((3,), (3, 1), (3, 1), (1, 3)),)),
    "c2d": Architecture("C2D", RESNET_CLASSES, (((1,),) * 4,)),
    "slow": Architecture("Slow", RESNET_CLASSES, (SLOW,)),
    # The name of slow until 2020.
    "slowonly": Architecture("Slow", RESNET_CLASSES, (SLOW,)),
}


WITHOUT = "the network has no counterpart"


def convert_network(draft: Conversion) -> None:
    """Convert MODEL, RESNET, NONLOCAL, SLOWFAST, X3D and MVIT."""
    draft.keep("MODEL.NUM_CLASSES", "MODEL.DROPOUT_RATE")
    if draft.value("MODEL.ACT_CHECKPOINT"):
        why = "TRAIN.ACTIVATION_CHECKPOINTING"
        draft.change("MODEL.ACT_CHECKPOINT", why, TRAIN__ACTIVATION_CHECKPOINTING=True)
    else:
        draft.drop("TRAIN.ACTIVATION_CHECKPOINTING is off", "MODEL.ACT_CHECKPOINT")
    if draft.value("MODEL.ARCH") == MVIT:
        _mvit(draft)
        return
    draft.drop("only MViT has it", *(name for name in draft.given if name.startswith("MVIT.")))
    draft.keep("MODEL.FC_INIT_STD")
    is_x3d = draft.value("MODEL.ARCH") == X3D
    blocks = "x3d_transform" if is_x3d else "bottleneck_transform"
    is_usual = draft.value("RESNET.TRANS_FUNC") == blocks
    draft.require("RESNET.TRANS_FUNC", is_usual, f"residual blocks are those of {blocks}")
    if is_x3d:
        _x3d(draft)
        return
    draft.keep("RESNET.WIDTH_PER_GROUP")
    draft.drop("only X3D has it", *(name for name in draft.given if name.startswith("X3D.")))
    found = ARCHITECTURES.get(draft.value("MODEL.ARCH"))
    if found is None:
        draft.refuse(
            "MODEL.ARCH", f"has no counterpart: {', '.join((*ARCHITECTURES, X3D, MVIT))} have one"
        )
        unread = ("RESNET.", "NONLOCAL.", "SLOWFAST.")
        draft.drop(WITHOUT, "MODEL.MODEL_NAME", "DATA.INPUT_CHANNEL_NUM")
        draft.drop(WITHOUT, *(name for name in draft.given if name.startswith(unread)))
        return
    draft.change("MODEL.ARCH", f"MODEL.MODEL_NAME {found.name}", MODEL__MODEL_NAME=found.name)
    # Files from before MODEL_NAME existed (2020) have MODEL.ARCH alone.
    name = draft.value("MODEL.MODEL_NAME")
    if "MODEL.MODEL_NAME" in draft.given and name not in found.classes:
        arch, classes = draft.value("MODEL.ARCH"), ", ".join(found.classes)
        why = f"has no counterpart with MODEL.ARCH = {arch}: {classes}"
        draft.refuse("MODEL.MODEL_NAME", why)
    draft.drop("MODEL.ARCH decides this", "MODEL.MODEL_NAME")
    is_pytorchvideo = name.startswith("PTV")
    is_zero = is_pytorchvideo or draft.value("RESNET.ZERO_INIT_FINAL_BN")
    why = "True: pytorchvideo's networks start with it whatever the key says"
    draft.keep_as("RESNET.ZERO_INIT_FINAL_BN", is_zero, why)
    _blocks(draft, found, is_pytorchvideo)
    channels = draft.value("DATA.INPUT_CHANNEL_NUM")[: found.num_pathways]
    here = "clips have red, green and blue"
    draft.require("DATA.INPUT_CHANNEL_NUM", set(channels) == {3}, here)
    names = ("ALPHA", "BETA_INV", "FUSION_CONV_CHANNEL_RATIO", "FUSION_KERNEL_SZ")
    why = "only SlowFast networks have it"
    draft.keep_if(found.num_pathways == 2, why, *(f"SLOWFAST.{name}" for name in names))
    _nonlocal(draft, found, is_pytorchvideo)


def _x3d(draft: Conversion) -> None:
    """Convert X3D. The one key of the residual network that it reads says where the last BN of a block starts."""
    draft.change("MODEL.ARCH", "MODEL.MODEL_NAME X3D", MODEL__MODEL_NAME="X3D")
    is_x3d = (
        draft.value("MODEL.MODEL_NAME") in {"X3D", "PTVX3D"}
        or "MODEL.MODEL_NAME" not in draft.given
    )
    draft.require("MODEL.MODEL_NAME", is_x3d, "MODEL.ARCH decides this")
    draft.keep("RESNET.ZERO_INIT_FINAL_BN", "X3D.WIDTH_FACTOR", "X3D.DEPTH_FACTOR")
    for name, (value, here) in OF_X3D.items():
        draft.require(name, draft.value(name) == value, here)
    # PySlowFast's X3D reads these three.
    has_blocks = any(block for stage in draft.value("NONLOCAL.LOCATION") for block in stage)
    draft.require("NONLOCAL.LOCATION", not has_blocks, "X3D has no non-local blocks")
    is_dense = draft.value("RESNET.SPATIAL_DILATIONS") == [[1]] * 4
    draft.require("RESNET.SPATIAL_DILATIONS", is_dense, "no convolution is dilated")
    unread = ("RESNET.", "NONLOCAL.", "SLOWFAST.")
    names = (name for name in draft.given if name.startswith(unread))
    draft.drop("X3D does not read it", *(name for name in names if name != "RESNET.STRIDE_1X1"))
    draft.drop("clips have red, green and blue", "DATA.INPUT_CHANNEL_NUM")


def _mvit(draft: Conversion) -> None:
    """Convert MViTv2. The blocks that double channels are those that halve the grid."""
    draft.change("MODEL.ARCH", "MODEL.MODEL_NAME MViT", MODEL__MODEL_NAME="MViT")
    is_plain = draft.value("MODEL.MODEL_NAME") == "MViT" or "MODEL.MODEL_NAME" not in draft.given
    draft.require("MODEL.MODEL_NAME", is_plain, "the network is MViT")
    std = "MODEL.FC_INIT_STD 0.02: PySlowFast starts all layers of MViT so"
    draft.change("MODEL.FC_INIT_STD", std, MODEL__FC_INIT_STD=0.02)
    draft.keep("MVIT.EMBED_DIM", "MVIT.DEPTH", "MVIT.NUM_HEADS", "MVIT.DROPPATH_RATE")
    for name, (value, here) in OF_MVIT.items():
        draft.require(name, draft.value(name) == value, here)
    doubled = _pairs(draft.value("MVIT.DIM_MUL"), 1)
    stages = [] if doubled is None else sorted(doubled)
    draft.change("MVIT.DIM_MUL", f"MVIT.STAGES {stages}", MVIT__STAGES=stages)
    is_double = doubled is not None and set(doubled.values()) <= {(2.0,)}
    draft.require("MVIT.DIM_MUL", is_double, "a stage doubles the channels")
    heads = _pairs(draft.value("MVIT.HEAD_MUL"), 1)
    draft.require("MVIT.HEAD_MUL", heads == doubled, "heads double where channels do")
    strides = {
        block: (1, 2, 2) if block in stages else (1,) * 3
        for block in range(draft.value("MVIT.DEPTH"))
    }
    is_so = _pairs(draft.value("MVIT.POOL_Q_STRIDE"), 3) == strides
    here = "every block pools queries, and those that double channels halve height and width"
    draft.require("MVIT.POOL_Q_STRIDE", is_so, here)
    coarsest = [1, 2 ** len(stages), 2 ** len(stages)]
    is_so = draft.value("MVIT.POOL_KV_STRIDE_ADAPTIVE") == coarsest
    here = f"keys and values have the grid of the last stage, {coarsest} times as coarse"
    draft.require("MVIT.POOL_KV_STRIDE_ADAPTIVE", is_so, here)
    if not draft.value("MVIT.ZERO_DECAY_POS_CLS"):
        why = "nothing: positions are never decayed, nor is the class token with ZERO_WD_1D_PARAM"
        draft.change("MVIT.ZERO_DECAY_POS_CLS", why)
    draft.drop("positions and class token are not decayed", "MVIT.ZERO_DECAY_POS_CLS")
    unread = ("RESNET.", "NONLOCAL.", "SLOWFAST.", "X3D.")
    draft.drop("MViT does not read it", *(name for name in draft.given if name.startswith(unread)))
    channels = set(draft.value("DATA.INPUT_CHANNEL_NUM"))
    draft.require("DATA.INPUT_CHANNEL_NUM", channels == {3}, "clips have red, green and blue")


def _pairs(rows: object, num: int) -> dict[int, tuple[float, ...]] | None:
    """Return ``num`` values by block from rows such as [3, 2.0]; None for what is no such table."""
    is_table = isinstance(rows, list | tuple) and all(
        isinstance(row, list | tuple)
        and len(row) == 1 + num
        and all(isinstance(value, int | float) for value in row)
        for row in rows
    )
    return {int(row[0]): tuple(row[1:]) for row in rows} if is_table else None  # type: ignore[attr-defined]


def _blocks(draft: Conversion, found: Architecture, is_pytorchvideo: bool) -> None:
    """Convert depth, strides and kernels of the residual blocks."""
    depth = draft.value("RESNET.DEPTH")
    if depth in BLOCKS:
        draft.keep("RESNET.DEPTH")
    else:
        draft.refuse("RESNET.DEPTH", "has no counterpart: networks of 50 and 101 layers have one")
    for name, want in (
        ("RESNET.SPATIAL_STRIDES", [1, 2, 2, 2]),
        ("RESNET.SPATIAL_DILATIONS", [1] * 4),
    ):
        pathways = range(found.num_pathways)
        if any(_column(draft.value(name), pathway) != want for pathway in pathways):
            draft.refuse(name, f"has no counterpart: res2 to res5 have {want} here")
        draft.drop("every network here has the same", name)
    name = "RESNET.NUM_BLOCK_TEMP_KERNEL"
    # pytorchvideo's builder does not read the key.
    blocks = BLOCKS.get(depth, BLOCKS[50])
    stage = None if is_pytorchvideo else _flattened_stage(draft, found, blocks)
    if stage:
        why = f"has no counterpart: it takes convolutions along time out of blocks of {stage}"
        draft.refuse(name, why)
    draft.drop("no block loses a convolution along time by it", name)


def _flattened_stage(draft: Conversion, found: Architecture, blocks: tuple[int, ...]) -> str | None:
    """Find the first stage with a block whose kernel over several frames would shrink to a single frame."""
    for pathway, kernels in enumerate(found.kernels):
        limits = _column(draft.value("RESNET.NUM_BLOCK_TEMP_KERNEL"), pathway)
        if limits is None or not all(isinstance(limit, int) for limit in limits):
            return "res2 to res5: it takes four lists of whole numbers"
        for stage, num, limit, kernel in zip(STAGES, blocks, limits, kernels, strict=True):
            # The key says how many of the first blocks have the kernel of the stage. The other
            # blocks get a kernel of 1 frame.
            if any(kernel[i % len(kernel)] != 1 for i in range(limit, num)):
                return stage
    return None


def _nonlocal(draft: Conversion, found: Architecture, is_pytorchvideo: bool) -> None:
    """Convert non-local blocks. Here each stage has a list of them, with one pool for all and no groups."""
    all_keys = [name for name in draft.given if name.startswith("NONLOCAL.")]
    location = draft.value("NONLOCAL.LOCATION")
    places = [_column(location, pathway) for pathway in range(found.num_pathways)]
    # A value that is no such table counts as one with blocks, so that it is refused below.
    if is_pytorchvideo or not any(any(one or [True]) for one in places):
        why = "pytorchvideo's networks have none" if is_pytorchvideo else "no block is non-local"
        draft.drop(why, *all_keys)
        return
    stages = places[0]
    if found.num_pathways == 2 or stages is None:
        lists = "it takes four lists of lists of blocks"
        why = "SlowFast has no non-local blocks here" if stages else lists
        draft.refuse("NONLOCAL.LOCATION", f"has no counterpart: {why}")
        draft.drop("its non-local blocks have no counterpart", *all_keys)
        return
    why = f"{stages}: a list for each stage, as there is one pathway"
    draft.change("NONLOCAL.LOCATION", why, NONLOCAL__LOCATION=stages)
    draft.keep("NONLOCAL.INSTANTIATION")
    used = [number for number, blocks in enumerate(stages) if blocks]
    groups, pools = (_column(draft.value(f"NONLOCAL.{name}"), 0) for name in ("GROUP", "POOL"))
    is_whole = groups is not None and all(groups[stage] == 1 for stage in used)
    draft.require("NONLOCAL.GROUP", is_whole, "all frames of a clip are looked at together")
    sizes = [pools[stage] for stage in used] if pools else []
    if not sizes or any(size != sizes[0] for size in sizes):
        draft.refuse("NONLOCAL.POOL", "has no counterpart: all stages have one pool here")
    elif "NONLOCAL.POOL" in draft.given:
        draft.change("NONLOCAL.POOL", f"{sizes[0]} in every stage", NONLOCAL__POOL=sizes[0])


def _column(rows: object, pathway: int) -> list | None:  # type: ignore[type-arg]
    """Return the four stages' values for a pathway, or None if ``rows`` is no such table.

    If a stage has only one value, it counts for both pathways.
    """
    if not isinstance(rows, list | tuple) or len(rows) != len(STAGES):
        return None
    if not all(isinstance(row, list | tuple) and row for row in rows):
        return None
    return [row[min(pathway, len(row) - 1)] for row in rows]
