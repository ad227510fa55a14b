"""Lines as a run writes them, for trackers."""

LINE = {
    "epoch": 0.5,
    "phase": 0,
    "frames": 8,
    "crop": 32,
    "clips": 4,
    "lr": 0.1,
    "step_seconds": 0.2,
}


def step_line(step, loss=None):
    """A line of metrics.jsonl."""
    return {"step": step, "loss": 1 / (1 + step) if loss is None else loss, **LINE}


def evaluation_line(step, top1, full_protocol=False):
    """A line of evaluations.jsonl."""
    return {
        "step": step,
        "epoch": 1.5,
        "train_seconds": 7.0,
        "top1": top1,
        "full_protocol": full_protocol,
        "frame_order": "forward",
    }


RESULT = {
    "experiment": "tiny/row",
    "steps": 6,
    "params": 1000,
    "metrics": {"top1": 75.0, "top5": 100.0},
    "seconds": {"train": 12.5, "program": 20.0},
    "verdict": "met",
}
