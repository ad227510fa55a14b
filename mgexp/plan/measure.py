"""Measure rows on this machine, predict how long they train, and compare a prediction with a finished run."""

from __future__ import annotations

import hashlib
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from mgexp.config.check import cross_problems
from mgexp.config.keys import Config
from mgexp.config.load import flatten, in_fold
from mgexp.data.lists import build_list
from mgexp.data.loader import build_opener
from mgexp.dist import device_of
from mgexp.errors import InputError, collected, raise_problems
from mgexp.models.build import build_problems
from mgexp.models.cost import num_params
from mgexp.multigrid.schedule import Schedule, StepShape
from mgexp.plan.communication import Communication
from mgexp.plan.loading import Kind, build_clip_seconds, legs_of
from mgexp.plan.predict import Resources, RowPrediction, StepCost, leg_shapes, predict
from mgexp.plan.timing import Step, Stopwatch, measure_cycles
from mgexp.plan.ways import build_training_step
from mgexp.plan.workers import most_workers
from mgexp.run.environment import num_cores
from mgexp.run.files import read_json, read_jsonl
from mgexp.run.folder import RunDir
from mgexp.run.remote import is_listed
from mgexp.train.setup import build_num_videos, build_row_schedule, build_split_problems
from mgexp.video.paths import evenly_spaced
from mgexp.video.reader import VideoError

MANY_VIDEOS = 10**6
"""Number of videos for a schedule whose length does not matter: enough for a step of each shape."""

LOADING_SHARE = 0.25
"""Loading's share of the budget. Clips take milliseconds and differ little, so the steps need more of the time."""

LOADING_VIDEOS = 2
"""Number of videos whose clips are timed."""

COST_SECTIONS = ("MODEL", "RESNET", "SLOWFAST", "NONLOCAL", "VIT", "MVIT", "X3D", "AUG")
COST_KEYS = (
    *("TRAIN.PRECISION", "TRAIN.BF16_ALLREDUCE", "TRAIN.NUM_THREADS"),
    *("TRAIN.MAX_CLIPS_PER_GPU", "TRAIN.COMPILE", "TRAIN.ACTIVATION_CHECKPOINTING"),
    "SOLVER.OPTIMIZING_METHOD",
    *("DATA.STORE", "DATA.FRAMES_FPS", "DATA.TEMPORAL_GRID", "DATA.TARGET_FPS"),
    *("DATA.TRAIN_JITTER_SCALES", "DATA.INV_UNIFORM_SAMPLE"),
    *("DATA.TRAIN_JITTER_SCALES_RELATIVE", "DATA.TRAIN_JITTER_ASPECT_RELATIVE"),
)
"""The keys, beside the shapes of clips, on which the seconds of a step or of loading a clip depend."""
AS_CONFIGURED = "as configured"
"""The name in JSON of the way to load that training takes."""
NUMBERS = ("seconds", "gradient_bytes", "num_gpus", "num_cores", "device")
"""The fields of a Measurement that JSON has as they are."""


@dataclass(frozen=True)
class Measurement:
    """The measured costs of a row on one of ``num_gpus`` processes.

    ``model`` identifies the network and the other keys of ``build_cost_keys``; it is "" in files of earlier
    versions. ``steps``: cost of a step, by shape. ``loading``: core seconds of a clip of each kind as training
    loads it; None if there were no videos. ``num_cores``: cores of the machine. ``seconds``: duration of the
    measurement.
    """

    steps: Mapping[StepShape, StepCost]
    loading: Mapping[Kind, float] | None
    gradient_bytes: int
    num_gpus: int
    num_cores: int
    device: str
    seconds: float
    model: str = ""

    @property
    def clip_seconds(self) -> list[list[float]]:
        """List [frames, crop, seconds of a clip in its largest mini-batch], for MULTIGRID.CLIP_SECONDS."""
        by_clips = sorted(self.steps.items(), key=lambda item: item[0].clips)
        found = {(one.frames, one.crop): cost.seconds / one.clips for one, cost in by_clips}
        return [[*size, float(f"{seconds:.4g}")] for size, seconds in sorted(found.items())]

    def to_json(self) -> dict[str, Any]:
        """Return everything for a JSON file, which ``measurement_of`` reads."""
        kinds = [
            {"frames": frames, "crop": crop, "stride_range": stride, "core_seconds": seconds}
            for (frames, crop, stride), seconds in (self.loading or {}).items()
        ]
        return {
            **{name: getattr(self, name) for name in NUMBERS},
            "model": self.model,
            "steps": [{**asdict(shape), **asdict(cost)} for shape, cost in self.steps.items()],
            "loading": {AS_CONFIGURED: kinds} if self.loading else {},
        }


def measurement_of(record: Mapping[str, Any]) -> Measurement:
    """Read a measurement from JSON. Raises InputError where something is missing."""
    try:
        steps = {
            StepShape(line["frames"], line["crop"], line["clips"], line["num_bn_groups"]): StepCost(
                line["seconds"], line["core_seconds"], line["first_use_seconds"]
            )
            for line in record["steps"]
        }
        loading: dict[Kind, float] = {}
        # Earlier files may have more ways to load. The first one is that of training.
        for line in next(iter(record["loading"].values()), ()):
            # JSON has no tuples, and a kind must be one to be a key.
            stride = line["stride_range"]
            kind = (line["frames"], line["crop"], stride and (stride[0], stride[1]))
            loading[kind] = line["core_seconds"]
        numbers = {name: record[name] for name in NUMBERS}
        return Measurement(steps, loading or None, **numbers, model=record.get("model", ""))
    except (LookupError, TypeError, AttributeError) as error:
        raise InputError([f"not a measurement of plan.py: {error!r}"]) from error


@dataclass(frozen=True)
class Row:
    """A row to plan. ``num_videos``: number of its training videos."""

    name: str
    cfg: Config
    num_videos: int

    def schedule(self, num_gpus: int, checks_model: bool = False) -> Schedule:
        """Build its schedule for ``num_gpus`` processes.

        Raises InputError where the processes cannot share the mini-batches, and with ``checks_model`` also where
        the model or the training step do not accept them.
        """
        try:
            return build_checked_schedule(self.cfg, [], self.num_videos, num_gpus, checks_model)
        except InputError as error:
            where = f"{self.name} on {num_gpus} GPUs"
            raise InputError([f"{where}: {problem}" for problem in error.problems]) from error


def build_row(cfg: Config, name: str, given: int | None = None) -> Row:
    """Build the row ``name`` for ``given`` training videos, or for those of its list.

    Raises InputError where the number is not known.
    """
    num_videos, problems = build_num_videos(cfg, given)
    raise_problems(problems)
    return Row(name, cfg, num_videos)


def build_checked_schedule(
    cfg: Config,
    problems: Iterable[str],
    num_videos: int = MANY_VIDEOS,
    num_processes: int = 1,
    checks_model: bool = True,
) -> Schedule:
    """Build a schedule, and check that the model and the training step accept its shapes.

    ``problems``: problems that are already known. Raises InputError with these and all others.
    """
    found = [*problems, *cross_problems(cfg)]
    with collected(found):
        schedule = build_row_schedule(cfg, num_videos, num_processes)
    raise_problems(found)
    if checks_model:
        raise_problems(build_problems(cfg, schedule.sizes))
        raise_problems(build_split_problems(cfg, schedule))
    return schedule


def measure_rows(
    rows: Sequence[Row],
    budget_seconds: float,
    num_gpus: int = 1,
    tell: Callable[[str], None] = lambda text: None,
) -> Measurement:
    """Time loading and steps of all ``rows`` on this machine, if possible within ``budget_seconds``.

    The mini-batches are as large as on one of ``num_gpus`` processes. Model and videos come from
    the first row. ``tell`` is called with what is measured next. Raises InputError for bad input.
    """
    start = time.perf_counter()
    # Rows of one model share the timings of their steps, so the time is spent once for all of them.
    cfg = rows[0].cfg
    first = build_cost_keys(cfg)
    for row in rows[1:]:
        own = build_cost_keys(row.cfg)
        differ = ", ".join(name for name in first | own if first.get(name) != own.get(name))
        if differ:
            problem = (
                f"{rows[0].name} and {row.name} differ in {differ}, so their steps or clips cost"
            )
            raise InputError([f"{problem} other times: plan them apart, with --rows"])
    schedules = [row.schedule(num_gpus) for row in rows]
    # Loading comes first, so that the steps get all the time that it leaves.
    tell(f"measuring the loading of clips, up to {LOADING_SHARE * budget_seconds:.0f} s")
    loading = build_loading_seconds(cfg, schedules, LOADING_SHARE * budget_seconds)
    cycles = [shapes for one in schedules for _, shapes in leg_shapes(one)]
    threads, device = torch.get_num_threads(), device_of(cfg.DEVICE)
    torch.set_num_threads(cfg.TRAIN.NUM_THREADS or threads)
    try:
        way = build_training_step(cfg, device)

        def in_one_process(shape: StepShape) -> Step:
            # If BN groups span processes, this process has no others to share them with. Its clips
            # then form one group, which costs the same except for the messages between processes.
            return way(replace(shape, num_bn_groups=max(1, shape.num_bn_groups)))

        left = budget_seconds - (time.perf_counter() - start)
        num_shapes = len({shape for cycle in cycles for shape in cycle})
        tell(f"measuring training steps of {num_shapes} shapes, about {max(left, 0):.0f} s")
        steps = measure_cycles(in_one_process, cycles, left, Stopwatch(device), progress=True)
    except torch.OutOfMemoryError as error:
        problem = f"a mini-batch of one of {num_gpus} GPUs does not fit into this one: {error}"
        raise InputError([f"{problem}; plan for more with --num-gpus"]) from error
    finally:
        torch.set_num_threads(threads)
    return Measurement(
        steps=steps,
        loading=loading,
        gradient_bytes=(2 if cfg.TRAIN.BF16_ALLREDUCE else 4) * num_params(way.step.model),
        num_gpus=num_gpus,
        num_cores=num_cores(),
        device=device.type,
        seconds=time.perf_counter() - start,
        model=build_cost_digest(cfg),
    )


def build_cost_keys(cfg: Config) -> dict[str, object]:
    """Return the keys on which the costs of a row depend, with the sections of a network of one's own."""
    added = {one.name for one in fields(cfg)} - {one.name for one in fields(Config)}
    sections = {*COST_SECTIONS, *added}
    found = {
        name: value
        for name, value in flatten(cfg)
        if name in COST_KEYS or name.partition(".")[0] in sections
    }
    # The place of a store may differ from machine to machine.
    return {**found, "DATA.STORE": bool(cfg.DATA.STORE)}


def build_cost_digest(cfg: Config) -> str:
    """Identify the keys of ``build_cost_keys`` and their values."""
    text = repr(sorted(build_cost_keys(cfg).items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def build_loading_seconds(
    cfg: Config, schedules: Sequence[Schedule], budget_seconds: float
) -> dict[Kind, float] | None:
    """Time a clip of each kind on one core, as configured.

    Return None if the training list or its videos are not on this machine. Raises InputError if the
    list is wrong or a video fails.
    """
    cfg = in_fold(cfg)
    if not is_listed(cfg.DATA.TRAIN_LIST):
        return None
    videos = build_list(cfg, "TRAIN_LIST")
    raise_problems(videos.problems)
    if not videos.records:
        return None
    records = evenly_spaced(videos.records, LOADING_VIDEOS)
    legs = [leg for schedule in schedules for leg in legs_of(schedule)]
    opener = build_opener(cfg)
    try:
        return build_clip_seconds(cfg, legs, records, opener, budget_seconds, progress=True)
    except VideoError as error:
        raise InputError([str(error)]) from error


def predict_rows(
    rows: Sequence[Row],
    measurement: Measurement,
    communication: Communication,
    gpu_counts: Sequence[int],
    num_workers: int | None = None,
    num_cores: int | None = None,
) -> list[RowPrediction]:
    """Predict every row on every number of GPUs, which share the clips of the recipe.

    A process has ``num_workers``, by default those of the row, and ``num_cores``, by default its share of a node
    with as many cores as the measured machine. Raises InputError if that is impossible, or if a shape was not
    measured.
    """
    found, problems = [], []
    for num_gpus in gpu_counts:
        num_local = min(num_gpus, communication.network.gpus_per_node)
        cores = num_cores or max(1, measurement.num_cores // num_local)
        for row in rows:
            own_workers = most_workers(row.cfg.DATA_LOADER.NUM_WORKERS, cores)
            resources = Resources(own_workers if num_workers is None else num_workers, cores)
            schedule = row.schedule(num_gpus)
            steps, loading = measurement.steps, measurement.loading
            # One message has all problems, so that a user can correct them all at once.
            try:
                found.append(
                    predict(row.name, schedule, steps, loading, resources, communication, num_gpus)
                )
            except ValueError as error:
                problems.append(f"{row.name} on {num_gpus} GPUs: {error}")
            except KeyError as error:
                kind = f"no clip of frames, crop and strides {error} was measured"
                problems.append(f"{row.name} on {num_gpus} GPUs: {kind}; measure again")
    raise_problems(problems)
    return found


def measured_run(folder: Path, predictions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Compare the finished run in ``folder`` with its prediction on the fewest GPUs that were planned, for JSON.

    Seconds of training include the waits for clips. ``ratio`` is predicted / measured seconds. The seconds of a
    step are, for each shape of metrics.jsonl, the median of the logged steps. Raises InputError where the run is
    not finished, was not planned, or took another number of steps, and where a file is damaged.
    """
    try:
        return _compare(folder, predictions)
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        what = f"{type(error).__name__}: {error}"
        problem = f"{folder}: its result.json or metrics.jsonl, or the plan, is damaged ({what})"
        raise InputError([f"{problem}; measure again, or leave the run out"]) from error


def _compare(folder: Path, predictions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    run_dir = RunDir(folder)
    result = read_json(run_dir.result_json)
    name = result["experiment"]
    planned = [one for one in predictions if one["row"] == name]
    if not planned:
        names = ", ".join(sorted({str(one["row"]) for one in predictions}))
        raise InputError([f"{folder} is a run of {name}, which was not planned: {names}"])
    predicted = min(planned, key=lambda one: int(one["num_gpus"]))
    if predicted["steps"] != result["steps"]:
        raise InputError(
            [f"{folder} took {result['steps']} steps, the plan of {name} has {predicted['steps']}"]
        )
    # The shapes are written as a plan writes its mini-batches, so that a reader can compare them.
    by_shape: defaultdict[str, list[float]] = defaultdict(list)
    for line in read_jsonl(run_dir.metrics_jsonl):
        by_shape[f"{line['clips']}x{line['frames']}x{line['crop']}²"].append(line["step_seconds"])
    return {
        "row": name,
        "predicted_train_seconds": predicted["train_seconds"],
        "measured_train_seconds": result["seconds"]["train"],
        "ratio": float(predicted["train_seconds"]) / result["seconds"]["train"],
        "predicted_input_wait_seconds": predicted["input_wait_seconds"],
        "measured_input_wait_seconds": result["seconds"]["input_wait"],
        "measured_step_seconds": {
            shape: statistics.median(values) for shape, values in by_shape.items()
        },
    }
