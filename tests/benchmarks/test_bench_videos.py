"""Videos to measure loading with are like those of Kinetics as it is usually kept."""

import av
import bench_videos
import pytest
from bench_videos import make_bench_videos


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench_videos, "NUM_VIDEOS", 1)
        make_bench_videos(folder, progress=False)
        yield folder / "videos" / "0.mp4"


def test_a_video_is_of_the_usual_form(made):
    with av.open(str(made)) as container:
        stream = container.streams.video[0]
        keys = [packet.is_keyframe for packet in container.demux(stream) if packet.size]
        context = stream.codec_context
        assert (context.name, context.height, context.width) == ("h264", 256, 340)
        assert stream.average_rate == 30
    assert len(keys) == 300
    assert sum(keys) == 2  # a long group of pictures
    kilobits_per_second = made.stat().st_size * 8 / 10 / 1000
    assert 300 < kilobits_per_second < 900
