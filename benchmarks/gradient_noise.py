#!/usr/bin/env python3
"""Measure the gradient noise scale of a row: up to how many clips the learning rate may grow with the mini-batch.

    python benchmarks/gradient_noise.py --cfg ROW.yaml [KEY VALUE ...]     before and after a minute of training
    python benchmarks/gradient_noise.py --cfg ROW.yaml --run RUN           at each checkpoint of a run

It needs the videos of the row. The clips have the shape of the row's largest mini-batches. MULTIGRID.LR_SCALING
noise takes the result as MULTIGRID.NOISE_SCALE. It did not predict where multigrid pays: see benchmarks/README.md.
Exit 0; 2 bad input; 4 stopped by Ctrl-C.

Source: McCandlish et al., An Empirical Model of Large-Batch Training, arXiv 1812.06162. The gradient of B clips is
the mean gradient G plus noise of covariance Σ / B. The simple noise scale N = tr Σ / |G|² counts clips. The best
learning rate of SGD for B clips is proportional to 1 / (1 + N/B): it grows with B up to about N clips, and hardly
beyond.

Batch norm makes the gradient of a clip depend on the other clips of its BN group. So we measure groups: the
gradient of a group counts as the mean of its clips' gradients, and larger mini-batches are means over groups.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

# mgexp comes before torch, because it sets how torch's threads wait.
import mgexp  # noqa: F401

# isort: split
import simplejson
import torch
from torch import Tensor, nn

from mgexp.config.keys import Config
from mgexp.config.load import read_config
from mgexp.data.loader import build_train_loader
from mgexp.dist import device_of
from mgexp.errors import InputError, TrainingError, raise_problems
from mgexp.models.layers import Draws
from mgexp.multigrid.batchnorm import keeping
from mgexp.multigrid.sampler import ClipRequest, StepSampler
from mgexp.multigrid.schedule import Schedule, StepShape, base_shapes
from mgexp.optim.build import set_rates
from mgexp.options import ToolParser, add_import_option, run_tool
from mgexp.plan.ways import build_training_step
from mgexp.run.folder import RunDir
from mgexp.run.log import progress_bar
from mgexp.run.torch_file import load_torch
from mgexp.train.precision import Precision
from mgexp.train.setup import Inputs, build_fit, build_inputs, build_row_schedule
from mgexp.train.step import TrainStep, check_clips, seed_step

NUM_BLOCKS, NUM_GROUPS = 10, 16
"""Blocks, and BN groups in a block. With groups of 8 clips these are 1,280 clips. The standard error comes from
leaving out one block at a time; ten blocks give it to about a quarter. The sums of all blocks stay in memory."""
GROUP_CLIPS = 8
"""Clips of a group of a network without batch norm. They are as many as a BN group of the paper has."""
NUM_STEPS, TRAIN_SECONDS = 200, 60.0
"""Without a run, the network is trained for so many steps, or for so long, before the second measurement.
Assumption: it then has begun to learn. The noise scale grows later in training."""
SEED_OFFSET = 2_000_003
"""Added to the seed of training, so that the clips are other draws from the same videos."""
EXCESS = 1.5
"""Largest learning rate, relative to the best one for its clips, at which linear scaling counts as holding. A step
at ρ times the best rate makes 2ρ − ρ² of the best progress (section 2.2 of the paper): three quarters at 1.5, and
none at 2. Assumption: the rate of the baseline is the best one for the baseline's clips. Two sets agree with the
limit, which is no proof. It is 29 clips early on the quickstart, where coarse mini-batches of 32 clips train well
and larger ones fail; 64 clips of the full shape do not (``sgd_8x`` of experiments/large_batch, one seed). It is 74
on MIRACL-VC1, where 32 clips lose accuracy for another reason (see the prose.md of both studies)."""


@dataclass(frozen=True)
class NoiseScale:
    """The gradient noise scale N in ``clips``, with its standard ``error``, measured with ``num_clips`` clips.

    ``low`` to ``high`` contain N with about 95 % probability. ``high`` is infinite if so few clips
    do not show a gradient through the noise. ``clips`` is then uncertain, or infinite too.
    """

    clips: float
    error: float
    low: float
    high: float
    num_clips: int

    def __str__(self) -> str:
        high = f"{self.high:,.0f}" if math.isfinite(self.high) else "any number"
        return f"N = {self.clips:,.0f} clips (95 %: {self.low:,.0f} to {high})"


def gradient_and_noise(
    small: float, big: float, small_clips: float, big_clips: float
) -> tuple[float, float]:
    """Estimate |G|² and tr Σ from the mean squared norms of gradients of ``small_clips`` and ``big_clips`` clips.

    Both estimates are without bias. Source: arXiv 1812.06162, appendix A.1.
    """
    gradient = (big_clips * big - small_clips * small) / (big_clips - small_clips)
    noise = (small - big) / (1 / small_clips - 1 / big_clips)
    return gradient, noise


def noise_scale(
    sums: Sequence[Tensor], squares: Sequence[float], num_groups: int, clips: int
) -> NoiseScale:
    """Estimate the noise scale from blocks of ``num_groups`` BN groups of ``clips`` clips each.

    ``sums`` has the sum of the gradients of each block, (parameters,), and ``squares`` the sum of
    their squared norms. All groups together are the big mini-batch, so every pair of groups counts.
    """
    if not all(map(math.isfinite, squares)):
        raise TrainingError("the gradients are not finite")
    products = torch.tensor([[float(own @ other) for other in sums] for own in sums]).double()
    num_blocks = len(sums)

    def inverse(blocks: Sequence[int]) -> float:
        num = len(blocks) * num_groups
        small = sum(squares[block] for block in blocks) / num
        big = float(products[blocks][:, blocks].sum()) / num**2
        gradient, noise = gradient_and_noise(small, big, clips, num * clips)
        return gradient / noise

    # |G|² may be small and uncertain, whereas tr Σ is well known. So 1/N is about normally
    # distributed and N is not, and we take the interval of 1/N.
    blocks = range(num_blocks)
    inverse_scale = inverse([*blocks])
    without = [inverse([other for other in blocks if other != block]) for block in blocks]
    mean = sum(without) / num_blocks
    spread = sum((value - mean) ** 2 for value in without)
    error = math.sqrt((num_blocks - 1) / num_blocks * spread)

    def clips_of(value: float) -> float:
        return 1 / value if value > 0 else math.inf

    return NoiseScale(
        clips=clips_of(inverse_scale),
        error=error * clips_of(inverse_scale) ** 2,
        low=clips_of(inverse_scale + 2 * error),
        high=clips_of(inverse_scale - 2 * error),
        num_clips=num_blocks * num_groups * clips,
    )


def linear_limit(noise_scale: float, clips: int) -> float:
    """Return up to how many clips linear scaling from ``clips`` is likely to hold.

    For C clips, linear scaling gives (C + N) / (B + N) times the best rate. This is EXCESS at C =
    EXCESS·B + (EXCESS − 1)·N.
    """
    return EXCESS * clips + (EXCESS - 1) * noise_scale


def measure_noise(step: TrainStep, batches: Iterable[Any], clips: int) -> NoiseScale:
    """Measure the noise scale of ``step`` at its present weights. A batch is one BN group of ``clips`` clips.

    Weights and statistics of batch norm stay the same. Gradients are computed in fp32.
    """
    # The loss scale of fp16 would cancel, but gradients that overflow would not.
    exact = replace(step, precision=Precision("fp32"), scaler=torch.amp.GradScaler(enabled=False))
    sums: list[Tensor] = []
    squares: list[float] = []
    for number, batch in enumerate(batches):
        check_clips(batch)
        with keeping(step.model):
            exact.backward(batch.on(step.normalizer.device), 1, Draws(SEED_OFFSET, number))
        parts = [p.grad.flatten() for p in step.model.parameters() if p.grad is not None]
        gradient = torch.cat(parts)
        if number % NUM_GROUPS == 0:
            # A GPU need not have room for many gradients, so their sums are in main memory.
            sums.append(torch.zeros_like(gradient, device="cpu"))
            squares.append(0.0)
        sums[-1] += gradient.cpu()
        squares[-1] += float(gradient.double().square().sum())
    return noise_scale(sums, squares, NUM_GROUPS, clips)


def measure_points(
    cfg: Config, inputs: Inputs, run_dir: RunDir | None
) -> Iterator[tuple[int, StepShape, NoiseScale]]:
    """Yield the number of steps, the shape of the largest mini-batches, and the noise scale there.

    With ``run_dir``, the weights are those of its checkpoints. Otherwise the baseline of ``cfg`` is trained for
    some steps, and the noise is measured before and after them.
    """
    schedule = inputs.schedule
    # This shape has the largest rate. Its clips are noisier than full ones: the quickstart's
    # baseline has N = 168 there and 52 at the full shape, after 300 steps.
    shape = max(base_shapes(schedule), key=lambda shape: shape.clips)
    step = build_training_step(cfg, device_of(cfg.DEVICE)).step
    clips = shape.clips // max(1, shape.num_bn_groups) if step.has_batchnorm else GROUP_CLIPS
    points = saved_points(step.model, run_dir) if run_dir else first_points(cfg, inputs, step)
    for num_steps in points:
        requests = noise_requests(schedule, shape, clips, cfg.RNG_SEED)
        device = step.normalizer.device
        batches = build_train_loader(cfg, inputs.train, requests, device, inputs.opener)
        shown = progress_bar(len(requests), " gradients", batches, desc=f"after {num_steps} steps")
        yield num_steps, shape, measure_noise(step, shown, clips)


def noise_requests(
    schedule: Schedule, shape: StepShape, clips: int, seed: int
) -> list[list[ClipRequest]]:
    """Draw the ``clips`` of each group at ``shape``."""
    # The stream of training takes every video once before it takes one again. The gradients of a
    # small data set would then add up to nearly its mean gradient, and be less noisy than the
    # estimate expects. So each clip takes any video.
    phase = next(phase for phase in schedule.phases if phase.cycle.base.frames == shape.frames)
    own_seed = seed + SEED_OFFSET
    generator = torch.Generator().manual_seed(own_seed)
    size = (NUM_BLOCKS * NUM_GROUPS, clips)
    videos = torch.randint(schedule.num_videos, size, generator=generator).tolist()
    return [
        [
            ClipRequest(
                video,
                shape.frames,
                shape.crop,
                phase.stride_range,
                (own_seed, group * clips + place),
            )
            for place, video in enumerate(row)
        ]
        for group, row in enumerate(videos)
    ]


def saved_points(model: nn.Module, run_dir: RunDir) -> Iterator[int]:
    """Load each checkpoint of a run into ``model`` in turn, and yield its number of steps.

    Raises InputError if a checkpoint is damaged or of another network.
    """
    for num_steps in run_dir.checkpoint_steps():
        path = run_dir.checkpoint(num_steps)
        try:
            model.load_state_dict(load_torch(path)["model"])
        except (TrainingError, RuntimeError, LookupError) as error:
            raise InputError(
                [f"{path} is not a checkpoint of the row's network: {error}"]
            ) from error
        yield num_steps


def first_points(cfg: Config, inputs: Inputs, step: TrainStep) -> Iterator[int]:
    """Yield 0, then train the baseline of ``cfg`` and yield the number of its steps."""
    if cfg.TRAIN.INIT_WEIGHTS:
        build_fit(cfg, step.model, cfg.TRAIN.INIT_WEIGHTS).load_into(step.model)
    yield 0
    keys = replace(cfg.MULTIGRID, LONG_CYCLE=False, SHORT_CYCLE=False)
    schedule = build_row_schedule(replace(cfg, MULTIGRID=keys), len(inputs.train))
    sampler = StepSampler(schedule, cfg.RNG_SEED)
    device = step.normalizer.device
    loader = build_train_loader(cfg, inputs.train, sampler, device, inputs.opener)
    end, num_steps = time.perf_counter() + TRAIN_SECONDS, 0
    # The end of a short training has a small learning rate, and it is not about the coarse phases.
    for num_steps, batch in enumerate(islice(loader, min(NUM_STEPS, schedule.total_steps // 2)), 1):
        check_clips(batch)
        plan = schedule.plan_at(num_steps - 1)
        set_rates(step.optimizer, plan.lr, plan.weight_decay_factor)
        seed_step(cfg.RNG_SEED, plan.step)
        step(batch.on(device), plan.num_bn_groups, Draws(cfg.RNG_SEED, plan.step))
        if time.perf_counter() > end:
            break
    yield num_steps


def read(cfg_path: Path, overrides: list[str]) -> tuple[Config, Inputs]:
    """Read a row and find its videos. Raises InputError."""
    cfg, problems = read_config(cfg_path, overrides)
    raise_problems(problems)
    # NUM_WORKERS may be auto. Here the process loads its clips itself.
    cfg = replace(cfg, DATA_LOADER=replace(cfg.DATA_LOADER, NUM_WORKERS=0))
    return cfg, build_inputs(cfg, [], 1)


def main(arguments: list[str]) -> int:
    parser = ToolParser(__doc__, "--cfg YAML [options] [KEY VALUE ...]")
    add = parser.add_argument
    add("--cfg", type=Path, required=True, help="YAML of a row, in experiments/")
    add_import_option(parser)
    add("--run", type=Path, help="run folder whose checkpoints are measured")
    add("--json", action="store_true", help="for programs")
    add("overrides", nargs="*", metavar="KEY VALUE", help="configuration keys")
    options = parser.parse_intermixed_args(arguments)
    cfg, inputs = read(options.cfg, options.overrides)
    points = []
    for num_steps, shape, noise in measure_points(cfg, inputs, options.run and RunDir(options.run)):
        limit = linear_limit(noise.clips, inputs.schedule.recipe.clips)
        points.append({"steps": num_steps, "shape": str(shape), "limit": limit, **asdict(noise)})
        if not options.json:
            print(
                f"after {num_steps} steps, {shape}: {noise}; linear scaling to {limit:,.0f} clips"
            )
    if options.json:
        print(simplejson.dumps(points, indent=2, ignore_nan=True))
    return 0


if __name__ == "__main__":
    sys.exit(run_tool(main))
