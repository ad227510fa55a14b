"""The network of a configuration, its initial weights, and whether it takes clips of every shape."""

from __future__ import annotations

import platform
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from mgexp.config.check import DETECTORS
from mgexp.config.keys import Config
from mgexp.errors import InputError, first_line
from mgexp.models.detector import detector
from mgexp.models.forms import FORMS, take_forms
from mgexp.models.layers import CheckpointedBlocks, drop_by_clip, freeze
from mgexp.models.resnet import TEMPORAL, SlowFast, insert_nonlocals, resnet
from mgexp.models.vit import VideoTransformer, init_transformer
from mgexp.multigrid.batchnorm import GroupedBatchNorm3d, group_batchnorm, grouped_layers
from mgexp.multigrid.shape_check import ShapeCheck, check_shapes
from mgexp.registry import MODELS


def build_model(cfg: Config) -> nn.Module:
    """Build the model on the CPU in channels_last_3d. The same seed gives the same weights in every row."""
    # The network does not depend on the schedule. So rows with the same seed start from the same
    # weights, and can be compared in pairs.
    torch.manual_seed(cfg.RNG_SEED)
    model = build_network(cfg)
    if cfg.TRAIN.ACTIVATION_CHECKPOINTING:
        model.blocks = CheckpointedBlocks(_blocks(model))
    return channels_last(model)


def channels_last(model: nn.Module) -> nn.Module:
    """Put the weights of 3D convolutions into channels_last_3d, in place, and return the model."""
    # ``model.to(memory_format=…)`` refuses networks that also have 2D convolutions.
    for parameter in model.parameters():
        if parameter.ndim == 5:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last_3d)
    return model


def on_device(model: nn.Module, device: torch.device) -> nn.Module:
    """Move ``model`` to ``device`` to train there, and return it. Its layers take their forms (`forms.py`).

    Networks that predict and are exported stay as they are.
    """
    # The forms of a CPU are for x86 with oneDNN, which computes the convolutions. Nobody measured other
    # processors.
    has_onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if device.type == "cpu" and not (has_onednn and platform.machine() in ("x86_64", "AMD64")):
        return model.to(device)
    take_forms(model, device.type)
    if device.type == "cpu":
        # On one thread and for fewer than 16 clips, torch computes a convolution of one pixel with an old kernel,
        # unless it has a stride or a dilation. Source: `use_mkldnn` in ATen's Convolution.cpp. That kernel takes
        # 2 to 4 times as long, and its output leaves channels_last_3d. A dilation along a side of one pixel
        # changes nothing, so we set one. The forms need none: for torch, (k, 1) is more than one pixel.
        for module in model.modules():
            if (
                isinstance(module, nn.Conv3d)
                and not isinstance(module, FORMS)
                and module.kernel_size[1:] == (1, 1)
            ):
                module.dilation = (module.dilation[0], 2, 2)
    return model.to(device)


# A start of a run looks at its network several times: at its shapes, costs, batch norm and weights.
@lru_cache(maxsize=1)
def build_on_meta(cfg: Config) -> nn.Module:
    """Build the model without memory for weights. The same configuration gives the same object.

    Raises ValueError if the configuration describes no model.
    """
    with torch.device("meta"):
        return build_network(cfg)


def build_to_look_at(cfg: Config) -> nn.Module:
    """Build the model, without memory if it is ours. One of the user may need real numbers where it is made."""
    return build_on_meta(cfg) if cfg.MODEL.MODEL_NAME in OURS else build_model(cfg)


def build_network(cfg: Config) -> nn.Module:
    """Build the network that is registered as MODEL.MODEL_NAME, with its initial weights from torch's generator.

    Batch normalisation is by groups of clips, and dropout by clip. Raises InputError for an unknown name, for
    batch normalisation that cannot be grouped or that several processes cannot share, and for a network of one's
    own that raises an error itself.
    """
    name = cfg.MODEL.MODEL_NAME
    make = MODELS.find(name)
    try:
        made: nn.Module = make(cfg)
    # A custom model may raise anything.
    except Exception as error:
        if name in OURS or isinstance(error, InputError):
            raise
        problem = f"MODEL.MODEL_NAME = {name} cannot be built: {type(error).__name__}: {error}"
        raise InputError([problem]) from error
    # pytorchvideo computes some strides with NumPy. torch.compile treats NumPy's integers as unknown sizes, and
    # then cannot compile these convolutions.
    for module in made.modules():
        if isinstance(module, nn.Conv3d):
            frames, height, width = map(int, module.stride)
            module.stride = (frames, height, width)
    try:
        model = drop_by_clip(group_batchnorm(made))
    except ValueError as error:
        raise InputError([f"MODEL.MODEL_NAME = {name}: {error}"]) from error
    momenta = {layer.momentum for layer in grouped_layers(model)}
    if len(momenta) > 1 or not all(momenta):
        given = " and ".join(sorted(map(str, momenta)))
        problem = f"MODEL.MODEL_NAME = {name} has batch norm with momentum {given}"
        raise InputError([f"{problem}: give all layers one momentum above 0"])
    norms = (
        layer for layer in model.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)
    )
    others = {type(layer).__name__ for layer in norms if not isinstance(layer, GroupedBatchNorm3d)}
    if others:
        kinds = " and ".join(sorted(others))
        raise InputError(
            [
                f"MODEL.MODEL_NAME = {name} has {kinds}: only nn.BatchNorm3d and nn.BatchNorm2d have "
                "groups of clips here"
            ]
        )
    return freeze(model, cfg.MODEL.FREEZE) if cfg.MODEL.FREEZE else model


def build_slowfast(cfg: Config) -> nn.Module:
    """Build SlowFast. Depth 18 is pytorchvideo's network with one bottleneck per stage, not the image ResNet-18.

    With ALPHA 4 the released fusion spans 7 frames (8x8, 16x8) or 5 (R101), with ALPHA 8 it spans 5 frames (4x16).
    """
    from pytorchvideo.models.slowfast import create_slowfast

    keys, width = cfg.SLOWFAST, cfg.RESNET.WIDTH_PER_GROUP
    net = create_slowfast(
        slowfast_channel_reduction_ratio=keys.BETA_INV,
        slowfast_conv_channel_fusion_ratio=keys.FUSION_CONV_CHANNEL_RATIO,
        slowfast_fusion_conv_kernel_size=(keys.FUSION_KERNEL_SZ, 1, 1),
        slowfast_fusion_conv_stride=(keys.ALPHA, 1, 1),
        model_depth=cfg.RESNET.DEPTH,
        model_num_class=cfg.MODEL.NUM_CLASSES,
        dropout_rate=cfg.MODEL.DROPOUT_RATE,
        stem_dim_outs=(width, width // keys.BETA_INV),
        # The default pool has a fixed size, which fits a single shape.
        head_pool=nn.AdaptiveAvgPool3d,
    )
    model = SlowFast(net.blocks, keys.ALPHA)
    init_weights(model, cfg.MODEL.FC_INIT_STD, cfg.RESNET.ZERO_INIT_FINAL_BN)
    return model


def build_resnet(cfg: Config) -> nn.Module:
    model = insert_nonlocals(
        resnet(
            TEMPORAL[cfg.MODEL.MODEL_NAME],
            num_classes=cfg.MODEL.NUM_CLASSES,
            depth=cfg.RESNET.DEPTH,
            width=cfg.RESNET.WIDTH_PER_GROUP,
            dropout=cfg.MODEL.DROPOUT_RATE,
        ),
        places=cfg.NONLOCAL.LOCATION,
        pool=cfg.NONLOCAL.POOL,
        instantiation=cfg.NONLOCAL.INSTANTIATION,
    )
    init_weights(model, cfg.MODEL.FC_INIT_STD, cfg.RESNET.ZERO_INIT_FINAL_BN)
    return model


def build_vit(cfg: Config) -> nn.Module:
    full = (cfg.DATA.NUM_FRAMES, cfg.DATA.TRAIN_CROP_SIZE)
    model = VideoTransformer(cfg.VIT, cfg.MODEL.NUM_CLASSES, full, cfg.MODEL.DROPOUT_RATE)
    init_transformer(model, cfg.MODEL.FC_INIT_STD)
    return model


def build_mvit(cfg: Config) -> nn.Module:
    """Build MViTv2, with torchvision's initial weights."""
    # torchvision takes seconds to import.
    from mgexp.models.mvit import mvit

    full = (cfg.DATA.NUM_FRAMES, cfg.DATA.TRAIN_CROP_SIZE)
    model = mvit(cfg.MVIT, cfg.MODEL.NUM_CLASSES, full, cfg.MODEL.DROPOUT_RATE)
    nn.init.normal_(model.head[1].weight, std=cfg.MODEL.FC_INIT_STD)
    return model


def build_x3d(cfg: Config) -> nn.Module:
    """Build X3D (Feichtenhofer, CVPR 2020), which is a ResNet in pytorchvideo too.

    Its head takes the mean over whatever frames and pixels there are. XS, S and M are one network,
    X3D.WIDTH_FACTOR 2 and DEPTH_FACTOR 2.2, and differ in their clips. L has the depth factor 5.
    """
    from pytorchvideo.models.x3d import create_x3d

    model: Any = create_x3d(
        model_num_class=cfg.MODEL.NUM_CLASSES,
        width_factor=cfg.X3D.WIDTH_FACTOR,
        depth_factor=cfg.X3D.DEPTH_FACTOR,
        dropout_rate=cfg.MODEL.DROPOUT_RATE,
        head_activation=None,
    )
    for stage in model.blocks[1:-1]:
        for block in stage.res_blocks:
            # PySlowFast marks it too (X3DTransform), pytorchvideo does not.
            block.branch2.norm_c.block_final_bn = True
    # pytorchvideo pools with a window of the full shape.
    model.blocks[-1].pool.pool = nn.AdaptiveAvgPool3d(1)
    init_weights(model, cfg.MODEL.FC_INIT_STD, cfg.RESNET.ZERO_INIT_FINAL_BN)
    return model  # type: ignore[no-any-return]


def build_detector(cfg: Config) -> nn.Module:
    """Build Faster R-CNN or RetinaNet, with torchvision's initial weights."""
    return detector(cfg.MODEL.MODEL_NAME, cfg.DETECTOR, cfg.RESNET, cfg.MODEL.NUM_CLASSES)


OURS = {
    "SlowFast": build_slowfast,
    "ViT": build_vit,
    "MViT": build_mvit,
    "X3D": build_x3d,
    **dict.fromkeys(TEMPORAL, build_resnet),
    **dict.fromkeys(DETECTORS, build_detector),
}
"""The networks that tests of ours cover at every shape. A user's file may have registered others before."""
for _name, _make in OURS.items():
    MODELS.add(_name, _make)


def own_names(name: str, network: nn.Module) -> Collection[str]:
    """Return the names of the weights of a custom model or a detector; our others follow a convention."""
    return () if name in OURS and name not in DETECTORS else network.state_dict().keys()


def network_title(name: str, resnet_depth: int) -> str:
    """Name a network for a table, with the depth of a ResNet: "SlowFast, depth 50"."""
    return f"{name}, depth {resnet_depth}" if name in {"SlowFast", *TEMPORAL} else name


def _blocks(model: nn.Module) -> nn.ModuleList:
    """Return the blocks that activation checkpointing computes again. Raises InputError if there are none."""
    blocks = getattr(model, "blocks", None)
    if isinstance(blocks, nn.ModuleList):
        return blocks
    problem = f"{type(model).__name__} has no nn.ModuleList called blocks"
    raise InputError([f"TRAIN.ACTIVATION_CHECKPOINTING = True: {problem}"])


def build_problems(
    cfg: Config, shapes: Iterable[tuple[int, int]], runs_own: bool = True
) -> list[str]:
    """List the (frames, crop) of ``shapes`` at which the model does not run or is wrong, each with the reason.

    A custom model is run at every shape, and its positions are checked: see multigrid/shape_check.py. That
    can take minutes, so ``runs_own`` False leaves it to another process of the run.
    """
    name = cfg.MODEL.MODEL_NAME
    try:
        model = build_to_look_at(cfg)
        if cfg.TRAIN.ACTIVATION_CHECKPOINTING:
            _blocks(model)
    except InputError as error:
        return list(error.problems)
    # torch raises RuntimeError for a tensor with more values than it can count.
    except (RuntimeError, ValueError) as error:
        return [f"MODEL.MODEL_NAME = {name} cannot be built: {type(error).__name__}: {error}"]
    if name in OURS:
        model.eval()
        checks = [
            ShapeCheck(*shape, problem=_meta_problem(model, *shape)) for shape in sorted(shapes)
        ]
    elif not runs_own:
        return []
    else:
        full = (cfg.DATA.NUM_FRAMES, cfg.DATA.TRAIN_CROP_SIZE)
        checks = check_shapes(model, [*sorted({*shapes} - {full}), full])
    tested = (cfg.DATA.NUM_FRAMES, cfg.DATA.TEST_CROP_SIZE)
    has_own_size = cfg.DATA.TEST_CROP_SIZE != cfg.DATA.TRAIN_CROP_SIZE
    return [
        f"{name} cannot take clips of {check.frames} frames of {check.crop} x {check.crop} pixels"
        f"{', as DATA.TEST_CROP_SIZE has them' if has_own_size and (check.frames, check.crop) == tested else ''}: "
        f"{check.problem}"
        for check in checks
        if check.problem
    ]


def _meta_problem(model: nn.Module, frames: int, crop: int) -> str:
    """Say why a network on the meta device cannot take clips of a shape; "" if it can."""
    # Layers there only check and compute shapes, so even the largest network takes no time.
    try:
        model(torch.zeros(1, 3, frames, crop, crop, device="meta"))
    except ValueError as error:
        # Our networks say what to change.
        return str(error)
    except RuntimeError as error:
        remedy = "choose a larger crop or more frames, or other factors of the cycles"
        return f"{first_line(error)}; {remedy}"
    return ""


def init_weights(
    model: nn.Module, fc_init_std: float = 0.01, zero_init_final_bn: bool = True
) -> None:
    """Draw the initial weights of ``model`` from torch's current generator, which the caller seeds.

    - Convolutions: normal with variance 2 / fan_out (He et al. 2015).
    - Fully connected layers: normal with standard deviation ``fc_init_std``, bias 0.
    - Batch normalisation: gamma 1, beta 0. With ``zero_init_final_bn``, gamma is 0 in the last such
      layer of each residual block (Goyal et al. 2017, section 5.1), which pytorchvideo marks by
      ``block_final_bn``.

    The constants are those of PySlowFast's init_weights. In PySlowFast sub-batch normalisation is
    no nn.BatchNorm3d, so it loses the zeros, and a multigrid run does not start like its baseline.
    Here it does. Raises TypeError for any other kind of layer that has parameters.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv3d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.BatchNorm3d):
            is_zero = zero_init_final_bn and getattr(module, "block_final_bn", False)
            nn.init.constant_(module.weight, 0.0 if is_zero else 1.0)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=fc_init_std)
            nn.init.zeros_(module.bias)
        # A module that only contains other modules has no parameters of its own.
        elif any(True for _ in module.parameters(recurse=False)):
            raise TypeError(f"init_weights knows no initial weights for {type(module).__name__}")
