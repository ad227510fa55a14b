"""Prepare a run: read the lists, build the schedule, and check everything that the first step needs."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import nn

from mgexp.config.check import cross_problems
from mgexp.config.keys import Config
from mgexp.config.load import in_fold
from mgexp.data.lists import (
    build_class_names,
    build_entries,
    build_list,
    lost_classes,
    overlap_problems,
    quarantine_problems,
)
from mgexp.data.loader import build_opener, store_problems, worker_problems
from mgexp.data.records import Record, VideoList, VideoRecord
from mgexp.dist import device_of, device_problems
from mgexp.errors import InputError, collected, listed, raise_problems
from mgexp.models.build import build_problems, build_to_look_at, own_names
from mgexp.models.cost import products_by_shape
from mgexp.models.resnet import TEMPORAL
from mgexp.models.weights import Fit, fit_weights, read_weights
from mgexp.multigrid.batchnorm import grouped_layers
from mgexp.multigrid.phases import count_bn_groups
from mgexp.multigrid.recipe import FULL, ClipCosts, Multigrid, Recipe
from mgexp.multigrid.schedule import Schedule, build_schedule, step_counts
from mgexp.optim import build as _optimizers  # noqa: F401 - registers ours
from mgexp.registry import OPTIMIZERS
from mgexp.run.files import is_listed
from mgexp.run.folder import RunDir
from mgexp.run.remote import local_file
from mgexp.run.trackers import tracking_problems
from mgexp.train import detection as _tasks  # noqa: F401 - registers ours
from mgexp.train.mixing import is_mixed
from mgexp.train.precision import resolve_precision
from mgexp.train.step import split_problems
from mgexp.train.task import build_task, metric_problems
from mgexp.video.paths import evenly_spaced
from mgexp.video.reader import Opener


@dataclass(frozen=True)
class Inputs:
    """Videos of a run, their opener, and the schedule.

    The training list has ``num_listed`` videos. ``missing`` names those whose files do not exist or
    are quarantined. ``class_names`` names the classes 0, 1, …, or is empty. ``warnings`` are what the lists have
    that may be meant, but mostly is not.
    """

    train: tuple[Record, ...]
    val: tuple[Record, ...]
    missing: tuple[str, ...]
    num_listed: int
    schedule: Schedule
    opener: Opener
    class_names: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    max_unusable_share: float = 0.0

    def fingerprint(self) -> dict[str, object]:
        """Identify the videos for the run folder: a resumed run must have the same ones."""
        return {
            "num_train_videos": len(self.train),
            "train_sha256": _sha256(self.train),
            "val_sha256": _sha256(self.val),
            "missing": list(self.missing),
        }

    def identity(self) -> str:
        """Identify the videos in one line, by which the processes of a run compare their lists."""
        shas = " and ".join(_sha256(records)[:12] for records in (self.train, self.val))
        return f"{len(self.train)} for training, {len(self.val)} for validation (sha256 {shas})"

    def summary(self) -> str:
        missing = f"{len(self.missing)} missing or quarantined"
        return f"{len(self.train)} training videos ({missing}), {len(self.val)} validation videos"

    def class_weights(self) -> dict[int, float]:
        """Weigh each class that has training videos: all videos / (classes × its videos)."""
        counts = Counter(record.label for record in self.train if isinstance(record, VideoRecord))
        return {
            label: len(self.train) / (len(counts) * num) for label, num in sorted(counts.items())
        }

    def draw_weights(self, class_weights: str) -> list[float] | None:
        """Weigh the draws of each training video for SOLVER.CLASS_WEIGHTS; None draws each once in an epoch."""
        if class_weights != "sampling":
            return None
        weights = self.class_weights()
        return [weights[record.label] for record in self.train if isinstance(record, VideoRecord)]

    def check_unusable(self, broken: Sequence[str]) -> None:
        """Raise InputError if too many videos fail. ``broken`` lists why each one failed."""
        problem = unusable_problem(
            self.missing, self.num_listed, broken, len(self.train), self.max_unusable_share
        )
        raise_problems([problem] if problem else [])


def _sha256(records: Sequence[Record]) -> str:
    lines = "\n".join(record.line() for record in records)
    return hashlib.sha256(lines.encode()).hexdigest()


def build_inputs(
    cfg: Config,
    problems: list[str],
    num_processes: int,
    num_local: int | None = None,
    is_here: bool = True,
    is_main: bool = True,
) -> Inputs:
    """Read the lists and build the schedule.

    Raises InputError with ``problems`` and all problems that it finds. ``num_local`` of the
    ``num_processes`` run on this machine; by default all do. With ``is_here`` False the run is for
    another machine: do not check the GPU of this one. Only the process with
    ``is_main`` runs a custom model at every shape.
    """
    # A user should see all problems at once. So we collect them, and raise only where the next
    # checks need what the earlier ones built.
    faults = [*problems, *cross_problems(cfg)]
    cfg = in_fold(cfg)
    if is_here:
        local = num_local or num_processes
        num_gpus = torch.cuda.device_count()
        faults += device_problems(cfg.DEVICE, num_gpus, cfg.TRAIN.COMPILE, local)
        faults += worker_problems(cfg.DATA_LOADER.NUM_WORKERS)
        with collected(faults):
            resolve_precision(cfg.TRAIN.PRECISION, device_of(cfg.DEVICE))
    # DDP and the graphs would share nodes of autograd, which torch refuses to record.
    if cfg.TRAIN.COMPILE == "cuda_graphs" and num_processes > 1:
        faults.append("TRAIN.COMPILE = cuda_graphs: one process alone can record its steps")
    # An evaluation of a finished run uses no trackers.
    if cfg.TRAIN.ENABLE:
        wandb_mode = cfg.WANDB.MODE if cfg.WANDB.ENABLE else None
        faults += tracking_problems(cfg.TENSORBOARD.ENABLE, wandb_mode)
    with collected(faults):
        OPTIMIZERS.find(cfg.SOLVER.OPTIMIZING_METHOD)
    with collected(faults):
        expected = [metric for metric, _, _ in cfg.EXPECTED]
        faults += metric_problems(build_task(cfg), cfg.MODEL.LOSS_FUNC, expected)
    train, val = build_list(cfg, "TRAIN_LIST"), build_list(cfg, "VAL_LIST")
    faults += quarantine_problems(cfg.DATA, (train, val))
    faults += list_problems(train, val, cfg.DATA.MAX_UNUSABLE_SHARE)
    overlaps, warnings = overlap_problems(train, val, cfg.MODEL.NUM_CLASSES)
    faults += overlaps
    train_records = evenly_spaced(train.records, cfg.DATA.MAX_TRAIN_VIDEOS)
    val_records = evenly_spaced(val.records, cfg.DATA.MAX_VAL_VIDEOS)
    scored = evenly_spaced(val_records, cfg.TRAIN.EVALUATION_VIDEOS)
    warnings += lost_classes("DATA.MAX_TRAIN_VIDEOS", train.records, train_records)
    warnings += lost_classes("DATA.MAX_VAL_VIDEOS", val.records, val_records)
    warnings += lost_classes("TRAIN.EVALUATION_VIDEOS", val_records, scored)
    with collected(faults):
        opener = build_opener(cfg)
        faults += store_problems(opener, cfg.DATA.STORE, train_records)
    with collected(faults):
        # An empty list must not hide the problems of the schedule, so it counts as 1 video here.
        schedule = build_row_schedule(cfg, max(1, len(train_records)), num_processes)
        raise_problems(build_precise_problems(cfg, num_processes))
    # The checks below need the schedule and the opener.
    raise_problems(faults)
    tested = (cfg.DATA.NUM_FRAMES, cfg.DATA.TEST_CROP_SIZE)
    faults += build_problems(cfg, {*schedule.sizes, tested}, is_main)
    raise_problems(faults)
    raise_problems(build_split_problems(cfg, schedule))
    videos = (train_records, val_records, train.missing, train.num_listed)
    names, share = build_class_names(cfg), cfg.DATA.MAX_UNUSABLE_SHARE
    return Inputs(*videos, schedule, opener, names, tuple(warnings), share)


def build_precise_problems(cfg: Config, num_processes: int) -> list[str]:
    """List why precise BN cannot take mini-batches of the baseline, which not every schedule has."""
    if not (cfg.TRAIN.ENABLE and cfg.BN.USE_PRECISE_STATS):
        return []
    try:
        count_bn_groups(cfg.TRAIN.BATCH_SIZE, num_processes, cfg.MULTIGRID.BN_BASE_SIZE)
    except ValueError as error:
        return [
            f"BN.USE_PRECISE_STATS = True: {in_keys(str(error))}; set it to False to do without"
        ]
    return []


def build_split_problems(cfg: Config, schedule: Schedule) -> list[str]:
    """List why TRAIN.MAX_CLIPS_PER_GPU cannot split the mini-batches of the schedule."""
    max_clips = cfg.TRAIN.MAX_CLIPS_PER_GPU
    has_groups = not max_clips or bool(grouped_layers(build_to_look_at(cfg)))
    shapes = step_counts(schedule)
    most = max(shape.clips for shape in shapes)
    # A graph writes the gradients of every part to the same memory, where they should add up.
    if cfg.TRAIN.COMPILE == "cuda_graphs" and 0 < max_clips < most:
        return [
            f"TRAIN.COMPILE = cuda_graphs with TRAIN.MAX_CLIPS_PER_GPU = {max_clips}: a process has up to {most} "
            "clips in a step, and graphs cannot add up parts; set TRAIN.COMPILE default"
        ]
    return [*split_problems(shapes, max_clips, has_groups, is_mixed(cfg.AUG))]


def list_problems(train: VideoList, val: VideoList, max_share: float) -> Iterator[str]:
    yield from dict.fromkeys((*train.problems, *val.problems))
    problem = unusable_problem(train.missing, train.num_listed, (), 0, max_share)
    if problem:
        yield problem
    if val.missing:
        yield (
            f"{len(val.missing)} validation videos are missing or quarantined, and evaluation replaces nothing: "
            f"take them out of DATA.VAL_LIST: {listed(val.missing)}"
        )


def unusable_problem(
    missing: Sequence[str], num_listed: int, broken: Sequence[str], num_used: int, max_share: float
) -> str | None:
    """Return a message if more training videos are unusable than DATA.MAX_UNUSABLE_SHARE allows, else None.

    ``missing`` videos are a share of the ``num_listed`` videos in the list. ``broken`` videos are a
    share of the ``num_used`` videos, since DATA.MAX_TRAIN_VIDEOS may leave out others. The two
    shares are added.
    """
    share = len(missing) / max(1, num_listed) + len(broken) / max(1, num_used)
    # The tolerance is for floating point, where 0.1 + 0.2 is more than 0.3.
    if share <= max_share + 1e-9:
        return None
    return (
        f"{len(missing)} of {num_listed} training videos are missing or quarantined and "
        f"{len(broken)} of {num_used} cannot be decoded, more than "
        f"DATA.MAX_UNUSABLE_SHARE = {max_share:g}; correct the list or raise that key: "
        f"{listed([*missing, *broken])}"
    )


def build_row_schedule(cfg: Config, num_videos: int, num_processes: int = 1) -> Schedule:
    """Build the schedule over ``num_videos`` training videos.

    Raises InputError if the schedule is impossible, or if the network cannot take its numbers of frames.
    """
    try:
        schedule = build_schedule(
            build_recipe(cfg), build_multigrid(cfg), num_videos, num_processes
        )
    except ValueError as error:
        problems = [in_keys(problem) for problem in str(error).split("; ")]
        raise InputError(problems) from error
    raise_problems([*frame_problems(schedule, cfg.MODEL.MODEL_NAME, cfg.SLOWFAST.ALPHA)])
    return schedule


ARGUMENTS = {
    "recipe.clips": "TRAIN.BATCH_SIZE",
    "recipe.frames": "DATA.NUM_FRAMES",
    "recipe.crop": "DATA.TRAIN_CROP_SIZE",
    "recipe.base_lr": "SOLVER.BASE_LR",
    "recipe.stage_epochs": "SOLVER.STEPS",
    "recipe.max_epoch": "SOLVER.MAX_EPOCH",
    "recipe.gamma": "SOLVER.GAMMA",
    "recipe.warmup_steps": "SOLVER.WARMUP_STEPS",
    "recipe.warmup_epochs": "SOLVER.WARMUP_EPOCHS",
    "recipe.cosine_end_lr": "SOLVER.COSINE_END_LR",
    "multigrid.long_factors": "MULTIGRID.LONG_CYCLE_FACTORS",
    "multigrid.short_factors": "MULTIGRID.SHORT_CYCLE_FACTORS",
    "multigrid.costs": "MULTIGRID.BATCH_RATIO",
    "multigrid.epoch_factor": "MULTIGRID.EPOCH_FACTOR",
    "multigrid.fine_tuning": "MULTIGRID.FINE_TUNING",
    "multigrid.max_batch_ratio": "MULTIGRID.MAX_BATCH_RATIO",
    "multigrid.bn_base_size": "MULTIGRID.BN_BASE_SIZE",
    "multigrid.lr_scaling": "MULTIGRID.LR_SCALING",
    "multigrid.noise_scale": "MULTIGRID.NOISE_SCALE",
}
"""The arguments that messages of mgexp.multigrid name, and the keys that they have here."""


def in_keys(message: str) -> str:
    """Replace the names of arguments in a message of mgexp.multigrid by the names of keys."""
    return re.sub(r"\b(?:recipe|multigrid)\.\w+", lambda m: ARGUMENTS.get(m[0], m[0]), message)


def build_recipe(cfg: Config) -> Recipe:
    """Build the recipe of the baseline. Raises ValueError if its stages are impossible."""
    return Recipe(
        clips=cfg.TRAIN.BATCH_SIZE,
        frames=cfg.DATA.NUM_FRAMES,
        crop=cfg.DATA.TRAIN_CROP_SIZE,
        stride=cfg.DATA.SAMPLING_RATE if cfg.DATA.TEMPORAL_GRID == "stride" else None,
        jitter=None if cfg.DATA.TRAIN_JITTER_SCALES_RELATIVE else cfg.DATA.TRAIN_JITTER_SCALES,
        base_lr=cfg.SOLVER.BASE_LR,
        stage_epochs=cfg.SOLVER.STEPS,
        max_epoch=cfg.SOLVER.MAX_EPOCH,
        gamma=cfg.SOLVER.GAMMA,
        policy=cfg.SOLVER.LR_POLICY,
        warmup_epochs=cfg.SOLVER.WARMUP_EPOCHS,
        warmup_start_lr=cfg.SOLVER.WARMUP_START_LR,
        warmup_steps=cfg.SOLVER.WARMUP_STEPS,
        cosine_end_lr=cfg.SOLVER.COSINE_END_LR,
        cosine_after_warmup=cfg.SOLVER.COSINE_AFTER_WARMUP,
    )


def build_factors(cfg: Config) -> Multigrid:
    """Build the settings of the two cycles alone, their factors. A cycle that is off has one shape."""
    node = cfg.MULTIGRID
    return Multigrid(
        long_factors=node.LONG_CYCLE_FACTORS if node.LONG_CYCLE else FULL,
        short_factors=node.SHORT_CYCLE_FACTORS if node.SHORT_CYCLE else (),
        short_crops_of=node.SHORT_CROPS_OF,
    )


def build_multigrid(cfg: Config) -> Multigrid:
    """Build the settings of multigrid."""
    node = cfg.MULTIGRID
    return replace(
        build_factors(cfg),
        epoch_factor=node.EPOCH_FACTOR if node.LONG_CYCLE or node.SHORT_CYCLE else 1.0,
        granularity=node.GRANULARITY,
        fine_tuning=node.LONG_CYCLE and node.FINE_TUNING,
        random_stride=node.RANDOM_STRIDE,
        lr_scaling=node.LR_SCALING,
        weight_decay_scaling=node.WD_SCALING,
        shape_order=node.SHAPE_ORDER,
        bn_base_size=node.BN_BASE_SIZE,
        long_cycle_per=node.LONG_CYCLE_PER,
        max_batch_ratio=node.MAX_BATCH_RATIO or None,
        costs=build_costs(cfg),
        noise_scale=node.NOISE_SCALE or None,
    )


# Counting takes seconds, and a start derives its schedule more than once.
@lru_cache(maxsize=8)
def build_costs(cfg: Config) -> ClipCosts | None:
    """Build what MULTIGRID.BATCH_RATIO keeps constant. None: the pixels.

    Raises ValueError if the network cannot take a shape, or if its seconds are unknown.
    """
    node = cfg.MULTIGRID
    if node.BATCH_RATIO == "pixels" or not (node.LONG_CYCLE or node.SHORT_CYCLE):
        return None
    sizes = build_sizes(cfg)
    if node.BATCH_RATIO == "macs":
        macs = products_by_shape(build_to_look_at(cfg).eval(), sizes)
        return ClipCosts("multiply-accumulates", tuple(macs.items()))
    seconds = {(frames, crop): value for frames, crop, value in node.CLIP_SECONDS}
    if missing := sorted(sizes - seconds.keys()):
        shapes = ", ".join(f"{frames} x {crop}²" for frames, crop in missing)
        raise ValueError(
            f"MULTIGRID.CLIP_SECONDS lacks {shapes}: tools/plan.py with MULTIGRID.BATCH_RATIO pixels measures the "
            "seconds and prints the key"
        )
    # Whole nanoseconds, so that sums over a long run are exact.
    nanoseconds = {size: max(1, round(1e9 * seconds[size])) for size in sorted(sizes)}
    return ClipCosts("measured seconds", tuple(nanoseconds.items()))


def build_sizes(cfg: Config) -> set[tuple[int, int]]:
    """Return (frames, crop) of all clips of the two cycles, rounded, also where a ratio is impossible."""
    cycles = build_factors(cfg).exact_sizes(cfg.DATA.NUM_FRAMES, cfg.DATA.TRAIN_CROP_SIZE)
    return {(max(1, round(t)), max(1, round(s))) for sizes in cycles for t, s in sizes}


def frame_problems(schedule: Schedule, model_name: str, alpha: int) -> Iterator[str]:
    counts = sorted({frames for frames, _ in schedule.sizes})
    if model_name == "SlowFast":
        # The slow pathway has one frame for every alpha frames.
        for count in (count for count in counts if count % alpha):
            yield (
                f"a shape of {count} frames does not divide by SLOWFAST.ALPHA = {alpha}: choose "
                "DATA.NUM_FRAMES, MULTIGRID.LONG_CYCLE_FACTORS or SLOWFAST.ALPHA so that all do"
            )
    # Networks that pool over time halve the frames after the first stage, so one frame is too few.
    elif model_name in TEMPORAL and TEMPORAL[model_name].pools and 1 in counts:
        yield (
            f"{model_name} cannot take a shape of 1 frame: raise DATA.NUM_FRAMES or the least of "
            "MULTIGRID.LONG_CYCLE_FACTORS"
        )


def build_num_videos(cfg: Config, given: int | None) -> tuple[int, list[str]]:
    """Return (number of training videos, problems), without a search for the videos' files.

    The number is ``given``, else it comes from DATA.TRAIN_LIST, else from DATA.NUM_VIDEOS. It is at
    least 1, even with a problem, so that the caller can build a schedule and report all problems
    together.
    """
    if given is not None:
        return max(1, given), [] if given > 0 else [f"--num-videos {given} is not positive"]
    cfg = in_fold(cfg)
    num_listed, problems = 0, list[str]()
    if is_listed(cfg.DATA.TRAIN_LIST):
        with collected(problems):
            found = build_entries(cfg, "TRAIN_LIST")
            num_listed, problems = len(found.videos), found.all_problems()
    if num_listed or problems:
        return max(1, min(num_listed, cfg.DATA.MAX_TRAIN_VIDEOS or num_listed)), problems
    if cfg.DATA.NUM_VIDEOS:
        return cfg.DATA.NUM_VIDEOS, []
    why = f"{cfg.DATA.TRAIN_LIST} does not exist" if cfg.DATA.TRAIN_LIST else "there is no list"
    return 1, [f"the number of training videos is unknown, because {why}: add DATA.NUM_VIDEOS N"]


def build_initial_weights(cfg: Config, run_dir: RunDir) -> Fit | None:
    """Read and fit TRAIN.INIT_WEIGHTS; return None if the run needs none, for instance after a checkpoint.

    Raises InputError if the file cannot be used.
    """
    if not cfg.TRAIN.INIT_WEIGHTS or not cfg.TRAIN.ENABLE or run_dir.checkpoint_steps():
        return None
    try:
        model = build_to_look_at(cfg)
    except (InputError, ValueError):
        # The configuration describes no model. ``build_inputs`` reports this with all other
        # problems.
        return None
    try:
        return build_fit(cfg, model, cfg.TRAIN.INIT_WEIGHTS)
    except InputError as error:
        raise InputError(
            [f"TRAIN.INIT_WEIGHTS: {problem}" for problem in error.problems]
        ) from error


def build_fit(cfg: Config, model: nn.Module, weights: str) -> Fit:
    """Read the file or address ``weights``, and fit it to ``model``. Raises InputError if it cannot be used."""
    # Weights of an earlier run of a custom model have the names of that network.
    own = own_names(cfg.MODEL.MODEL_NAME, model)
    return fit_weights(read_weights(local_file(weights), own), model)
