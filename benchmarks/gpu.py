#!/usr/bin/env python3
"""Measure mgexp on the GPU of this machine, piece by piece, and write a page of what was found.

    bash benchmarks/gpu.sh                        all pieces; start the same command again to continue
    bash benchmarks/gpu.sh --only step_slowfast   one piece
    bash benchmarks/gpu.sh --minutes 10 --only step_slowfast_graphs tests
                                                  these in this order, as far as ten minutes reach
    bash benchmarks/gpu.sh --device cpu --tiny    the same code on a CPU, with small shapes

A piece is a few commands of tools/. It runs for at most eight minutes at a time. If it needs more, or is stopped
or killed, the next call continues it: commands that ended are not run again, a training continues where it saved,
and any other command starts anew. If such a command had all eight minutes and did not end, it gets twice the time
in the next call, so a slow machine ends it too. A piece prints its tables and keeps them in DIR/<piece>.txt, with
its numbers as JSON beside them. At the end, benchmarks/<GPU>.md has all tables (with --tiny or on a CPU,
DIR/page.md). A piece that failed does not stop the others. The next call tries it again. Close other programs
first.
Exit 0: all pieces are done; 1 a piece failed; 2 bad input; 4 pieces are left (start again).
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

from plain_step import WAYS

from mgexp.config.load import read_config
from mgexp.errors import InputError
from mgexp.multigrid.schedule import base_shapes
from mgexp.options import ToolParser
from mgexp.plan.measure import build_checked_schedule
from mgexp.run.environment import REPOSITORY, describe
from mgexp.run.files import atomic_write_text, lock_file, read_json, write_json
from mgexp.run.folder import RUNS
from mgexp.text import duration
from mgexp.train.result import Outcome

LIMIT_SECONDS = 480.0
GRACE_SECONDS = 60.0
"""How long a command may take to save and end after it was interrupted."""
CLIPS = 8
"""The clips of a full mini-batch in the Kinetics rows: those of one of the eight GPUs that share 64 clips."""
SLOWFAST = "experiments/main/k400_slowfast_8x8_r50"
I3D = "experiments/models/k400_i3d_8x8_r50"
VIT = "experiments/transformers/k400_vit_b"
MVIT = "experiments/transformers/k400_mvit_v2_s"
NETWORKS = {SLOWFAST: "SlowFast R50", I3D: "I3D R50", VIT: "ViT-B", MVIT: "MViTv2-S"}
QUICKSTART, STUDY = Path("experiments/quickstart"), Path("experiments/quickstart_224")
QUICKSTART_ROWS = ("baseline", "short", "long", "long_short")
SMALL_STUDY = {
    "baseline.yaml": """_BASE_: quickstart.yaml
ROW: baseline
DEVICE: {device}
TRAIN: {{EVALUATION_VIDEOS: 0, NUM_EVALUATIONS: 1}}
DATA: {{NUM_FRAMES: 8, SAMPLING_RATE: 4, TRAIN_CROP_SIZE: 32, TEST_CROP_SIZE: 32, TRAIN_JITTER_SCALES: [32, 40]}}
RESNET: {{WIDTH_PER_GROUP: 8}}
SOLVER: {{STEPS: [0, 0.3, 0.4], MAX_EPOCH: 0.5, WARMUP_EPOCHS: 0.1}}
""",
    "short.yaml": """_BASE_: baseline.yaml
ROW: short
MULTIGRID: {{SHORT_CYCLE: True, EPOCH_FACTOR: 1.0}}
""",
    "study.yaml": "rows: [baseline, short]\nseeds: 1\nmargin: 2.0\n",
}
"""The files of a study that takes a minute, with {device} to be filled in."""
TINY_CLIPS = {
    "DATA.NUM_FRAMES": "16",
    "DATA.TRAIN_CROP_SIZE": "32",
    "DATA.TEST_CROP_SIZE": "32",
    "DATA.TRAIN_JITTER_SCALES": "[32,40]",
    "RESNET.WIDTH_PER_GROUP": "8",
}
"""The keys that make a Kinetics row small. They keep its schedule."""
TINY_NETWORKS: Mapping[str, Mapping[str, str]] = {
    # Compiling takes as long for small layers as for large ones, so the small SlowFast has few of them.
    SLOWFAST: {**TINY_CLIPS, "RESNET.DEPTH": "18"},
    I3D: TINY_CLIPS,
    # For a schedule the clips of transformers stay large, because they must divide into patches at every shape.
    VIT: {"VIT.EMBED_DIM": "16", "VIT.DEPTH": "1", "VIT.NUM_HEADS": "1"},
    MVIT: {"MVIT.EMBED_DIM": "8", "MVIT.DEPTH": "2", "MVIT.STAGES": "[1]"},
}
"""The keys that make the network of a row small."""
TINY_CLIPS_OF_TRANSFORMERS = {
    "DATA.NUM_FRAMES": "4",
    "DATA.TRAIN_CROP_SIZE": "64",
    "DATA.TEST_CROP_SIZE": "64",
    "DATA.TRAIN_JITTER_SCALES": "[64,80]",
}
"""The keys that make the clips of a baseline small."""

STOPPED = -int(signal.SIGTERM)
"""The exit code of a command that was stopped and did not save."""
DONE = (Outcome.OK, Outcome.MISSED)
"""MISSED is a finding and no failure: a problem that the doctor saw, or an accuracy that was expected."""

Command = list[str]


@dataclass(frozen=True)
class Place:
    """The folder of the results, the device, and whether shapes are small."""

    output: Path
    device: str
    is_tiny: bool

    def file(self, name: str) -> str:
        """Return the path of a file in the folder."""
        return os.fspath(self.output / name)

    @property
    def keys(self) -> Command:
        """Return the KEY VALUE pairs of every row."""
        return ["DEVICE", self.device]

    @property
    def kinetics(self) -> Command:
        """Return the KEY VALUE pairs of the Kinetics rows."""
        return self.kinetics_with(TINY_CLIPS if self.is_tiny else {})

    def kinetics_with(self, small: Mapping[str, str]) -> Command:
        """Return the KEY VALUE pairs of a Kinetics row with the keys that make it small."""
        return [*self.keys, "TRAIN.INIT_WEIGHTS", "", *chain.from_iterable(small.items())]


@dataclass(frozen=True)
class Piece:
    """A part of the measurement. ``commands`` makes its commands when it starts: they may use earlier results."""

    name: str
    title: str
    commands: Callable[[Place], list[Command]]


def tool(name: str, *arguments: str) -> Command:
    """Return the command of a tool."""
    return [sys.executable, f"tools/{name}.py", *arguments]


def step(name: str, cfg: str, ways: Sequence[str]) -> Piece:
    """Make the piece that times the steps of a row in some ways at its base shapes.

    Compiling a shape takes minutes, so each compiled shape has a command of its own.
    """
    is_compiled = not {*ways} <= {*WAYS}

    def commands(place: Place) -> list[Command]:
        # A CPU has no graphs.
        if "cuda_graphs" in ways and place.device == "cpu":
            return []
        # A CPU takes minutes to compile a shape, and to pool the tokens of MViT. The baseline has only one, and
        # it may have any clips.
        is_one_shape = place.is_tiny and (is_compiled or cfg == MVIT)
        small = {**TINY_NETWORKS[cfg]} if place.is_tiny else {}
        small |= TINY_CLIPS_OF_TRANSFORMERS if is_one_shape and cfg in (VIT, MVIT) else {}
        keys = place.kinetics_with(small)
        row = f"{cfg}/{'baseline' if is_one_shape else 'long_short'}.yaml"
        counts = ["--steps", "2", "--warmup", "1"] if place.is_tiny else ["--steps", "11"]
        base = ["--batch-size", str(CLIPS), "--base-shapes"]
        shapes = ["--cfg", row, *base, *counts, "--ways", *ways]
        if not is_compiled:
            found = ["--output", place.file(f"{name}.json"), "--operators"]
            return [tool("bench_step", *keys, *found, *shapes)]
        clips = ["TRAIN.BATCH_SIZE", str(CLIPS)]
        schedule = build_checked_schedule(
            *read_config(Path(row), [*keys, *clips]), checks_model=False
        )
        return [
            tool("bench_step", *keys, "--output", place.file(f"{name}_{one}.json"), *shapes, "--shapes", one)
            for one in (f"{shape.frames}x{shape.crop}" for shape in base_shapes(schedule))
        ]  # fmt: skip

    words = {"compiled": ", compiled", "cuda_graphs": ", with CUDA graphs"}
    return Piece(name, f"A step of {NETWORKS[cfg]}{words.get(ways[-1], '')}", commands)


def loading(place: Place) -> list[Command]:
    """Make the command that compares loading with the rate of the steps that were timed before."""
    timed = place.output / "step_slowfast.json"
    rate: Command = []
    if timed.exists():
        shapes = [shape for shape in read_json(timed)["shapes"] if shape["is_base"]]
        seconds = median(shape["ways"]["ours"]["median_seconds"] for shape in shapes)
        rate = ["--steps-per-second", f"{1 / seconds:.4g}"]
    options = ["--output", place.file("loading.json"), "--make-videos", place.file("videos"), *rate]
    few = ["--num-clips", "2", "--repeats", "1"] if place.is_tiny else []
    row = ["--cfg", f"{SLOWFAST}/long_short.yaml", *options, *few]
    return [tool("bench_loader", *row, *place.kinetics, "TRAIN.BATCH_SIZE", str(CLIPS))]


def quickstart(place: Place) -> list[Command]:
    """Make the commands that train the rows of the quickstart and write their report."""
    runs = place.output / "quickstart"
    smoke = ["--smoke"] if place.is_tiny else []
    train = [
        tool("run_net", "--cfg", f"experiments/quickstart/{row}.yaml", "--output",
             os.fspath(runs / row / "seed0"), *smoke, *place.keys)
        for row in QUICKSTART_ROWS
    ]  # fmt: skip
    return [
        [sys.executable, "tools/make_quickstart.py"],
        *train,
        tool("report", os.fspath(runs)),
    ]


def plan(place: Place) -> list[Command]:
    """Make the commands that predict the quickstart and the study."""
    steps = "1" if place.is_tiny else "11"
    commands = []
    for name, rows in (("quickstart", QUICKSTART), ("quickstart_224", study_folders(place)[0])):
        # A smoke run takes other steps than its row.
        if place.is_tiny and rows == QUICKSTART:
            continue
        options = ["--steps", steps, "--output", place.file(f"plan_{name}.json")]
        cfg = os.fspath(rows / "baseline.yaml")
        commands.append(tool("plan", "--cfg", cfg, *options, *place.keys))
    return commands


def plan_kinetics(place: Place) -> list[Command]:
    """Make the command that predicts the computing of the Kinetics rows on this machine."""
    cfg, steps = ["--cfg", f"{SLOWFAST}/baseline.yaml"], "1" if place.is_tiny else "11"
    options = ["--steps", steps, "--output", place.file("plan_kinetics.json")]
    return [tool("plan", *cfg, *options, *place.kinetics, "TRAIN.BATCH_SIZE", str(CLIPS))]


def study_folders(place: Place) -> tuple[Path, Path]:
    """Return the folders of the rows of the study and of its runs. A small study has its own."""
    if place.is_tiny:
        return place.output / "small_study", place.output / "small_study" / "runs"
    return STUDY, Path(RUNS, STUDY.name)


def study_224(place: Place) -> list[Command]:
    """Make the commands of the study at 224 pixels, which writes its page beside its rows.

    A study has all its keys in its files, and DEVICE auto takes the GPU. It continues where it stopped. It repeats
    no run, also with --again.
    """
    rows, _ = study_folders(place)
    if place.is_tiny:
        rows.mkdir(parents=True, exist_ok=True)
        for name, text in SMALL_STUDY.items():
            atomic_write_text(rows / name, text.format(device=place.device))
    return [[sys.executable, "tools/make_quickstart.py"], tool("study", os.fspath(rows))]


def tests(place: Place) -> list[Command]:
    """Make the command that runs the tests of what only a GPU does."""
    chosen = ["-m", "gpu", "--gpu", place.device, "-p", "no:cacheprovider"]
    # -v: a piece that is stopped has named the tests that ended. The header would name folders of this machine.
    shown = ["-v", "--no-header", "--junitxml", place.file("tests.xml")]
    return [[sys.executable, "-m", "pytest", *chosen, *shown, "tests/gpu"]]


def bn_groups(place: Place) -> list[Command]:
    """Make the commands that compare two ways to normalise groups of clips, up to 64 groups of 8."""
    sizes = (
        ["--steps", "1", "--crop", "32"]
        if place.is_tiny
        else ["--clips-per-group", "8", "--crop", "112"]
    )
    keys = [*place.kinetics, *(["RESNET.DEPTH", "18"] if place.is_tiny else [])]
    script = [sys.executable, "benchmarks/bn_groups.py", *sizes, *keys]
    return [
        [*script, "--groups", str(number), "--output", place.file(f"bn_groups_{number}.json")]
        for number in ((1, 8) if place.is_tiny else (1, 2, 4, 8, 16, 64))
    ]


def precision(place: Place) -> list[Command]:
    """Make the command that compares the precision of training with fp32 at every shape."""
    clips = ["TRAIN.BATCH_SIZE", str(CLIPS)]
    return [tool("doctor", "--cfg", f"{SLOWFAST}/long_short.yaml", *place.kinetics, *clips)]


PIECES = (
    Piece("doctor", "The machine", lambda place: [tool("doctor")]),
    Piece("tests", "Tests of what only a GPU does", tests),
    Piece("precision", "Precision at the shapes of Kinetics-400", precision),
    step("step_slowfast", SLOWFAST, WAYS),
    step("step_slowfast_compiled", SLOWFAST, ("ours", "compiled")),
    step("step_slowfast_graphs", SLOWFAST, ("ours", "cuda_graphs")),
    Piece("bn_groups", "BN groups one after the other and at once", bn_groups),
    step("step_i3d", I3D, WAYS),
    step("step_i3d_compiled", I3D, ("ours", "compiled")),
    # Transformers have no BN groups.
    step("step_vit", VIT, ("ours", "plain")),
    step("step_vit_compiled", VIT, ("ours", "compiled")),
    step("step_vit_graphs", VIT, ("ours", "cuda_graphs")),
    step("step_mvit", MVIT, ("ours", "plain")),
    step("step_mvit_compiled", MVIT, ("ours", "compiled")),
    Piece("loading", "Loading, and how many cores keep up", loading),
    Piece("quickstart", "The rows of the quickstart", quickstart),
    Piece("study_224", "SlowFast R50 at 224 pixels: four rows, three seeds", study_224),
    Piece("plan", "The rows of the quickstart, predicted", plan),
    Piece("plan_kinetics", "Kinetics-400 on this machine, predicted", plan_kinetics),
)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = ToolParser(__doc__, prog="gpu.sh")
    add = parser.add_argument
    names = [piece.name for piece in PIECES]
    add("--only", nargs="+", choices=names, default=names, metavar="PIECE", help=", ".join(names))
    add("--minutes", type=float, default=math.inf, metavar="M", help="stop after M minutes")
    add("--device", choices=("cuda", "cpu"), default="cuda", help="default: cuda")
    add("--tiny", action="store_true", help="small shapes and few steps, to try the code")
    add("--output", type=Path, metavar="DIR", help="default: runs/gpu, with --tiny runs/gpu_tiny")
    add("--again", action="store_true", help="measure pieces again that are done")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Run the pieces that are left, and write the page. SIGTERM works as Ctrl-C."""
    options = parse(arguments)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return measure_all(options)
    except InputError as error:
        print(f"gpu.sh: {error}", file=sys.stderr)
        return Outcome.BAD_INPUT
    finally:
        signal.signal(signal.SIGTERM, before)


def measure_all(options: argparse.Namespace) -> Outcome:
    """Run the pieces that are left, and write the page."""
    environment = describe()
    if options.device == "cuda" and environment["gpu"] is None:
        print(
            "gpu.sh: torch finds no GPU here: see nvidia-smi and tools/doctor.py, or try the code with "
            "--device cpu --tiny",
            file=sys.stderr,
        )
        return Outcome.BAD_INPUT
    output = options.output or Path("runs", "gpu_tiny" if options.tiny else "gpu")
    place = Place(output, options.device, options.tiny)
    output.mkdir(parents=True, exist_ok=True)
    outcomes: list[Outcome] = []
    pieces = {piece.name: piece for piece in PIECES}
    end = time.monotonic() + 60 * options.minutes
    with lock_file(output / "lock", f"{output}: another gpu.sh measures there; wait for it"):
        try:
            for name in options.only:
                if time.monotonic() >= end:
                    outcomes.append(Outcome.INTERRUPTED)
                    break
                outcomes.append(measure(pieces[name], place, options.again, end))
        except KeyboardInterrupt:
            print("gpu.sh: interrupted: start the same command again to continue", file=sys.stderr)
            outcomes.append(Outcome.INTERRUPTED)
        written = page_file(place, environment)
        atomic_write_text(written, page(place, environment))
    print(f"\n{written} has all tables")
    worst = (Outcome.FAILED, Outcome.INTERRUPTED)
    return next((outcome for outcome in worst if outcome in outcomes), Outcome.OK)


def measure(piece: Piece, place: Place, again: bool, end: float) -> Outcome:
    """Run the commands of a piece that did not end yet, for LIMIT_SECONDS or the time that ``part`` says.

    It is stopped at the moment ``end`` of the monotonic clock.
    """
    record, part = (place.output / f"{piece.name}.{kind}.json" for kind in ("done", "part"))
    if record.exists() and not again:
        return Outcome.OK
    if record.exists():
        part.unlink(missing_ok=True)
    record.unlink(missing_ok=True)
    found: dict[str, Any] = read_json(part) if part.exists() else {}
    ended, limit = found.get("ended", {}), found.get("limit_seconds", LIMIT_SECONDS)
    num_before = len(ended)
    print(f"\n=== {piece.name}: {piece.title}", flush=True)
    started, code, text = time.monotonic(), int(Outcome.OK), ""
    until = min(started + limit, end)
    for command in piece.commands(place):
        name = shlex.join(["python", *command[1:]])
        if name in ended:
            printed = ended[name]
        else:
            code, printed = run(command, until - time.monotonic())
        text += f"$ {name}\n{printed.strip()}\n\n"
        if code in DONE:
            ended[name] = printed
        # Without more time, a command that had all of it and did not save would never end.
        is_too_slow = code == STOPPED and len(ended) == num_before and until < end
        write_json(part, {"ended": ended, "limit_seconds": limit * (2 if is_too_slow else 1)})
        if code not in DONE:
            break
    atomic_write_text(place.output / f"{piece.name}.txt", text)
    if code not in DONE:
        is_stopped = code in (STOPPED, Outcome.INTERRUPTED)
        said = "is not done, and continues in the next call" if is_stopped else "failed"
        print(f"=== {piece.name} {said}: exit code {code}", flush=True)
        return Outcome.INTERRUPTED if is_stopped else Outcome.FAILED
    seconds = time.monotonic() - started
    write_json(record, {"seconds": seconds, "environment": describe()})
    print(f"=== {piece.name}: done in {duration(seconds)}", flush=True)
    return Outcome.OK


def run(command: Command, seconds: float) -> tuple[int, str]:
    """Run a command, show what it prints, and return its exit code and its standard output.

    After ``seconds``, or after Ctrl-C, it gets SIGTERM, so that it saves. Later it is killed. If it was stopped in
    this way, its exit code is 4 if it has saved, and else STOPPED.
    """
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY, start_new_session=True
    )
    lines: list[str] = []

    def show() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            print(line, end="", flush=True)

    reader = threading.Thread(target=show, daemon=True)
    reader.start()
    try:
        process.wait(timeout=max(1.0, seconds))
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
        # The whole session gets the signal, with the processes that the command has started. It is not SIGINT,
        # which a command ignores if a shell has started it in the background.
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if isinstance(error, KeyboardInterrupt):
            raise
        reader.join()
        has_saved = process.returncode == Outcome.INTERRUPTED
        return Outcome.INTERRUPTED if has_saved else STOPPED, "".join(lines)
    reader.join()
    return process.returncode, "".join(lines)


def page_file(place: Place, environment: Mapping[str, object]) -> Path:
    """Return the file of the page. That of a GPU is beside the pages of others, so that it can be shared."""
    if place.is_tiny or place.device == "cpu":
        return place.output / "page.md"
    name = re.sub(r"[^a-z0-9]+", "_", str(environment["gpu"]).lower()).strip("_")
    return Path("benchmarks", f"{name}.md")


def page(place: Place, environment: Mapping[str, object]) -> str:
    """Write the page: the machine, and what each piece printed."""
    name = environment["gpu"] or environment["cpu"]
    small = (
        " Shapes are small: these numbers only show that the code runs." if place.is_tiny else ""
    )
    lines = [
        f"# Measured on {name}",
        "",
        f"`bash benchmarks/gpu.sh` wrote this page. torch {environment['torch']}, Python "
        f"{environment['python']}, {environment['cores']} cores, commit {environment['commit']}.{small}",
    ]
    for piece in PIECES:
        printed = place.output / f"{piece.name}.txt"
        record = place.output / f"{piece.name}.done.json"
        lines += ["", f"## {piece.title}", ""]
        if not printed.exists():
            lines += ["This piece was not measured."]
            continue
        if not record.exists():
            lines += ["**This piece is not complete:** it failed, or it was stopped.", ""]
        lines += ["```text", printed.read_text(encoding="utf-8").strip(), "```"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
