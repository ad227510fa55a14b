"""Check that a network is right at every shape of a schedule, and not only that it runs there.

A network may accept a clip of another shape and look up wrong positions. torchvision's ``swin3d_t`` does: it takes
any shape, and where a window shrinks, most pairs of tokens get the bias of other pairs. The loss still falls.

The check needs no knowledge of the network. It runs a copy on clips of one colour, in which every token has the
same content. Then the logits of attention (those of softmax) differ only by what the network adds for positions:

- If positions are relative, a logit depends on the distance of its two tokens alone, at every shape. The part of
  its variance that the distance does not explain is 0.
- If positions are absolute, the logits at a coarse shape are those of the full shape, sampled at the same places.
  Only the first such layer can be compared: after it, the tokens have different contents. Where time and space
  have attention apart, it is the first layer of each. Queries and keys may have grids of their own, with one of
  them pooled. Windows of fixed size cannot be compared, because their tokens are at other places of the clip.
- A network without attention, or whose logits are all alike, has no positions to look up. Convolutions have none.

Each head of a layer is judged. Windows are another matter: a network may mask pairs in some of them, so the best
window of a head counts. As in torch, logits are (..., heads, queries, keys), and what comes before are windows.
Two kinds of heads are not judged one by one: those that are not relative at the full shape, in a layer in which
others are, and absolute ones on fewer than four tokens, of which the mean is judged.

Three things would give tokens of one colour different contents, so the copy does without them: zeros beside the
clip become repeated edges, parameters that may be positions become random numbers, and dropout is off. Only
attention that computes a softmax of torch is seen.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

Grid = tuple[int, int, int]
"""Tokens along time, height and width."""
Positions = Literal["none", "relative", "absolute"]

MOST_UNEXPLAINED = 0.1
"""The largest share of the standard deviation of relative logits that their distance may leave unexplained, in the
best head of a layer. Measured: 0.02 in MViTv2-S, whose class token disturbs contents a little; 0.43 to 0.65 where
swin3d_t is wrong."""
MOST_IN_A_HEAD = 0.25
"""The same in any head. Measured: 0.03 in MViTv2-S and 0.15 in one of 16 channels; 0.64 to 0.74 in swin3d_t."""
LEAST_CORRELATION = 0.5
"""The least correlation of absolute logits with those of the full shape. Measured with random tables: 0.59 to 1.0
if they are interpolated, 0.0 to 0.3 if the first rows or columns are taken. Where space and time have attention
apart, only the layers of space show a wrong table of space: 0.2 to 0.5 on grids of 4 x 4 and 2 x 2."""
LEAST_TOKENS = 4
"""The least tokens for which absolute heads are judged one by one. Measured in heads that are right: a correlation
of 0.87 and more on four tokens, but 0.04 to 1.0 on two, which have four logits."""
CONSTANT = 1e-5
"""Logits whose standard deviation is below this share of their size are alike."""
COLOUR = 0.3
"""The value of all pixels of a clip of one colour. Any value but 0 does."""
MOST_WINDOWS = 4
"""Windows of a layer that are looked at one by one."""
WITH_CONTENT = (nn.modules.conv._ConvNd, nn.Linear, nn.modules.batchnorm._NormBase, nn.LayerNorm)
"""Layers whose parameters work on contents. Parameters of all other modules may be positions."""


@dataclass(frozen=True)
class ShapeCheck:
    """What was found at one shape: ``problem`` is empty if the network is right there."""

    frames: int
    crop: int
    positions: tuple[Positions, ...] = ()
    """What each attention layer has."""
    deviation: float = 0.0
    """The largest share of a relative layer's logits that distance does not explain, or 1 − correlation."""
    problem: str = ""


@dataclass(frozen=True)
class Logits:
    """The logits of one attention layer for a clip of one colour.

    ``some`` (windows, heads, queries, keys) has those of some windows. ``mean`` (heads, queries, keys) is the mean
    over all windows. ``grids`` are the outputs of the convolutions before the layer.
    """

    some: Tensor
    mean: Tensor
    grids: frozenset[Grid]

    @classmethod
    def of(cls, values: Tensor, grids: frozenset[Grid]) -> Logits:
        windows = values.detach().reshape(-1, *values.shape[-3:])
        return cls(windows[:MOST_WINDOWS].clone(), windows.mean(0), grids)

    def grids_of(self, num_tokens: int) -> list[Grid]:
        """List the grids of convolutions, or of their frames or pictures, that have ``num_tokens`` tokens."""
        parts: list[Grid] = []
        for time, height, width in self.grids:
            parts += [(time, height, width), (1, height, width), (time, 1, 1)]
        return [grid for grid in parts if math.prod(grid) == num_tokens]

    @property
    def part(self) -> Literal["time", "space", "all"]:
        """What the tokens of the layer are: the frames of a place, the places of a frame, or others."""
        num_tokens = self.some.shape[-1]
        if any(num_tokens == height * width for _, height, width in self.grids):
            return "space"
        return "time" if any(num_tokens == time for time, _, _ in self.grids) else "all"

    @cached_property
    def unexplained(self) -> tuple[float, float]:
        """The share of the standard deviation of the logits that the distance of two tokens does not explain.

        It is that of the best and of the worst head. The grid of the tokens is not known, so the possible ones are
        tried.
        """
        least = (1.0, 1.0)
        for extra in (0, 1):  # a class token
            values = self.some[..., extra:, extra:]
            for queries, keys in product(*(_grids(size) for size in values.shape[2:])):
                if least[1] > CONSTANT and _may_meet(queries, keys):
                    shares = _unexplained_on(values, queries, keys)
                    least = min(least, (min(shares), max(shares)))
        return least


# A network may draw numbers as it runs.
@torch.random.fork_rng(devices=[])
def check_shapes(model: nn.Module, shapes: Sequence[tuple[int, int]]) -> list[ShapeCheck]:
    """Check ``model`` at each of ``shapes``, which are (frames, crop) and end with the full shape.

    The model takes float clips (B, 3, T, S, S) and returns (B, classes). It stays as it is. The check needs memory
    for a copy of the model, and for the logits of its attention at one shape.
    """
    model = copy.deepcopy(model).cpu().float().eval()
    *coarse, full = shapes
    # Before parameters become random, so that what runs here is the network as it is.
    problems = {shape: _run_problem(model, shape) for shape in shapes}
    if problems[full]:
        # Without the full shape there is nothing to compare with.
        return [ShapeCheck(*shape, problem=problems[shape]) for shape in shapes]
    _randomise(model)
    # Of all logits only this shape's stay in memory; each coarse shape is compared as soon as it ran.
    wanted = _logits(model, full)
    kinds = tuple(_kind(logits) for logits in wanted)
    checks = [
        ShapeCheck(*shape, problem=problems[shape])
        if problems[shape]
        else _compare(shape, full, kinds, wanted, _logits(model, shape))
        for shape in coarse
    ]
    relative = [layer for layer, kind in zip(wanted, kinds, strict=True) if kind == "relative"]
    return [
        *checks,
        ShapeCheck(*full, kinds, max((layer.unexplained[1] for layer in relative), default=0.0)),
    ]


def _run_problem(model: nn.Module, shape: tuple[int, int]) -> str:
    """Run two clips of ``shape``, and say what is wrong with the result."""
    frames, crop = shape
    # Two clips, because a network may lose a dimension of size 1 on the way.
    clips = torch.randn(2, 3, frames, crop, crop, generator=torch.Generator().manual_seed(0))
    try:
        with torch.no_grad():
            logits = model(clips)
    # A network may raise anything for a shape that it does not expect.
    except Exception as error:
        text = (str(error).strip().splitlines() or [""])[0]
        # A ValueError is meant for people, and says all itself.
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        return f"it does not run: {kind}{text}"
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != 2:
        given = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        return f"two clips give {given}, not two rows of logits"
    return "" if logits.isfinite().all() else "its logits are not finite"


def _randomise(model: nn.Module) -> None:
    """Draw all parameters that may be positions: tables that start at zero would show nothing."""
    generator = torch.Generator().manual_seed(0)
    for module in model.modules():
        if not isinstance(module, WITH_CONTENT):
            for parameter in module.parameters(recurse=False):
                parameter.data = torch.randn(parameter.shape, generator=generator)


# --- what attention sees


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Record the logits of every attention layer. Repeat edges where the network pads with zeros."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[Logits] = []
        self._grids: set[Grid] = set()

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: object,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the operator returns
        if func in SOFTMAX:
            logits, dim = args[0], args[1]
            # A softmax over classes has no queries.
            if logits.ndim >= 3 and dim in (-1, logits.ndim - 1):
                self.found.append(Logits.of(logits, frozenset(self._grids)))
        elif func is torch.ops.aten.convolution.default:
            x, weight, bias, stride, padding, *others = args
            # The padding of the last dimension comes first.
            x = _with_edges(x, [number for side in reversed(padding) for number in (side, side)])
            out = func(x, weight, bias, stride, [0] * len(padding), *others)
            if out.ndim < 4:
                # A convolution over frames alone has no grid of places.
                return out
            # A network of pictures has the frames in the place of clips.
            time, height, width = (*out.shape[:1], *out.shape[2:])[-3:]
            self._grids.add((time, height, width))
            return out
        elif func is torch.ops.aten.constant_pad_nd.default:
            return _with_edges(args[0], args[1])
        return func(*args, **(kwargs or {}))


SOFTMAX = (torch.ops.aten._softmax.default, torch.ops.aten._safe_softmax.default)


def _with_edges(x: Tensor, pad: Sequence[int]) -> Tensor:
    """Pad as F.pad does, in any number of dimensions, with copies of the first and last values."""
    for number, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        if before or after:
            size = x.shape[-1 - number]
            places = torch.arange(-before, size + after).clamp(0, size - 1)
            x = x.index_select(x.ndim - 1 - number, places)
    return x


def _logits(model: nn.Module, shape: tuple[int, int]) -> list[Logits]:
    """Return the logits of every attention layer for a clip of one colour."""
    frames, crop = shape
    recorder = _Recorder()
    was_fast = torch.backends.mha.get_fastpath_enabled()
    # torch's fused layers and kernels call no softmax, so the same is computed without them.
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), recorder:
            model(torch.full((1, 3, frames, crop, crop), COLOUR))
    finally:
        torch.backends.mha.set_fastpath_enabled(was_fast)
    return recorder.found


# --- how logits depend on positions


def _kind(logits: Logits) -> Positions:
    if not _varies(logits.some).any():
        return "none"
    return "relative" if logits.unexplained[0] <= MOST_UNEXPLAINED else "absolute"


def _compare(
    shape: tuple[int, int],
    full: tuple[int, int],
    kinds: tuple[Positions, ...],
    wanted: list[Logits],
    coarse: list[Logits],
) -> ShapeCheck:
    """Compare every attention layer at ``shape`` with itself at the ``full`` shape."""
    if len(coarse) != len(wanted):
        number = f"it has {len(coarse)} attention layers, and {len(wanted)} at the full shape"
        return ShapeCheck(*shape, problem=f"positions cannot be compared: {number}")
    worst, problem = 0.0, ""
    seen: set[str] = set()
    for layer, (kind, at_full_shape, other) in enumerate(
        zip(kinds, wanted, coarse, strict=True), start=1
    ):
        if kind == "absolute":
            # After attention over all tokens, contents depend on the positions of all others.
            is_later = bool(seen & {"all", at_full_shape.part})
            seen.add(at_full_shape.part)
        if kind == "none" or (kind == "absolute" and is_later):
            continue
        if kind == "relative":
            (best, deviation), at_full = other.unexplained, at_full_shape.unexplained[1]
            is_wrong = best > MOST_UNEXPLAINED or deviation > MOST_IN_A_HEAD >= at_full
            why = f"distance does not explain {deviation:.0%} of a head's logits (full shape: {at_full:.0%})"
        else:
            correlation = _correlation(at_full_shape, other, full, shape)
            if correlation is None:
                continue
            deviation = 1 - correlation
            is_wrong = deviation > 1 - LEAST_CORRELATION
            why = f"a head's logits correlate by {1 - deviation:.2f} with those at its places of the full shape"
        worst = max(worst, deviation)
        if is_wrong and not problem:
            problem = f"attention layer {layer} of {len(kinds)} has wrong positions: {why}"
    return ShapeCheck(*shape, kinds, worst, problem)


def _grids(num_tokens: int) -> Iterator[Grid]:
    """Yield the grids of ``num_tokens`` tokens. Crops are square, so windows and grids of tokens are too."""
    # Few frames are likely, so the finest squares come first.
    for side in range(math.isqrt(max(0, num_tokens)), 0, -1):
        if num_tokens % side**2 == 0:
            yield num_tokens // side**2, side, side


def _may_meet(queries: Grid, keys: Grid) -> bool:
    """Return whether queries and keys may be tokens of one clip, with one of the two pooled."""
    ratios = [query / key for query, key in zip(queries, keys, strict=True)]
    is_whole = all(ratio.is_integer() or (1 / ratio).is_integer() for ratio in ratios)
    return is_whole and (min(ratios) >= 1 or max(ratios) <= 1)


def _unexplained_on(values: Tensor, queries: Grid, keys: Grid) -> list[float]:
    """Return the unexplained share of each head of ``values`` (windows, heads, queries, keys)."""
    distance = torch.zeros(values.shape[2:], dtype=torch.long)
    for num_queries, num_keys, query, key in zip(
        queries, keys, _places(queries), _places(keys), strict=True
    ):
        finest = math.lcm(num_queries, num_keys)
        between = query[:, None] * (finest // num_queries) - key[None] * (finest // num_keys)
        # The distances along the three axes are digits of one number: each is above −finest and below finest.
        distance = distance * (2 * finest) + between + finest
    distances, group = torch.unique(distance.flatten(), return_inverse=True)
    count = torch.bincount(group).double()
    shares = []
    for head in values.unbind(1):
        # Heads and windows in which all logits are alike say nothing.
        # In float32 rounding alone would leave a part unexplained.
        flat = head[_varies(head)].double().flatten(1)
        if len(flat):
            sums = torch.zeros(len(flat), len(distances), dtype=flat.dtype)
            means = sums.index_add_(1, group, flat) / count
            left = (flat - means[:, group]).square().mean(1)
            shares.append((left / flat.var(1, unbiased=False)).sqrt().min().item())
    return shares or [0.0]


def _varies(values: Tensor) -> Tensor:
    """Return for each of ``values`` (..., queries, keys) whether it depends on queries or keys."""
    spread = values.flatten(-2).std(-1, unbiased=False)
    return spread > CONSTANT * (1 + values.abs().amax((-2, -1)))


def _places(grid: Grid) -> Tensor:
    """Return (3, tokens): the place of each token along time, height and width."""
    axes = (torch.arange(size) for size in grid)
    return torch.stack([axis.flatten() for axis in torch.meshgrid(*axes, indexing="ij")])


def _correlation(
    full: Logits, coarse: Logits, full_shape: tuple[int, int], shape: tuple[int, int]
) -> float | None:
    """Correlate the logits of a coarse shape with those of the full shape at the same places, in the worst head.

    The network may choose between neighbouring places or take their mean. So it is the largest over the usual
    ways to sample. It is None if the tokens have no grids that differ as the shapes do.
    """
    best = None
    means = [full.mean, coarse.mean]
    # The number of windows depends on the shape, that of heads does not. So others are windows, too.
    if len(full.mean) != len(coarse.mean) or coarse.mean.shape[-1] < LEAST_TOKENS:
        means = [mean.mean(0, keepdim=True) for mean in means]
    varies = _varies(means[0])
    for extra in (0, 1):
        wanted, given = (mean[varies, extra:, extra:].double() for mean in means)
        sizes = zip(wanted.shape[1:], given.shape[1:], strict=True)
        queries, keys = (
            [
                pair
                for pair in _grid_pairs(full, coarse, *size)
                if _is_scaled(*pair, full_shape, shape)
            ]
            for size in sizes
        )
        for rows, columns in product(queries, keys):
            # As many queries as keys are the same tokens.
            if wanted.shape[1] == wanted.shape[2] and rows != columns:
                continue
            for way in SAMPLINGS:
                once = _sampled(wanted, *columns, way)
                sampled = _sampled(once.transpose(1, 2), *rows, way).transpose(1, 2)
                best = max(best or 0.0, _pearson(sampled, given).min().item())
    return best


def _grid_pairs(
    full: Logits, coarse: Logits, num_full: int, num_coarse: int
) -> Iterator[tuple[Grid, Grid]]:
    """Yield the grids that so many tokens may have at the full shape and at the coarse one."""
    grids_of_both = [full.grids_of(num_full), coarse.grids_of(num_coarse)]
    # A network may make or pool its tokens without a convolution. But as many of them at both shapes are a window.
    if num_full != num_coarse:
        grids_of_both = [
            grids or [*_grids(size)]
            for grids, size in zip(grids_of_both, (num_full, num_coarse), strict=True)
        ]
    yield from product(*grids_of_both)


SAMPLINGS: tuple[dict[str, Any], ...] = (
    {"mode": "trilinear"},
    {"mode": "trilinear", "align_corners": True},
    {"mode": "nearest"},
    {"mode": "nearest-exact"},
    {"mode": "area"},
)


def _is_scaled(many: Grid, few: Grid, full: tuple[int, int], shape: tuple[int, int]) -> bool:
    """Return whether two grids of tokens differ as the two shapes do."""
    wanted = (many[0] * shape[0] / full[0], many[1] * shape[1] / full[1])
    return all(abs(size - given) < 1 for size, given in zip(wanted, few[:2], strict=True))


def _sampled(values: Tensor, many: Grid, few: Grid, way: dict[str, Any]) -> Tensor:
    """Sample the keys of ``values`` (N, queries, keys), which lie on the grid ``many``, on the grid ``few``."""
    planes = values.reshape(-1, 1, *many)
    return F.interpolate(planes, few, **way).reshape(*values.shape[:2], -1)


def _pearson(first: Tensor, second: Tensor) -> Tensor:
    first, second = (part - part.mean((1, 2), keepdim=True) for part in (first, second))
    return F.cosine_similarity(first.flatten(1), second.flatten(1), dim=1)
