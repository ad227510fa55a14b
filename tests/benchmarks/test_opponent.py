"""pytorchvideo's dataset gives the clips that ours gives."""

import numpy as np
import pytest
import torch
from opponent import LabeledVideos

from mgexp.data.clips import TrainingClips
from mgexp.data.records import VideoRecord
from mgexp.multigrid.sampler import ClipRequest
from mgexp.video.pyav import PyavReader


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    """30 frames that grow brighter by 7 levels each."""
    import av

    path = tmp_path_factory.mktemp("videos") / "a.mp4"
    rows, columns = np.mgrid[0:64, 0:80]
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=30, options={"crf": "4"})
        stream.height, stream.width, stream.pix_fmt = 64, 80, "yuv420p"
        for number in range(30):
            shade = (7 * number + rows / 4 + columns / 4).astype(np.uint8)
            picture = np.repeat(shade[..., None], 3, axis=2)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return path


def clips_of(video, flip=True, augment=None):
    return TrainingClips(
        [VideoRecord(str(video), 0)], target_fps=30, jitter=(64, 80), full_crop=64,
        inverse_uniform=False, flip=flip, opener=PyavReader, augment=augment,
    )  # fmt: skip


@pytest.mark.parametrize("position", range(6))
def test_its_clip_is_ours_to_a_frame(video, position):
    request = ClipRequest(0, 4, 32, (2, 4), (3, position))
    clips = clips_of(video)
    ours, theirs = clips[request].frames, LabeledVideos(clips)(request)
    assert theirs.shape == ours.shape
    assert theirs.dtype == torch.uint8
    # A frame is 7 levels; the region and the flip agree, so that the rest is the coder's.
    away = theirs.float() - ours.float()
    steps = away.mean(dim=(1, 2, 3)) / 7
    assert steps.abs().max() <= 1.2
    assert (away - away.mean(dim=(1, 2, 3), keepdim=True)).abs().max() <= 4


def test_its_clip_is_augmented_as_ours(video):
    seen = []

    def augment(frames, seed):
        seen.append((frames.shape, seed))
        return 255 - frames

    request = ClipRequest(0, 4, 32, (2, 4), (3, 0))
    clips = clips_of(video, augment=augment)
    ours, theirs = clips[request].frames, LabeledVideos(clips)(request)
    assert seen[0] == seen[1]
    assert seen[0][1] != 0
    # Without the augmentation, one of them would be dark and the other bright.
    assert (theirs.float() - ours.float()).abs().mean() < 10


def test_a_frame_of_each_segment_spans_the_video(video):
    request = ClipRequest(0, 4, 32, None, (3, 0))
    clip = LabeledVideos(clips_of(video, flip=False))(request)
    levels = clip.float().mean(dim=(1, 2, 3))
    assert (levels[-1] - levels[0]).item() == pytest.approx(29 * 7, abs=3)
