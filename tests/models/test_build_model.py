"""Networks of rows: their initial weights, every model at every shape, and the weights that rows start from."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from fake_gpu import GPU
from networks import slowfast, videomae_tensors
from tiny import ROWS, tiny_config
from torch import nn

from mgexp.config.load import load_config
from mgexp.models.build import build_model, build_on_meta, build_problems, init_weights, on_device
from mgexp.models.forms import Block4Conv3d
from mgexp.models.names import head_of
from mgexp.models.resnet import TEMPORAL, resnet
from mgexp.models.weights import fit_weights, named_weights
from mgexp.multigrid.batchnorm import GroupedBatchNorm3d, group_batchnorm, set_num_groups
from mgexp.train.setup import build_row_schedule

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "models.json").read_text())


def build(name: str) -> nn.Module:
    if name == "I3D_8x8_R50":
        return resnet(TEMPORAL["I3D"], num_classes=100, depth=50, width=16, dropout=0.5)
    return slowfast(width=16, num_classes=100)


def num_zero_gammas(model: nn.Module) -> int:
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm3d)]
    return sum(bool((norm.weight == 0).all()) for norm in norms)


@pytest.mark.parametrize("name", GOLDEN["zero_gammas"])
def test_the_last_gamma_of_every_residual_block_is_zero(name):
    model = build(name)
    init_weights(model, zero_init_final_bn=False)
    assert num_zero_gammas(model) == 0
    init_weights(model)
    assert num_zero_gammas(model) == GOLDEN["zero_gammas"][name]
    assert num_zero_gammas(group_batchnorm(model)) == GOLDEN["zero_gammas"][name]


def test_a_layer_with_two_names_stays_one_layer():
    model = nn.ModuleDict({"norm": nn.BatchNorm3d(4)})
    model["again"] = model["norm"]
    group_batchnorm(model)
    assert isinstance(model["norm"], GroupedBatchNorm3d) and model["again"] is model["norm"]


@pytest.mark.parametrize("name", ["SlowFast", "I3D", "C2D", "TSM", "X3D"])
def test_strides_are_pythons_integers(name, tmp_path):
    """torch.compile cannot compile convolutions whose strides are NumPy's."""
    model = build_on_meta(tiny_config(tmp_path, {"MODEL.MODEL_NAME": name, "RESNET.DEPTH": 50}))
    convolutions = [one for one in model.modules() if isinstance(one, nn.Conv3d)]
    assert {type(s) for one in convolutions for s in one.stride} == {int}


@pytest.mark.parametrize("name", ["SlowFast", "X3D"])
def test_one_thread_computes_few_clips_by_onednn(name, tmp_path):
    keys = {"MODEL.MODEL_NAME": name, "MODEL.DROPOUT_RATE": 0.0, "X3D.DEPTH_FACTOR": 1.0}
    cfg = tiny_config(tmp_path, keys)
    plain, ours = build_model(cfg), on_device(build_model(cfg), torch.device("cpu"))
    clips = torch.randn(2, 3, 4, 32, 32).to(memory_format=torch.channels_last_3d)

    def trained(model):
        with torch.profiler.profile() as profile:
            model(clips).square().sum().backward()
        kernels = {event.name for event in profile.events()}
        return [one.grad for one in model.parameters()], kernels

    torch.set_num_threads(1)
    gradients, kernels = trained(ours)
    assert not any("slow_conv" in name for name in kernels)
    assert "aten::mkldnn_convolution" in kernels
    for ours_one, plain_one in zip(gradients, trained(plain)[0], strict=True):
        torch.testing.assert_close(
            ours_one, plain_one, rtol=1e-3, atol=1e-3 * float(plain_one.abs().max())
        )


def test_on_a_gpu_only_a_stem_over_time_has_another_form(fake_gpu, tmp_path):
    model = on_device(build_model(tiny_config(tmp_path, {})), GPU)
    convolutions = [one for one in model.modules() if isinstance(one, nn.Conv3d)]
    others = [one for one in convolutions if type(one) is not nn.Conv3d]
    assert [(type(one), one.kernel_size) for one in others] == [(Block4Conv3d, (5, 7, 7))]
    assert {one.dilation for one in convolutions} == {(1, 1, 1)}
    assert {one.weight.device for one in convolutions} == {GPU}


@pytest.mark.parametrize("name", GOLDEN["zero_gammas"])
def test_weights_are_those_of_pytorchvideos_own_initialisation(name):
    from pytorchvideo.models.weight_init import init_net_weights

    ours, theirs = build(name), build(name)
    for parameter in ours.parameters():
        nn.init.constant_(parameter, 7.0)  # whatever was there is overwritten
    torch.manual_seed(3)
    init_net_weights(theirs, init_std=0.02)
    torch.manual_seed(3)
    init_weights(ours, fc_init_std=0.02)
    for (key, our), their in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert torch.equal(our, their), key


def test_a_layer_of_another_kind_is_refused():
    with pytest.raises(TypeError, match="no initial weights for LayerNorm"):
        init_weights(nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3)))


BASELINE = {"MULTIGRID.LONG_CYCLE": False, "MULTIGRID.SHORT_CYCLE": False}
I3D = {"MODEL.MODEL_NAME": "I3D", "RESNET.DEPTH": 50}


@pytest.mark.parametrize("architecture", [{}, I3D])
def test_baseline_and_long_short_start_from_identical_weights(architecture, tmp_path):
    torch.manual_seed(123)  # must not matter
    one = build_model(tiny_config(tmp_path, {**architecture, **BASELINE})).state_dict()
    two = build_model(tiny_config(tmp_path, architecture)).state_dict()
    assert one.keys() == two.keys()
    assert [name for name in one if not torch.equal(one[name], two[name])] == []


def test_convolutions_are_channels_last(tmp_path):
    model = build_model(tiny_config(tmp_path))
    convolutions = [m for m in model.modules() if isinstance(m, torch.nn.Conv3d)]
    layout = torch.channels_last_3d
    assert all(m.weight.is_contiguous(memory_format=layout) for m in convolutions)


ROW = Path("experiments/main/k400_slowfast_8x8_r50/long_short.yaml")
EIGHT_FRAMES = "DATA.NUM_FRAMES 8 DATA.SAMPLING_RATE 8"
NON_LOCAL = "NONLOCAL.LOCATION [[],[1,3],[1,3,5],[]]"
MODELS = {
    "I3D": f"MODEL.MODEL_NAME I3D {EIGHT_FRAMES}",
    "I3D non-local": f"MODEL.MODEL_NAME I3D {EIGHT_FRAMES} {NON_LOCAL}",
    "C2D": f"MODEL.MODEL_NAME C2D {EIGHT_FRAMES}",
    "Slow": f"MODEL.MODEL_NAME Slow {EIGHT_FRAMES}",
    "SlowFast 4x16": "SLOWFAST.ALPHA 8 SLOWFAST.FUSION_KERNEL_SZ 5",
    "SlowFast 8x8": "",
    "SlowFast 16x8": "DATA.NUM_FRAMES 64",
    "TSM": f"MODEL.MODEL_NAME TSM {EIGHT_FRAMES}",
    "X3D": "MODEL.MODEL_NAME X3D",
}
SMALL = (
    "RESNET.WIDTH_PER_GROUP 8 X3D.WIDTH_FACTOR 0.5 X3D.DEPTH_FACTOR 1 "
    "DATA.TRAIN_CROP_SIZE 64 DATA.TEST_CROP_SIZE 64 "
    "DATA.TRAIN_JITTER_SCALES [64,80] MODEL.NUM_CLASSES 5"
)
SAME_LAYERS = ("I3D", "SlowFast 4x16", "SlowFast 16x8")
"""Networks whose layers others have too."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in SAME_LAYERS)) for name in MODELS],
)
def test_logits_and_gradients_at_every_shape(name):
    """Of two BN groups of two clips."""
    cfg = load_config(ROW, f"{MODELS[name]} {SMALL}".split())
    model = build_model(cfg).train()
    set_num_groups(model, 2)
    shapes = build_row_schedule(cfg, 10**6).sizes
    assert len(shapes) == 8
    for frames, crop in shapes:
        batch = torch.randn(4, 3, frames, crop, crop)
        batch = batch.contiguous(memory_format=torch.channels_last_3d)
        model.zero_grad()
        logits = model(batch)
        F.cross_entropy(logits, torch.arange(4)).backward()
        assert logits.shape == (4, cfg.MODEL.NUM_CLASSES)
        assert all(torch.isfinite(p.grad).all() for p in model.parameters()), (frames, crop)


# A clip at every shape takes seconds. Depth 101 repeats blocks of depth 50.
@pytest.mark.parametrize(
    ("name", "depth"),
    [
        ("SlowFast 8x8", 50),
        *(pytest.param(name, 50, marks=pytest.mark.slow) for name in MODELS if name != "SlowFast 8x8"),
        pytest.param("I3D", 101, marks=pytest.mark.slow),
        pytest.param("SlowFast 8x8", 101, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_no_shape_of_a_released_configuration_is_a_problem(name, depth):
    cfg = load_config(ROW, [*MODELS[name].split(), "RESNET.DEPTH", str(depth)])
    assert build_problems(cfg, build_row_schedule(cfg, 10**6).sizes) == []


def test_a_model_that_does_not_exist_is_a_problem():
    cfg = load_config(ROW, [*MODELS["I3D"].split(), "NONLOCAL.LOCATION", "[[],[7],[],[]]"])
    (problem,) = build_problems(cfg, [])
    assert "no non-local block can follow block 7 of res3" in problem


CONFIGS = {name: load_config(path) for name, path in ROWS.items()}
STARTED = [name for name, cfg in CONFIGS.items() if cfg.TRAIN.INIT_WEIGHTS]


def zeros(shapes):
    """Tensors of these shapes that take no memory."""
    return {name: torch.zeros(()).expand(shape) for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def files():
    """The files by name, without their numbers."""
    import torchvision

    with torch.device("meta"):
        image = torchvision.models.resnet50().state_dict()
    video = build_on_meta(CONFIGS["main/k400_slowfast_8x8_r50/baseline"]).state_dict()
    transformer = build_on_meta(CONFIGS["transformers/k400_vit_b/baseline"]).state_dict()
    encoder = {n: v for n, v in transformer.items() if not n.startswith("head")}
    # VideoMAE's pre-training has a decoder too, which is not used.
    pretraining = {f"encoder.{name}": value for name, value in videomae_tensors(encoder).items()}
    for name in ("decoder.blocks.0.attn.qkv.weight", "encoder_to_decoder.weight", "mask_token"):
        pretraining[name] = torch.empty(1, 1)
    with torch.device("meta"):
        mvit = torchvision.models.video.mvit_v2_s(num_classes=400).state_dict()
    return {
        "resnet50-0676ba61.pth": image,
        "SLOWFAST_8x8_R50.pyth": video,
        "videomae_vit_b_k400_pretrain.pth": pretraining,
        "mvit_v2_s-ae3be167.pth": mvit,
    }


def test_rows_take_the_weights_that_they_name(files):
    networks = {}  # rows that differ in the schedule alone have one network
    for name in STARTED:
        cfg = CONFIGS[name]
        parts = (cfg.TRAIN.INIT_WEIGHTS, cfg.MODEL, cfg.RESNET, cfg.SLOWFAST, cfg.NONLOCAL, cfg.VIT)
        networks.setdefault(repr(parts), (name, cfg))
    assert networks
    for name, cfg in networks.values():
        path = Path(cfg.TRAIN.INIT_WEIGHTS)
        shapes = {key: tensor.shape for key, tensor in files[path.name].items()}
        model = build_on_meta(cfg)
        fit = fit_weights(named_weights(path, zeros(shapes)), model)
        assert len(fit.used) > 145, name
        assert fit.left in ((), head_of(model.state_dict())), name


def test_rows_from_images_have_torchvisions_pixels():
    from torchvision.transforms._presets import ImageClassification

    preset = ImageClassification(crop_size=224)
    rows = [CONFIGS[name] for name in STARTED if "resnet50" in CONFIGS[name].TRAIN.INIT_WEIGHTS]
    assert rows != []
    assert {cfg.DATA.MEAN for cfg in rows} == {tuple(preset.mean)}
    assert {cfg.DATA.STD for cfg in rows} == {tuple(preset.std)}
