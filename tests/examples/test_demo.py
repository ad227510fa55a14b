"""examples/demo.py on the model of a finished run: what its clips show, and what it writes."""

import av
import demo
import numpy as np
import pytest
import torch
from tiny import NUM_FRAMES

from mgexp.data.records import VideoRecord
from mgexp.data.views import EvaluationViews
from mgexp.video.pyav import PyavReader


@pytest.mark.parametrize("stride", [1, 2])
def test_the_first_clip_is_the_first_view_of_evaluation(tiny_data, stride):
    path = str(tiny_data / "val0.mp4")
    views = EvaluationViews(
        [VideoRecord(path, 0)],
        frames=8,
        stride=stride,
        crop=16,
        num_views=2,
        num_crops=1,
        target_fps=30.0,
        opener=PyavReader,
    )
    wanted = views[0].frames.permute(0, 4, 1, 2, 3)
    last = demo.LastFrames(np.arange(8) * stride / 30, 16)
    with demo.open_source(path) as source:
        for seconds, picture in demo.frames_of(source):
            last.add(seconds, picture)
            if seconds >= last.steps[-1] - 1e-3:
                break
    torch.testing.assert_close(last.clip(), wanted, rtol=0, atol=0)
    assert len(last.times) <= 8 * stride


def test_a_video_is_written_with_its_classes(finished_run, tiny_data, tmp_path, capsys):
    out = tmp_path / "seen.mp4"
    video = str(tiny_data / "val0.mp4")
    options = ["--run", str(finished_run), "--output", str(out), "--every", "0.2"]
    assert demo.main([video, *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    # 24 frames at 30 per second hold three clips of 8 frames that are 0.2 s apart.
    seconds = [float(line.split(" s ")[0]) for line in lines]
    assert seconds == pytest.approx([0.2, 0.4, 0.6], abs=0.06)
    assert all(" % class " in line for line in lines)
    with av.open(str(out)) as container:
        pictures = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(pictures) == NUM_FRAMES
    with av.open(video) as container:
        first = next(container.decode(video=0)).to_ndarray(format="rgb24")
    assert pictures[0].shape == first.shape
    # Letters are white, and the videos are not.
    assert (pictures[-1] > 200).all(-1).sum() > (pictures[0] > 200).all(-1).sum()
