#!/usr/bin/env python3
"""Predict SlowFast R50 8x8 on 8, 64 and 128 GPUs, and what other ways to send gradients would gain there.

    python benchmarks/paper_clusters.py [--output FILE] [--json]

The paper trained on 128 GPUs with 8 clips of the full shape on each. The study takes the speed of a V100 that
kinetics_in_15_minutes.py fits, and its model of communication. It asks whether larger or smaller messages, or
gradients in bf16 (TRAIN.BF16_ALLREDUCE), would shorten the training.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import simplejson
from communication import BUCKET_BYTES, Communication, Link, Network
from kinetics_in_15_minutes import (
    Cluster,
    Study,
    slowfast_steps,
    value,
)

from mgexp.multigrid.recipe import LONG_SHORT, Multigrid
from mgexp.options import ToolParser
from mgexp.run.files import write_json
from mgexp.text import aligned, duration

GPU_COUNTS = (8, 64, 128, 1536)
GPUS_PER_NODE = 8
PUBLISHED = {"baseline": "a bit over a day", "long+short": "about 5 hours"}
"""On 128 GPUs. Sources: a reader's notes of the paper, and issue 292 of PySlowFast, which restates it."""
INSIDE = Link(3.4e-6, 32e9)
"""The GPUs of a node, as in kinetics_in_15_minutes.py."""
LINKS = {"100 Gb/s": 12.5e9, "10 Gb/s": 1.25e9}
"""Bandwidths between nodes in bytes per second. The paper does not say which its cluster had."""
SPEEDS = {"V100": 1.0, "10 times a V100": 10.0}
"""Speeds of a GPU. Assumption: 10 times is about that of a GPU of 2023 with bf16."""
MB = 2**20


@dataclass(frozen=True)
class Sending:
    """A way to send gradients: bytes of a number, bytes of a message, and whether backward goes on meanwhile."""

    number_bytes: int = 4
    bucket_bytes: int = BUCKET_BYTES
    overlaps: bool = True

    def over(self, bytes_per_second: float) -> Communication:
        """Return the all-reduce of SlowFast's gradients over nodes that are joined so fast."""
        between = Link(value("between_latency") / 1e6, bytes_per_second)
        network = Network(INSIDE, between, GPUS_PER_NODE)
        num_bytes = int(self.number_bytes * value("slowfast_params"))
        return Communication(num_bytes, network, "best", self.overlaps, self.bucket_bytes)


TODAY = Sending()
IN_BF16 = "gradients in bf16 (TRAIN.BF16_ALLREDUCE)"
SENDINGS = {
    "as today: fp32, 25 MB, during backward": TODAY,
    "messages of 5 MB (bucket_cap_mb)": Sending(bucket_bytes=5 * MB),
    "messages of 100 MB (bucket_cap_mb)": Sending(bucket_bytes=100 * MB),
    # The hook halves the bytes of a bucket that DDP has filled in fp32.
    IN_BF16: Sending(2, BUCKET_BYTES // 2),
    "after the backward pass": Sending(overlaps=False),
}


def seconds(
    multigrid: Multigrid, num_gpus: int, sending: Sending, bytes_per_second: float, speed: float
) -> float:
    """Predict the training on GPUs that are ``speed`` times as fast as a V100."""
    communication = sending.over(bytes_per_second)
    per_gmac = Study(Cluster()).clip_seconds / value("tsm_gmacs") / speed
    total = 0.0
    for num_steps, gmacs in slowfast_steps(multigrid, num_gpus):
        compute = gmacs * per_gmac
        total += num_steps * (compute + communication.exposed_seconds(num_gpus, compute))
    return total


def scaling() -> list[dict[str, float]]:
    """Predict both rows on each number of V100, with gradients sent as today over the faster link."""
    link = LINKS["100 Gb/s"]
    return [
        {
            "num_gpus": num,
            "baseline_seconds": seconds(Multigrid(), num, TODAY, link, 1.0),
            "long_short_seconds": seconds(LONG_SHORT, num, TODAY, link, 1.0),
        }
        for num in GPU_COUNTS
    ]


def choices() -> list[dict[str, Any]]:
    """Predict long+short on 128 GPUs for each way to send, link and speed of the GPUs."""
    return [
        {
            "sending": name,
            "link": link,
            "gpu": gpu,
            "seconds": seconds(LONG_SHORT, 128, sending, LINKS[link], SPEEDS[gpu]),
        }
        for name, sending in SENDINGS.items()
        for gpu in SPEEDS
        for link in LINKS
    ]


def study_text() -> str:
    """Write both tables."""
    lines = [
        (
            f"{point['num_gpus']:,}",
            duration(point["baseline_seconds"]),
            duration(point["long_short_seconds"]),
            f"{point['baseline_seconds'] / point['long_short_seconds']:.2f}",
        )
        for point in scaling()
    ]
    places = [(gpu, link) for gpu in SPEEDS for link in LINKS]
    found = {(one["sending"], one["gpu"], one["link"]): one["seconds"] for one in choices()}
    today = next(iter(SENDINGS))

    def cell(name: str, gpu: str, link: str) -> str:
        own, other = found[name, gpu, link], found[today, gpu, link]
        return f"{duration(own)} ({100 * (own / other - 1):+.1f} %)"

    rows = [(name, *(cell(name, *place) for place in places)) for name in SENDINGS]
    published = "; ".join(f"{row}: {words}" for row, words in PUBLISHED.items())
    return "\n".join(
        [
            "SlowFast R50 8x8 on Kinetics-400, 8 clips of the full shape on each GPU, nodes of 8 GPUs",
            "",
            aligned([("V100", "baseline", "long+short", "times faster"), *lines]),
            "",
            f"Published for 128 GPUs: {published}.",
            "The model knows neither loading nor that thin layers of few clips are slow.",
            "",
            "long+short on 128 GPUs, by GPU and link between nodes:",
            aligned([("gradients", *(f"{gpu}, {link}" for gpu, link in places)), *rows]),
        ]
    )


def main(arguments: list[str]) -> int:
    parser = ToolParser(__doc__)
    parser.add_argument("--output", type=Path, metavar="FILE", help="write it as JSON")
    parser.add_argument("--json", action="store_true", help="print that, for programs")
    options = parser.parse_args(arguments)
    found = {"scaling": scaling(), "choices": choices()}
    if options.output:
        write_json(options.output, found)
    print(simplejson.dumps(found, indent=2) if options.json else study_text())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
