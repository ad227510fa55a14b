"""The loop on a user's videos learns two colours, and the page shows the same loop."""

import runpy
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import own_videos
import pytest
import torch

ROOT = Path(__file__).parents[2]


def write_video(path, level):
    """Write 16 frames of one grey."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=30, options={"threads": "1"})
        stream.width, stream.height, stream.pix_fmt = 80, 64, "yuv420p"
        frame = av.VideoFrame.from_ndarray(np.full((64, 80, 3), level, np.uint8), format="rgb24")
        for _ in range(16):
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Four dark and four bright videos of 16 frames."""
    root = tmp_path_factory.mktemp("own_videos")
    for name, level in (("bright", 220), ("dark", 30)):
        (root / name).mkdir()
        for number in range(4):
            write_video(root / name / f"{number}.mp4", level + number)
    return root


def test_it_learns_and_every_step_has_the_shape_of_its_plan(folder, monkeypatch):
    recipe = replace(
        own_videos.RECIPE, crop=32, jitter=(32, 40), stage_epochs=(0, 12), max_epoch=16
    )
    monkeypatch.setattr(own_videos, "RECIPE", recipe)
    torch.manual_seed(0)
    model = own_videos.small_network(2)
    sizes = []
    model.register_forward_pre_hook(lambda _, inputs: sizes.append(tuple(inputs[0].shape)))
    done = [plan for plan, _ in own_videos.train(model, str(folder), workers=0)]
    assert sizes == [(plan.clips, 3, plan.frames, plan.crop, plan.crop) for plan in done]
    assert len({plan.frames for plan in done}) > 1
    assert own_videos.accuracy(model, str(folder), ["bright", "dark"]) == 1.0


MY_NETWORK = """
from own_videos import small_network as my_network
"""


def test_the_program_of_the_page_runs(folder, tmp_path, monkeypatch):
    page = (ROOT / "docs" / "library.md").read_text()
    code = page.split("```python\n")[1].split("```")[0].replace("num_workers=2", "num_workers=0")
    (tmp_path / "my_videos").mkdir()
    (tmp_path / "my_videos" / "train").symlink_to(folder)
    (tmp_path / "program.py").write_text(MY_NETWORK + code)
    monkeypatch.chdir(tmp_path)
    found = runpy.run_path("program.py")
    assert found["classes"] == ["bright", "dark"]
    assert found["step"] + 1 == found["schedule"].total_steps
