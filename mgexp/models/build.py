"""From the configuration to a model."""

from __future__ import annotations

import torch
from fvcore.common.config import CfgNode
from torch import nn

from mgexp.models.i3d import i3d
from mgexp.models.init import init_weights
from mgexp.models.slowfast import slowfast
from mgexp.multigrid.batchnorm import GroupedBatchNorm3d


def build_model(cfg: CfgNode) -> nn.Module:
    """The model of ``cfg`` on the CPU in channels_last_3d; the same seed gives the same weights in every row."""
    torch.manual_seed(cfg.RNG_SEED)
    model = slowfast_of(cfg) if cfg.MODEL.MODEL_NAME == "SlowFast" else i3d_of(cfg)
    init_weights(model, cfg.MODEL.FC_INIT_STD, cfg.RESNET.ZERO_INIT_FINAL_BN)
    return model.to(memory_format=torch.channels_last_3d)


def slowfast_of(cfg: CfgNode) -> nn.Module:
    """SlowFast with the configured widths, weights not yet initialised."""
    return slowfast(
        num_classes=cfg.MODEL.NUM_CLASSES,
        depth=cfg.RESNET.DEPTH,
        width=cfg.RESNET.WIDTH_PER_GROUP,
        alpha=cfg.SLOWFAST.ALPHA,
        beta_inv=cfg.SLOWFAST.BETA_INV,
        fusion_channel_ratio=cfg.SLOWFAST.FUSION_CONV_CHANNEL_RATIO,
        fusion_kernel_frames=cfg.SLOWFAST.FUSION_KERNEL_SZ,
        dropout=cfg.MODEL.DROPOUT_RATE,
        norm=GroupedBatchNorm3d,
    )


def i3d_of(cfg: CfgNode) -> nn.Module:
    """I3D with the configured width, weights not yet initialised."""
    return i3d(
        num_classes=cfg.MODEL.NUM_CLASSES,
        depth=cfg.RESNET.DEPTH,
        width=cfg.RESNET.WIDTH_PER_GROUP,
        dropout=cfg.MODEL.DROPOUT_RATE,
        norm=GroupedBatchNorm3d,
    )
