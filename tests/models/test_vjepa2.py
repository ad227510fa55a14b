"""V-JEPA 2 of transformers is the witness: its features are ours at the full shape, from its own tensors."""

import pytest
import torch
from fill import TRANSFORMERS, filled, sine_clip
from networks import clips, video_transformer
from torch import nn

from mgexp.errors import InputError
from mgexp.models.weights import fit_weights, named_weights, read_weights
from mgexp.multigrid import check_shapes

transformers = pytest.importorskip("transformers")

WIDTH, HEADS, DEPTH, CLASSES = 40, 2, 3, 5
FRAMES, CROP = 8, 64
"""The full clip: 4 x 4 x 4 tokens. A head has 20 channels: 3 pairs for each axis, and 2 that do not turn."""


def ours(positions="vjepa2", **changes):
    settings = {"EMBED_DIM": WIDTH, "DEPTH": DEPTH, "NUM_HEADS": HEADS, "full": (FRAMES, CROP)}
    torch.manual_seed(1)
    return video_transformer(**{**settings, "POSITIONS": positions, **changes}).eval()


def theirs(kind="VJEPA2Model", crop=CROP, frames=FRAMES):
    config = transformers.VJEPA2Config(
        crop_size=crop, frames_per_clip=frames, hidden_size=WIDTH, num_attention_heads=HEADS,
        num_hidden_layers=DEPTH, mlp_ratio=2.0, pred_hidden_size=24, pred_num_attention_heads=2,
        pred_num_hidden_layers=1, num_pooler_layers=1, num_labels=CLASSES,
    )  # fmt: skip
    model = getattr(transformers, kind)(config).eval()
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3, generator=generator)
    return model


def fitted(model, tensors):
    fit = fit_weights(named_weights("model.safetensors", tensors), model)
    fit.load_into(model)
    return fit


def pooled(model, x):
    """The mean of the tokens that V-JEPA 2's encoder returns."""
    return model(x.transpose(1, 2), skip_predictor=True).last_hidden_state.mean(1)


@pytest.fixture
def in_double():
    """Compute in float64, where rounding hides nothing."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@torch.no_grad()
def features(model, x):
    """What our classifier sees."""
    seen = []
    hook = model.head.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0]))
    model(x)
    hook.remove()
    return seen[0]


@torch.no_grad()
def test_features_at_the_full_shape_are_theirs(tmp_path):
    """From a file that transformers writes, as the published ones are."""
    model, witness = ours(), theirs()
    witness.save_pretrained(tmp_path)
    fit_weights(read_weights(tmp_path / "model.safetensors"), model).load_into(model)
    wanted = pooled(witness, clips((FRAMES, CROP)))
    torch.testing.assert_close(features(model, clips((FRAMES, CROP))), wanted, rtol=1e-5, atol=1e-5)
    logits = wanted @ model.head.weight.T + model.head.bias
    torch.testing.assert_close(model(clips((FRAMES, CROP))), logits, rtol=1e-5, atol=1e-5)


def released(path):
    """A file as V-JEPA 2's code writes it: its table of positions is not used there either."""
    names = filled("vjepa2")
    encoder = {f"module.backbone.{name}": value for name, value in names.items()}
    encoder["module.backbone.pos_embed"] = torch.ones(1, 64, WIDTH)
    torch.save({"encoder": encoder, "predictor": {"module.x": torch.ones(1)}, "epoch": 3}, path)
    return names


@torch.no_grad()
def test_features_from_a_released_file_are_those_of_the_released_code(tmp_path):
    released(tmp_path / "vitl.pt")
    model = ours()
    fit = fit_weights(read_weights(tmp_path / "vitl.pt"), model)
    assert (fit.left, fit.missing, fit.unused) == (
        ("head.weight", "head.bias"), (), ("pos_embed",)
    )  # fmt: skip
    fit.load_into(model)
    wanted = torch.tensor(TRANSFORMERS["vjepa2"]["features"])
    found = features(model, sine_clip(FRAMES, CROP))[0]
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_a_released_file_fits_no_other_positions(tmp_path):
    released(tmp_path / "vitl.pt")
    with pytest.raises(InputError, match=r"set MODEL\.MODEL_NAME ViT and VIT\.POSITIONS vjepa2"):
        fit_weights(read_weights(tmp_path / "vitl.pt"), ours("learned"))


@torch.no_grad()
def test_the_difference_is_rounding_alone(in_double):
    model, witness = ours(), theirs()
    fitted(model, witness.state_dict())
    x = clips((FRAMES, CROP))
    assert x.dtype == torch.float64
    torch.testing.assert_close(features(model, x), pooled(witness, x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("width", "depth", "heads", "ratio"), [(1024, 24, 16, 4.0), (1408, 2, 22, 48 / 11)]
)
def test_the_sizes_of_the_published_networks_fit(width, depth, heads, ratio):
    """ViT-L is the default of transformers. Blocks of ViT-g are the widest: two do. Nothing takes memory."""
    config = transformers.VJEPA2Config(
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        mlp_ratio=ratio,
        pred_num_hidden_layers=1,
    )
    with torch.device("meta"):
        witness = transformers.VJEPA2Model(config)
        model = ours(EMBED_DIM=width, DEPTH=depth, NUM_HEADS=heads, MLP_RATIO=ratio, full=(64, 256))
    tensors = {
        name: torch.zeros(()).expand(one.shape) for name, one in witness.state_dict().items()
    }
    fit = fit_weights(named_weights("model.safetensors", tensors), model)
    assert len(fit.used) == 2 + 12 * depth + 2
    assert {name.split(".")[0] for name in fit.unused} == {"predictor"}


def test_predictor_pooler_and_classifier_are_left_and_named():
    model, witness = ours(), theirs("VJEPA2ForVideoClassification")
    tensors = {**witness.state_dict(), "predictor.x": torch.ones(1)}
    fit = fitted(model, tensors)
    beside = {name.removeprefix("vjepa2.") for name in tensors} - {
        name.removeprefix("vjepa2.") for name in tensors if name.startswith("vjepa2.encoder.")
    }
    assert set(fit.unused) == beside
    assert {"classifier.weight", "predictor.x"} < beside
    assert any(name.startswith("pooler.") for name in beside)
    assert fit.left == ("head.weight", "head.bias")
    said = fit.summary()
    assert f"(transformers' V-JEPA 2): {len(fit.used)} tensors used" in said
    assert f"{len(beside)} in the file and not used: " in said
    assert "2 of the classifier keep their initial values" in said


def test_what_does_not_fit_is_told():
    tensors = theirs().state_dict()
    file = named_weights("model.safetensors", tensors)
    said = "positions are V-JEPA 2's rotations; set MODEL.MODEL_NAME ViT and VIT.POSITIONS vjepa2"
    for model in (ours("rotary"), ours("learned"), nn.Linear(2, 2)):
        with pytest.raises(InputError, match=said):
            fit_weights(file, model)
    with pytest.raises(InputError, match="1 tensors of the model are not in the file: class_token"):
        fit_weights(file, ours(CLS_EMBED_ON=True))
    with pytest.raises(InputError, match=r"blocks.0.mlp.0.weight is \(80, 40\) in the file"):
        fit_weights(file, ours(MLP_RATIO=4.0))
    strange = named_weights("w", {**tensors, "encoder.layer.0.gate": torch.ones(1)})
    with pytest.raises(InputError, match=r"not in the model: encoder\.layer\.0\.gate"):
        fit_weights(strange, ours())


def test_places_of_a_coarse_grid_are_those_of_the_full_clip():
    """Half of the tokens along time and height, each in the middle of two; columns as in the full clip."""
    turns = ours().rotation((2, 2, 4), torch.device("cpu"))
    angles = torch.atan2(turns.sin, turns.cos).view(2, 2, 4, -1)
    middles = torch.tensor([0.5, 2.5])
    # The first channel of each axis turns by 1 for each token of the full clip.
    torch.testing.assert_close(angles[:, 1, 1, 0], middles)
    torch.testing.assert_close(angles[1, :, 1, 6], middles)
    torch.testing.assert_close(angles[1, 1, :, 12], torch.arange(4.0))
    assert (angles[..., 18:] == 0).all()


@pytest.mark.parametrize("has_class_token", [False, True])
def test_positions_are_right_at_every_shape(has_class_token):
    """V-JEPA 2's rotations depend on more than the distance, so they count as absolute."""
    shapes = [(4, 32), (4, 48), (8, 48), (FRAMES, CROP)]
    found = check_shapes(ours(CLS_EMBED_ON=has_class_token), shapes)
    assert [one.problem for one in found] == [""] * 4
    assert {one.positions[0] for one in found} == {"absolute"}
