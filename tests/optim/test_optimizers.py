"""Parameter groups, and optimizers built from the configuration: steps by hand, after a resume, and in fp16."""

import by_hand
import pytest
import torch
from problems import draws, step_with
from tiny import EXPERIMENTS, VIT, tiny_config
from torch import nn

from mgexp.config.load import load_config
from mgexp.dist import Processes
from mgexp.errors import InputError
from mgexp.models.build import build_model
from mgexp.multigrid.batchnorm import GroupedBatchNorm3d
from mgexp.optim.build import build_groups, build_optimizer, layer_factors, set_rates
from mgexp.run.clock import Clock
from mgexp.run.folder import RunDir
from mgexp.train.checkpoint import State, save_checkpoint
from mgexp.train.resume import choose_checkpoint, take_over

PLAIN = {"SOLVER.WEIGHT_DECAY": 1e-4, "BN.WEIGHT_DECAY": 0.5, "SOLVER.OPTIMIZING_METHOD": "lamb"}
TSM = {
    **PLAIN,
    "BN.WEIGHT_DECAY": 0.0,
    "SOLVER.ZERO_WD_1D_PARAM": True,
    "SOLVER.BIAS_LR_FACTOR": 2.0,
    "SOLVER.HEAD_LR_FACTOR": 5.0,
}
"""The factors and decays of TSM's released code, with an optimizer that takes trust ratios."""


def network(norm):
    """Build a small network. Its classifier has the same name as in our networks."""
    layers = {
        "conv": nn.Conv3d(3, 4, 1),
        "norm": norm(4),
        "5": nn.ModuleDict({"proj": nn.Linear(4, 2)}),
    }
    return nn.ModuleDict({"blocks": nn.ModuleDict(layers)})


def by_name(model, cfg):
    """Map each parameter to its weight decay, its learning-rate factor, and whether it takes a trust ratio."""
    names = {id(value): name.removeprefix("blocks.") for name, value in model.named_parameters()}
    return {
        names[id(value)]: (group["weight_decay"], group["lr_scale"], group["adapts"])
        for group in build_groups(cfg, model)
        for value in group["params"]
    }


@pytest.mark.parametrize("norm", [nn.BatchNorm3d, GroupedBatchNorm3d])
def test_normalisation_has_its_own_decay_and_only_weights_take_steps_by_their_own_size(
    norm, tmp_path
):
    assert by_name(network(norm), tiny_config(tmp_path, PLAIN)) == {
        "conv.weight": (1e-4, 1.0, True),
        "conv.bias": (1e-4, 1.0, False),
        "norm.weight": (0.5, 1.0, False),
        "norm.bias": (0.5, 1.0, False),
        "5.proj.weight": (1e-4, 1.0, True),
        "5.proj.bias": (1e-4, 1.0, False),
    }


def test_the_scale_of_a_layer_norm_is_no_bias(tmp_path):
    model = nn.ModuleDict({"norm": nn.LayerNorm(4), "head": nn.Linear(4, 2)})
    cfg = tiny_config(tmp_path, {"SOLVER.BIAS_LR_FACTOR": 2.0, "SOLVER.ZERO_WD_1D_PARAM": True})
    found = {name: factors[:2] for name, factors in by_name(model, cfg).items()}
    decay = cfg.SOLVER.WEIGHT_DECAY
    assert found == {
        "norm.weight": (0.0, 1.0),
        "norm.bias": (0.0, 2.0),
        "head.weight": (decay, 1.0),
        "head.bias": (0.0, 2.0),
    }


def test_a_factor_of_a_classifier_that_nobody_finds_is_refused(tmp_path):
    cfg = tiny_config(tmp_path, {"SOLVER.HEAD_LR_FACTOR": 5.0})
    with pytest.raises(InputError, match=r"SOLVER\.HEAD_LR_FACTOR = 5 needs a classifier"):
        build_groups(cfg, nn.ModuleDict({"classifier": nn.Linear(4, 2)}))


def test_biases_and_the_classifier_of_tsm(tmp_path):
    assert by_name(network(nn.BatchNorm3d), tiny_config(tmp_path, TSM)) == {
        "conv.weight": (1e-4, 1.0, True),
        "conv.bias": (0.0, 2.0, False),
        "norm.weight": (0.0, 1.0, False),
        "norm.bias": (0.0, 1.0, False),
        "5.proj.weight": (1e-4, 5.0, True),
        "5.proj.bias": (0.0, 10.0, False),
    }


@pytest.mark.parametrize(
    ("keys", "undecayed"),
    [
        ({**VIT, "VIT.CLS_EMBED_ON": True}, {"positions", "class_token"}),
        (
            {"MODEL.MODEL_NAME": "MViT", "MVIT.EMBED_DIM": 8, "MVIT.DEPTH": 2, "MVIT.STAGES": [1]},
            {f"blocks.{block}.attn.rel_pos_{axis}" for block in range(2) for axis in "hwt"}
            | {"pos_encoding.class_token"},
        ),
    ],
)
def test_positions_have_no_decay_and_matrices_do(keys, undecayed, tmp_path):
    cfg = tiny_config(tmp_path, {**keys, "SOLVER.ZERO_WD_1D_PARAM": True})
    model = build_model(cfg)
    found = {
        id(value)
        for group in build_groups(cfg, model)
        for value in group["params"]
        if not group["weight_decay"]
    }
    vectors = {name for name, value in model.named_parameters() if value.ndim == 1}
    assert {
        name for name, value in model.named_parameters() if id(value) in found
    } == vectors | undecayed


def test_the_row_of_tsm_learns_as_its_released_code_does():
    """(decay, learning rate at a rate of 0.01): tensors of ResNet-50: 53 convolutions, 53 norms, 1 classifier."""
    pairs = ["RESNET.WIDTH_PER_GROUP", "8", "TRAIN.INIT_WEIGHTS", ""]
    cfg = load_config(EXPERIMENTS / "tsm/k400_tsm_8x8_r50/baseline.yaml", pairs)
    optimizer = build_optimizer(cfg, build_model(cfg))
    set_rates(optimizer, 0.01)
    found = {(g["weight_decay"], g["lr"]): len(g["params"]) for g in optimizer.param_groups}
    assert found == {(1e-4, 0.01): 53, (0.0, 0.01): 106, (1e-4, 0.05): 1, (0.0, 0.1): 1}
    assert cfg.SOLVER.CLIP_GRAD_L2NORM == 20.0


METHODS = ("sgd", "lars", "lamb", "pmd_lamb")
LAYER_WISE = METHODS[1:]
START, *GRADIENTS = draws(4, 6)
RATES = [0.1, 0.2, 0.1]


def weight_after(tmp_path, **keys):
    """Return a layer's weight after a step with each of GRADIENTS, in the tiny row with these keys of SOLVER."""
    changes = {f"SOLVER.{key}": value for key, value in keys.items()}
    model = nn.Linear(3, 2, bias=False, dtype=torch.float64)
    model.weight.data = torch.tensor(START, dtype=torch.float64).view(2, 3)
    optimizer = build_optimizer(tiny_config(tmp_path, changes), model)
    gradients = torch.tensor(GRADIENTS).view(3, 2, 3).tolist()
    return torch.tensor(step_with(optimizer, model.weight, gradients, RATES)).flatten().tolist()


def test_two_steps_are_nesterov_momentum_by_hand(tmp_path):
    changes = {"SOLVER.BASE_LR": 0.1, "SOLVER.MOMENTUM": 0.9, "SOLVER.WEIGHT_DECAY": 0.0}
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)
    optimizer = build_optimizer(tiny_config(tmp_path, changes), model)
    for _ in range(2):
        model.weight.grad = torch.ones(1, 1)
        optimizer.step()
    # v: 1, 1.9; step: g + 0.9 v = 1.9, 2.71
    assert abs(model.weight.item() - (1 - 0.1 * (1.9 + 2.71))) < 1e-6


def test_the_weight_decay_of_a_step_is_a_factor_of_the_first_one(tmp_path):
    """AdamW with a gradient of 0 only decays: the weight 1 is multiplied by 1 - rate · decay · factor."""
    model = nn.Sequential(nn.Conv3d(1, 1, 1), nn.BatchNorm3d(1))
    nn.init.ones_(model[0].weight)
    changes = {
        "SOLVER.OPTIMIZING_METHOD": "adamw",
        "SOLVER.WEIGHT_DECAY": 0.5,
        "BN.WEIGHT_DECAY": 0.0,
        "SOLVER.ZERO_WD_1D_PARAM": True,
    }
    optimizer = build_optimizer(tiny_config(tmp_path, changes), model)
    for param in model.parameters():
        param.grad = torch.zeros_like(param)
    for factor in (1.0, 4.0, 1.0):
        set_rates(optimizer, 0.1, factor)
        optimizer.step()
    assert model[0].weight.item() == pytest.approx(0.95 * 0.8 * 0.95)
    assert model[1].weight.item() == 1.0


@pytest.mark.parametrize("nesterov", [False, True])
def test_the_keys_of_lars_reach_it(tmp_path, nesterov):
    keys = {"MOMENTUM": 0.5, "NESTEROV": nesterov, "WEIGHT_DECAY": 0.2, "TRUST_COEFFICIENT": 0.3}
    found = weight_after(tmp_path, OPTIMIZING_METHOD="lars", **keys)
    wanted = by_hand.lars(START, GRADIENTS, RATES, 0.5, 0.3, 0.2, nesterov)
    assert found == pytest.approx(wanted, rel=1e-6)


def test_the_keys_of_lamb_reach_it(tmp_path):
    keys = {"BETAS": [0.5, 0.75], "EPS": 0.01, "WEIGHT_DECAY": 0.2}
    found = weight_after(tmp_path, OPTIMIZING_METHOD="lamb", **keys)
    wanted = by_hand.lamb(START, GRADIENTS, RATES, (0.5, 0.75), 0.01, 0.2)
    assert found == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize(
    ("curve", "factors"), [("linear", [1, 2 / 3, 1 / 3]), ("cosine", [1, 0.75, 0.25])]
)
def test_the_keys_of_pmd_lamb_reach_it(tmp_path, curve, factors):
    keys = {"PMD_PERIOD": 4, "PMD_CURVE": curve, "WEIGHT_DECAY": 0.0}
    found = weight_after(tmp_path, OPTIMIZING_METHOD="pmd_lamb", **keys)
    wanted = by_hand.lamb(START, GRADIENTS, RATES, factors=factors)
    assert found == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_a_saved_run_goes_on_to_the_same_bits(tmp_path, method):
    """The fifth step is the second of a period."""
    period = {"SOLVER.PMD_PERIOD": 3} if method == "pmd_lamb" else {}
    cfg = tiny_config(tmp_path, {"SOLVER.OPTIMIZING_METHOD": method, **period})
    inputs, run_dir = torch.randn(6, 4, 2, 3, 3, 3), RunDir(tmp_path / "run")
    run_dir.checkpoint(0).parent.mkdir(parents=True)

    def new_state():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv3d(2, 3, 3), nn.BatchNorm3d(3), nn.Flatten(), nn.Linear(3, 2))
        return State(model, build_optimizer(cfg, model), Clock())

    def train(state, end):
        for clips in inputs[state.step : end]:
            state.optimizer.zero_grad(set_to_none=True)
            state.model(clips).square().sum().backward()
            state.optimizer.step()
        state.step = end

    whole, stopped, again = new_state(), new_state(), new_state()
    train(whole, 6)
    train(stopped, 4)
    save_checkpoint(run_dir, stopped)
    take_over(run_dir, again, choose_checkpoint(run_dir), Processes())
    train(again, 6)
    found = dict(again.model.named_parameters())
    assert all(torch.equal(found[name], p) for name, p in whole.model.named_parameters())


@pytest.mark.parametrize("method", LAYER_WISE)
def test_a_step_whose_fp16_gradients_overflow_is_skipped(tmp_path, method):
    """The scaler skips such a step: weights, moments and the place in the period stay the same."""
    model = nn.Linear(2, 2)
    optimizer = build_optimizer(tiny_config(tmp_path, {"SOLVER.OPTIMIZING_METHOD": method}), model)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    steps = []
    for size in (1.0, float("inf"), 1.0):
        before = model.weight.detach().clone()
        optimizer.zero_grad()
        scaler.scale(size * model(torch.ones(1, 2)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        steps.append(not torch.equal(before, model.weight))
    assert steps == [True, False, True]
    assert torch.isfinite(model.weight).all()
    assert {state.get("step", 2) for state in optimizer.state.values()} == {2}


@pytest.mark.parametrize("method", METHODS)
def test_a_step_reads_nothing_from_the_device(tmp_path, method):
    """Tensors of this device have no values. A call that needs one, such as `.item()` or `if`, is an error."""
    model = nn.Sequential(nn.Conv3d(2, 3, 3), nn.BatchNorm3d(3)).to("meta")
    optimizer = build_optimizer(tiny_config(tmp_path, {"SOLVER.OPTIMIZING_METHOD": method}), model)
    for param in model.parameters():
        param.grad = torch.empty_like(param)
    for _ in range(2):
        optimizer.step()
    states = [value for state in optimizer.state.values() for value in state.values()]
    assert {value.device.type for value in states if isinstance(value, torch.Tensor)} == {"meta"}


def test_rates_decay_from_layer_to_layer():
    """Two blocks: what is before them, each block, and what follows. By hand, with a decay of 1/2."""
    before = {"positions": 0.125, "patches.weight": 0.125}
    blocks = {"blocks.0.qkv.weight": 0.25, "blocks.1.qkv.weight": 0.5}
    names = {**before, **blocks, "norm.weight": 1, "head.bias": 1}
    assert layer_factors([*names], 0.5) == names
    assert set(layer_factors([*names], 1.0).values()) == {1.0}
    assert layer_factors(["weight"], 1.0) == {"weight": 1.0}
    nested = [f"layers.{stage}.blocks.{number}.weight" for stage in (0, 1) for number in (0, 1)]
    for others, num in ((["weight"], 0), (nested, 2)):
        with pytest.raises(InputError, match=rf"SOLVER\.LAYER_DECAY = 0\.5 .* has {num}:"):
            layer_factors(others, 0.5)


def test_a_classifier_that_is_the_last_block_keeps_the_whole_rate():
    """In MAE's rule (util/lr_decay.py) the classifier has the factor 1. ResNets have it as their last block."""
    names = ["blocks.0.conv.weight", "blocks.1.conv.weight", "blocks.2.proj.weight"]
    assert layer_factors(names, 0.5) == dict(zip(names, (0.25, 0.5, 1.0), strict=True))


def test_a_block_without_parameters_is_no_layer():
    """I3D has a pool between its stages. By hand, with a decay of 1/2."""
    names = [f"blocks.{number}.weight" for number in (0, 1, 3, 4)]
    assert layer_factors(names, 0.5) == dict(zip(names, (0.125, 0.25, 0.5, 1.0), strict=True))


def test_a_row_with_layer_decay_has_a_group_for_each_layer(tmp_path):
    cfg = tiny_config(tmp_path, {**VIT, "SOLVER.LAYER_DECAY": 0.5, "SOLVER.WEIGHT_DECAY": 0.05})
    model = build_model(cfg)
    rates = {}
    for group in build_groups(cfg, model):
        rates |= {id(one): group["lr_scale"] for one in group["params"]}
    found = {name: rates[id(one)] for name, one in model.named_parameters()}
    assert found["positions"] == found["patches.bias"] == 0.5**4  # three blocks and the head follow
    assert [found[f"blocks.{number}.mlp.0.weight"] for number in range(3)] == [0.125, 0.25, 0.5]
    assert found["head.weight"] == found["norm.bias"] == 1
