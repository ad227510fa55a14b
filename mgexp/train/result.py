"""The result of a finished run, and whether it is what its YAML expects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mgexp.record.clock import Clock

Expectations = Sequence[tuple[str, float, float]]

NO_EXPECTATION, MET, MISSED = "nothing expected", "met", "missed"


def judge(metrics: Mapping[str, float], expected: Expectations) -> str:
    """``met`` where every (metric, percent, tolerance) holds."""
    if not expected:
        return NO_EXPECTATION
    held = all(abs(metrics[name] - want) <= within for name, want, within in expected)
    return MET if held else MISSED


def seconds_record(clock: Clock) -> dict[str, float]:
    """Seconds by what they went into; ``steady`` is training without the first use of each shape."""
    names = ("input_wait", "evaluate", "precise_bn", "checkpoint", "shape_warmup", "program")
    train = clock.seconds("train")
    return {
        "train": train,
        "steady": train - clock.seconds("shape_warmup"),
        **{name: clock.seconds(name) for name in names},
    }


def summary(result: Mapping[str, Any]) -> str:
    """One line for the end of a log."""
    seconds = result["seconds"]
    return (
        f"top-1 {result['metrics']['top1']:.2f} %, {result['steps']} steps, "
        f"{result['train_flops'] / 1e12:.1f} TFLOPs, {seconds['train']:.1f} s of training "
        f"({seconds['input_wait']:.1f} s waiting for input), {seconds['program']:.1f} s in all; "
        f"expectation: {result['verdict']}"
    )
