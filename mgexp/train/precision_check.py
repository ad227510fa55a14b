"""The check before training in reduced precision: compare every layer with fp32 at every shape.

Measured in November 2026 (torch 2.15, a CPU with AVX512-BF16, channels_last_3d): the bf16 weight
gradient of a convolution is wrong if the kernel covers more frames than the input has, such as
5×7×7 over 2 or 4 frames and 3×1×1 over 2. Sometimes it is garbage, sometimes infinite.

- Wrong layers (SlowFast of depth 18, shapes of the quickstart with 4 and 8 frames): with 32
  channels their cosine with fp32 was 0.00 to 0.55, or they were not finite. With 8 channels it was
  up to 0.85.
- All other tensors had a cosine of 0.99999 or more and norms of 0.998 to 1.002 times those in fp32.
  This holds for 32 channels, for I3D with non-local blocks, for TSM (depth 50, 8 channels) and for
  SlowFast at 16 frames. SlowFast in fp16 had a cosine of 0.999999 or more.

So the thresholds have room on both sides. GPUs were not measured.

A process that runs the wrong kernels may die. Measured: "Aborted" in a backward pass in bf16 at 2
and 4 frames, so the kernels seem to write out of bounds. For this reason the log names each shape
before its check.

The check takes as long as a few training steps of each shape. On a CPU these are minutes (4 for the
quickstart on two busy cores). So each passed check is remembered in a small file in the user's
cache folder.

Layers are checked one by one, because rounding adds up over a network. Measured for whole networks
(SlowFast of depth 18, 32 channels, shapes of the quickstart, bf16 on a CPU): the cosines of
gradients with those in fp32 were 0.96 to 0.98 in the median, 0.87 to 0.92 for the worst correct
convolutions, and down to -0.36 for scales of 4 channels. A convolution with a wrong backward pass
had 0.51 to 0.79. No threshold separates these safely, and a deeper network would be harder. If a
layer gets the same inputs in both precisions, a correct layer shows only its own rounding.
"""

from __future__ import annotations

import copy
import hashlib
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import simplejson
import torch
from torch import Tensor, nn
from torch.autograd.graph import register_multi_grad_hook
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from mgexp import dist
from mgexp.data.clips import Batch
from mgexp.dist import Processes
from mgexp.errors import InputError, TrainingError, first_line, listed, raise_problems
from mgexp.multigrid.batchnorm import set_num_groups
from mgexp.multigrid.schedule import StepShape
from mgexp.registry import imported
from mgexp.run.environment import cpu_model
from mgexp.run.files import read_json, write_json
from mgexp.run.log import LOGGER
from mgexp.run.remote import cache_folder
from mgexp.train.faults import is_out_of_memory
from mgexp.train.precision import Precision
from mgexp.train.step import Normalizer, keeping_random_state
from mgexp.train.task import Loss, Task

COARSE = 8
"""Pixels and frames between two random values of a clip. Neighbours are alike, as in videos."""
NOISE = 8
"""Noise like that of a camera, in grey levels: uniform in −NOISE to NOISE."""
NUM_KINDS = 4
"""Clips of one kind look alike and have the same label, as in a data set. So their gradients add up."""
LIKENESS = 0.7
"""The share of a clip's values that all clips of its kind have in common."""

LARGEST_SCALE = 2.0**16
"""The first scale of torch's GradScaler. As there, the scale is halved while gradients overflow."""

MIN_COSINE = 0.99
MIN_RATIO, MAX_RATIO = 0.9, 1.1
"""Ratio of the norm in low precision to the norm in fp32. These limits and MIN_COSINE lie between
the measured wrong and correct layers."""
NEGLIGIBLE = 1e-6
"""A tensor is not judged if its norm is a smaller share of the largest norm of its kind, both in
fp32 and in low precision. This is an assumption. The smallest measured tensor, a bias before a
norm, had a share of 3e-7 and agreed."""
MAX_SHOWN = 4
"""A message names at most this many wrong tensors."""

VERSION = 2
"""Raise it when the check changes, so that models which passed an older check are checked again."""

EXACT = Precision("fp32")


def draw_batch(shape: StepShape, task: Task) -> Batch:
    """Draw smooth clips of a few kinds, with some noise, and labels. torch's global generator stays untouched."""
    generator = torch.Generator().manual_seed(0)
    size = (shape.frames, shape.crop, shape.crop)
    small = [max(2, -(-length // COARSE)) for length in size]
    common = torch.rand(NUM_KINDS, 3, *small, generator=generator)
    kinds = torch.arange(shape.clips) % NUM_KINDS
    # We draw clip by clip, so that the batch is never in memory as float32.
    clips = torch.empty(shape.clips, *size, 3, dtype=torch.uint8)
    for clip, kind in zip(clips, kinds, strict=True):
        own = torch.rand(common[kind].shape, generator=generator)
        coarse = 255 * torch.lerp(own, common[kind], LIKENESS)
        smooth = F.interpolate(coarse[None], size, mode="trilinear")[0].permute(1, 2, 3, 0)
        noise = NOISE * (2 * torch.rand(smooth.shape, generator=generator) - 1)
        clip.copy_((smooth + noise).round().clamp(0, 255))
    labels = task.draw_labels(NUM_KINDS, generator)
    return Batch(clips.permute(0, 4, 1, 2, 3), labels[kinds], ())


@dataclass(frozen=True)
class Agreement:
    """Comparison of one tensor of a layer, such as "weight gradient of blocks.0.conv", with fp32.

    ``cosine`` is the cosine of the tensors in low precision and in fp32. ``ratio`` is the norm in
    low precision divided by the norm in fp32. ``share`` is the norm in fp32 divided by the largest
    such norm of its kind in the model. All three are NaN if ``is_finite`` is False, and ``cosine``
    is NaN if the fp32 values are all 0.
    """

    tensor: str
    is_finite: bool
    cosine: float
    ratio: float
    share: float

    @classmethod
    def of(cls, tensor: str, products: Sequence[float], largest: float) -> Agreement:
        """Compare by the inner products low·low, low·exact and exact·exact, over all chunks.

        ``largest`` is the largest fp32 norm of this kind of tensor in the model.
        """
        low_low, low_exact, exact_exact = products
        if not math.isfinite(low_low + low_exact):
            return cls(tensor, False, math.nan, math.nan, math.nan)
        low, exact = low_low**0.5, exact_exact**0.5
        if exact == 0:
            return cls(tensor, True, math.nan, math.inf if low else 1.0, 0.0)
        cosine = low_exact / (low * exact) if low else 0.0
        return cls(tensor, True, cosine, low / exact, exact / largest)

    @property
    def is_negligible(self) -> bool:
        """Return whether the tensor is too small to be judged, relative to others of its kind."""
        if not self.is_finite:
            return False
        # In fp32 the tensor is all 0. The ratio is 1 if it is all 0 in low precision too.
        if self.share == 0:
            return self.ratio == 1.0
        return self.share < NEGLIGIBLE and self.share * self.ratio < NEGLIGIBLE

    @property
    def is_fault(self) -> bool:
        """Return whether the tensor is not finite, or differs from fp32 by more than rounding."""
        if not self.is_finite:
            return True
        is_close = self.cosine >= MIN_COSINE and MIN_RATIO <= self.ratio <= MAX_RATIO
        return not (self.is_negligible or is_close)

    def __str__(self) -> str:
        if not self.is_finite:
            return f"{self.tensor} is not finite"
        return f"{self.tensor} has cosine {self.cosine:.3f} and norm {self.ratio:.3g} times that in fp32"


def copy_to_check(model: nn.Module) -> nn.Module:
    """Copy ``model`` in training mode without dropout, so that every layer has a gradient."""
    clone = copy.deepcopy(model).train()
    for module in clone.modules():
        if isinstance(module, _DropoutNd):
            module.eval()
        # In a new model the last norm of each residual block has only scales of 0. Then the
        # convolutions before it have no gradient to check, so the copy gets scales of 1 there.
        if isinstance(module, _BatchNorm) and module.affine and not module.weight.any():
            nn.init.ones_(module.weight)
        # The check compares the outputs of layers, which a module that works in place would overwrite.
        if hasattr(module, "inplace"):
            module.inplace = False  # type: ignore[assignment]
    return clone


class LayerCheck:
    """Check of the layers of ``model``, a copy that nobody else uses, on ``normalizer.device``.

    The model runs once, in low precision. A hook repeats the forward and backward pass of each
    layer in fp32, from the same input and output gradient, so that rounding does not add up from layer to layer.
    ``unchecked`` names the layers that take or return anything but one tensor of floats, such as embeddings.
    """

    def __init__(self, model: nn.Module, loss: Loss, normalizer: Normalizer) -> None:
        self.model, self.loss, self.normalizer = model, loss, normalizer
        # ``_products`` holds inner products by (layer, kind of tensor), see ``Agreement.of``.
        # ``_exact`` holds the fp32 gradients of parameters, which several layers may share.
        self._products: dict[tuple[str, str], list[float]] = {}
        self._exact: dict[nn.Parameter, Tensor] = {}
        self.unchecked: set[str] = set()

    def run(self, sample: Batch, num_groups: int, precision: Precision) -> list[Agreement]:
        """Compare the output, the input gradient and the weight gradients of each layer that has weights.

        ``precision`` computes the whole batch at once, as a training step does. fp32 computes one
        BN group after another. fp16 uses the largest loss scale at which all gradients are finite,
        or 1.
        """
        set_num_groups(self.model, num_groups)
        scale = LARGEST_SCALE if precision.name == "fp16" else 1.0
        while True:
            found = self._run_once(sample, num_groups, precision, scale)
            if scale == 1.0 or all(one.is_finite for one in found):
                return found
            scale /= 2

    def _run_once(
        self, sample: Batch, num_groups: int, precision: Precision, scale: float
    ) -> list[Agreement]:
        self._products, self._exact = {}, {}
        self.model.zero_grad(set_to_none=True)
        device = self.normalizer.device
        with self._hooks(num_groups), precision.backends():
            with precision.autocast(device):
                logits = self.model(self.normalizer(sample.clips))
                loss = self.loss(logits, sample.labels.to(device))
            (scale * loss).backward()  # type: ignore[no-untyped-call]
        for name, parameter in self.model.named_parameters():
            layer, _, kind = name.rpartition(".")
            exact = self._exact.get(parameter)
            # The gradient of a layer that was checked in some of its calls only is the sum over all.
            if exact is not None and parameter.grad is not None and layer not in self.unchecked:
                self._compare(layer, f"{kind} gradient", parameter.grad, exact)
        largest: dict[str, float] = {}
        for (_, kind), (*_, exact_exact) in self._products.items():
            largest[kind] = max(largest.get(kind, 0.0), exact_exact**0.5)
        return [
            Agreement.of(f"{kind} of {layer}", products, largest[kind])
            for (layer, kind), products in self._products.items()
        ]

    @contextmanager
    def _hooks(self, num_groups: int) -> Iterator[None]:
        """Check each layer that has weights when its backward pass is done, inside the block."""
        handles = []
        for name, module in self.model.named_modules():
            is_leaf = next(module.children(), None) is None
            if is_leaf and next(module.parameters(), None) is not None:
                handles.append(module.register_forward_pre_hook(_with_own_inputs))
                watch = partial(self._watch, name, num_groups)
                handles.append(module.register_forward_hook(watch))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _watch(
        self, name: str, num_groups: int, module: nn.Module, inputs: tuple[Any, ...], out: object
    ) -> None:
        """Check this call of a layer as soon as the backward pass has its gradients."""
        x = inputs[0] if len(inputs) == 1 else None
        if not (isinstance(x, Tensor) and isinstance(out, Tensor) and x.is_floating_point()):
            self.unchecked.add(name)
            return
        if not out.requires_grad:
            return
        # Hooks of tensors and not of the module, since those fail if the network changes ``out`` in place.
        low_x, low_out, version = x.detach(), out.detach(), out._version

        def check(grads: Sequence[Tensor | None]) -> None:
            grad_out, grad_x = grads if len(grads) == 2 else (grads[0], None)
            assert grad_out is not None
            kept = low_out if low_out._version == version else None
            self._check(name, num_groups, module, low_x, kept, grad_out, grad_x)

        register_multi_grad_hook([out, x] if x.requires_grad else [out], check)

    def _check(
        self,
        name: str,
        num_groups: int,
        module: nn.Module,
        x: Tensor,
        out: Tensor | None,
        grad_out: Tensor,
        grad_x: Tensor | None,
    ) -> None:
        """Repeat the forward and backward pass of one layer in fp32, BN group by BN group.

        ``out`` is None if the network changed the output in place, ``grad_x`` if the input needs no gradient.
        """
        own = dict(module.named_parameters(recurse=False))
        given = {"x": x, "out": out, "grad_out": grad_out, "grad_x": grad_x}
        parts = {key: value.chunk(num_groups) for key, value in given.items() if value is not None}
        autocast = torch.autocast(x.device.type, enabled=False)
        # Each chunk is one BN group.
        set_num_groups(module, 1)
        with EXACT.backends(), autocast, torch.enable_grad():
            for group in zip(*parts.values(), strict=True):
                low = dict(zip(parts, group, strict=True))
                exact_x = low["x"].float().requires_grad_()
                # We call forward() itself, because module(x) would run these hooks again.
                exact = module.forward(exact_x)
                grads = torch.autograd.grad(
                    exact, [exact_x, *own.values()], low["grad_out"].float()
                )
                if "out" in low:
                    self._compare(name, "output", low["out"], exact)
                if "grad_x" in low:
                    self._compare(name, "input gradient", low["grad_x"], grads[0])
                for parameter, grad in zip(own.values(), grads[1:], strict=True):
                    before = self._exact.get(parameter)
                    self._exact[parameter] = grad if before is None else before + grad
        set_num_groups(module, num_groups)

    def _compare(self, layer: str, kind: str, low: Tensor, exact: Tensor) -> None:
        """Add the inner products of one chunk.

        The sums over chunks are Python floats, that is float64.
        """
        low, exact = low.detach().float(), exact.detach()
        products = self._products.setdefault((layer, kind), [0.0, 0.0, 0.0])
        for place, (one, other) in enumerate(((low, low), (low, exact), (exact, exact))):
            products[place] += float((one * other).sum())


def _with_own_inputs(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Give a layer tensors of its own: the gradient of an input that others read too would be the sum of all."""
    return tuple(
        one.view_as(one) if isinstance(one, Tensor) and one.requires_grad else one for one in inputs
    )


@dataclass(frozen=True)
class PrecisionCheck:
    """Result of the check at one shape.

    ``min_cosine`` is the lowest cosine of all judged tensors. It is 0 if one of them is not finite.
    """

    shape: StepShape
    faults: tuple[Agreement, ...]
    min_cosine: float

    def problem(self, precision: Precision) -> str:
        """Describe the wrong tensors with their shape, numbers and remedy; return "" if none is wrong."""
        if not self.faults:
            return ""
        return (
            f"{precision.name} is wrong here for {shape_text(self.shape)}: "
            f"{listed([str(fault) for fault in self.faults], MAX_SHOWN, '; ')} (needed: finite, cosine "
            f"{MIN_COSINE:g} or more, norm {MIN_RATIO:g} to {MAX_RATIO:g} of fp32's); set TRAIN.PRECISION fp32"
        )


def check_precision(
    model: nn.Module,
    shapes: Iterable[StepShape],
    task: Task,
    normalizer: Normalizer,
    precision: Precision,
) -> list[PrecisionCheck]:
    """Check every layer at every shape on a copy. ``shapes`` have the clips that go through the network at once.

    The model, its buffers and torch's random state stay the same. The check needs the memory of a
    second model and about the memory of a training step.
    """
    device = normalizer.device
    checked = []
    with keeping_random_state(device):
        check = LayerCheck(copy_to_check(model), task.loss, normalizer)
        for shape in shapes:
            # The wrong kernels may end the process, so this line must be in the log before they run.
            LOGGER.info(
                "checking %s at %s; if the process dies here, set TRAIN.PRECISION fp32",
                *(precision.name, shape_text(shape)),
            )
            # A BN group that spans processes has only the clips of this process here. We take at
            # least two: with a single clip a norm may get one value per channel, and torch refuses
            # that.
            groups = max(1, shape.num_bn_groups)
            clips = shape.clips if shape.num_bn_groups > 0 else max(2, shape.clips)
            drawn = StepShape(shape.frames, shape.crop, clips, groups)
            try:
                found = check.run(draw_batch(drawn, task), groups, precision)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                # With TRAIN.ACTIVATION_CHECKPOINTING a step keeps less, but the check does not.
                remedy = "set TRAIN.MAX_CLIPS_PER_GPU lower, or TRAIN.PRECISION fp32, which needs no check"
                text = f"out of memory while {precision.name} was checked at {shape_text(shape)}"
                raise TrainingError(f"{text}: {remedy} ({first_line(error)})") from error
            judged = [one.cosine for one in found if not one.is_negligible]
            worst = min((0.0 if math.isnan(value) else value for value in judged), default=1.0)
            faults = tuple(one for one in found if one.is_fault)
            checked.append(PrecisionCheck(shape, faults, worst))
        if check.unchecked:
            names = listed(sorted(check.unchecked), MAX_SHOWN)
            LOGGER.info("layers that do not turn one tensor into one are not checked: %s", names)
    if device.type == "cuda":
        # The second model goes with ``check``, so that its memory is free for training. The run
        # records the peak memory of training alone.
        del check
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    return checked


def shape_text(shape: StepShape) -> str:
    """Describe a shape, such as "64x4x68² in 8 BN groups"."""
    groups = shape.num_bn_groups
    if groups < 0:
        return f"{shape} in a BN group that spans {-groups} processes"
    return f"{shape} in {groups} BN group{'s' if groups > 1 else ''}"


def require_precision(
    model: nn.Module,
    shapes: Sequence[StepShape],
    task: Task,
    normalizer: Normalizer,
    precision: Precision,
    processes: Processes,
) -> None:
    """Raise InputError in every process if any process finds ``precision`` wrong at one of ``shapes``.

    fp32 needs no check. A check that this machine has passed with the same model and versions is
    not repeated. Every process must call this.
    """
    if precision.is_exact:
        return
    record = check_record(model, shapes, precision, normalizer.device)
    problems: list[str] = []
    if not was_passed(record):
        found = check_precision(model, shapes, task, normalizer, precision)
        problems = [problem for one in found if (problem := one.problem(precision))]
        if not problems:
            remember(record, {str(one.shape): one.min_cosine for one in found})
    everyones = dist.merge(processes, {processes.rank: "\n".join(problems)})
    raise_problems([line for text in everyones.values() for line in text.splitlines()])


def check_record(
    model: nn.Module, shapes: Sequence[StepShape], precision: Precision, device: torch.device
) -> dict[str, Any]:
    """List everything that the result of a check depends on, as JSON values.

    The values of the weights are not part of it, because torch chooses its kernels without them.
    """
    tensors = [f"{name} {tuple(value.shape)}" for name, value in model.state_dict().items()]
    # The names and sizes say nothing of the forward pass of a network of one's own.
    files = [file.digest for file in imported()]
    layers = "\n".join([repr(model), *tensors, *files])
    if device.type == "cuda":
        machine = torch.cuda.get_device_name(device)
    else:
        # With this variable a user limits the instructions of oneDNN, which then runs other
        # kernels.
        limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "all")
        machine = f"{cpu_model()}, oneDNN {limit}"
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return {
        "version": VERSION,
        "machine": machine,
        "libraries": f"torch {torch.__version__}, cuDNN {cudnn}",
        "threads": torch.get_num_threads() if device.type == "cpu" else 0,
        "precision": precision.name,
        "model": hashlib.sha256(layers.encode()).hexdigest()[:32],
        "shapes": [f"{shape} {shape.num_bn_groups}" for shape in shapes],
    }


def passed_json(record: Mapping[str, Any]) -> Path:
    """Return the file of a passed check, in the user's cache."""
    text = simplejson.dumps(record, sort_keys=True)
    name = hashlib.sha256(text.encode()).hexdigest()[:32]
    return cache_folder("precision") / f"{name}.json"


def was_passed(record: Mapping[str, Any]) -> bool:
    """Return whether this check was passed before. If the file cannot be read, it was not."""
    try:
        return read_json(passed_json(record)).get("check") == record
    except InputError:
        return False


def remember(record: Mapping[str, Any], min_cosines: Mapping[str, float]) -> None:
    """Record that a check was passed, with the worst cosine of each shape."""
    path = passed_json(record)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"check": dict(record), "min_cosines": dict(min_cosines)})
    except OSError as error:
        LOGGER.warning("the precision check will be repeated at the next start: %s", error)
