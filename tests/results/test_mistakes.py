"""The mistakes of a network: which videos come first."""

from __future__ import annotations

import numpy as np
from fake_runs import fake_run

from mgexp.results.report import read_mistakes
from mgexp.results.store import load_runs


def test_the_most_confident_mistake_comes_first(tmp_path):
    scores = np.array([[0.7, 0.3], [0.4, 0.6], [0.1, 0.9], [0.8, 0.2]], np.float32)
    videos = np.array([f"/data/videos/{name}.mp4" for name in ("right", "unsure", "sure", "too")])
    run = fake_run(tmp_path, "baseline", 0, top1=50.0)
    np.savez(run.scores("1x1_forward"), videos=videos, labels=np.zeros(4, int), scores=scores)
    runs = load_runs(tmp_path).with_class_names(("open", "close"), tmp_path)
    mistakes = read_mistakes(tmp_path, runs)
    assert [(each.video, each.predicted, round(each.confidence)) for each in mistakes] == [
        ("videos/sure.mp4", "close", 90),
        ("videos/unsure.mp4", "close", 60),
    ]
