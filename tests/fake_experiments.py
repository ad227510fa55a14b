"""Folders experiments/ with rows and results chosen by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from mgexp.config.study import recipe_of
from mgexp.results.comparison import Row
from mgexp.results.runs import Run
from mgexp.results.store import add_to_store
from mgexp.run.folder import RunsDir

CPU, GPU = "Test CPU", "Test GPU"


def result(
    experiment: str,
    seed: int = 0,
    top1: float | None = 90.0,
    *,
    map_: float | None = None,
    train_seconds: float = 100.0,
    **others: Any,
) -> Run:
    """A run; ``others`` are fields of Run."""
    fields: dict[str, Any] = {
        "experiment": experiment,
        "row": experiment.rpartition("/")[2],
        "seed": seed,
        "top1": top1,
        "top5": None if top1 is None else 99.5,
        "map": map_,
        "steps": 1000,
        "epochs": 8.0,
        "clips_seen": 7680,
        "train_flops": 1e14,
        "train_seconds": train_seconds,
        "steady_seconds": train_seconds - 4,
        "input_wait_seconds": 5.0,
        "program_seconds": train_seconds + 25,
        "device": CPU,
        "precision": "fp32",
        "num_train_videos": 960,
        "commit": "c" * 40,
        "date": "2026-11-21T12:00:00+00:00",
    }
    return Run(**{**fields, **others})


def experiments_with(root: Path, yamls: dict[str, str], *results: Run, published: str = "") -> Path:
    """`yamls`: text by name, without .yaml; `published`: lines below the headings. A run has its YAML's recipe."""
    for name, text in yamls.items():
        path = root / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for run in results:
        yaml = root / f"{run.experiment}.yaml"
        is_read = yaml.exists() and not run.recipe
        recipe = recipe_of(yaml) if is_read else run.recipe
        path = RunsDir(yaml.parent).stored_jsonl
        path.parent.mkdir(parents=True, exist_ok=True)
        stored = replace(run, recipe=recipe)
        add_to_store(path, [Row(yaml.stem, {run.seed: stored})])
    (root / "published.csv").write_text(f"experiment,metric,value,source,note\n{published}")
    return root
