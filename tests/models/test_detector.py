"""Detectors: torchvision's networks, weights of images, and the pass without labels."""

import pytest
import torch
from several_processes import in_processes
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torchvision.models import resnet18
from torchvision.models.detection import FasterRCNN, RetinaNet
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.ops.feature_pyramid_network import LastLevelMaxPool, LastLevelP6P7

from mgexp.config.load import config_of
from mgexp.errors import InputError
from mgexp.models.build import build_model
from mgexp.models.cost import products_by_shape
from mgexp.models.weights import fit_weights, named_weights
from mgexp.multigrid.batchnorm import grouped_layers, set_num_groups

CLASSES, SIDE = 3, 96
NAMES = ("FasterRCNN", "RetinaNet")


def network(name, **changes):
    keys = {
        "MODEL.MODEL_NAME": name, "MODEL.NUM_CLASSES": CLASSES, "MODEL.LOSS_FUNC": "detection",
        "DATA.FORMAT": "coco", "DATA.NUM_FRAMES": 1, "RESNET.DEPTH": 18, "DETECTOR.CHANNELS": 256, **changes,
    }  # fmt: skip
    return build_model(config_of(keys))


def narrow(name):
    small = {"RESNET.WIDTH_PER_GROUP": 16, "DETECTOR.CHANNELS": 16, "DETECTOR.NUM_REGIONS": 16}
    return network(name, **small)


def theirs(name):
    """torchvision's own network, whose resizing and normalisation change nothing."""
    body, same = (
        resnet18(norm_layer=nn.BatchNorm2d),
        {"image_mean": [0.0] * 3, "image_std": [1.0] * 3},
    )
    same |= {"min_size": SIDE, "max_size": SIDE}
    if name == "RetinaNet":
        stages = {"layer2": "0", "layer3": "1", "layer4": "2"}
        backbone = BackboneWithFPN(body, stages, [128, 256, 512], 256, LastLevelP6P7(256, 256))
        return RetinaNet(backbone, CLASSES + 1, detections_per_img=100, **same)
    stages = {"layer1": "0", "layer2": "1", "layer3": "2", "layer4": "3"}
    backbone = BackboneWithFPN(body, stages, [64, 128, 256, 512], 256, LastLevelMaxPool())
    sides = tuple((side,) for side in (32, 64, 128, 256, 512))
    anchors = AnchorGenerator(sides, ((0.5, 1.0, 2.0),) * 5)
    return FasterRCNN(backbone, CLASSES + 1, rpn_anchor_generator=anchors, **same)


def pictures_and_labels(number=4, dtype=torch.float32):
    rng = torch.Generator().manual_seed(0)
    pictures = torch.randn(number, 3, 1, SIDE, SIDE, generator=rng, dtype=torch.float64).to(dtype)
    labels = torch.zeros(number, 101, 7, dtype=dtype)
    labels[:, 0, :3] = torch.tensor([1.0, SIDE, SIDE])
    for picture in range(number):
        labels[picture, 1] = torch.tensor([1 + picture % CLASSES, 0.1, 0.2, 0.5, 0.7, 0, 1000])
        labels[picture, 2] = torch.tensor([2, 0.6, 0.2, 0.9, 0.5, 0, 1000])
        labels[picture, 3] = torch.tensor([1, 0.0, 0.0, 1.0, 1.0, 1, 9000])
    return pictures, labels


@pytest.mark.parametrize("name", NAMES)
def test_losses_and_detections_are_those_of_torchvisions_network(name):
    """In float64, so that both sample the same regions. Their network does not get the crowd."""
    ours, other = network(name).double(), theirs(name).double()
    other.load_state_dict(ours.net.state_dict())
    # It would draw one of its sizes, and so change the draws that follow.
    other.transform.torch_choice = min
    for net in (ours.net, other):
        head = net if name == "RetinaNet" else net.roi_heads
        head.score_thresh = 0.0
    pictures, labels = pictures_and_labels(dtype=torch.float64)
    targets = [{"labels": rows[1:3, 0].long(), "boxes": rows[1:3, 1:5] * SIDE} for rows in labels]
    torch.manual_seed(1)
    found = ours.train()(pictures, labels)
    torch.manual_seed(1)
    wanted = other.train()(list(pictures.squeeze(2)), targets)
    torch.testing.assert_close(found, sum(wanted.values()))
    detections, expected = ours.eval()(pictures), other.eval()(list(pictures.squeeze(2)))
    for rows, each in zip(detections, expected, strict=True):
        number = len(each["scores"])
        assert not rows[number:].any()
        assert torch.equal(rows[:number, 0], each["labels"].double())
        torch.testing.assert_close(rows[:number, 1:5] * SIDE, each["boxes"])
        torch.testing.assert_close(rows[:number, 5], each["scores"])
    assert sum(len(each["scores"]) for each in expected) > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_pass_without_labels_moves_batch_norm_as_training_does(name):
    first, second = narrow(name).train(), narrow(name).train()
    pictures, labels = pictures_and_labels()
    first(pictures, labels)
    assert second(pictures).shape[0] == 4
    layers = [grouped_layers(model) for model in (first, second)]
    assert len(layers[0]) > 15
    for one, other in zip(*layers, strict=True):
        assert one.running_mean.any()
        assert torch.equal(one.running_mean, other.running_mean)


def test_products_are_those_of_the_regions_of_training():
    """By hand, for 32²: the second stage of 16 regions costs 16·(16·49·64 + 64·64 + 64·20) products."""
    model = narrow("FasterRCNN").eval().to("meta")
    counted = products_by_shape(model, [(1, 32)])
    heads = 16 * (16 * 49 * 64 + 64 * 64 + 64 * (4 + 16))
    model.num_regions *= 2
    assert products_by_shape(model, [(1, 32)])[1, 32] - counted[1, 32] == heads


@pytest.mark.parametrize("name", NAMES)
def test_weights_of_an_image_network_are_loaded_into_the_resnet(tmp_path, name):
    image = resnet18()
    model = network(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    fit = fit_weights(named_weights(tmp_path / "r18.pth", image.state_dict()), model)
    fit.load_into(model)
    state = model.state_dict()
    for key, value in image.state_dict().items():
        if not key.startswith("fc."):
            assert torch.equal(state[f"net.backbone.body.{key}"], value)
    others = [key for key in state if not key.startswith("net.backbone.body.")]
    assert others
    assert all(torch.equal(state[key], before[key]) for key in others)
    assert fit.left == tuple(others)


def test_weights_of_another_depth_are_refused(tmp_path):
    file = named_weights(tmp_path / "r18.pth", resnet18().state_dict())
    with pytest.raises(InputError, match="does not fit"):
        fit_weights(file, network("FasterRCNN", **{"RESNET.DEPTH": 50}))


def gradients(processes, folder, name):
    """The loss and the gradients of one BN group of 8 pictures over all processes, in float64."""
    torch.manual_seed(0)
    model = narrow(name).double().train()
    if name == "FasterRCNN":
        # Each picture gives equally many anchors and regions, all of them.
        take_all(model.net)
    set_num_groups(model, -processes.count if processes.count > 1 else 1)
    share = 8 // processes.count
    own = slice(processes.rank * share, (processes.rank + 1) * share)
    pictures, labels = pictures_and_labels(8, torch.float64)
    whole = DistributedDataParallel(model) if processes.count > 1 else model
    loss = whole(pictures[own], labels[own])
    loss.backward()
    return {"loss": loss.detach(), "gradients": {n: p.grad for n, p in model.named_parameters()}}


def take_all(net):
    """Replace sampling, which draws other numbers in each process, by all anchors and the true boxes alone."""

    def sample(labels):
        return [x >= 1 for x in labels], [x == 0 for x in labels]

    net.rpn.fg_bg_sampler = sample
    net.rpn.proposal_matcher.allow_low_quality_matches = False
    net.rpn.proposal_matcher.low_threshold = net.rpn.proposal_matcher.high_threshold
    net.roi_heads.fg_bg_sampler = lambda labels: (
        [torch.arange(len(x)) >= len(x) - 2 for x in labels],
        [torch.zeros(len(x), dtype=torch.bool) for x in labels],
    )


@pytest.mark.parametrize("name", NAMES)
def test_one_bn_group_over_two_processes_is_one_process(name, tmp_path):
    (alone,) = in_processes(gradients, 1, tmp_path / "alone", name)
    (tmp_path / "two").mkdir()
    both = in_processes(gradients, 2, tmp_path / "two", name)
    mean = sum(each["loss"] for each in both) / 2
    torch.testing.assert_close(mean, alone["loss"], rtol=1e-6, atol=0)
    for key, wanted in alone["gradients"].items():
        found = both[0]["gradients"][key]
        error = (found - wanted).norm() / wanted.norm().clamp(min=1e-12)
        assert error < 1e-6, key
