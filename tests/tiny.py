"""A data set of small videos and a recipe that trains on it in seconds: for tests of whole runs."""

import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import av
import numpy as np
import pytest
import yaml

from mgexp.config.load import load_config
from mgexp.options import run_tool

NUM_TRAIN, NUM_VAL, NUM_CLASSES = 24, 8, 2
NUM_FRAMES, TALL, WIDE = 24, 32, 40
ROOT = Path(__file__).resolve().parents[1]
TOOL = ROOT / "tools" / "run_net.py"
EXPERIMENTS = ROOT / "experiments"
ROWS = {
    path.relative_to(EXPERIMENTS).with_suffix("").as_posix(): path
    for path in sorted(EXPERIMENTS.rglob("*.yaml"))
    if path.parent.name != "base" and path.name != "study.yaml"
}
"""The YAML of each row by its name, such as main/k400_slowfast_8x8_r50/baseline."""

LONG_SHORT = {
    "ROW": "long+short",
    "LOG_PERIOD": 1,
    "DEVICE": "cpu",
    "TRAIN.BATCH_SIZE": 4,
    "TRAIN.NUM_EVALUATIONS": 2,
    "TRAIN.NUM_THREADS": 1,
    "DATA.NUM_FRAMES": 8,
    "DATA.SAMPLING_RATE": 1,
    "DATA.TRAIN_CROP_SIZE": 32,
    "DATA.TEST_CROP_SIZE": 32,
    "DATA.TRAIN_JITTER_SCALES": [32, 40],
    "DATA_LOADER.NUM_WORKERS": 0,
    "MODEL.NUM_CLASSES": NUM_CLASSES,
    "RESNET.DEPTH": 18,
    "RESNET.WIDTH_PER_GROUP": 8,
    "SLOWFAST.ALPHA": 2,
    "SLOWFAST.BETA_INV": 4,
    "MULTIGRID.BN_BASE_SIZE": 4,
    "MULTIGRID.LONG_CYCLE": True,
    "MULTIGRID.SHORT_CYCLE": True,
    "MULTIGRID.EPOCH_FACTOR": 2.0,
    "SOLVER.BASE_LR": 0.005,
    "SOLVER.STEPS": [0, 3],
    "SOLVER.MAX_EPOCH": 4,
    "TEST.NUM_ENSEMBLE_VIEWS": 2,
    "TEST.NUM_SPATIAL_CROPS": 1,
}

VIT = {
    "MODEL.MODEL_NAME": "ViT",
    "VIT.EMBED_DIM": 24,
    "VIT.DEPTH": 3,
    "VIT.NUM_HEADS": 2,
    "VIT.TUBELET": [2, 4, 4],
    "VIT.DROPPATH_RATE": 0.3,
    "SOLVER.OPTIMIZING_METHOD": "adamw",
    "SOLVER.BASE_LR": 0.001,
    "SOLVER.ZERO_WD_1D_PARAM": True,
    "MULTIGRID.LR_SCALING": "sqrt",
    # Crops of 40, 28 and 20 pixels, which divide into tubelets.
    "DATA.TRAIN_CROP_SIZE": 40,
    "DATA.TEST_CROP_SIZE": 40,
    "DATA.TRAIN_JITTER_SCALES": [40, 48],
    "MULTIGRID.LONG_CYCLE_FACTORS": [[0.25, 0.7], [0.5, 0.7], [0.5, 1.0], [1.0, 1.0]],
    "MULTIGRID.SHORT_CYCLE_FACTORS": [0.5, 0.7],
}
"""The changes with which the tiny row trains a transformer."""

RECIPE_OF_TRANSFORMERS = {
    "AUG.MIXUP_ALPHA": 0.8,
    "AUG.CUTMIX_ALPHA": 1.0,
    "AUG.REPEATS": 2,
    "MODEL.LABEL_SMOOTHING": 0.1,
    "SOLVER.LAYER_DECAY": 0.75,
    "SOLVER.CLIP_GRAD_L2NORM": 1.0,
    "SOLVER.LR_POLICY": "cosine",
    "TRAIN.EMA_DECAY": 0.9,
}
"""What recipes of transformers add, with strengths for a tiny run."""


def write_dataset(root: Path) -> Path:
    """Writes train.txt, val.txt and their videos: bars that wander one way or the other."""
    rng = np.random.default_rng(0)
    for split, num in (("train", NUM_TRAIN), ("val", NUM_VAL)):
        lines = [f"{split}{index}.mp4 {index % NUM_CLASSES}" for index in range(num)]
        (root / f"{split}.txt").write_text("\n".join(lines) + "\n")
        for index in range(num):
            _write_video(root / f"{split}{index}.mp4", 1 - 2 * (index % NUM_CLASSES), rng)
    return root


def _write_video(path: Path, pixels_per_frame: int, rng: np.random.Generator) -> None:
    picture = rng.integers(0, 256, (TALL // 4, WIDE // 4, 3), np.uint8).repeat(4, 0).repeat(4, 1)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=30, options={"threads": "1"})
        stream.width, stream.height, stream.pix_fmt = WIDE, TALL, "yuv420p"
        for number in range(NUM_FRAMES):
            shown = np.roll(picture, number * pixels_per_frame, axis=1)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(shown, format="rgb24")))
        container.mux(stream.encode())


def data_keys(root: Path) -> dict[str, str]:
    """The keys that point to a data set."""
    return {
        "DATA.TRAIN_LIST": str(root / "train.txt"),
        "DATA.VAL_LIST": str(root / "val.txt"),
        "DATA.PATH_PREFIX": str(root),
    }


def refuse_to_list(monkeypatch, name: str) -> None:
    """Let nobody list the folders called ``name``. Permissions would not stop root."""
    read = Path.iterdir

    def refuse(path: Path) -> Iterator[Path]:
        if path.name == name:
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(Path, "iterdir", refuse)


def write_config(path: Path, changes: Mapping[str, Any]) -> Path:
    """A YAML of the tiny row with ``changes``."""
    return write_keys(path, {**LONG_SHORT, **changes})


def write_keys(path: Path, values: Mapping[str, Any]) -> Path:
    """A YAML of ``values`` by dotted names."""
    tree: dict[str, Any] = {}
    for name, value in values.items():
        *sections, last = name.split(".")
        node = tree
        for section in sections:
            node = node.setdefault(section, {})
        node[last] = value
    path.write_text(yaml.safe_dump(tree))
    return path


def tiny_config(folder: Path, changes: Mapping[str, Any] | None = None) -> Any:
    """The frozen configuration of the tiny row with ``changes``."""
    return load_config(write_config(folder / "tiny.yaml", changes or {}))


def load_tool(name: str) -> ModuleType:
    """tools/<name>.py as a module, a new one each time. Its ``main`` ends as the command does."""
    path = TOOL.with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks its module up there.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    own_main = module.main

    def main(arguments: Sequence[str]) -> int:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.argv", [str(path), *arguments])
            return run_tool(own_main)

    module.main = main
    return module


def run_net() -> ModuleType:
    """tools/run_net.py as a module."""
    return load_tool("run_net")


def command(cfg: Path, output: Path, *pairs: Any) -> Sequence[str]:
    """The arguments of a run."""
    return ["--cfg", str(cfg), "--output", str(output), *map(str, pairs)]
