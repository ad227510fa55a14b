"""Weights of other libraries' vision transformers: logits of these libraries, tensor by tensor and as a whole."""

import math

import pytest
import timm
import torch
import transformers
from networks import video_transformer, videomae_tensors
from torch import nn
from torchvision.models import VisionTransformer

from mgexp.errors import InputError
from mgexp.models.vit_weights import sinusoids
from mgexp.models.weights import fit_weights, named_weights, read_weights

WIDTH, HEADS, DEPTH, CLASSES = 24, 2, 2, 5


def ours(frames=2, crop=32, **changes):
    settings = {"EMBED_DIM": WIDTH, "NUM_HEADS": HEADS, "full": (frames, crop)}
    return video_transformer(**settings, **changes).eval()


def randomised(model):
    """The model with weights that all count."""
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3, generator=generator)
    return model.eval()


def loaded(model, tensors, path="weights.pt"):
    fit = fit_weights(named_weights(path, tensors), model)
    assert (fit.left, fit.missing, fit.unused) == ((), (), ())
    fit.load_into(model)
    return model


def picture(crop=32):
    return torch.randn(2, 3, crop, crop, generator=torch.Generator().manual_seed(1))


def still(x, frames):
    """A clip that shows one picture."""
    return x[:, :, None].expand(-1, -1, frames, -1, -1)


def torchvision_vit():
    return randomised(
        VisionTransformer(32, 16, DEPTH, HEADS, WIDTH, 2 * WIDTH, num_classes=CLASSES)
    )


def test_a_still_clip_of_one_tubelet_has_the_logits_of_torchvisions_vit():
    theirs = torchvision_vit()
    model = loaded(ours(CLS_EMBED_ON=True), theirs.state_dict())
    torch.testing.assert_close(model(still(picture(), 2)), theirs(picture()), rtol=1e-5, atol=1e-5)


def test_longer_still_clips_have_the_same_features_of_patches():
    """Every patch is there four times. Without a class token, attention to them is the same as to one."""
    tensors = torchvision_vit().state_dict()
    short, long = (ours(frames) for frames in (2, 8))
    for model in (short, long):
        fit = fit_weights(named_weights("w.pt", tensors), model)
        assert fit.unused == ("class_token",)
        fit.load_into(model)
    torch.testing.assert_close(
        long(still(picture(), 8)), short(still(picture(), 2)), rtol=1e-5, atol=1e-5
    )


def test_positions_of_larger_pictures_are_stretched():
    theirs = torchvision_vit()  # 2 x 2 patches
    model = ours(crop=64, CLS_EMBED_ON=True)
    fit_weights(named_weights("w.pt", theirs.state_dict()), model).load_into(model)
    table = theirs.encoder.pos_embedding[0, 1:].T.view(WIDTH, 2, 2)
    wanted = nn.functional.interpolate(table[None], (4, 4), mode="bilinear")
    torch.testing.assert_close(model.positions[0, :, 0], wanted[0])
    assert model.positions.shape == (1, WIDTH, 1, 4, 4)


def test_logits_are_those_of_timms_vit():
    size = {"img_size": 32, "patch_size": 16, "mlp_ratio": 2}
    size |= {"embed_dim": WIDTH, "depth": DEPTH, "num_heads": HEADS}
    for settings in ({}, {"class_token": False, "global_pool": "avg"}):
        theirs = randomised(timm.models.VisionTransformer(num_classes=CLASSES, **size, **settings))
        model = loaded(ours(CLS_EMBED_ON=not settings), theirs.state_dict())
        torch.testing.assert_close(
            model(still(picture(), 2)), theirs(picture()), rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("is_older", [False, True])
@torch.no_grad()
def test_logits_are_those_of_transformers_videomae(is_older):
    config = transformers.VideoMAEConfig(
        hidden_size=WIDTH, num_hidden_layers=DEPTH, num_attention_heads=HEADS, intermediate_size=2 * WIDTH,
        num_labels=CLASSES, layer_norm_eps=1e-6,
    )  # fmt: skip
    theirs = randomised(transformers.VideoMAEForVideoClassification(config))
    # It builds this layer with torch's 1e-5. VideoMAE's own code has 1e-6 everywhere.
    assert theirs.fc_norm.eps == 1e-5
    theirs.fc_norm.eps = 1e-6
    tensors = theirs.state_dict()
    if is_older:  # as in the published files
        short = {"query.bias": "q_bias", "value.bias": "v_bias"}
        for new, old in short.items():
            tensors = {name.replace(new, old): value for name, value in tensors.items()}
    model = loaded(ours(16, 224), tensors)
    clips = torch.randn(1, 3, 16, 224, 224, generator=torch.Generator().manual_seed(1))
    for dtype, most in ((torch.float32, 1e-5), (torch.float64, 1e-10)):
        x = clips.to(dtype)
        found, wanted = model.to(dtype)(x), theirs.to(dtype)(x.transpose(1, 2)).logits
        torch.testing.assert_close(found, wanted, rtol=most, atol=most)


@pytest.mark.parametrize("kind", ["VideoMAEModel", "VideoMAEForPreTraining"])
@torch.no_grad()
def test_the_encoder_of_transformers_videomae(kind, tmp_path):
    """The tokens of its encoder, normalised one by one, are ours with the same last layer."""
    config = transformers.VideoMAEConfig(
        hidden_size=WIDTH, num_hidden_layers=DEPTH, num_attention_heads=HEADS, intermediate_size=2 * WIDTH,
        layer_norm_eps=1e-6, use_mean_pooling=False, decoder_hidden_size=12, decoder_num_hidden_layers=1,
        decoder_num_attention_heads=2, decoder_intermediate_size=12,
    )  # fmt: skip
    theirs = randomised(getattr(transformers, kind)(config))
    theirs.save_pretrained(tmp_path)
    model = ours(16, 224)
    fit = fit_weights(read_weights(tmp_path / "model.safetensors"), model)
    assert (fit.left, fit.missing) == (("head.weight", "head.bias"), ())
    assert {name.split(".")[0] for name in fit.unused} <= {
        "decoder", "encoder_to_decoder", "mask_token"
    }  # fmt: skip
    fit.load_into(model)
    seen = []
    model.norm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    clips = torch.randn(1, 3, 16, 224, 224, generator=torch.Generator().manual_seed(1))
    model(clips)
    encoder = theirs if kind == "VideoMAEModel" else theirs.videomae
    last, encoder.layernorm = encoder.layernorm, nn.Identity()
    wanted = encoder(clips.transpose(1, 2)).last_hidden_state.mean(1)
    torch.testing.assert_close(seen[0], wanted, rtol=1e-5, atol=1e-5)
    assert torch.equal(model.norm.weight, last.weight)


def test_fixed_positions_are_those_of_transformers():
    from transformers.models.videomae.modeling_videomae import get_sinusoid_encoding_table

    wanted = get_sinusoid_encoding_table(8 * 14 * 14, 768)
    found = sinusoids((8, 14, 14), 768).flatten(2).transpose(1, 2)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-7)


def test_videomaes_own_files_are_read_and_their_positions_are_sines():
    """Names of the released files: timm's, with biases of queries and values, a mean and fc_norm."""
    model = randomised(ours(16, 224))
    tensors = videomae_tensors(model.state_dict())
    for end in ("weight", "bias"):
        tensors[f"fc_norm.{end}"] = tensors.pop(f"norm.{end}")
    found = loaded(ours(16, 224), tensors)
    query, key, value = model.blocks[1].qkv.bias.chunk(3)
    torch.testing.assert_close(found.blocks[1].qkv.bias, torch.cat([query, 0 * key, value]))
    assert torch.equal(found.blocks[1].mlp[2].weight, model.blocks[1].mlp[2].weight)
    # Token 197 is the second row's first of the second time: 197 = 1 · 196 + 0 · 14 + 1.
    table = sinusoids((8, 14, 14), WIDTH)
    assert torch.equal(found.positions, table)
    assert table[0, 0, 1, 0, 1].item() == pytest.approx(math.sin(197), abs=1e-6)
    assert table[0, 3, 1, 0, 1].item() == pytest.approx(
        math.cos(197 / 10000 ** (2 / WIDTH)), abs=1e-6
    )


@pytest.mark.parametrize(("patch", "grid"), [(14, (8, 16, 16)), (16, (8, 14, 14))])
def test_fixed_positions_are_those_of_the_files_patches(patch, grid):
    tensors = {
        "patch_embed.proj.weight": torch.zeros(WIDTH, 3, 2, patch, patch),
        "norm.weight": torch.ones(WIDTH),
    }
    found = named_weights("w.pt", tensors).tensors["positions"]
    assert torch.equal(found, sinusoids(grid, WIDTH))


def test_pictures_without_positions_are_refused():
    tensors = {"patch_embed.proj.weight": torch.zeros(WIDTH, 3, 16, 16)}
    with pytest.raises(InputError, match="no whole ViT \\(it holds no positions\\)"):
        named_weights("w.pt", tensors)


def test_the_decoder_of_a_pre_training_is_left_and_named():
    model = timm.models.VisionTransformer(
        num_classes=0, img_size=32, patch_size=16, embed_dim=WIDTH, depth=DEPTH, num_heads=HEADS, mlp_ratio=2,
        class_token=False, global_pool="avg", fc_norm=False,
    )  # fmt: skip
    tensors = {f"encoder.{name}": value for name, value in model.state_dict().items()}
    rest = {"decoder.blocks.0.norm1.weight", "encoder_to_decoder.weight", "mask_token"}
    tensors |= {name: torch.ones(1) for name in rest}
    fit = fit_weights(named_weights("w.pt", tensors), ours())
    assert set(fit.unused) == rest
    assert torch.equal(fit.used["blocks.1.out.weight"], model.blocks[1].attn.proj.weight)
    with pytest.raises(InputError, match="1 tensors of the file are not in the model: gate"):
        fit_weights(named_weights("w.pt", {**tensors, "gate": torch.ones(1)}), ours())


def test_what_does_not_fit_is_told():
    tensors = torchvision_vit().state_dict()
    with pytest.raises(InputError, match="1 tensors of the file are not in the model: positions"):
        fit_weights(named_weights("w.pt", tensors), ours(CLS_EMBED_ON=True, POSITIONS="rotary"))
    del tensors["encoder.pos_embedding"]
    with pytest.raises(InputError, match="torchvision's ViT, but it is no whole ViT"):
        named_weights("w.pt", tensors)
