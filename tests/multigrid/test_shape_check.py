"""The shape check finds wrong positions, and only those. The faults of these small networks are known."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mgexp.multigrid import check_shapes

FULL = (8, 96)
COARSE = [(4, 48), (4, 64), (8, 64)]
GRID = (4, 6, 6)
"""Tokens of a clip of the full shape: tubelets of 2 frames of 16 × 16 pixels."""


class Attention(nn.Module):
    def __init__(self, width=24, heads=2):
        super().__init__()
        self.qkv, self.heads = nn.Linear(width, 3 * width), heads

    def forward(self, x, bias=None):
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, -1)).movedim(-3, 0).transpose(-2, -3)
        query, key, value = qkv
        logits = query @ key.transpose(-1, -2)
        logits = logits if bias is None else logits + bias
        return (logits.softmax(-1) @ value).transpose(-2, -3).flatten(-2)


class Absolute(nn.Module):
    """A video transformer with a table of positions. ``way`` fits the table to a grid."""

    def __init__(self, way):
        super().__init__()
        self.way = way
        self.patches = nn.Conv3d(3, 24, (2, 16, 16), (2, 16, 16))
        # Tables often start at zero, where a wrong lookup shows nothing.
        self.table = nn.Parameter(torch.zeros(1, 24, *GRID))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(24, 2, 32, batch_first=True) for _ in range(2)
        )
        self.head = nn.Linear(24, 5)

    def forward(self, clips):
        x = self.patches(clips)
        x = (x + self.way(self.table, x.shape[2:])).flatten(2).transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


WAYS = {
    "interpolated": lambda table, grid: F.interpolate(table, grid, mode="trilinear"),
    "nearest": lambda table, grid: F.interpolate(table, grid, mode="nearest"),
    "first rows": lambda table, grid: table.flatten(2)[..., : grid.numel()].view(1, -1, *grid),
    "first corner": lambda table, grid: table[:, :, : grid[0], : grid[1], : grid[2]],
}


class Windows(nn.Module):
    """Attention in windows of 3 × 3 tokens, at most, with a bias for each distance, as in Swin.

    ``cuts`` takes the first rows and columns of the index of the full window where a window is smaller.
    """

    def __init__(self, cuts):
        super().__init__()
        self.cuts = cuts
        self.patches = nn.Conv3d(3, 24, (2, 16, 16), (2, 16, 16))
        self.pooled = nn.Conv3d(24, 24, (1, 2, 2), (1, 2, 2))
        self.attend = Attention()
        self.bias = nn.Parameter(torch.zeros(25))
        self.head = nn.Linear(24, 5)

    def forward(self, clips):
        x = self.pooled(self.patches(clips))
        side = x.shape[-1]
        places = torch.cartesian_prod(
            torch.arange(3 if self.cuts else side), *[torch.arange(3 if self.cuts else side)]
        )
        distance = places[:, None] - places[None] + 2
        index = (5 * distance[..., 0] + distance[..., 1])[: side**2, : side**2]
        tokens = x.permute(0, 2, 3, 4, 1).flatten(2, 3)
        return self.head(self.attend(tokens, self.bias[index]).mean(dim=(1, 2)))


class Convolutions(nn.Module):
    def __init__(self, pool):
        super().__init__()
        self.layer, self.pool = nn.Conv3d(3, 4, 3, 4, padding=1), pool
        self.norm, self.head = nn.BatchNorm3d(4), nn.Linear(4, 5)

    def forward(self, clips):
        return self.head(self.pool(self.norm(self.layer(clips)).relu()).flatten(1))


def problems(model, shapes=(*COARSE, FULL)):
    torch.manual_seed(0)
    return [one.problem for one in check_shapes(model, shapes)]


@pytest.mark.parametrize("way", ["interpolated", "nearest"])
def test_a_table_that_is_sampled_is_right(way):
    found = check_shapes(Absolute(WAYS[way]), [*COARSE, FULL])
    assert [one.problem for one in found] == [""] * 4
    assert {one.positions for one in found} == {("absolute", "absolute")}


@pytest.mark.parametrize("way", ["first rows", "first corner"])
def test_a_table_that_is_cut_is_found(way):
    *coarse, full = problems(Absolute(WAYS[way]))
    assert all("attention layer 1 of 2 has wrong positions" in problem for problem in coarse)
    assert full == ""


class Divided(Absolute):
    """Attention over time and then over space, each with a table of its own. The one of time is always right."""

    def __init__(self, way):
        super().__init__(way)
        self.of_time = nn.Parameter(torch.zeros(1, 24, GRID[0]))
        self.over = nn.ModuleList(Attention() for _ in range(2))

    def forward(self, clips):
        x = self.patches(clips)
        frames, *size = x.shape[2:]
        of_space = self.way(self.table[:, :, :1], (1, *size))
        x = x + of_space + F.interpolate(self.of_time, frames, mode="linear")[..., None, None]
        x = x.permute(0, 3, 4, 2, 1).flatten(1, 2)
        x = (x + self.over[0](x)).transpose(1, 2)
        x = x + self.over[1](x)
        return self.head(x.mean(dim=(1, 2)))


@pytest.mark.parametrize("way", ["interpolated", "nearest"])
def test_attention_over_time_and_space_apart_is_right(way):
    assert problems(Divided(WAYS[way])) == [""] * 4


def test_a_table_of_space_is_looked_at_after_attention_over_time():
    cut = Divided(lambda table, grid: table[:, :, :1, : grid[1], : grid[2]])
    found = dict(zip((*COARSE, FULL), problems(cut), strict=True))
    for shape in COARSE:
        is_small = shape[1] < FULL[1]
        assert ("layer 2 of 2 has wrong positions" in found[shape]) == is_small, shape
    assert found[FULL] == ""


class Pooled(Absolute):
    """Keys and values are means over 2 × 2 tokens, as in PVT and in the first MViT."""

    def __init__(self, way):
        super().__init__(way)
        self.attend = nn.MultiheadAttention(24, 2, batch_first=True)

    def forward(self, clips):
        x = self.patches(clips)
        x = x + self.way(self.table, x.shape[2:])
        query, key = (part.flatten(2).transpose(1, 2) for part in (x, F.avg_pool3d(x, (1, 2, 2))))
        return self.head(self.attend(query, key, key)[0].mean(1))


@pytest.mark.parametrize("way", ["interpolated", "first corner"])
def test_pooled_keys_have_places_of_their_own(way):
    coarse, full = problems(Pooled(WAYS[way]), [(8, 64), FULL])
    assert (coarse == "") == (way == "interpolated")
    assert full == ""


class FixedWindows(Absolute):
    """Attention in windows of 2 × 2 × 2 tokens at every shape, as in Hiera. A right table is interpolated."""

    def __init__(self):
        super().__init__(WAYS["interpolated"])
        self.attend = Attention()

    def forward(self, clips):
        x = self.patches(clips)
        x = x + self.way(self.table, x.shape[2:])
        for dim in (2, 4, 6):
            x = x.unflatten(dim, (-1, 2))
        x = x.permute(0, 2, 4, 6, 3, 5, 7, 1).flatten(4, 6).flatten(1, 3)
        return self.head(self.attend(x).mean(dim=(1, 2)))


def test_absolute_positions_in_windows_of_fixed_size_are_not_judged():
    found = check_shapes(FixedWindows(), [(8, 64), FULL])
    assert [(one.positions, one.problem) for one in found] == [(("absolute",), "")] * 2


def test_a_bias_by_distance_is_right_in_smaller_windows():
    found = check_shapes(Windows(cuts=False), [(8, 64), FULL])
    assert [one.problem for one in found] == ["", ""]
    assert [one.positions for one in found] == [("relative",)] * 2
    assert max(one.deviation for one in found) < 1e-5


def test_a_bias_of_other_pairs_is_found():
    """In a window of 2 × 2, the first four rows of the index are those of a window of 3 × 3."""
    coarse, full = problems(Windows(cuts=True), [(8, 64), FULL])
    assert "distance does not explain" in coarse
    assert full == ""


class Heads(nn.Module):
    """Four heads, each with logits of its own from positions alone; ``wrong`` looks up those of other places."""

    def __init__(self, kind, wrong=None):
        super().__init__()
        self.kind, self.wrong = kind, wrong
        self.patches = nn.Conv3d(3, 24, (2, 16, 16), (2, 16, 16))
        shape = (4, 16, *GRID) if kind == "absolute" else (4, 2 * 6 - 1, 2 * 6 - 1)
        self.table = nn.Parameter(torch.zeros(shape))
        self.attend, self.head = Attention(heads=4), nn.Linear(24, 5)

    def bias(self, head, grid):
        if self.kind == "absolute":
            way = WAYS["first corner" if head == self.wrong else "interpolated"]
            places = way(self.table[head][None], torch.Size(grid)).flatten(2)[0]
            return places.T @ places
        index = torch.cartesian_prod(*(torch.arange(size) for size in grid))
        if head == self.wrong:  # the first tokens of the grid of the full clip
            index = torch.cartesian_prod(*(torch.arange(size) for size in GRID))[: len(index)]
        _, down, right = (index[:, None] - index[None]).movedim(-1, 0) + 5
        return self.table[head][down, right]

    def forward(self, clips):
        x = self.patches(clips)
        bias = torch.stack([self.bias(head, x.shape[2:]) for head in range(4)])
        return self.head(self.attend(x.flatten(2).transpose(1, 2), bias).mean(1))


@pytest.mark.parametrize("wrong", [None, 0, 3])
@pytest.mark.parametrize("kind", ["relative", "absolute"])
def test_one_wrong_head_of_four_is_found(kind, wrong):
    torch.manual_seed(0)
    *coarse, full = check_shapes(Heads(kind, wrong), [(8, 48), (8, 64), FULL])
    assert full.positions == (kind,)
    assert full.problem == ""
    said = {"relative": "distance does not explain", "absolute": "a head's logits correlate by"}
    for one in coarse:
        if wrong is None:
            assert one.problem == ""
        else:
            assert said[kind] in one.problem


def test_convolutions_have_no_positions():
    found = check_shapes(Convolutions(nn.AdaptiveAvgPool3d(1)), [*COARSE, FULL])
    assert {(one.positions, one.problem) for one in found} == {((), "")}


def test_a_convolution_over_frames_alone_has_no_positions():
    class OverFrames(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = nn.Conv1d(3, 8, 3, padding=1), nn.Linear(8, 3)

        def forward(self, clips):
            return self.head(self.layer(clips.mean((3, 4))).mean(2))

    found = check_shapes(OverFrames(), [*COARSE, FULL])
    assert {(one.positions, one.problem) for one in found} == {((), "")}


def test_a_shape_that_does_not_run_is_found():
    *coarse, full = problems(Convolutions(nn.AvgPool3d((2, 24, 24))))
    assert all(problem.startswith("it does not run: RuntimeError: ") for problem in coarse)
    assert full == ""


def test_padding_with_zeros_does_not_look_like_positions():
    class Padded(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.attend = nn.Conv3d(3, 24, 3, 16, padding=1), Attention()

        def forward(self, clips):
            x = F.pad(self.layer(clips), (0, 1, 0, 1))
            return self.attend(x.flatten(2).transpose(1, 2)).mean(1)

    found = check_shapes(Padded(), [*COARSE, FULL])
    assert {(one.positions, one.problem) for one in found} == {(("none",), "")}


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (nn.Flatten(0), "two clips give (442368,), not two rows of logits"),
        (
            nn.Sequential(
                nn.Flatten(), nn.LazyLinear(3), nn.Softplus(), nn.Threshold(9e9, torch.nan)
            ),
            "not finite",
        ),
    ],
)
def test_a_result_that_is_no_logits_is_found(model, said):
    assert said in problems(model, [FULL])[0]


def test_the_model_stays_as_it_is():
    model = Absolute(WAYS["interpolated"]).double().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    check_shapes(model, [(4, 64), FULL])
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.head.weight.dtype == torch.float64
    assert torch.backends.mha.get_fastpath_enabled()
