"""The result of a finished run: its numbers, the verdict on what its YAML expects, and the exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from mgexp.models.cost import macs_by_shape, num_params, schedule_shapes, train_flops
from mgexp.run.clock import Clock
from mgexp.train.checkpoint import State
from mgexp.train.setup import Inputs
from mgexp.train.task import metrics_text
from mgexp.video.reader import SOURCE

Expectations = Sequence[tuple[str, float, float]]

NO_EXPECTATION, MET, MISSED = "nothing expected", "met", "missed"


class Outcome(IntEnum):
    """Exit codes of run_net.py."""

    OK = 0
    FAILED = 1
    BAD_INPUT = 2
    MISSED = 3
    INTERRUPTED = 4


def judge(metrics: Mapping[str, float], expected: Expectations) -> str:
    """Return the verdict: met if every expected (metric, percent, tolerance) holds."""
    if not expected:
        return NO_EXPECTATION
    held = all(abs(metrics[name] - want) <= within for name, want, within in expected)
    return MET if held else MISSED


def outcome_of(result: Mapping[str, Any]) -> Outcome:
    """Return the exit code of a finished run, from its result.json."""
    return Outcome.MISSED if result["verdict"] == MISSED else Outcome.OK


def numbers(state: State, inputs: Inputs) -> dict[str, Any]:
    """Count what was trained: videos, steps, epochs, clips, FLOPs, parameters."""
    schedule = inputs.schedule
    macs = macs_by_shape(state.model, schedule_shapes(schedule))
    return {
        "num_train_videos": len(inputs.train),
        "num_unusable_videos": len(inputs.missing) + len(state.unusable),
        "steps": state.step,
        "epochs": state.epoch,
        "clips_seen": round(state.epoch * schedule.num_videos),
        "clips_by_level": dict(state.levels),
        "train_flops": train_flops(schedule, macs),
        "params": num_params(state.model),
    }


def seconds_record(clock: Clock) -> dict[str, float]:
    """List the seconds of each activity. ``steady`` is training without the first use of each shape."""
    names = ("input_wait", "evaluate", "precise_bn", "checkpoint", "shape_warmup", "program")
    train = clock.seconds("train")
    return {
        "train": train,
        "steady": train - clock.seconds("shape_warmup"),
        **{name: clock.seconds(name) for name in names},
    }


def summary(result: Mapping[str, Any]) -> str:
    """Summarise a result in one line, for the end of a log."""
    seconds = result["seconds"]
    first = dict([*result["metrics"].items()][:1])
    clips: Mapping[str, int] = result.get("clips_by_level", {})
    levels = ""
    if list(clips) not in (
        [],
        [SOURCE],
    ):  # without a clip store all clips come from the source videos
        ordered = sorted(clips.items(), key=lambda item: -item[1])
        total = sum(clips.values())
        shares = (f"{100 * number / total:.0f} % from {level}" for level, number in ordered)
        levels = f"clips {', '.join(shares)}; "
    return (
        f"{metrics_text(first)}, {result['steps']} steps, "
        f"{result['train_flops'] / 1e12:.1f} TFLOPs, {seconds['train']:.1f} s of training "
        f"({seconds['input_wait']:.1f} s waiting for input), {seconds['program']:.1f} s in all; "
        f"{levels}expectation: {result['verdict']}"
    )
