#!/usr/bin/env python3
"""Look at your own videos, and write a project folder that trains on them: lists, two YAMLs and a study.

  python tools/own_data.py VIDEOS              # VIDEOS/<class>/<video>, or VIDEOS/{train,val}/<class>/<video>
  python tools/study.py projects/VIDEOS        # train the baseline and long, and compare them
  python tools/predict.py a_video.mp4 --run projects/VIDEOS/runs/baseline/seed0
  python tools/own_data.py VIDEOS --list all.txt    # lines of 'path label' in place of folders by class

All videos are decoded once. Broken ones are left out and listed. Videos of one group (a folder in the folder of a
class, --group-regex, --group-column, or names such as street_clip2) are in one list only. See docs/own_videos.md.
After an interruption, start the same command again. Exit codes: 0 written; 2 bad input; 4 interrupted.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from mgexp.data.classes import read_class_names
from mgexp.data.split import (
    Found,
    OwnVideo,
    class_order,
    find_videos,
    name_problems,
    read_lists,
    split_videos,
    with_groups,
)
from mgexp.errors import InputError, listed, raise_problems
from mgexp.options import ToolParser, local_folder, not_positive, run_tool, too_small
from mgexp.plan.own_data import (
    CROPS,
    LARGE_SIDE,
    LEAST_STEPS,
    Lists,
    Plan,
    ProjectDir,
    Seen,
    run_command,
    write_project,
)
from mgexp.run.environment import num_cores
from mgexp.run.files import short_path
from mgexp.run.folder import SMOKE, CheckDir
from mgexp.text import aligned, counted
from mgexp.video.check import VideoCheck
from mgexp.video.check_log import check_in_folder
from mgexp.video.paths import links_problems

PROJECTS = Path("projects")
MAX_CROP = 8_000
"""Training resizes up to 1.25 times the crop, and a key takes at most 10,000 pixels."""
MOST_LINES = 30
"""The table of classes has this many lines."""


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = ToolParser(__doc__, "VIDEOS [options]")
    add = parser.add_argument
    add("videos", type=Path, metavar="VIDEOS", help="folder of the videos")
    add(
        "--output",
        type=local_folder,
        metavar="DIR",
        help="project folder (default: projects/<name of VIDEOS>)",
    )
    add_list_options(parser)
    add(
        "--val-share",
        type=float,
        metavar="X",
        help="share of each class for validation (default: 0.25)",
    )
    add("--seed", type=int, help="seed of the split (default: 0)")
    add(
        "--steps",
        type=int,
        metavar="N",
        help="steps of the baseline; its time is in proportion (default: about 2,000, in 10 to 200 epochs)",
    )
    add(
        "--crop",
        type=int,
        metavar="N",
        help="pixels of the side of a clip; the time grows with its square (default: 96, less for small videos)",
    )
    add(
        "--allow-outside",
        action="store_true",
        help="take videos outside VIDEOS that links lead to, if you trust the links",
    )
    rare = parser.add_rare_group("decoding the videos").add_argument
    rare(
        "--quick",
        action="store_true",
        help="decode the first and the last second of each video only",
    )
    rare(
        "--processes",
        type=int,
        default=num_cores(),
        help="videos decoded at the same time (default: the cores)",
    )
    rare("--time-limit", type=float, default=120.0, help="seconds for one video (default: 120)")
    return parser.parse_args(arguments)


def add_list_options(parser: argparse.ArgumentParser) -> None:
    """Add the options about lists and groups."""
    add = parser.add_argument
    add("--list", type=Path, action="append", default=[], metavar="FILE", help="'path label' lines")
    add(
        "--val-list",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="the same for validation: no split is made",
    )
    add("--separator", help="text between the columns of a list (default: spaces and tabs)")
    add("--group-column", action="store_true", help="lines of lists are 'path label group'")
    add(
        "--group-regex",
        metavar="RE",
        help="finds the group in the name of a video: '^(person[0-9]+)'; '' for none",
    )
    add(
        "--classes",
        type=Path,
        metavar="FILE",
        help="names of the classes 0, 1, … of lists with numbers, as DATA.CLASSES takes",
    )


def main(arguments: list[str]) -> int:
    """Find, check, split, write and say what was done."""
    options = parse(arguments)
    project = project_of(options)
    found = find(options)
    videos, lines = grouped(found.videos, options.group_regex)
    print("\n".join([*found.notes, *lines]))
    checks, summary = check([one.path for one in videos], project, options)
    print(summary)
    usable = [one for one in videos if checks[one.path].is_usable]
    if lost := sorted({one.class_name for one in videos} - {one.class_name for one in usable}):
        problem = (
            f"{counted(len(lost), 'class has', 'classes have')} no usable video: {listed(lost)}"
        )
        remedy = "repair some of its videos, or take the class out of VIDEOS or the lists"
        raise InputError([f"{problem} ({CheckDir(project.check).videos_jsonl} says why): {remedy}"])
    names, labels = classes_of(usable, options.classes)
    train, val = split(usable, options)
    seen = Seen.of([checks[one.path] for one in usable], names, len(train), len(val))
    plan = Plan.of(seen, options.steps, options.crop)
    share = share_of(options) if any(one.is_val is None for one in usable) else None
    lists = Lists(options.videos, (*train,), (*val,), options.allow_outside, share)
    write_project(project, plan, lists, labels)
    print(table(train, val, {kind: names[number] for kind, number in labels.items()}))
    print(said(project, plan))
    # Last, because the split decides what the accuracy means.
    print("\n".join(lists.groups_text()))
    return 0


def share_of(options: argparse.Namespace) -> float:
    """Return the share of each class for validation."""
    return 0.25 if options.val_share is None else float(options.val_share)


def project_of(options: argparse.Namespace) -> ProjectDir:
    """Check the options, and return the folder of the project. Raises InputError."""
    problems = [
        *too_small({"--processes": options.processes}),
        *too_small({"--steps": options.steps}, LEAST_STEPS),
        *too_small({"--crop": options.crop}, CROPS[-1]),
        *not_positive({"--time-limit": options.time_limit}),
    ]
    if not options.videos.is_dir():
        problems.append(f"{options.videos} is not a folder: give the folder that holds the videos")
    if options.crop and options.crop > MAX_CROP:
        problems.append(f"--crop {options.crop}: give at most {MAX_CROP:,}")
    if not 0 < share_of(options) < 1:
        problems.append(f"--val-share {options.val_share:g}: give more than 0 and less than 1")
    if options.separator == "":
        problems.append("--separator is empty: use one character or more")
    for given, option in (
        (options.val_list, "--val-list"),
        (options.group_column, "--group-column"),
        (options.classes, "--classes"),
        (options.separator, "--separator"),
    ):
        if given and not options.list:
            problems.append(f"{option} is for lists: add --list FILE")
    # normpath removes "..", which would lead out of the folder of projects.
    name = Path(os.path.normpath(options.videos.absolute())).name
    project = ProjectDir(options.output or PROJECTS / name)
    # Without this file, an earlier call was interrupted.
    if project.study_yaml.exists():
        problems.append(
            f"{project.study_yaml} exists: remove that project, or choose another folder with --output"
        )
    raise_problems(problems)
    return project


def find(options: argparse.Namespace) -> Found:
    """Find the videos in folders or lists. Raises InputError."""
    if options.list:
        is_val = False if options.val_list else None
        read = [
            read_lists(lists, options.videos, where, options.separator, options.group_column)
            for lists, where in ((options.list, is_val), (options.val_list, True))
        ]
        found = Found(
            tuple(video for one in read for video in one.videos),
            tuple(problem for one in read for problem in one.problems),
        )
    else:
        found = find_videos(options.videos)
    problems = [*found.problems, *name_problems(found.videos)]
    twice = [path for path, times in Counter(one.path for one in found.videos).items() if times > 1]
    if twice:
        problems.append(
            f"{counted(len(twice), 'video is', 'videos are')} listed twice, such as {twice[0]}: "
            "keep one line of each"
        )
    if not problems and not options.allow_outside:
        paths = [one.path for one in found.videos]
        more = " (here: --allow-outside)"
        problems += [f"{one}{more}" for one in links_problems(paths, options.videos)]
    raise_problems(problems)
    return found


def grouped(videos: Sequence[OwnVideo], regex: str | None) -> tuple[list[OwnVideo], list[str]]:
    """Return the videos with their groups, and what to say. Raises InputError."""
    try:
        return with_groups(videos, regex)
    except ValueError as error:
        raise InputError([f"--group-regex {error}"]) from error


def check(
    paths: Sequence[str], project: ProjectDir, options: argparse.Namespace
) -> tuple[dict[str, VideoCheck], str]:
    """Decode the videos that no earlier call has decoded. Return all checks by path, and their table."""
    folder = CheckDir(project.check)
    how = (options.quick, options.processes, options.time_limit)
    found = check_in_folder(folder, paths, options.videos, *how)
    text = f"{found.as_text()}\nunusable videos are left out: {folder.quarantine_txt}"
    return {one.path: one for one in found.checks}, text


def classes_of(
    videos: Sequence[OwnVideo], file: Path | None
) -> tuple[list[str], Mapping[str, int]]:
    """Return the names of the classes in order, and the number of each class. Raises InputError."""
    order = class_order([one.class_name for one in videos])
    if len(order) < 2:
        num = counted(len(order), "class", "classes")
        problem = f"there are usable videos of {num} ({', '.join(order)})"
        raise InputError([f"{problem}: two or more are needed"])
    are_numbers = all(name.isdecimal() for name in order)
    if file is None:
        names = [f"class {name}" for name in order] if are_numbers else order
        return names, {name: number for number, name in enumerate(order)}
    names = [*read_class_names(file)]
    if not are_numbers or int(order[-1]) >= len(names):
        label = f"the label {order[-1]} is none of 0 to {len(names) - 1}"
        named = counted(len(names), "class", "classes")
        raise InputError([f"--classes {file} names {named}, and {label}: correct one of them"])
    return names, {name: int(name) for name in order}


def split(
    videos: Sequence[OwnVideo], options: argparse.Namespace
) -> tuple[list[OwnVideo], list[OwnVideo]]:
    """Split the videos, unless folders or lists have split them. Raises InputError."""
    if any(one.is_val is None for one in videos):
        try:
            return split_videos(videos, share_of(options), options.seed or 0)
        except ValueError as error:
            raise InputError([str(error)]) from error
    train, val = ([one for one in videos if one.is_val is which] for which in (False, True))
    problems = [
        f"{option} {value:g} has no effect, because the folders or lists are split already: leave it out"
        for option, value in (("--val-share", options.val_share), ("--seed", options.seed))
        if value is not None
    ]
    if not train or not val:
        problems.append(
            f"{counted(len(train), 'usable training video')} and {len(val)} for validation: both lists need some"
        )
    untrained = sorted({one.class_name for one in val} - {one.class_name for one in train})
    if train and untrained:
        problems.append(
            f"validation videos have classes without a training video: {listed(untrained, 10)}: correct the lists"
        )
    raise_problems(problems)
    if both := sorted({one.group for one in train} & {one.group for one in val}):
        groups = counted(len(both), "group is", "groups are")
        print(f"warning: {groups} in both lists, such as {both[0]}: the accuracy will be too good")
    return train, val


def table(train: Sequence[OwnVideo], val: Sequence[OwnVideo], names: Mapping[str, str]) -> str:
    """Write how many videos of each class are in each list. ``names``: class in the lists → its name."""
    counts = [Counter(one.class_name for one in videos) for videos in (train, val)]
    lines = [[name, *(f"{count[kind]:,}" for count in counts)] for kind, name in names.items()]
    most = lines[:MOST_LINES]
    num = len(lines) - len(most)
    more = [f"… and {counted(num, 'more class', 'more classes')}"] if num else []
    total = ["all", f"{len(train):,}", f"{len(val):,}"]
    return "\n".join([aligned([["class", "training", "validation"], *most, total]), *more])


def said(project: ProjectDir, plan: Plan) -> str:
    """Write what was chosen, what our studies advise, and the next commands."""
    folder = shlex.quote(short_path(project.root))
    choices = [
        f"  {one.key.partition('.')[2]} {one.value}: {one.why}" for one in plan.choices if one.why
    ]
    store = [
        "The videos are large, so loading may take longer than training. Make a clip store, and set DATA.STORE:",
        f"  python tools/prepare_data.py --cfg {folder}/baseline.yaml --store {folder}/store",
    ]
    return "\n".join(
        [
            f"{project.root} is written: two lists, classes.txt, baseline.yaml, long.yaml and study.yaml",
            *choices,
            *plan.advice(),
            *(store if plan.seen.short_side >= LARGE_SIDE else []),
            "Next:",
            f"  {run_command(project.baseline_yaml, SMOKE)} --smoke    # a few steps: does it run?",
            f"  python tools/study.py {folder}    # trains all of study.yaml, and writes {folder}/README.md",
            f"  python tools/predict.py a_video.mp4 --run {folder}/runs/baseline/seed0",
        ]
    )


if __name__ == "__main__":
    sys.exit(run_tool(main, "start the same command again to check the rest"))
