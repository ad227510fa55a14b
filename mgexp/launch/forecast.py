"""Say from a trained baseline whether a multigrid row is likely to be as accurate, for tools/doctor.py.

Two things decide on the map of experiments/length: how many steps the row takes, relative to those after which the
baseline has begun to learn, and what its coarse clips show. Both limits were fitted on that map alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from mgexp.config.keys import Config
from mgexp.dist import Processes
from mgexp.errors import InputError, TrainingError
from mgexp.launch.run import RunOptions, run_in_process
from mgexp.multigrid.schedule import Schedule
from mgexp.plan.doctor import Finding
from mgexp.run.files import read_json, read_jsonl
from mgexp.run.folder import RunDir
from mgexp.stop import Interrupted
from mgexp.train.predict import load_run
from mgexp.train.result import Outcome

Size = tuple[int, int]
"""Frames and crop of a clip."""

FEW_TAKEOFFS = 5.0
"""A row that takes fewer steps than this many times the baseline's take-off is likely to lose."""
LITTLE_KEPT = 0.5
"""A shape at which the adapted baseline keeps less than this share of its accuracy should be left out."""
ADAPTING_SHARE = 0.1
"""Epochs of adapting a trained baseline to a shape, as a share of the baseline's epochs."""
MAX_VIDEOS = 500
"""Validation videos to score at each shape. The standard error of an accuracy is then 2.2 points at most."""
SMOOTHED_LINES = 10
"""Lines of metrics.jsonl whose losses are averaged before they are compared."""


Losses = Sequence[tuple[int, float]]
"""(step, training loss) of each logged step, in order."""


def read_baseline(run: Path) -> tuple[RunDir, Config, Losses]:
    """Read a finished baseline. Raises InputError if ``run`` is no run, or was trained at several shapes."""
    run_dir, baseline = load_run(run)
    lines = [*read_jsonl(run_dir.metrics_jsonl)]
    if len({(line["frames"], line["crop"]) for line in lines}) != 1:
        raise InputError([f"--run {run}: it was trained at several shapes"])
    losses = [(int(line["step"]) + 1, float(line["loss"])) for line in lines]
    return run_dir, baseline, losses


def forecast_findings(
    schedule: Schedule,
    run_dir: RunDir,
    baseline: Config,
    losses: Losses,
    say: Callable[[str], None],
) -> Iterator[Finding]:
    """Compare the steps of the row with the take-off of the baseline in ``run_dir``, and adapt that to each shape.

    The adapted networks are runs in its folder adapted, so a second call takes what is there.
    """
    yield steps_finding(schedule.total_steps, takeoff_step(losses))
    full = (schedule.recipe.frames, schedule.recipe.crop)
    best = adapted_accuracy(baseline, run_dir, schedule, full, say)
    for size in schedule.sizes:
        if size != full:
            value = adapted_accuracy(baseline, run_dir, schedule, size, say)
            yield shape_finding(size, value, best)


def takeoff_step(losses: Losses) -> int:
    """Return the step after which the smoothed training loss has made half of its whole fall."""
    width = min(SMOOTHED_LINES, len(losses))
    smoothed = [
        (losses[end - 1][0], math.fsum(loss for _, loss in losses[end - width : end]) / width)
        for end in range(width, len(losses) + 1)
    ]
    half = (smoothed[0][1] + smoothed[-1][1]) / 2
    return next(step for step, loss in smoothed if loss <= half)


def steps_finding(row_steps: int, takeoff: int) -> Finding:
    ratio = row_steps / takeoff
    half = f"the {takeoff:,} of half of the fall of the baseline's loss"
    text = f"the row takes {row_steps:,} steps, {ratio:.1f} times {half}"
    values = {"steps": float(row_steps), "takeoff": float(takeoff)}
    if ratio >= FEW_TAKEOFFS:
        return Finding("multigrid: length", "OK", text, values=values)
    remedy = f"fewer than {FEW_TAKEOFFS:g} times: train the baseline, or raise SOLVER.MAX_EPOCH"
    return Finding("multigrid: length", "warning", text, remedy, values)


def shape_finding(size: Size, value: float, best: float) -> Finding:
    """Judge a coarse shape by the accuracy (percent) there, and that at the full shape, both after adapting."""
    kept = value / best if best else 0.0
    text = f"{size[0]} x {size[1]}² keeps {kept:.0%} ({value:.1f} of {best:.1f} %)"
    name, values = "multigrid: shape", {"kept": kept}
    if kept >= LITTLE_KEPT:
        return Finding(name, "OK", text, values=values)
    return Finding(name, "warning", text, "leave this shape out", values)


def adapted_accuracy(
    baseline: Config, run_dir: RunDir, schedule: Schedule, size: Size, say: Callable[[str], None]
) -> float:
    """Train the finished baseline for a tenth of its epochs at ``size``, and return its accuracy there in %."""
    output = RunDir(run_dir.root / "adapted" / f"{size[0]}x{size[1]}")
    if not output.result_json.exists():
        pairs = adapting_keys(baseline, run_dir, schedule, size)
        words = tuple(word for pair in pairs.items() for word in pair)
        options = RunOptions(run_dir.config_yaml, words, output=output.root, experiment="adapted")
        if run_in_process(options, Processes(), say) is Outcome.INTERRUPTED:
            raise Interrupted("a signal")
        # A run that misses what the baseline expects has a result too.
        if not output.result_json.exists():
            raise TrainingError(f"{output.root}: this run did not end well")
    # The first metric is top-1, or the mAP of videos with several labels.
    return float(next(iter(read_json(output.result_json)["metrics"].values())))


def adapting_keys(
    baseline: Config, run_dir: RunDir, schedule: Schedule, size: Size
) -> dict[str, str]:
    """Return the keys of a run that goes on from the baseline at ``size``, with the stride of a coarse clip."""
    frames, crop = size
    strides = {
        (shape.frames, shape.crop): phase.stride_range
        for phase in schedule.phases
        for shape in phase.cycle.shapes
    }
    drawn, data, solver = strides.get(size), baseline.DATA, baseline.SOLVER
    scale = crop / data.TRAIN_CROP_SIZE
    jitter = [round(side * scale) for side in data.TRAIN_JITTER_SCALES]
    return {
        "TRAIN.INIT_WEIGHTS": str(run_dir.model.absolute()),
        "TRAIN.NUM_EVALUATIONS": "1",
        "DATA.NUM_FRAMES": str(frames),
        "DATA.SAMPLING_RATE": str(drawn[1] if drawn else data.SAMPLING_RATE),
        "DATA.TRAIN_CROP_SIZE": str(crop),
        "DATA.TEST_CROP_SIZE": str(round(data.TEST_CROP_SIZE * scale)),
        "DATA.TRAIN_JITTER_SCALES": str(jitter),
        "DATA.MAX_VAL_VIDEOS": str(min(MAX_VIDEOS, data.MAX_VAL_VIDEOS or MAX_VIDEOS)),
        "SOLVER.MAX_EPOCH": str(ADAPTING_SHARE * solver.MAX_EPOCH),
        "SOLVER.STEPS": "[0]",
        "SOLVER.LR_POLICY": "cosine",
        "SOLVER.WARMUP_EPOCHS": "0",
        "SOLVER.WARMUP_STEPS": "0",
        "TEST.NUM_ENSEMBLE_VIEWS": "1",
        "TEST.NUM_SPATIAL_CROPS": "1",
    }
