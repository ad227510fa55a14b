"""The result of a finished run: its numbers, the verdict on what its YAML expects, and the exit code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Any

import torch
from torch import nn

from mgexp.config.keys import Config
from mgexp.models.cost import count_macs, num_params, train_flops
from mgexp.multigrid.schedule import Schedule
from mgexp.run.environment import describe
from mgexp.run.other_programs import other_cores
from mgexp.train.checkpoint import State
from mgexp.train.precision import Precision
from mgexp.train.setup import Inputs
from mgexp.train.task import metrics_text

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
    """Return the verdict: "met" if each metric is within its tolerance.

    ``expected`` holds (metric, percent, tolerance in points).
    """
    if not expected:
        return NO_EXPECTATION
    held = all(abs(metrics[name] - want) <= within for name, want, within in expected)
    return MET if held else MISSED


def outcome_of(result: Mapping[str, Any]) -> Outcome:
    """Return the exit code of a finished run, from its result.json."""
    return Outcome.MISSED if result["verdict"] == MISSED else Outcome.OK


def flops_counter(model: nn.Module, schedule: Schedule) -> Callable[[int], int]:
    """Return a function that counts the FLOPs of the training steps before a step.

    Raises InputError if a custom model cannot be counted.
    """
    return partial(train_flops, schedule, count_macs(model, schedule.sizes))


def build_result(
    cfg: Config,
    experiment: str,
    device: torch.device,
    precision: Precision,
    inputs: Inputs,
    state: State,
    flops: int,
    metrics: Mapping[str, float],
) -> dict[str, Any]:
    """Build the content of result.json: what was trained, how long it took, and how good it is.

    ``flops``: those of all training steps, from `flops_counter`.
    """
    schedule, environment = inputs.schedule, describe()
    return {
        "experiment": experiment,
        "row": cfg.ROW or experiment.rsplit("/", maxsplit=1)[-1],
        "seed": cfg.RNG_SEED,
        "commit": environment["commit"],
        "date": environment["date"],
        "num_train_videos": len(inputs.train),
        "num_unusable_videos": len(inputs.missing) + len(state.unusable),
        "steps": state.step,
        "epochs": state.epoch,
        # ``epoch`` is the number of drawn clips divided by the number of videos, so rounding gives
        # exactly the number of clips.
        "clips_seen": round(state.epoch * schedule.num_videos),
        "train_flops": flops,
        "params": num_params(state.model),
        "metrics": metrics,
        "seconds": state.clock.record(),
        "other_cores": other_cores(state.clock),
        "device": environment["gpu"] if device.type == "cuda" else environment["cpu"],
        "precision": precision.name,
        "expected": [list(row) for row in cfg.EXPECTED],
        "verdict": judge(metrics, cfg.EXPECTED),
    }


def summary(result: Mapping[str, Any]) -> str:
    seconds = result["seconds"]
    # Runs are compared by their first metric, so the line shows this one alone.
    first = dict([*result["metrics"].items()][:1])
    verdict = result["verdict"]
    judged = "" if verdict == NO_EXPECTATION else f"; the EXPECTED value was {verdict}"
    return (
        f"{metrics_text(first)}, {result['steps']} steps, "
        f"{result['train_flops'] / 1e12:.1f} TFLOPs, {seconds['train']:.1f} s of training "
        f"({seconds['input_wait']:.1f} s waiting for input), {seconds['program']:.1f} s in all"
        f"{judged}"
    )
