#!/usr/bin/env python3
"""Time torchcodec's decoding of clips, on a CPU core and on the video decoder of a GPU (NVDEC).

    python benchmarks/nvdec.py --make-videos runs/bench_videos
    python benchmarks/nvdec.py --make-videos runs/bench_videos --device cpu     the core alone

The clips are those of tools/bench_loader.py before they are resized: synthetic videos of 340 x 256 pixels, 30 fps,
H.264, every second frame from a random start. A decoder opens its file for each clip, as in training. mgexp
decodes on CPU cores in the workers of its loader: this shows what NVDEC would save. Close other programs first.
Exit 0; 2 bad input; 3 torchcodec is not installed, or cannot decode on this device.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from bench_videos import FRAME_RATE, SECONDS, write_videos

from mgexp.errors import InputError, raise_problems
from mgexp.options import ToolParser, too_small, without_folder
from mgexp.plan.timing import Stopwatch
from mgexp.run.files import write_json
from mgexp.text import aligned
from mgexp.train.result import Outcome

FRAMES = (8, 16, 32)
STRIDE = 2


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = ToolParser(__doc__)
    add = parser.add_argument
    add("--make-videos", type=Path, required=True, metavar="DIR", help="where the videos are made")
    add("--device", choices=("cuda", "cpu"), default="cuda", help="default: cuda, beside a core")
    add("--repeats", type=int, default=3, help="clips of each video and length (default: 3)")
    add("--output", type=Path, metavar="FILE", help="write the milliseconds, as JSON")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    options = parse(arguments)
    try:
        numbers, files = {"--repeats": options.repeats}, {"--output": options.output}
        raise_problems([*too_small(numbers), *without_folder(files)])
        root = options.make_videos / "videos"
        videos = [root / name for name in write_videos(root, progress=True)]
        # torchcodec is optional, and its libraries load when it is imported.
        from torchcodec.decoders import VideoDecoder

        devices = [*dict.fromkeys(("cpu", options.device))]
        found = measure(VideoDecoder, videos, devices, options.repeats)
    except InputError as error:
        print(f"nvdec.py: {error}", file=sys.stderr)
        return Outcome.BAD_INPUT
    except (ImportError, RuntimeError) as error:
        print(f"Nothing was measured: torchcodec cannot decode here ({str(error).splitlines()[0]})")
        return Outcome.MISSED
    lines = [
        [f"{frames}", *(f"{1000 * one[frames]:.1f}" for one in found.values())] for frames in FRAMES
    ]
    print("milliseconds per clip, median")
    print(aligned([["frames", *found], *lines]))
    if options.output:
        write_json(options.output, {"frames": FRAMES, "seconds": found})
    return Outcome.OK


def measure(
    make_decoder: Callable[..., Any], videos: Sequence[Path], devices: Sequence[str], repeats: int
) -> dict[str, dict[int, float]]:
    """Return the median seconds of a clip by device and number of frames. The devices take turns."""
    torch.set_num_threads(1)
    seconds: dict[str, dict[int, list[float]]] = {
        device: {frames: [] for frames in FRAMES} for device in devices
    }
    generator = torch.Generator().manual_seed(0)

    def decode(video: Path, device: str, indices: list[int]) -> None:
        decoder = make_decoder(str(video), device=device, num_ffmpeg_threads=1)
        decoder.get_frames_at(indices)

    for repeat in range(repeats + 1):
        for video in videos:
            for frames in FRAMES:
                last = SECONDS * FRAME_RATE - STRIDE * frames
                start = int(torch.randint(last, (), generator=generator))
                indices = [start + STRIDE * number for number in range(frames)]
                for device in devices:
                    work = partial(decode, video, device, indices)
                    sample = Stopwatch(torch.device(device)).time(work)
                    # The first round opens libraries and the GPU's decoder.
                    if repeat:
                        seconds[device][frames].append(sample.seconds)
    return {
        device: {frames: median(all_of) for frames, all_of in by_frames.items()}
        for device, by_frames in seconds.items()
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
