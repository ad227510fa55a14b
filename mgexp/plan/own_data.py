"""Choose a recipe for one's own videos from what was seen of them, and write the project folder that trains it."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from mgexp.config.keys import BY_NAME, Config
from mgexp.config.load import config_of, file_values
from mgexp.config.values import BASES
from mgexp.data.classes import class_list
from mgexp.data.split import OwnVideo
from mgexp.errors import InputError, listed, raise_problems
from mgexp.multigrid.schedule import Schedule
from mgexp.plan.advice import FEW_PHASE_STEPS, FEW_STEPS, has_few_steps
from mgexp.run.files import atomic_write_text, short_path
from mgexp.run.folder import RUNS, Folder, Inside
from mgexp.text import counted
from mgexp.train.setup import build_row_schedule
from mgexp.video.check import VideoCheck
from mgexp.video.paths import Root
from mgexp.video.reader import DEFAULT_FRAMES_FPS

BASE = "own_data.yaml"
GRID_FPS = 30.0
"""DATA.TARGET_FPS, the frames per second in which a stride is counted."""
FRAMES, SHORT_FRAMES = 16, 8
MAX_STRIDE = 4
"""Then 16 frames span 2 s, as in experiments/base/own_data.yaml and in the K400 rows (8 frames of stride 8)."""
CROPS = (96, 80, 64, 48, 32)
"""Crops to choose from. Each is even at 1/√2 too; 96 is that of the base file, and 32 the least of our rows."""
STEPS, CLIPS = 2000, 8
"""Steps of the baseline. The quickstart takes 1,500, MIRACL-VC1 3,600; we made no study with these shapes."""
LEAST_STEPS = 50
"""The fewest steps that a user may choose. Below, phases of one step would be empty. A smoke run has about 56."""
LEAST_EPOCHS, MOST_EPOCHS = 10, 200
STAGES, WARMUP = (0.0, 0.65, 0.85), 0.12
"""Shares of the training at which a stage begins, and of the warm-up, as in the base file."""
SQUARE = 1.2
"""The largest ratio of the sides at which one crop in the middle still shows nearly everything. Assumption."""
LARGE_SIDE = 300
"""From this short side on, decoding takes much longer than it needs to for crops of 96. Assumption."""
MOST_GROUPS = 10
"""A text names this many groups of validation."""
FEW_GROUPS, FAR_SHARE = 3, 1.5
"""A split is warned of with fewer groups in validation, or with a share of it so many times too large or small.
Assumption: one or two persons or recordings say little about others."""
SIDES = re.compile(
    r"left|right|(counter|anti)?clockwise|c?cw|east|west|links|rechts|gauche|droite|izquierda|derecha"
)
"""Words of class names that a mirrored video would make wrong."""


class ProjectDir(Folder):
    """The folder that tools/own_data.py writes."""

    check = Inside("check")
    """The folder of the check: CheckDir."""
    train_csv = Inside("train.csv")
    val_csv = Inside("val.csv")
    classes_txt = Inside("classes.txt")
    baseline_yaml = Inside("baseline.yaml")
    long_yaml = Inside("long.yaml")
    study_yaml = Inside("study.yaml")


@dataclass(frozen=True)
class Seen:
    """What was seen of the usable videos. Seconds, frames and pixels are those of the videos, not of clips.

    ``short_seconds``, ``few_frames`` and ``small_side``: nine of ten videos have as much or more. ``aspect`` is
    the longer side through the shorter one.
    """

    class_names: tuple[str, ...]
    num_train: int
    num_val: int
    short_seconds: float
    seconds: float
    few_frames: float
    fps: float
    small_side: int
    short_side: int
    aspect: float

    @staticmethod
    def of(
        checks: Sequence[VideoCheck], class_names: Sequence[str], num_train: int, num_val: int
    ) -> Seen:
        """Summarise the checks of usable videos."""
        # Folders of images have no rate of their own. DATA.FRAMES_FPS gives it.
        rates = [one.fps or DEFAULT_FRAMES_FPS for one in checks]
        seconds = [
            one.duration_seconds or one.frames / fps for one, fps in zip(checks, rates, strict=True)
        ]
        frames = [each * fps for each, fps in zip(seconds, rates, strict=True)]
        sides = [sorted((one.width or 1, one.height or 1)) for one in checks]
        return Seen(
            class_names=tuple(class_names),
            num_train=num_train,
            num_val=num_val,
            short_seconds=_low(seconds),
            seconds=median(seconds),
            few_frames=_low(frames),
            fps=median(rates),
            small_side=int(_low([short for short, _ in sides])),
            short_side=int(median(short for short, _ in sides)),
            aspect=median(long / short for short, long in sides),
        )


def _low(values: Sequence[float]) -> float:
    """Return the lowest tenth of the values: nine of ten are as large or larger."""
    return quantiles(values, n=10, method="inclusive")[0] if len(values) > 1 else values[0]


@dataclass(frozen=True)
class Choice:
    """A key with the value that was chosen, and why, in one line."""

    key: str
    value: Any
    why: str = ""

    def line(self) -> str:
        """Write the key without its section as a line of YAML."""
        value = json.dumps(self.value, ensure_ascii=False)
        # YAML reads JSON, but true and false are written as elsewhere in our files.
        text = {"true": "True", "false": "False"}.get(value, value)
        return f"{self.key.rpartition('.')[2]}: {text}" + (f"  # {self.why}" if self.why else "")


def choose(seen: Seen, steps: int | None = None, crop: int | None = None) -> list[Choice]:
    """Choose the keys of the baseline. The user may have chosen its ``steps`` and its ``crop``.

    Raises InputError if the steps are less than an epoch.
    """
    epochs: float = min(MOST_EPOCHS, max(LEAST_EPOCHS, round(STEPS * CLIPS / seen.num_train)))
    limit = {LEAST_EPOCHS: ", and at least 10 epochs", MOST_EPOCHS: ", and at most 200 epochs"}
    meant = f"; about {STEPS:,} are meant{limit.get(round(epochs), '')}"
    if steps is not None:
        epochs, meant = _rounded(steps * CLIPS / seen.num_train), ", as --steps says"
        if epochs < 1:
            least = math.ceil(seen.num_train / CLIPS)
            problem = f"--steps {steps}: an epoch of these videos has {least:,} steps"
            raise InputError([f"{problem}; give as many or more"])
    total = round(epochs * seen.num_train / CLIPS)
    stages = [_rounded(share * epochs) for share in STAGES]
    return [
        *_clip_choices(seen, crop),
        _flip(seen.class_names),
        Choice("MODEL.NUM_CLASSES", len(seen.class_names)),
        Choice("SOLVER.MAX_EPOCH", epochs, f"{counted(total, 'step')} of {CLIPS} clips{meant}"),
        Choice("SOLVER.STEPS", stages, "the rate falls after 65 % and 85 % of the training"),
        Choice("SOLVER.WARMUP_EPOCHS", _rounded(WARMUP * epochs), "12 % of the training"),
        *_test_choices(seen),
    ]


def _rounded(epochs: float) -> float:
    """Round to five digits: less than a step in every training of up to 10,000 steps."""
    return float(f"{epochs:.5g}")


def _stride(seen: Seen) -> int | None:
    """Return the stride of a clip of 16 frames that fits into nine of ten videos; None if they are too short."""
    if min(seen.few_frames, seen.short_seconds * GRID_FPS) < FRAMES:
        return None
    fits = int((seen.short_seconds * GRID_FPS - 1) / (FRAMES - 1))
    return min(MAX_STRIDE, max(1, fits))


def _span_seconds(stride: int) -> float:
    return (stride * (FRAMES - 1) + 1) / GRID_FPS


def _clip_choices(seen: Seen, given: int | None) -> list[Choice]:
    crop = given or next((one for one in CROPS if one <= seen.small_side), CROPS[-1])
    most = round(1.25 * crop)
    enlarged = "smaller videos are enlarged" if seen.small_side < most else "so crops differ"
    side = f"nine of ten videos have a short side of {seen.small_side} pixels or more"
    side = f"as --crop says; {side}" if given else side
    crops = [
        Choice("DATA.TRAIN_CROP_SIZE", crop, side),
        Choice("DATA.TEST_CROP_SIZE", crop),
        Choice("DATA.TRAIN_JITTER_SCALES", [crop, most], f"up to 1.25 times the crop; {enlarged}"),
    ]
    stride = _stride(seen)
    if stride is None:
        few = f"one video in ten has {seen.few_frames:.0f} frames or fewer"
        return [
            Choice("DATA.NUM_FRAMES", SHORT_FRAMES, few),
            Choice(
                "DATA.TEMPORAL_GRID", "segments", "a frame from each of 8 equal parts of a video"
            ),
            *crops,
            Choice("SLOWFAST.ALPHA", 2, "so that clips of 2 frames have a slow frame"),
        ]
    long = f"nine of ten videos have {seen.short_seconds:.1f} s or more"
    return [
        Choice("DATA.NUM_FRAMES", FRAMES),
        Choice("DATA.SAMPLING_RATE", stride, f"a clip spans {_span_seconds(stride):.1f} s; {long}"),
        *crops,
    ]


def words_of(name: str) -> list[str]:
    """Split the name of a class into small words: SlideLeft and slide_left are slide and left."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-zà-ÿ]+|[A-Z]+(?![a-z])", name)]


def _flip(class_names: Sequence[str]) -> Choice:
    sided = [name for name in class_names if any(map(SIDES.fullmatch, words_of(name)))]
    if sided:
        name = json.dumps(sided[0], ensure_ascii=False)
        return Choice("DATA.RANDOM_FLIP", False, f"the class {name} tells sides apart")
    why = "no name of a class speaks of a side; set False if left and right tell classes apart"
    return Choice("DATA.RANDOM_FLIP", True, why)


def _test_choices(seen: Seen) -> list[Choice]:
    stride = _stride(seen)
    views = 1 if stride is None else min(10, math.ceil(seen.seconds / _span_seconds(stride)))
    is_square = seen.aspect < SQUARE
    view_why = "a view shows the whole video"
    if stride is not None:
        view_why = f"views of {_span_seconds(stride):.1f} s cover a video of {seen.seconds:.1f} s"
        view_why += " in part" if views == 10 else ""
    return [
        Choice("TEST.NUM_ENSEMBLE_VIEWS", views, view_why),
        Choice(
            "TEST.NUM_SPATIAL_CROPS",
            1 if is_square else 3,
            "the videos are nearly square"
            if is_square
            else f"so that the test sees the sides too: a video is {seen.aspect:.2f} times as long as short",
        ),
    ]


LONG: Mapping[str, Any] = {"MULTIGRID.LONG_CYCLE": True}
"""The second row. Long held its claim in the quickstart, where long+short failed: experiments/quickstart."""


def config_from(choices: Sequence[Choice], changes: Mapping[str, Any] | None = None) -> Config:
    """Make the configuration of the base file with the choices and ``changes``."""
    values, problems = file_values(BASES / BASE)
    raise_problems(problems)
    given = {**values, **{one.key: one.value for one in choices}, **(changes or {})}
    # Values of a file and of a choice are lists, where the configuration has tuples.
    return config_of({key: BY_NAME[key].read(value) for key, value in given.items()})


@dataclass(frozen=True)
class Plan:
    """The choices, and the schedules that they give: of the baseline and of long."""

    seen: Seen
    choices: tuple[Choice, ...]
    baseline: Schedule
    long: Schedule

    @staticmethod
    def of(seen: Seen, steps: int | None = None, crop: int | None = None) -> Plan:
        """Choose, and build both schedules. Raises InputError if a schedule is impossible."""
        choices = choose(seen, steps, crop)
        schedules = [
            build_row_schedule(config_from(choices, changes), seen.num_train)
            for changes in ({}, LONG)
        ]
        return Plan(seen, tuple(choices), *schedules)

    @property
    def has_few_steps(self) -> bool:
        """Return whether long has so few steps that tools/doctor.py advises the baseline."""
        return has_few_steps(self.long)

    @property
    def enough_steps(self) -> int:
        """Return about how many steps of the baseline would give long enough: a multiple of 50."""
        fewest = min(phase.num_steps for phase in self.long.phases)
        factor = max(FEW_STEPS / self.long.total_steps, FEW_PHASE_STEPS / max(1, fewest))
        # Phases round to whole steps, hence the 5 % more.
        return 50 * math.ceil(1.05 * factor * self.baseline.total_steps / 50)

    @property
    def video_points(self) -> float:
        """Return how many points of accuracy one validation video is."""
        return 100 / self.seen.num_val

    @property
    def margin(self) -> float:
        """Return the margin of the claim in points: 2, or two videos if these are more."""
        return max(2.0, math.ceil(20 * self.video_points) / 10)

    def advice(self) -> list[str]:
        """Write what our studies say about such a set, in lines."""
        steps, base = self.long.total_steps, self.baseline.total_steps
        lines = [
            f"The long cycle takes {steps:,} steps in place of {base:,}, and {self.long.flop_saving:.2f} times "
            "fewer FLOPs of training.",
            "It may cost accuracy: on 1,500 synthetic clips (experiments/quickstart) it lost nothing. On 2,400",
            "real ones (experiments/miracl_vc1) it lost 7.5 points, more than a shorter baseline with as many",
            "FLOPs. So train the baseline first.",
        ]
        if self.has_few_steps:
            lines.append(
                f"It has fewer than {FEW_STEPS} steps, or a phase with fewer than {FEW_PHASE_STEPS}. On our "
                "synthetic clips, so few were too few, so study.yaml leaves it out and compares nothing. "
                f"With --steps {self.enough_steps} it compares both."
            )
        return lines


@dataclass(frozen=True)
class Lists:
    """The two lists of a project, and the folder that their paths are relative to.

    ``val_share`` is the share of validation that was asked for; None if the user has split the videos.
    """

    root: Path
    train: tuple[OwnVideo, ...]
    val: tuple[OwnVideo, ...]
    allow_outside: bool = False
    val_share: float | None = None

    @cached_property
    def groups(self) -> tuple[list[str], list[str]]:
        """Name the groups of training and of validation. A video by itself, or with its copies, has no name."""
        alone = {one.path for one in (*self.train, *self.val)}
        train, val = (
            sorted({one.group for one in videos if one.group} - alone)
            for videos in (self.train, self.val)
        )
        return train, val

    def groups_text(self) -> list[str]:
        """Write how the lists are split by groups, in lines, or warn that there are no groups."""
        train, val = self.groups
        groups = {*train, *val}
        if not groups:
            return [
                "Not split by group: no groups were found. If some videos show the same person or recording, the",
                "accuracy is too good: new videos score less. Then remove this project, and give --group-regex:",
                "'^([^_]+)_' makes the part of a name before its first _ the group. See docs/own_videos.md.",
            ]
        both = sorted({*train} & {*val})
        shared = f"{len(both)} of them" if both else "none of them"
        lines = [
            f"Split by group: {counted(len(groups), 'group')}, with {shared} in both lists.",
            f"{counted(len(val), 'group is', 'groups are')} in validation: {listed(val, MOST_GROUPS)}.",
        ]
        videos = (*self.train, *self.val)
        if num := sum(one.group not in groups for one in videos):
            lines.append(f"{counted(num, 'video has', 'videos have')} no group.")
        # A video without a group is a group by itself.
        if (few := len({one.group for one in self.val})) < FEW_GROUPS:
            lines.append(
                f"warning: only {counted(few, 'group is', 'groups are')} in validation, and others may score "
                "differently: make groups smaller, or add some."
            )
        share, asked = len(self.val) / len(videos), self.val_share
        if asked and max(share / asked, asked / share) > FAR_SHARE:
            lines.append(
                f"warning: {100 * share:.0f} % of the videos are in validation, not {100 * asked:.0f} % as asked: "
                "make groups smaller."
            )
        return lines


def write_project(project: ProjectDir, plan: Plan, lists: Lists, labels: Mapping[str, int]) -> None:
    """Write the lists, the names of the classes, both YAMLs and study.yaml. ``labels``: class → number."""
    root = Root(lists.root, lists.allow_outside)
    for path, videos in ((project.train_csv, lists.train), (project.val_csv, lists.val)):
        lines = (f"{root.name(one.path)} {labels[one.class_name]}\n" for one in videos)
        atomic_write_text(path, "".join(lines))
    atomic_write_text(project.classes_txt, class_list(plan.seen.class_names))
    atomic_write_text(project.long_yaml, long_text(project, plan))
    atomic_write_text(project.baseline_yaml, baseline_text(project, plan, lists))
    # Last, because a folder with this file is a complete project.
    atomic_write_text(project.study_yaml, study_text(project, plan, lists))


def run_command(yaml: Path, *below: str) -> str:
    """Write the command that trains a row of a project where tools/study.py looks, or ``below`` its runs."""
    output = Path(yaml.parent, RUNS, *below, yaml.stem, "seed0")
    cfg, place = (shlex.quote(short_path(path)) for path in (yaml, output))
    return f"python tools/run_net.py --cfg {cfg} --output {place}"


def baseline_text(project: ProjectDir, plan: Plan, lists: Lists) -> str:
    """Write baseline.yaml, with a reason beside each choice."""
    seen = plan.seen
    places = [
        Choice("DATA.TRAIN_LIST", str(project.train_csv.absolute())),
        Choice("DATA.VAL_LIST", str(project.val_csv.absolute())),
        Choice("DATA.PATH_PREFIX", str(lists.root.absolute())),
        Choice("DATA.CLASSES", str(project.classes_txt.absolute())),
        *([Choice("DATA.ALLOW_OUTSIDE", True, "--allow-outside")] if lists.allow_outside else []),
    ]
    text = [
        "# The baseline on your own videos. tools/own_data.py wrote this file: change what you know better.",
        f"# Seen: {seen.num_train:,} training and {seen.num_val:,} validation videos of "
        f"{len(seen.class_names)} classes. Their medians:",
        f"# {seen.seconds:.1f} s, {seen.fps:.3g} frames per second, a short side of {seen.short_side} pixels.",
        "# The network, the learning rate and all other keys are those of experiments/base/own_data.yaml. That",
        "# file also says what to change for a GPU.",
        f"# {run_command(project.baseline_yaml)}",
        f"_BASE_: {BASE}",
        "ROW: baseline",
    ]
    sections = defaultdict(list)
    for one in (*places, *plan.choices):
        sections[one.key.partition(".")[0]].append(f"  {one.line()}")
    for section, lines in sorted(sections.items()):
        text += [f"{section}:", *lines]
    return "\n".join(text) + "\n"


def long_text(project: ProjectDir, plan: Plan) -> str:
    """Write long.yaml."""
    text = [
        "# The same with the long cycle. The keys of MULTIGRID are in experiments/base/own_data.yaml.",
        *(f"# {line}" for line in plan.advice()),
        f"# {run_command(project.long_yaml)}",
        f"_BASE_: {project.baseline_yaml.name}",
        "ROW: long",
        "MULTIGRID:",
        "  LONG_CYCLE: True  # SHORT_CYCLE: True as well saved more and lost more; see docs/own_videos.md",
    ]
    return "\n".join(text) + "\n"


def study_text(project: ProjectDir, plan: Plan, lists: Lists) -> str:
    """Write study.yaml: both rows, or the baseline alone if long has too few steps."""
    rows = ["baseline"] if plan.has_few_steps else ["baseline", "long"]
    classes = json.dumps(str(project.classes_txt.absolute()), ensure_ascii=False)
    if_added = ", if you add it," if plan.has_few_steps else ""
    text = [
        f"# The claim: long{if_added} is not worse than the baseline by more than "
        f"{counted(plan.margin, 'point')}.",
        f"# Change it before the first run, not after. One of {plan.seen.num_val:,} validation videos is "
        f"{plan.video_points:.2g} points.",
        *(f"# {line}" for line in lists.groups_text()),
        f"# python tools/study.py {shlex.quote(short_path(project.root))}",
        f"rows: [{', '.join(rows)}]",
        "seeds: 3  # the page says how many seeds would decide",
        f"margin: {plan.margin:g}",
        "controls: [repeated]  # the baseline on one repeated frame: does motion matter here?",
        f"classes: {classes}",
    ]
    if plan.has_few_steps:
        text.insert(
            2,
            "# It compares nothing yet: long has too few steps (see long.yaml). Make the project again with "
            f"--steps {plan.enough_steps}, or add long to rows.",
        )
    else:
        text.append(
            "equal_flops: [long]  # the baseline with fewer epochs, which takes as many FLOPs"
        )
    return "\n".join(text) + "\n"
