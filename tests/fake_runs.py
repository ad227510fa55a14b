"""Run folders as a finished training leaves them, with numbers chosen by hand."""

from pathlib import Path

import numpy as np
import yaml

from mgexp.run.files import append_jsonl, read_json, write_json
from mgexp.run.folder import RunDir

CONFIG = {"TRAIN": {"BATCH_SIZE": 8, "ENABLE": True}, "SOLVER": {"STEPS": [0, 4, 8]}, "RNG_SEED": 1}


def fake_run(
    runs: Path,
    row: str,
    seed: int = 1,
    *,
    top1: float = 90.0,
    train_seconds: float = 100.0,
    train_flops: float = 1e14,
    steps: int = 1000,
    epochs: float = 8.0,
    device: str = "cpu",
    threads: int = 2,
    curve: tuple[tuple[float, float], ...] = (),
    controls: dict[str, float] | None = None,
    date: str = "2026-11-21T12:00:00+00:00",
) -> RunDir:
    """`curve` is (train seconds, top-1) during training; `controls` is frame order -> top-1."""
    run = unfinished_run(runs, row, seed)
    write_json(run.environment_json, {"threads": threads, "cpu": "Test CPU", "gpu": None})
    for number, (at_seconds, score) in enumerate(curve):
        append_jsonl(run.evaluations_jsonl, _evaluation(number, at_seconds, score, full=False))
    for order, score in {"forward": top1, **(controls or {})}.items():
        line = _evaluation(steps, train_seconds, score, full=True, frame_order=order)
        append_jsonl(run.evaluations_jsonl, line)
    seconds = {
        "train": train_seconds,
        "steady": train_seconds - 4.0,
        "input_wait": 5.0,
        "shape_warmup": 4.0,
        "evaluate": 10.0,
        "precise_bn": 2.0,
        "checkpoint": 1.0,
        "program": train_seconds + 25.0,
    }
    result = {
        "experiment": f"{runs.name}/{row}",
        "row": row,
        "seed": seed,
        "commit": "c0ffee",
        "date": date,
        "num_train_videos": 960,
        "num_unusable_videos": 0,
        "steps": steps,
        "epochs": epochs,
        "clips_seen": round(epochs * 960),
        "train_flops": train_flops,
        "params": 1_000_000,
        "metrics": {"top1": top1, "top5": 99.5},
        "seconds": seconds,
        "other_cores": None,
        "device": device,
        "precision": "fp32",
        "expected": None,
        "verdict": "none",
    }
    write_json(run.result_json, result)
    return run


def save_predictions(run: RunDir, counts: tuple[tuple[int, int, int], ...]) -> None:
    """Give a run the scores and the top-1 of videos, of which `counts` has (label, predicted class, videos)."""
    pairs = np.repeat([pair[:2] for pair in counts], [pair[2] for pair in counts], axis=0)
    labels, predicted = pairs.T
    videos = np.array([f"/videos/{number}.mp4" for number in range(len(labels))])
    scores = np.eye(pairs.max() + 1, dtype=np.float32)[predicted]
    np.savez(run.scores("3x1_forward"), videos=videos, labels=labels, scores=scores)
    result = read_json(run.result_json)
    result["metrics"]["top1"] = 100 * float((labels == predicted).mean())
    write_json(run.result_json, result)


def unfinished_run(runs: Path, row: str, seed: int = 1, steps: int = 0) -> RunDir:
    """A run folder without a result; `steps` lines of metrics."""
    run = RunDir(runs / row / f"seed{seed}")
    run.checkpoints.mkdir(parents=True)
    run.config_yaml.write_text(yaml.safe_dump({**CONFIG, "RNG_SEED": seed}))
    for step in range(steps):
        append_jsonl(run.metrics_jsonl, {"step": step})
    return run


def _evaluation(
    step: int, train_seconds: float, score: float, *, full: bool, frame_order: str = "forward"
) -> dict[str, object]:
    return {
        "step": step,
        "epoch": 1.0,
        "train_seconds": train_seconds,
        "train_flops": 5 * 10**13,
        "top1": score,
        "top5": 99.0,
        "loss": 0.5,
        "views": 3 if full else 1,
        "frame_order": frame_order,
        "num_videos": 1200 if full else 240,
        "full_protocol": full,
    }
