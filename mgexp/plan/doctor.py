"""Check an installation and a machine: one finding for each part, with a remedy where the part is not in order.

This module imports neither torchvision nor a decoder at the top, because tools/doctor.py must also run where those
are broken.
"""

from __future__ import annotations

import operator
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Literal

import torch

from mgexp.run.environment import NOT_INSTALLED, num_cores, version_of
from mgexp.run.other_programs import busy_text, is_busy, other_cores_now

Status = Literal["OK", "warning", "problem"]

PYTHONS = ((3, 10), (3, 13))
"""The first and the last version of Python that INSTALL.md names."""
GIB = 2**30
LITTLE_DISK_BYTES = 5 * GIB
"""A disk with less free room gets a warning. Assumption: a run's checkpoints and a small clip store need this."""
LITTLE_SHARED_BYTES = GIB
"""Less free shared memory gets a warning. Docker's default is 64 MiB, while a single batch of the
released K400 row takes 308 MB. Assumption."""
CLIP_FRAMES, NUM_CLIPS = 32, 6
HEIGHT, WIDTH, VIDEO_FRAMES = 256, 340, 96
SLOW_CLIP_MS = 250.0
"""Limit for 32 frames of H.264, 340 × 256, on one core: about twice the slowest time that was
measured, 130 ms. Assumption."""


@dataclass(frozen=True)
class Finding:
    """The result of one check: its name, its status, what was found, and the remedy if it is not OK.

    ``values`` has the numbers in ``found``, for programs.
    """

    name: str
    status: Status
    found: str
    remedy: str = ""
    values: Mapping[str, float] = field(default_factory=dict)


def machine_findings(folders: Sequence[Path] = (Path("runs"), Path("data"))) -> Iterator[Finding]:
    """Make all checks that need no row. This takes a few seconds, and most of that is decoding."""
    yield python_finding(sys.version_info[:2])
    yield range_finding("torch", str(torch.__version__))
    yield range_finding("torchvision", version_of("torchvision"))
    yield pair_finding()
    has_cuda = torch.cuda.is_available()
    yield wheel_finding(torch.version.cuda, _nvidia_gpu(), has_cuda)
    yield gpu_finding() if has_cuda else Finding("GPU", "OK", "none: training is on the CPU")
    yield range_finding("av", version_of("av"))
    yield cores_finding(os.cpu_count() or 1, num_cores())
    yield others_finding(other_cores_now())
    yield memory_finding(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    if Path("/dev/shm").is_dir():
        yield shared_memory_finding(shutil.disk_usage("/dev/shm").free)
    yield from map(disk_finding, folders)
    try:
        yield decode_finding()
    # Any error in decoding is a finding, not a failure of the doctor.
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
        yield Finding("decoding", "problem", found, "see INSTALL.md, FFmpeg")


def python_finding(found: tuple[int, ...]) -> Finding:
    """Judge the version of Python."""
    if PYTHONS[0] <= found <= PYTHONS[1]:
        return Finding("Python", "OK", platform.python_version())
    status: Status = "problem" if found < PYTHONS[0] else "warning"
    remedy = "mgexp is tested with Python 3.10 to 3.13: use one of them"
    return Finding("Python", status, ".".join(map(str, found)), remedy)


def range_finding(package: str, found: str, declared: Sequence[str] | None = None) -> Finding:
    """Judge whether version ``found`` of a package is in the tested range, which pyproject.toml declares.

    ``declared``: the requirements; by default the requirements of the installed mgexp.
    """
    if declared is None:
        try:
            declared = requires("mgexp") or []
        except PackageNotFoundError:
            declared = []
    matches = (re.match(rf"{package}(?![\w-])\s*([<>=][^;]*)", text) for text in declared)
    wanted = next((match[1].strip() for match in matches if match), "")
    if found == NOT_INSTALLED:
        return Finding(package, "problem", found, f"pip install '{package}{wanted}'")
    if not wanted or in_range(found, wanted):
        return Finding(package, "OK", found)
    text = f"{found}, not in the tested range {wanted}"
    return Finding(package, "warning", text, f"pip install '{package}{wanted}'")


def in_range(found: str, wanted: str) -> bool:
    """Return whether version ``found`` is in a range such as ">=2.11,<2.16"."""
    compare = {">=": operator.ge, "<": operator.lt, "==": operator.eq}

    def numbers(text: str) -> tuple[int, ...]:
        # In "2.15.0+cu132" the part after the + describes the build of the wheel, not the version.
        return tuple(int(part) for part in re.findall(r"\d+", text.partition("+")[0])[:3])

    parts = re.findall(r"(>=|==|<)([\d.]+)", wanted)
    return all(compare[sign](numbers(found), numbers(limit)) for sign, limit in parts)


def pair_finding() -> Finding:
    """Judge whether torch and torchvision work together."""
    # torchvision's operators are compiled for one version of torch. With another one its import fails.
    try:
        from mgexp import wheels
    except ImportError as error:
        return Finding("torch and torchvision", "problem", str(error), "see INSTALL.md, GPU")
    assert wheels.transforms_v2
    return Finding("torch and torchvision", "OK", "work together")


def wheel_finding(cuda: str | None, gpu: str, has_cuda: bool) -> Finding:
    """Judge whether torch's wheel fits the GPU.

    ``cuda``: CUDA version of the wheel. ``gpu``: name of the GPU that the driver reports, or "". ``has_cuda``:
    whether torch can use a GPU.
    """
    name = "torch's wheel"
    if cuda is None and gpu:
        remedy = "install torch and torchvision from PyPI: pip install --force-reinstall torch torchvision"
        return Finding(name, "problem", f"CPU only, beside {gpu}", remedy)
    if cuda and gpu and not has_cuda:
        remedy = f"update the NVIDIA driver for CUDA {cuda}, or look at CUDA_VISIBLE_DEVICES"
        return Finding(name, "problem", f"CUDA {cuda}, but torch cannot use {gpu}", remedy)
    if cuda and not gpu and not has_cuda:
        return Finding(name, "OK", f"CUDA {cuda} without a GPU: works, larger than it need be")
    return Finding(name, "OK", f"CUDA {cuda}" if cuda else "CPU only")


def gpu_finding() -> Finding:
    """Describe the first GPU."""
    gpu, count = torch.cuda.get_device_properties(0), torch.cuda.device_count()
    # A GPU that emulates bf16 gains nothing from it, so TRAIN.PRECISION auto does not choose it
    # there.
    has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    bf16 = "bf16" if has_bf16 else "no bf16: TRAIN.PRECISION auto is fp32"
    more = f", {count} of them" if count > 1 else ""
    return Finding("GPU", "OK", f"{gpu.name}, {gpu.total_memory / GIB:.0f} GiB, {bf16}{more}")


def cores_finding(present: int, usable: int) -> Finding:
    """Judge whether this process may use all cores of the machine."""
    if usable < present:
        text = f"{usable} of {present} are this process's"
        return Finding("cores", "warning", text, "ask the scheduler for more, or see taskset -p")
    return Finding("cores", "OK", str(usable))


def others_finding(others: float | None) -> Finding:
    """Judge how many of our cores other programs use now."""
    if others is None:
        return Finding("other programs", "OK", "unknown: this system does not count them")
    if is_busy(others):
        remedy = "close them before you measure times; two trainings at once are slower"
        return Finding("other programs", "warning", busy_text(others), remedy)
    return Finding("other programs", "OK", busy_text(others))


def memory_finding(num_bytes: int) -> Finding:
    """Judge the main memory."""
    text = f"{num_bytes / GIB:.0f} GiB"
    if num_bytes < 4 * GIB:
        return Finding("memory", "warning", text, "use a smaller TRAIN.BATCH_SIZE and one worker")
    return Finding("memory", "OK", text)


def shared_memory_finding(free_bytes: int) -> Finding:
    """Judge the shared memory through which loader workers pass batches to training."""
    text = f"{free_bytes / GIB:.2f} GiB free"
    if free_bytes < LITTLE_SHARED_BYTES:
        remedy = "start docker with --shm-size=8g, or lower DATA_LOADER.NUM_WORKERS"
        return Finding("/dev/shm", "warning", text, remedy)
    return Finding("/dev/shm", "OK", text)


def disk_finding(folder: Path, least_bytes: int = LITTLE_DISK_BYTES) -> Finding:
    """Judge the free room on the disk on which ``folder`` lies, or will lie."""
    # If the folder does not exist yet, it will lie on the disk of its nearest existing parent.
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    text = f"{free / GIB:.1f} GiB free"
    if not os.access(there, os.W_OK):
        return Finding(f"disk at {folder}", "problem", "cannot be written", f"chmod u+w {there}")
    if free < least_bytes:
        return Finding(f"disk at {folder}", "warning", text, "make room, or use --output elsewhere")
    return Finding(f"disk at {folder}", "OK", text)


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
                reader.frames_at(clip).rgb()
    ms = 1000 * (time.process_time() - start) / NUM_CLIPS
    text = f"{ms:.0f} core-ms per clip, {1000 * CLIP_FRAMES / ms:.0f} frames/s ({WIDTH} x {HEIGHT}, H.264)"
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
    """Ask the driver for the name of the first GPU; return "" if there is none."""
    # torch cannot answer this: a CPU wheel knows nothing of the GPU.
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return ""
    return next(iter(done.stdout.splitlines()), "")
