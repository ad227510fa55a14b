"""Check an installation and a machine. Import no torchvision and no decoder here: they may be broken."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Literal

import torch
from packaging.requirements import Requirement

from mgexp.run.environment import NOT_INSTALLED, num_cores, version_of
from mgexp.run.other_programs import is_busy, other_cores_now

Status = Literal["OK", "warning", "problem"]

GIB = 2**30
LITTLE_DISK_BYTES = 5 * GIB
"""A disk with less free room gets a warning. Assumption: a run's checkpoints and a small clip store need this."""
CLIP_FRAMES, NUM_CLIPS = 32, 6
HEIGHT, WIDTH, VIDEO_FRAMES = 256, 340, 96
SLOW_CLIP_MS = 250.0
"""Limit for 32 frames of H.264, 340 × 256, on one core: about twice the slowest time that was
measured, 130 ms. Assumption."""


@dataclass(frozen=True)
class Finding:
    """The result of one check. ``values`` has the numbers in ``text``, for programs."""

    name: str
    status: Status
    text: str
    remedy: str = ""
    values: Mapping[str, float] = field(default_factory=dict)


def machine_findings() -> Iterator[Finding]:
    """Make all checks that need no row. This takes a few seconds, and most of that is decoding."""
    yield packages_finding()
    yield pair_finding()
    if torch.cuda.is_available():
        yield gpu_finding()
    else:
        yield no_gpu_finding(torch.version.cuda, _nvidia_gpu())
    yield cores_finding(other_cores_now() or 0.0)
    yield disk_finding(Path("runs"))
    try:
        yield decode_finding()
    # Any error in decoding is a finding, not a failure of the doctor.
    except Exception as error:
        yield Finding("decoding", "problem", f"{type(error).__name__}: {error}", "see INSTALL.md")


def packages_finding(declared: Sequence[str] | None = None) -> Finding:
    """Compare the installed packages with ``declared``, by default the requirements of the installed mgexp."""
    if declared is None:
        try:
            declared = requires("mgexp") or []
        except PackageNotFoundError:
            return Finding("packages", "problem", "mgexp is not installed", "pip install -e .")
    faults, versions = [], {}
    for wanted in map(Requirement, declared):
        # A marker is that of an extra, such as dev.
        if wanted.marker:
            continue
        version = versions[wanted.name] = version_of(wanted.name)
        is_in = version != NOT_INSTALLED and wanted.specifier.contains(version, prereleases=True)
        if not is_in:
            faults.append(f"{wanted} ({version})")
    python = f"Python {platform.python_version()}"
    if not faults:
        of_torch = (f"{name} {versions.get(name)}" for name in ("torch", "torchvision"))
        return Finding("packages", "OK", ", ".join([python, *of_torch]))
    status: Status = "problem" if NOT_INSTALLED in versions.values() else "warning"
    text = f"{python}; not in the tested range: {', '.join(faults)}"
    return Finding("packages", status, text, "pip install -e . (see INSTALL.md)")


def pair_finding() -> Finding:
    # torchvision's operators are compiled for one version of torch. With another one its import fails.
    try:
        from mgexp import wheels
    except ImportError as error:
        return Finding("torch and torchvision", "problem", str(error), "see INSTALL.md, GPU")
    assert wheels.transforms_v2
    return Finding("torch and torchvision", "OK", "work together")


def gpu_finding() -> Finding:
    gpu, count = torch.cuda.get_device_properties(0), torch.cuda.device_count()
    # A GPU that emulates bf16 gains nothing from it, so TRAIN.PRECISION auto does not choose it there.
    has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    bf16 = "bf16" if has_bf16 else "no bf16: TRAIN.PRECISION auto is fp32"
    more = f", {count} of them" if count > 1 else ""
    return Finding("GPU", "OK", f"{gpu.name}, {gpu.total_memory / GIB:.0f} GiB, {bf16}{more}")


def no_gpu_finding(cuda: str | None, gpu: str) -> Finding:
    """Judge a machine where torch, built for ``cuda``, finds no GPU. The driver reports ``gpu``, or ""."""
    if not gpu:
        return Finding("GPU", "OK", "none: training is on the CPU")
    wheel = f"for CUDA {cuda}" if cuda else "for CPUs only"
    text = f"torch cannot use {gpu}: its wheel is {wheel}"
    return Finding("GPU", "problem", text, "see INSTALL.md, GPU")


def cores_finding(others: float) -> Finding:
    """Judge how many of our cores other programs use now, and name the memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    busy = f"Other programs keep {others:.1f} of {num_cores()} cores busy"
    text = f"{busy}; {memory:.0f} GiB of memory"
    return Finding("cores", "warning" if is_busy(others) else "OK", text)


def disk_finding(folder: Path, least_bytes: int = LITTLE_DISK_BYTES) -> Finding:
    """Judge the free room on the disk on which ``folder`` lies, or will lie."""
    there = nearest_existing(folder)
    free = shutil.disk_usage(there).free
    if not os.access(there, os.W_OK):
        return Finding(f"disk at {folder}", "problem", f"{there} cannot be written")
    status: Status = "warning" if free < least_bytes else "OK"
    return Finding(f"disk at {folder}", status, f"{free / GIB:.1f} GiB free")


def nearest_existing(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists: on its disk the folder will lie."""
    folder = folder.absolute()
    return next(path for path in (folder, *folder.parents) if path.exists())


def decode_finding() -> Finding:
    """Generate an H.264 video, and time how one core reads clips from it as in training."""
    from mgexp.video.pyav import PyavReader

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "made.mp4")
        _write_video(path)
        times = [[(start + k) / 30 for k in range(CLIP_FRAMES)] for start in range(NUM_CLIPS)]
        # Processor time, not wall time: with the latter a busy machine would look like a slow decoder.
        start = time.process_time()
        for clip in times:
            with PyavReader(path) as reader:
                reader.frames_at(clip)
    ms = 1000 * (time.process_time() - start) / NUM_CLIPS
    text = f"{ms:.0f} core-ms per clip of {CLIP_FRAMES} frames ({WIDTH} x {HEIGHT}, H.264)"
    if ms > SLOW_CLIP_MS:
        return Finding("decoding", "warning", text, "make a clip store: tools/prepare_data.py")
    return Finding("decoding", "OK", text)


def _write_video(path: str) -> None:
    """Write a video of coarse noise that moves sideways."""
    import av
    import numpy as np

    # Squares of 8 pixels: finer noise compresses badly, and would cost the decoder more than a real picture.
    rng = np.random.default_rng(0)
    picture = rng.integers(0, 256, (HEIGHT // 8, WIDTH // 4 + 24, 3), np.uint8)
    picture = picture.repeat(8, 0).repeat(8, 1)
    with av.open(path, "w") as container:
        stream = container.add_stream("libx264", rate=30, options={"preset": "fast"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for number in range(VIDEO_FRAMES):
            shown = np.ascontiguousarray(picture[:, 2 * number : 2 * number + WIDTH])
            container.mux(stream.encode(av.VideoFrame.from_ndarray(shown, format="rgb24")))
        container.mux(stream.encode())


def _nvidia_gpu() -> str:
    # torch cannot answer this: a CPU wheel knows nothing of the GPU.
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return ""
    return next(iter(done.stdout.splitlines()), "")
