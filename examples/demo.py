#!/usr/bin/env python3
"""Show on the frames of a video or a camera which classes a trained network sees.

  python examples/demo.py my_video.mp4 --run runs/quickstart/long/seed0 --output seen.mp4
  python examples/demo.py 0 --run RUN        (the camera /dev/video0 on Linux; Ctrl-C ends it)

Every half second, the last frames go through the network as one clip of its full shape. A line is printed
for each clip, and the frames that follow show its classes.
"""

from __future__ import annotations

import argparse
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

# mgexp comes before torch, because it sets how torch's threads wait.
import mgexp  # noqa: F401

# isort: split
import av
import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from mgexp.config.keys import Config
from mgexp.data.clips import Times, finish, segment_times
from mgexp.data.views import view_region
from mgexp.dist import device_of
from mgexp.options import add_import_option, run_tool
from mgexp.results.confusion import name_of
from mgexp.train.predict import Predictor, best_of, build_predictor, load_run, read_names
from mgexp.video.reader import TOLERANCE_SECONDS, FramesArray
from mgexp.video.rgb import RgbConverter, quarter_turns

CLOCK = Fraction(1, 90_000)
"""Seconds of a tick of the written video: the clock of MPEG, which counts the usual frame rates exactly."""


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("source", help="a video file, an address that FFmpeg opens, or the number of a camera")
    add("--run", required=True, type=Path, help="folder of a finished run")
    add_import_option(parser)
    add("--classes", type=Path, help="names of the classes (default: those of the run)")
    add("--output", type=Path, metavar="FILE.mp4", help="write the frames with their classes")
    add("--every", type=float, default=0.5, help="seconds between two clips (default: 0.5)")
    text = "seconds that a clip shows, if a network sees segments of whole videos (default: 4)"
    add("--span", type=float, default=4.0, help=text)
    add("--top", type=int, default=3, help="classes shown (default: 3)")
    return parser.parse_args(arguments)


def build_steps(cfg: Config, span_seconds: float) -> Times:
    """Return the seconds of the frames of a clip after its start."""
    if cfg.DATA.TEMPORAL_GRID == "segments":
        return segment_times(span_seconds, cfg.DATA.NUM_FRAMES)
    seconds_per_frame = cfg.DATA.SAMPLING_RATE / cfg.DATA.TARGET_FPS
    return np.arange(cfg.DATA.NUM_FRAMES, dtype=np.float64) * seconds_per_frame


def open_source(name: str) -> Any:  # noqa: ANN401 - of PyAV, which is untyped
    """Open a file, an address, or the camera of a number."""
    if name.isdigit():
        return av.open(f"/dev/video{name}", format="v4l2")
    return av.open(name, metadata_errors="replace")


def frames_of(container: Any) -> Iterator[tuple[float, FramesArray]]:  # noqa: ANN401
    """Yield the upright frames, uint8 RGB (H, W, 3), with their seconds since the first one."""
    to_rgb, first = RgbConverter(), None
    for frame in container.decode(video=0):
        if frame.time is None:
            continue
        first = frame.time if first is None else first
        picture = np.rot90(to_rgb(frame), quarter_turns(frame.rotation))
        yield frame.time - first, np.ascontiguousarray(picture)


class LastFrames:
    """The centre squares of the last frames of a stream: as many as a clip needs."""

    def __init__(self, steps: Times, crop: int) -> None:
        self.steps, self.crop = steps, crop
        self.times: list[float] = []
        self.squares: list[Tensor] = []

    def add(self, seconds: float, picture: FramesArray) -> None:
        """Add the next frame, and forget those that no later clip shows."""
        region = view_region(*picture.shape[:2], 0, 1)
        square = torch.from_numpy(picture[region.rows, region.columns][None])
        # The copy is ours: the picture is valid until the next one only.
        self.squares.append(finish(square, self.crop).clone())
        self.times.append(seconds)
        num_old = bisect_right(self.times, seconds - self.steps[-1] + TOLERANCE_SECONDS) - 1
        del self.times[: max(0, num_old)], self.squares[: max(0, num_old)]

    def clip(self) -> Tensor:
        """Return the clip that ends with the last frame, uint8 (1, 3, T, S, S)."""
        moments = self.times[-1] - self.steps[-1] + self.steps
        places = [bisect_right(self.times, moment + TOLERANCE_SECONDS) - 1 for moment in moments]
        frames = torch.cat([self.squares[max(0, place)] for place in places])
        return frames.permute(3, 0, 1, 2)[None]


@torch.inference_mode()
def classify(predictor: Predictor, clip: Tensor, top: int) -> tuple[tuple[int, float], ...]:
    """Return the ``top`` pairs (class, probability), the most probable first."""
    logits = predictor.model(predictor.normalizer(clip)).float()
    return best_of(predictor.task.scores(logits)[0], top)


def draw(picture: FramesArray, lines: Sequence[str]) -> FramesArray:
    """Write the lines on the picture, at the top left."""
    image = Image.fromarray(picture)
    size = max(12, min(image.size) // 16)
    font = ImageFont.load_default(size)
    ImageDraw.Draw(image).multiline_text(
        (size // 2, size // 2), "\n".join(lines), "white", font, stroke_width=2, stroke_fill="black"
    )
    return np.asarray(image)


@contextmanager
def open_writer(path: Path) -> Iterator[Callable[[float, FramesArray], None]]:
    """Write an H.264 video: the block gets a function that takes a moment in seconds and its picture.

    An odd last row or column is left out, since H.264 needs even sizes.
    """
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=30)
        stream.pix_fmt = "yuv420p"
        stream.codec_context.time_base = CLOCK

        def write(seconds: float, picture: FramesArray) -> None:
            if not stream.codec_context.is_open:
                stream.height, stream.width = (side // 2 * 2 for side in picture.shape[:2])
            cut = np.ascontiguousarray(picture[: stream.height, : stream.width])
            frame = av.VideoFrame.from_ndarray(cut, format="rgb24")
            frame.pts, frame.time_base = round(seconds / CLOCK), CLOCK
            container.mux(stream.encode(frame))

        yield write
        # None brings out the packets that the encoder holds back.
        container.mux(stream.encode(None))


def main(arguments: list[str]) -> int:
    """Print the classes, and write them on the frames."""
    options = parse(arguments)
    run_dir, cfg = load_run(options.run)
    names = read_names(options.classes, run_dir, cfg.MODEL.NUM_CLASSES)
    predictor = build_predictor(cfg, run_dir, device_of("auto"))
    last = LastFrames(build_steps(cfg, options.span), cfg.DATA.TRAIN_CROP_SIZE)
    top = min(options.top, cfg.MODEL.NUM_CLASSES)
    lines: list[str] = []
    next_clip = float(last.steps[-1])
    with ExitStack() as stack:
        source = stack.enter_context(open_source(options.source))
        write = stack.enter_context(open_writer(options.output)) if options.output else None
        # Ctrl-C ends a camera, and the video that is written until then is whole.
        stack.enter_context(suppress(KeyboardInterrupt))
        for seconds, picture in frames_of(source):
            last.add(seconds, picture)
            if seconds >= next_clip - TOLERANCE_SECONDS:
                best = classify(predictor, last.clip(), top)
                lines = [f"{100 * share:.0f} % {name_of(label, names)}" for label, share in best]
                print(f"{seconds:8.1f} s  {'   '.join(lines)}", flush=True)
                next_clip = seconds + options.every
            if write:
                write(seconds, draw(picture, lines))
    return 0


if __name__ == "__main__":
    sys.exit(run_tool(main))
