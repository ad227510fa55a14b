"""Detectors for images, which are clips of one frame: torchvision's Faster R-CNN and RetinaNet.

Both have a ResNet with batch norm, and a feature pyramid (Lin et al., CVPR 2017) and heads without it.

Boxes are rows of a block of fixed size, see ``data/boxes.py``. Their sides are shares of the image, so that they
hold at every size of a schedule. Anchors stay in pixels: in a smaller image an object moves to a finer level, as
in training at several scales.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from mgexp.config.keys import DetectorKeys, ResnetKeys

LAYERS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
"""Blocks of each stage of a ResNet, by its depth (He et al., CVPR 2016)."""
ASPECTS = (0.5, 1.0, 2.0)
"""Height / width of the anchors of both detectors. Source: torchvision's defaults, as in the papers."""
POOLED = 7
"""Height and width of the features of a region. Source: torchvision's default."""
MAX_DETECTIONS = 100
"""Detections of an image. Source: COCO counts the 100 best."""


class Given(nn.Module):
    """Stand for torchvision's resizing and normalisation: the images of a mini-batch come ready."""

    def forward(
        self, images: Tensor, targets: list[dict[str, Tensor]] | None
    ) -> tuple[Any, list[dict[str, Tensor]] | None]:
        from torchvision.models.detection.image_list import ImageList

        height, width = images.shape[-2:]
        return ImageList(images, [(height, width)] * len(images)), targets

    def postprocess(self, detections: Any, *_sizes: object) -> Any:  # noqa: ANN401 - as torchvision has it
        return detections


class Detector(nn.Module):
    """A detector of torchvision that takes clips of one frame.

    ``num_regions``: regions of an image that the second stage sees in training; 0: it has no second stage.
    """

    def __init__(self, net: Any, num_regions: int) -> None:  # noqa: ANN401 - one of two classes
        super().__init__()
        self.net = net
        self.net.transform = Given()
        self.num_regions = num_regions

    def forward(self, clips: Tensor, labels: Tensor | None = None) -> Tensor:
        """Return the loss of clips (B, 3, 1, S, S) with their ``labels`` (B, rows, 7).

        Without labels, in evaluation: the detections (B, MAX_DETECTIONS, 6) as rows of class + 1, sides and
        score, the best first; unused rows are 0. In training, and where a network is only looked at: ``dense``.
        """
        images = clips.squeeze(2)
        if labels is not None:
            losses = self.net(images, targets_of(labels, images.shape[-1]))
            return torch.stack([*losses.values()]).sum()
        is_tracing = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        if self.training or clips.is_meta or is_tracing:
            return self.dense(images)
        return torch.stack([rows_of(each, images.shape[-1]) for each in self.net(images)])

    def dense(self, images: Tensor) -> Tensor:
        """Run each layer on as many values as a step of training does; return all outputs (B, values).

        No region is chosen, so this needs no labels and no weights that find something. It gives the statistics
        of batch norm, and counts FLOPs and memory.
        """
        maps = list(self.net.backbone(images).values())
        if not self.num_regions:
            outputs = [*self.net.head(maps).values()]
        else:
            objectness, deltas = self.net.rpn.head(maps)
            count = len(images) * self.num_regions
            heads = self.net.roi_heads
            regions = maps[0].new_zeros(count, maps[0].shape[1], POOLED, POOLED)
            outputs = [*objectness, *deltas, *heads.box_predictor(heads.box_head(regions))]
        return torch.cat([output.reshape(len(images), -1) for output in outputs], 1)


def targets_of(labels: Tensor, side: int) -> list[dict[str, Tensor]]:
    """Turn the rows of each image into torchvision's targets, in pixels of an image of ``side``².

    The first row of an image is its size. Rows of crowds, whose sixth value is 1, are left out.
    """
    boxes = (rows[(rows[:, 0] > 0) & (rows[:, 5] == 0)] for rows in labels[:, 1:])
    return [{"labels": rows[:, 0].long(), "boxes": rows[:, 1:5] * side} for rows in boxes]


def rows_of(detected: dict[str, Tensor], side: int) -> Tensor:
    """Turn the detections of an image of ``side``² into rows of fixed number."""
    rows = detected["scores"].new_zeros(MAX_DETECTIONS, 6)
    count = len(detected["scores"])
    rows[:count, 0] = detected["labels"].to(rows)
    rows[:count, 1:5] = detected["boxes"] / side
    rows[:count, 5] = detected["scores"]
    return rows


def image_resnet(keys: ResnetKeys) -> Any:  # noqa: ANN401 - torchvision has no types
    """Build torchvision's ResNet with ``width`` channels, of 64, in the first stage; the stem keeps its 64."""
    from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet

    class Narrow(ResNet):  # type: ignore[misc]
        def _make_layer(self, block: Any, planes: int, *more: Any, **named: Any) -> Any:  # noqa: ANN401
            return super()._make_layer(block, planes * keys.WIDTH_PER_GROUP // 64, *more, **named)

    block = BasicBlock if keys.DEPTH == 18 else Bottleneck
    return Narrow(block, LAYERS[keys.DEPTH], zero_init_residual=keys.ZERO_INIT_FINAL_BN)


def detector(name: str, keys: DetectorKeys, resnet: ResnetKeys, num_classes: int) -> Detector:
    """Build FasterRCNN or RetinaNet with torchvision's initial weights, which its generator draws.

    ``anchors``: the side in pixels of the anchors of each of five levels. Faster R-CNN (Ren et al., NeurIPS 2015)
    has levels from stride 4 on, RetinaNet (Lin et al., ICCV 2017) from stride 8. With a ``width`` of 64 and 256
    ``channels`` these are torchvision's networks, with batch norm that trains.
    """
    from torchvision.models.detection import FasterRCNN, RetinaNet
    from torchvision.models.detection.anchor_utils import AnchorGenerator
    from torchvision.models.detection.backbone_utils import BackboneWithFPN
    from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
    from torchvision.ops.feature_pyramid_network import LastLevelMaxPool, LastLevelP6P7

    channels, num_regions = keys.CHANNELS, keys.NUM_REGIONS
    is_retina = name == "RetinaNet"
    body = image_resnet(resnet)
    stages = (
        ("layer2", "layer3", "layer4") if is_retina else ("layer1", "layer2", "layer3", "layer4")
    )
    widths = [body.inplanes // 2 ** (len(stages) - 1 - place) for place in range(len(stages))]
    backbone = BackboneWithFPN(
        body,
        {stage: str(place) for place, stage in enumerate(stages)},
        widths,
        channels,
        LastLevelP6P7(channels, channels) if is_retina else LastLevelMaxPool(),
    )
    aspects = (ASPECTS,) * len(keys.ANCHORS)
    if is_retina:
        sizes = tuple(
            tuple(int(side * 2 ** (part / 3)) for part in range(3)) for side in keys.ANCHORS
        )
        net: Any = RetinaNet(
            backbone,
            num_classes + 1,
            anchor_generator=AnchorGenerator(sizes, aspects),
            detections_per_img=MAX_DETECTIONS,
        )
        return Detector(net, 0)
    net = FasterRCNN(
        backbone,
        rpn_anchor_generator=AnchorGenerator(tuple((side,) for side in keys.ANCHORS), aspects),
        box_head=TwoMLPHead(channels * POOLED**2, 4 * channels),
        box_predictor=FastRCNNPredictor(4 * channels, num_classes + 1),
        # torchvision has 2000 proposals for 512 regions.
        rpn_pre_nms_top_n_train=min(2000, 4 * num_regions),
        rpn_post_nms_top_n_train=min(2000, 4 * num_regions),
        box_batch_size_per_image=num_regions,
        box_detections_per_img=MAX_DETECTIONS,
    )
    return Detector(net, num_regions)
