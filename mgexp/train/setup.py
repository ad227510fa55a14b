"""From the configuration to what a run is made of: its schedule, inputs, step and evaluation."""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from mgexp.config.check import cross_problems
from mgexp.config.keys import Config
from mgexp.data.classes import read_text
from mgexp.data.clips import Batch
from mgexp.data.lists import build_list, quarantine_problems
from mgexp.data.loader import build_decoder, store_problems
from mgexp.data.records import Record, VideoList
from mgexp.dist import Processes, device_of
from mgexp.errors import InputError, TrainingError, listed
from mgexp.models.build import build_model, build_on_meta, model_problems
from mgexp.models.cost import schedule_shapes
from mgexp.models.resnet import TEMPORAL
from mgexp.models.weights import Fit, fit_weights, read_weights
from mgexp.multigrid.recipe import Multigrid, Recipe
from mgexp.multigrid.schedule import Schedule, build_schedule
from mgexp.multigrid.shapes import FULL
from mgexp.multigrid.steps import step_counts
from mgexp.run.files import is_file
from mgexp.run.folder import RunDir
from mgexp.run.torch_file import load_torch
from mgexp.run.trackers import tracking_problems
from mgexp.train.checkpoint import State
from mgexp.train.precision import Precision, resolve
from mgexp.train.predict import Predictor
from mgexp.train.step import Normalizer, TrainStep, blank_batch, compiled, split_problems, warm_up
from mgexp.train.task import MAX, SUM, Task, many_labels, one_label
from mgexp.video.paths import evenly_spaced


@dataclass(frozen=True)
class Inputs:
    """The videos of a run, and its schedule.

    ``missing``: paths in the training list, of ``num_listed`` videos, where there is no file or that are
    quarantined.
    """

    train: tuple[Record, ...]
    val: tuple[Record, ...]
    missing: tuple[str, ...]
    num_listed: int
    schedule: Schedule

    def fingerprint(self) -> dict[str, object]:
        """What identifies the videos: a resumed run must have the same. ``missing`` are training videos."""
        return {
            "num_train_videos": len(self.train),
            "train_sha256": _sha256(self.train),
            "val_sha256": _sha256(self.val),
            "missing": list(self.missing),
        }

    def identity(self) -> str:
        """What tells two lists of videos apart, in a line."""
        shas = (_sha256(records)[:12] for records in (self.train, self.val))
        return f"{len(self.train)} for training, {len(self.val)} for validation (sha256 {' and '.join(shas)})"

    def summary(self) -> str:
        """How many videos there are."""
        missing = f"{len(self.missing)} missing or quarantined"
        return f"{len(self.train)} training videos ({missing}), {len(self.val)} validation videos"

    def check_unusable(self, broken: Sequence[str], max_share: float) -> None:
        """Raises InputError where more videos fail than ``max_share``; ``broken``: why, for each that did."""
        found = unusable_problem(self.missing, self.num_listed, broken, len(self.train), max_share)
        raise_problems([found] if found else [])


def _sha256(records: Sequence[Record]) -> str:
    lines = "\n".join(record.line() for record in records)
    return hashlib.sha256(lines.encode()).hexdigest()


def device_problems(device: str, has_cuda: bool) -> Iterator[str]:
    """A GPU that was asked for and is not there."""
    if device == "cuda" and not has_cuda:
        yield "DEVICE = cuda, but torch finds no GPU: see nvidia-smi, or set DEVICE auto or cpu"


def unusable_problem(
    missing: Sequence[str], num_listed: int, broken: Sequence[str], num_used: int, max_share: float
) -> str | None:
    """The message where more training videos are missing, quarantined or broken than DATA.MAX_UNUSABLE_SHARE.

    Of ``num_listed`` videos some are ``missing``; of ``num_used`` (DATA.MAX_TRAIN_VIDEOS) some are ``broken``.
    """
    share = len(missing) / max(1, num_listed) + len(broken) / max(1, num_used)
    if share <= max_share + 1e-9:
        return None
    return (
        f"{len(missing)} of {num_listed} training videos are missing or quarantined and "
        f"{len(broken)} of {num_used} cannot be decoded, more than "
        f"DATA.MAX_UNUSABLE_SHARE = {max_share:g}; mend the list or raise that key: {listed([*missing, *broken])}"
    )


def check_clips(batch: Batch) -> None:
    """Raises InputError where a clip found no video that decodes."""
    if not len(batch.clips):
        reasons = [reason for _, reason in batch.unusable]
        raise InputError([f"many videos in a row cannot be decoded: {listed(reasons)}"])


def list_problems(train: VideoList, val: VideoList, max_share: float) -> Iterator[str]:
    """What is wrong with the two lists."""
    yield from dict.fromkeys((*train.problems, *val.problems))
    problem = unusable_problem(train.missing, train.num_listed, (), 0, max_share)
    if problem:
        yield problem
    if val.missing:
        yield (
            f"{len(val.missing)} validation videos are missing or quarantined, and evaluation replaces nothing: "
            f"{listed(val.missing)}"
        )


def slowfast_problems(schedule: Schedule, alpha: int) -> Iterator[str]:
    """Frame counts that the slow pathway cannot have: every ``alpha``-th frame of a clip."""
    for count in _frame_counts(schedule):
        if count % alpha:
            yield (
                f"a shape of {count} frames does not divide by SLOWFAST.ALPHA = {alpha}: choose "
                "DATA.NUM_FRAMES, MULTIGRID.LONG_CYCLE_FACTORS or SLOWFAST.ALPHA so that all do"
            )


def pool_problems(schedule: Schedule, model_name: str) -> Iterator[str]:
    """A single frame, that a pool after the first stage cannot halve."""
    if 1 in _frame_counts(schedule):
        yield (
            f"{model_name} cannot take a shape of 1 frame: raise DATA.NUM_FRAMES or the least of "
            "MULTIGRID.LONG_CYCLE_FACTORS"
        )


def clip_bytes(frames: int, crop: int) -> int:
    """Bytes of a clip as a worker hands it on: uint8, three channels."""
    return 3 * frames * crop**2


def largest_batch_bytes(schedule: Schedule) -> int:
    """Bytes of the largest mini-batch of the schedule, of all processes together."""
    shapes = {shape for phase in schedule.phases for shape in phase.cycle.shapes}
    clips = schedule.recipe.clips
    return max(clips * shape.ratio * clip_bytes(shape.frames, shape.crop) for shape in shapes)


def shared_memory_problems(
    batch_bytes: int, num_workers: int, prefetch_factor: int, num_local: int, free_bytes: int
) -> Iterator[str]:
    """Shared memory that cannot hold what the loader workers keep ready.

    Each of ``num_local`` processes on this machine has ``num_workers`` workers with ``prefetch_factor``
    batches of ``batch_bytes`` each, and one batch in use; without workers there is none. A worker that
    finds no room there dies of a bus error, hours into a run.
    Source: torch.utils.data keeps prefetch_factor × num_workers batches under way; measured: see the test.
    """
    num_batches = num_workers * prefetch_factor + 1
    needed = num_local * num_batches * batch_bytes if num_workers else 0
    if needed > free_bytes:
        yield (
            f"the loader workers need {_megabytes(needed)} of shared memory ({num_local} processes × "
            f"({num_workers} workers × {prefetch_factor} batches + 1) × {_megabytes(batch_bytes)}), but "
            f"/dev/shm has {_megabytes(free_bytes)} free: start docker with --shm-size="
            f"{math.ceil(needed / 1e9) + 1}g, or set DATA_LOADER.NUM_WORKERS (now {num_workers}) or "
            f"DATA_LOADER.PREFETCH_FACTOR (now {prefetch_factor}) lower"
        )


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.1f} MB"


def _frame_counts(schedule: Schedule) -> list[int]:
    return sorted({shape.frames for phase in schedule.phases for shape in phase.cycle.shapes})


def raise_problems(problems: Sequence[str]) -> None:
    """Stops with one message that lists every problem, each once."""
    if problems:
        raise InputError(list(dict.fromkeys(problems)))


def build_recipe(cfg: Config) -> Recipe:
    """The baseline; raises ValueError where its stages are impossible."""
    return Recipe(
        clips=cfg.TRAIN.BATCH_SIZE,
        frames=cfg.DATA.NUM_FRAMES,
        crop=cfg.DATA.TRAIN_CROP_SIZE,
        stride=cfg.DATA.SAMPLING_RATE if cfg.DATA.TEMPORAL_GRID == "stride" else None,
        jitter=cfg.DATA.TRAIN_JITTER_SCALES,
        base_lr=cfg.SOLVER.BASE_LR,
        stage_epochs=cfg.SOLVER.STEPS,
        max_epoch=cfg.SOLVER.MAX_EPOCH,
        gamma=cfg.SOLVER.GAMMA,
        policy=cfg.SOLVER.LR_POLICY,
        warmup_epochs=cfg.SOLVER.WARMUP_EPOCHS,
        warmup_start_lr=cfg.SOLVER.WARMUP_START_LR,
    )


def build_multigrid(cfg: Config) -> Multigrid:
    """How the shape varies; a cycle that is off has one shape."""
    node = cfg.MULTIGRID
    return Multigrid(
        long_factors=node.LONG_CYCLE_FACTORS if node.LONG_CYCLE else FULL,
        short_factors=node.SHORT_CYCLE_FACTORS if node.SHORT_CYCLE else (),
        short_crops_of=node.SHORT_CROPS_OF,
        epoch_factor=node.EPOCH_FACTOR if node.LONG_CYCLE or node.SHORT_CYCLE else 1.0,
        granularity=node.GRANULARITY,
        fine_tuning=node.LONG_CYCLE and node.FINE_TUNING,
        random_stride=node.RANDOM_STRIDE,
        lr_scaling=node.LR_SCALING,
        shape_order=node.SHAPE_ORDER,
        bn_base_size=node.BN_BASE_SIZE,
        long_cycle_per=node.LONG_CYCLE_PER,
    )


def build_task(cfg: Config) -> Task:
    """What MODEL.LOSS_FUNC and DATA.ENSEMBLE_METHOD ask for."""
    kind = {"cross_entropy": one_label, "bce_logit": many_labels}[cfg.MODEL.LOSS_FUNC]
    return kind(cfg.MODEL.NUM_CLASSES, {"sum": SUM, "max": MAX}[cfg.DATA.ENSEMBLE_METHOD])


def build_precision(cfg: Config, device: torch.device) -> Precision:
    """What TRAIN.PRECISION means on ``device``; raises InputError where it cannot do it."""
    return resolve(cfg.TRAIN.PRECISION, device)


def precision_problems(cfg: Config) -> list[str]:
    """What keeps the device from computing as TRAIN.PRECISION asks."""
    try:
        build_precision(cfg, device_of(cfg.DEVICE))
    except InputError as error:
        return list(error.problems)
    return []


SHARED_MEMORY = Path("/dev/shm")
"""Where torch puts the tensors that loader workers hand on, on Linux; elsewhere there is no such folder."""


def schedule_of(cfg: Config, num_videos: int, num_processes: int = 1) -> Schedule:
    """The schedule over ``num_videos`` training videos; raises ValueError where it is impossible."""
    return build_schedule(build_recipe(cfg), build_multigrid(cfg), num_videos, num_processes)


def build_inputs(
    cfg: Config,
    problems: list[str],
    num_processes: int,
    num_local: int | None = None,
    is_here: bool = True,
) -> Inputs:
    """Lists and schedule of a run. Raises InputError with ``problems`` and all that are found here.

    ``num_local`` of the ``num_processes`` are on this machine; all of them where it is not given. Where the run is
    not to be here, GPU and shared memory of this machine are not looked at.
    """
    found = [*problems, *cross_problems(cfg)]
    if is_here:
        found += device_problems(cfg.DEVICE, torch.cuda.is_available())
        found += precision_problems(cfg)
    found += decoder_problems(cfg)
    if cfg.TRAIN.ENABLE:  # an evaluation alone is not tracked
        wandb_mode = cfg.WANDB.MODE if cfg.WANDB.ENABLE else None
        found += tracking_problems(cfg.TENSORBOARD.ENABLE, wandb_mode)
    train, val = build_list(cfg, "TRAIN_LIST"), build_list(cfg, "VAL_LIST")
    found += quarantine_problems(cfg.DATA, (train, val))
    found += list_problems(train, val, cfg.DATA.MAX_UNUSABLE_SHARE)
    train_records = evenly_spaced(train.records, cfg.DATA.MAX_TRAIN_VIDEOS)
    val_records = evenly_spaced(val.records, cfg.DATA.MAX_VAL_VIDEOS)
    found += store_problems(cfg, train_records)
    schedule, schedule_problems = try_schedule(cfg, max(1, len(train_records)), num_processes)
    found += schedule_problems
    raise_problems(found)
    assert schedule is not None  # it had no problem
    tested = (cfg.DATA.NUM_FRAMES, cfg.DATA.TEST_CROP_SIZE)
    found += model_problems(cfg, {*schedule_shapes(schedule), tested})
    if is_here:
        found += memory_problems(cfg, schedule, num_processes, num_local or num_processes)
    found += split_problems(step_counts(schedule, num_processes), cfg.TRAIN.MAX_CLIPS_PER_GPU)
    raise_problems(found)
    return Inputs(train_records, val_records, train.missing, train.num_listed, schedule)


def build_step(
    cfg: Config, model: nn.Module, state: State, normalizer: Normalizer, precision: Precision
) -> TrainStep:
    """What a step does with ``model``: that of ``state``, or its wrapper for several processes."""
    most, norm = cfg.TRAIN.MAX_CLIPS_PER_GPU, cfg.SOLVER.CLIP_GRAD_L2NORM
    loss, optimizer, scaler = build_task(cfg).loss, state.optimizer, state.scaler
    return TrainStep(model, optimizer, loss, normalizer, most, precision, scaler, norm)


@contextmanager
def compiled_step(
    cfg: Config, step: TrainStep, state: State, schedule: Schedule, processes: Processes
) -> Iterator[None]:
    """Inside, the network of ``state`` is compiled as TRAIN.COMPILE says, for every shape; else nothing is done.

    The seconds count as training, and as warm-up.
    """
    if cfg.TRAIN.COMPILE == "off":
        yield
        return
    shapes, device, task = (
        [*step_counts(schedule, processes.count)],
        step.normalizer.device,
        build_task(cfg),
    )
    with compiled(state.model, cfg.TRAIN.COMPILE, num_graphs=2 * len(shapes)):
        with state.clock.measure("train"), state.clock.measure("shape_warmup"):
            warm_up(
                step,
                shapes,
                lambda shape: blank_batch(shape, task.no_labels(shape.clips, device), device),
                progress=processes.is_main,
            )
        yield


def decoder_problems(cfg: Config) -> list[str]:
    """What is wrong with the video decoder that was asked for."""
    try:
        build_decoder(cfg)
    except InputError as error:
        return list(error.problems)
    return []


def memory_problems(
    cfg: Config, schedule: Schedule, num_processes: int, num_local: int
) -> list[str]:
    """What keeps the loaders from starting: shared memory too small for the batches that are ready at a time."""
    loader = cfg.DATA_LOADER
    if not SHARED_MEMORY.is_dir() or loader.NUM_WORKERS == "auto":  # which looks for room itself
        return []
    problems = shared_memory_problems(
        ready_bytes(cfg, schedule, num_processes),
        num_workers=loader.NUM_WORKERS,
        prefetch_factor=loader.PREFETCH_FACTOR,
        num_local=num_local if cfg.TRAIN.ENABLE else 1,  # one process evaluates a finished run
        free_bytes=shutil.disk_usage(SHARED_MEMORY).free,
    )
    return list(problems)


def ready_bytes(cfg: Config, schedule: Schedule, num_processes: int) -> int:
    """Bytes of one batch of each loader of a process that is alive at the same time, at the worst time.

    An evaluation during training loads views, or clips for precise batch norm, beside the training clips
    that are kept ready; the final one loads its views alone.
    """
    frames: int = cfg.DATA.NUM_FRAMES
    num_views: int = cfg.TEST.BATCH_SIZE
    num_crops: int = cfg.TEST.NUM_SPATIAL_CROPS
    final = max(num_views, num_crops) * clip_bytes(frames, cfg.DATA.TEST_CROP_SIZE)
    if not cfg.TRAIN.ENABLE:
        return final
    precise: int = cfg.TRAIN.BATCH_SIZE // num_processes if cfg.BN.USE_PRECISE_STATS else 0
    beside = max(precise, num_views) * clip_bytes(frames, cfg.DATA.TRAIN_CROP_SIZE)
    return max(largest_batch_bytes(schedule) // num_processes + beside, final)


def num_videos_of(cfg: Config, given: int | None) -> tuple[int, list[str]]:
    """Training videos for a schedule that needs no data: given, else listed, else DATA.NUM_VIDEOS."""
    if given is not None:
        return max(1, given), [] if given > 0 else [f"--num-videos {given} is not positive"]
    num_listed, problems = _num_listed(cfg)
    if num_listed or problems:
        return max(1, min(num_listed, cfg.DATA.MAX_TRAIN_VIDEOS or num_listed)), problems
    if cfg.DATA.NUM_VIDEOS:
        return cfg.DATA.NUM_VIDEOS, []
    return 1, ["the number of training videos is unknown: add --num-videos N, or DATA.NUM_VIDEOS N"]


def _num_listed(cfg: Config) -> tuple[int, list[str]]:
    """Videos of DATA.TRAIN_LIST, there or not, 0 without that file, and what is wrong with an official list."""
    path = Path(cfg.DATA.TRAIN_LIST)
    if cfg.DATA.TRAIN_LIST and cfg.DATA.FORMAT != "list":
        videos = build_list(cfg, "TRAIN_LIST")
        return videos.num_listed, list(videos.problems)
    if cfg.DATA.TRAIN_LIST and is_file(path):
        text, problems = read_text(path)
        return sum(bool(line.strip()) for line in text.splitlines()), problems
    return 0, []


def try_schedule(
    cfg: Config, num_videos: int, num_processes: int
) -> tuple[Schedule | None, list[str]]:
    """The schedule, or what is wrong with it."""
    try:
        schedule = schedule_of(cfg, num_videos, num_processes)
    except ValueError as error:
        return None, str(error).split("; ")
    name = cfg.MODEL.MODEL_NAME
    if name == "SlowFast":
        return schedule, list(slowfast_problems(schedule, cfg.SLOWFAST.ALPHA))
    return schedule, list(pool_problems(schedule, name)) if TEMPORAL[name].pools else []


def build_predictor(cfg: Config, run_dir: RunDir, device: torch.device) -> Predictor:
    """The model that the final evaluation of a run scored; raises InputError where there is none that fits."""
    if not run_dir.model.is_file():
        raise InputError([f"{run_dir.model} does not exist: train the run to its end"])
    try:
        model = build_model(cfg)
        model.load_state_dict(load_torch(run_dir.model))
    except (TrainingError, RuntimeError, ValueError) as error:
        problem = f"{run_dir.model} is not the model of {run_dir.config_yaml}: {error}"
        raise InputError([problem]) from error
    normalizer = Normalizer(cfg.DATA.MEAN, cfg.DATA.STD, device)
    return Predictor(model.to(device).eval(), normalizer, build_task(cfg))


def try_initial_weights(cfg: Config, run_dir: RunDir) -> tuple[Fit | None, list[str]]:
    """TRAIN.INIT_WEIGHTS, fitted, or what is wrong with the file; nothing once there is a checkpoint."""
    if not cfg.TRAIN.INIT_WEIGHTS or not cfg.TRAIN.ENABLE or run_dir.checkpoint_steps():
        return None, []
    try:
        model = build_on_meta(cfg)
    except ValueError:
        return None, []  # there is no such model, which is reported by itself
    try:
        return fit_weights(read_weights(Path(cfg.TRAIN.INIT_WEIGHTS)), model), []
    except InputError as error:
        return None, [f"TRAIN.INIT_WEIGHTS: {problem}" for problem in error.problems]
