"""Non-local blocks: where they stand, and that they start as the identity."""

import pytest
import torch
from torch import nn

from mgexp.models.build import init_weights
from mgexp.models.resnet import TEMPORAL, insert_nonlocals, resnet

RELEASED_PLACES = ((), (1, 3), (1, 3, 5), ())


def build(
    name: str = "I3D", places=RELEASED_PLACES, instantiation="softmax", **changes
) -> nn.Module:
    arguments = {"num_classes": 400, "depth": 50, "dropout": 0.5, **changes}
    blocks = {"places": places, "pool": (1, 2, 2), "instantiation": instantiation}
    return insert_nonlocals(resnet(TEMPORAL[name], **arguments), **blocks)


def build_on_meta(**changes) -> nn.Module:
    with torch.device("meta"):
        return build(**changes)


@pytest.mark.parametrize("depth", [50, 101])
def test_they_stand_where_the_released_configurations_put_them(depth):
    names = [name for name, _ in build_on_meta(depth=depth).named_modules()]
    found = [name for name in names if name.endswith(".conv_theta")]
    places = ["3.nonlocals.1", "3.nonlocals.3", *(f"4.nonlocals.{n}" for n in (1, 3, 5))]
    assert found == [f"blocks.{place}.conv_theta" for place in places]


def test_they_start_as_the_identity():
    torch.manual_seed(0)
    model = build(width=8, num_classes=5)
    init_weights(model)
    plain = resnet(TEMPORAL["I3D"], num_classes=5, depth=50, width=8, dropout=0)
    plain.load_state_dict(
        {name: value for name, value in model.state_dict().items() if "nonlocals" not in name}
    )
    clips = torch.randn(1, 3, 4, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(clips), plain.eval()(clips))


@pytest.mark.parametrize("instantiation", ["softmax", "dot_product"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last_3d])
def test_a_block_is_the_papers_formula(instantiation, layout):
    """y_i = sum_j f(x_i, x_j) g(x_j) over the pooled positions j, one position after the other, in float64."""
    torch.manual_seed(0)
    model = build(width=8, num_classes=5, instantiation=instantiation).double().eval()
    block = model.blocks[3].nonlocals["1"]
    nn.init.normal_(block.norm.weight)
    x = torch.randn(1, 64, 2, 4, 4, dtype=torch.float64).contiguous(memory_format=layout)
    pooled = x.unfold(3, 2, 2).unfold(4, 2, 2).amax((-2, -1))
    theta, phi, g = (
        conv.weight.view(32, 64) @ positions.reshape(64, -1) + conv.bias[:, None]
        for conv, positions in (
            (block.conv_theta, x),
            (block.conv_phi, pooled),
            (block.conv_g, pooled),
        )
    )
    rows = []
    for i in range(theta.shape[1]):
        similar = theta[:, i] @ phi
        f = (
            (similar * 32**-0.5).softmax(0)
            if instantiation == "softmax"
            else similar / phi.shape[1]
        )
        rows.append(g @ f)
    out = block.conv_out(torch.stack(rows, 1).view(1, 32, 2, 4, 4))
    torch.testing.assert_close(block(x), x + block.norm(out))
