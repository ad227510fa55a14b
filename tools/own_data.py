#!/usr/bin/env python3
"""Look at your own videos, and write a project folder that trains on them: lists, two YAMLs and a study.

  python tools/own_data.py VIDEOS              # VIDEOS/<class>/<video>, or VIDEOS/{train,val}/<class>/<video>
  python tools/study.py projects/VIDEOS        # train the baseline, long, and a baseline with the FLOPs of long
  python tools/predict.py a_video.mp4 --run projects/VIDEOS/runs/baseline/seed0
  python tools/own_data.py VIDEOS --list all.txt    # lines of 'path label' in place of folders by class

All videos are decoded once. Broken ones are left out and listed. Videos of one group (a folder in the folder of a
class, --group-regex, --group-numbers or --group-column) are in one list only. See docs/own_videos.md.
After an interruption, start the same command again. Exit codes: 0 written; 2 bad input; 4 interrupted.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import os
import random
import re
import shlex
import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median, quantiles

import numpy as np

from mgexp.config.load import load_config, read_config
from mgexp.data.classes import class_list, read_class_names
from mgexp.data.formats import ENDINGS, Findings, is_table, stretch_of, unreadable, visible_in
from mgexp.errors import InputError, listed, raise_problems
from mgexp.models.build import build_on_meta
from mgexp.models.weights import fit_weights, read_weights
from mgexp.multigrid.schedule import Schedule
from mgexp.options import ToolParser, local_folder, not_positive, run_tool, too_small
from mgexp.plan.advice import FEW_STEPS, has_few_steps
from mgexp.run.environment import num_cores
from mgexp.run.files import atomic_write_text, json_line, sha256_of, short_path
from mgexp.run.files import write_rows as write_csv
from mgexp.run.folder import GROUPS, RUNS, SMOKE, CheckDir, RunsDir
from mgexp.run.remote import local_file
from mgexp.text import aligned, counted, is_plain, shown
from mgexp.train.setup import build_row_schedule
from mgexp.video.check import MEAN_SIDE, VideoCheck
from mgexp.video.check_log import check_in_folder
from mgexp.video.frame_folder import is_image
from mgexp.video.paths import Root
from mgexp.video.reader import DEFAULT_FRAMES_FPS

PROJECTS = Path("projects")
FINETUNE = Path(__file__).parents[1] / "experiments" / "base" / "own_data_finetune.yaml"
TRAIN_FOLDERS, VAL_FOLDERS = ("train", "training"), ("val", "valid", "validation")
TEST_FOLDERS = ("test", "testing")
GRID_FPS = 30.0
"""DATA.TARGET_FPS, the frames per second in which a stride is counted."""
FRAMES, SHORT_FRAMES, MAX_STRIDE = 16, 8, 4
"""Then 16 frames span up to 2 s, as in experiments/base/own_data.yaml."""
CROPS = (96, 80, 64, 48, 32)
"""Crops to choose from. Each is even at 1/√2 too; 96 is that of the base file."""
STEPS, CLIPS = 2000, 8
"""Steps and clips of the baseline. The quickstart takes 1,500 steps, MIRACL-VC1 3,600. Assumption."""
LEAST_STEPS = 50
"""The fewest steps that a user may choose. Below, phases of one step would be empty."""
LEAST_EPOCHS, MOST_EPOCHS = 10, 200
I3D_CLIP = {"DATA.NUM_FRAMES": 8, "DATA.SAMPLING_RATE": 8}
NETWORKS: dict[str, dict[str, object]] = {
    "SlowFast R50 8x8": {},
    "SlowFast R101 8x8": {"RESNET.DEPTH": 101},
    "I3D R50 8x8": {"MODEL.MODEL_NAME": "I3D", **I3D_CLIP},
    "I3D R101 8x8": {"MODEL.MODEL_NAME": "I3D", "RESNET.DEPTH": 101, **I3D_CLIP},
    "Slow R50 8x8": {"MODEL.MODEL_NAME": "Slow", **I3D_CLIP},
}
"""The networks of --from-weights, as changes of experiments/base/own_data_finetune.yaml. Their clips are those of
pytorchvideo's model zoo for Kinetics-400, which has the mean and the deviation of the defaults too."""
TEST_SHARE = 0.25
"""The test costs at most this share of the training, unless it has one view. Assumption."""
STAGES, WARMUP = (0.0, 0.65, 0.85), 0.12
"""Shares of the training at which a stage begins, and of the warm-up, as in the base file."""
FEW_GROUPS = 3
"""A split is warned of with fewer groups in validation: one or two persons say little about others. Assumption."""
PROPOSALS: tuple[tuple[str | None, int | None], ...] = (
    (r"^([^\W_]+)[\W_]", None),
    (r"^(.*[0-9])[^0-9]+[0-9]+$", None),
    (r"^(.+?)[\W_]*[0-9]+$", None),
    *((None, size) for size in (10, 5, 2)),
)
"""Values of --group-regex and --group-numbers to try on names: the first word; all before the last number, if it
holds a number too; all before the last number."""
PROPOSED_GROUPS = 3
"""A proposal makes so many groups in every class."""
SHOWN = 5
"""A message names so many files or groups."""
SHRINKS = 1.5
STORE_PAYS, UNEVEN = 2.0, 2.0
"""A store is proposed where pictures shrink more, and class weights where one class is so many times as large as
another. Assumptions."""
ALIKE = 0.995
"""Mean frames are nearly the same if their correlation is higher: in 2,554 of 5,344 pairs of one scene and 32 of
61,086 other pairs of the drones clips, and in none of 9,045 pairs of coloured shapes on drawn backgrounds."""
MOST_LINES = 30
"""The table of classes has this many lines."""


@dataclass(frozen=True)
class OwnVideo:
    """A video by its absolute path, the name of its class, and its group; "" for a video that is a group itself.

    ``is_val`` tells for which list a folder or a list of the user has it; None where the split is ours. ``part``:
    start and end of a stretch in seconds; None: the whole video.
    """

    path: str
    class_name: str
    group: str = ""
    is_val: bool | None = None
    part: tuple[float, float] | None = None

    @property
    def unit(self) -> str:
        """The group, or the video or stretch itself: what must not be in both lists."""
        return self.group or (f"{self.path} {self.part}" if self.part else self.path)


def class_names(videos: Sequence[OwnVideo]) -> set[str]:
    return {video.class_name for video in videos}


@dataclass
class Search:
    """What a search for videos has found, what is wrong, and what was left out on the way."""

    videos: list[OwnVideo] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


# fmt: off
def parse(arguments: list[str]) -> argparse.Namespace:
    parser = ToolParser(__doc__, "VIDEOS [options]")
    add = parser.add_argument
    add("videos", type=Path, metavar="VIDEOS", help="folder of the videos")
    add("--output", type=local_folder, metavar="DIR", help="project folder (default: projects/<name of VIDEOS>)")
    add("--list", type=Path, action="append", default=[], metavar="FILE", help="'path label' lines")
    add("--val-list", type=Path, action="append", default=[], metavar="FILE",
        help="the same for validation: no split is made")
    add("--separator", help="text between the columns of a list (default: spaces and tabs)")
    add("--group-column", action="store_true", help="lines of lists are 'path label group'")
    group = parser.add_mutually_exclusive_group().add_argument
    group("--group-regex", metavar="RE", help="finds the group in the name of a video: '^(person[0-9]+)'")
    group("--group-numbers", type=int, metavar="N",
        help="N numbers in a row at the ends of names are a group: clip_1 to clip_10, clip_11 to clip_20, …")
    add("--classes", type=Path, metavar="FILE",
        help="names of the classes 0, 1, … of lists with numbers, as DATA.CLASSES takes")
    add("--val-share", type=float, default=0.25, metavar="X",
        help="share of each class for validation (default: 0.25)")
    add("--seed", type=int, default=0, help="seed of the split (default: 0)")
    add("--steps", type=int, metavar="N",
        help="steps of the baseline; its time is in proportion (default: about 2,000, in 10 to 200 epochs)")
    add("--crop", type=int, metavar="N",
        help="pixels of the side of a clip; the time grows with its square (default: 96, less for small videos)")
    add("--from-weights", metavar="FILE",
        help="fine-tune these weights, a file or an address: the project has their network, frames and crop")
    add("--store", action="store_true", help="read clips from a store of small copies")
    add("--again", action="store_true",
        help="write a project without runs again, such as with other groups, and keep what was decoded")
    rare = parser.add_argument_group("decoding the videos").add_argument
    rare("--quick", action="store_true", help="decode the first and the last second of each video only")
    rare("--processes", type=int, default=num_cores(), help="videos decoded at the same time (default: the cores)")
    rare("--time-limit", type=float, default=120.0, help="seconds for one video (default: 120)")
    return parser.parse_args(arguments)
# fmt: on


def main(arguments: list[str]) -> int:
    """Find, check, split, write and say what was done."""
    options = parse(arguments)
    project = project_of(options)
    search = find_videos(options)
    if search.left_out:
        print(f"left out: {listed(search.left_out, SHOWN)}; --list and --val-list take lists")
    network = network_of(options.from_weights) if options.from_weights else None
    regex, size = options.group_regex, options.group_numbers
    videos = with_groups(search.videos, options.videos, regex, size)
    # What follows from the names is said before the videos are decoded, which takes long.
    classes_of(videos, options.classes)
    split(videos, options)
    notes = name_lines(videos, options.videos)
    print("\n".join(notes), flush=True)
    if not any(video.group or video.is_val is not None for video in videos):
        print("Ctrl-C stops here; with --again and such an option the tool goes on.", flush=True)
    usable, checks = usable_videos(videos, project, options)
    seen = []
    for video in usable:
        check = checks[video.path]
        if video.part:  # a stretch has a length of its own
            check = replace(check, duration_seconds=video.part[1] - video.part[0])
        seen.append(check)
    names, labels = classes_of(usable, options.classes)
    train, val = split(usable, options)
    for name in ("study.yaml", GROUPS):
        (project / name).unlink(missing_ok=True)
    # A smoke run of other lists or YAMLs could not be started again.
    if (smoke := project / RUNS / SMOKE).exists():
        print(f"{smoke} is removed: it was made with other lists")
        shutil.rmtree(smoke)
    for name, videos_of_list in (("train.csv", train), ("val.csv", val)):
        atomic_write_text(project / name, list_text(options.videos, videos_of_list, labels))
    atomic_write_text(project / "classes.txt", class_list(names))
    write_rows(project, options, network, seen, len(names), len(train), len(val))
    root = Root(options.videos)
    groups = notes
    if any(video.group for video in usable):
        groups = group_lines(train, val)
        units = {root.name(video.path): root.name(video.unit) for video in usable}
        atomic_write_text(project / GROUPS, json_line(units))
    pairs, table = alike_pairs(train, val, checks, root), project / "check" / "alike.csv"
    write_csv(table, [("validation", "training"), *pairs])
    if pairs:
        num = counted(len(pairs), "validation video has", "validation videos have")
        shows = f"{num} nearly the same background as a training video"
        groups = [*groups, f"warning: {shows}. Are they of one recording? See {table}"]
    long = build_row_schedule(load_config(project / "long.yaml"), len(train))
    # Last, because a folder with this file is a complete project.
    atomic_write_text(project / "study.yaml", study_text(project, long, len(val), groups))
    print(class_table(train, val, {kind: names[number] for kind, number in labels.items()}))
    print("\n".join(advice_lines(project, options.store, seen, usable)))
    # The split decides what the accuracy means.
    print("\n".join(groups))
    print(next_lines(project, long, options.store))
    return 0


def usable_videos(
    videos: Sequence[OwnVideo], project: Path, options: argparse.Namespace
) -> tuple[list[OwnVideo], dict[str, VideoCheck]]:
    """Decode all videos once. Return those that can be used, and what was found in each file."""
    folder = CheckDir(project / "check")
    how = (options.quick, options.processes, options.time_limit)
    paths = list(dict.fromkeys(video.path for video in videos))
    checked = check_in_folder(folder, paths, options.videos, *how)
    print(f"{checked.as_text()}\nunusable videos are left out: {folder.quarantine_txt}")
    checks = {check.path: check for check in checked.checks}
    usable = [video for video in videos if checks[video.path].is_usable]
    if lost := sorted(class_names(videos) - class_names(usable)):
        raise InputError([f"no usable video of class {listed(lost)}: see {project / 'check'}"])
    raise_problems(label_conflicts(usable))
    return usable, checks


def project_of(options: argparse.Namespace) -> Path:
    """Check the options, and return the folder of the project. Raises InputError."""
    problems = [
        *too_small({"--processes": options.processes}),
        *too_small({"--group-numbers": options.group_numbers}, 2),
        *too_small({"--steps": options.steps}, LEAST_STEPS),
        *too_small({"--crop": options.crop}, CROPS[-1]),
        *not_positive({"--time-limit": options.time_limit}),
    ]
    if not options.videos.is_dir():
        problems.append(f"{options.videos} is not a folder: give the folder that holds the videos")
    if not 0 < options.val_share < 1:
        problems.append(f"--val-share {options.val_share:g}: give more than 0 and less than 1")
    if options.separator == "":
        problems.append("--separator is empty")
    for option in ("val_list", "group_column", "classes", "separator"):
        if getattr(options, option) and not options.list:
            problems.append(f"--{option.replace('_', '-')} is for lists: add --list FILE")
    # normpath removes "..", which would lead out of the folder of projects.
    name = Path(os.path.normpath(options.videos.absolute())).name
    project: Path = options.output or PROJECTS / name
    if RunsDir(project / RUNS).runs() or RunsDir(project).stored_jsonl.exists():
        problems.append(f"{project} has runs: give another folder with --output")
    # Without this file, an earlier call was interrupted.
    elif (project / "study.yaml").exists() and not options.again:
        problems.append(f"{project / 'study.yaml'} exists: give --again, or another --output")
    raise_problems(problems)
    return project


def network_of(weights: str) -> dict[str, object]:
    """Return the keys of the network of NETWORKS that the weights fit. Raises InputError if there is none."""
    file = read_weights(local_file(weights))
    for keys in NETWORKS.values():
        cfg, _ = read_config(FINETUNE, [str(word) for pair in keys.items() for word in pair])
        with suppress(InputError):
            fit_weights(file, build_on_meta(cfg))
            path = weights if "://" in weights else str(Path(weights).absolute())
            return {**keys, "TRAIN.INIT_WEIGHTS": path}
    raise InputError([f"--from-weights {weights} fits none of {', '.join(NETWORKS)}"])


def find_videos(options: argparse.Namespace) -> Search:
    """Find the videos in folders or lists. Raises InputError with all problems."""
    search = Search()
    try:
        if options.list:
            is_val = False if options.val_list else None
            for paths, where in ((options.list, is_val), (options.val_list, True)):
                for path in paths:
                    read_list(path, where, options, search)
        else:
            find_in_folders(Path(os.path.normpath(options.videos.absolute())), search)
    except OSError as error:
        search.problems.append(unreadable(error))
    if not search.videos and not search.problems:
        endings = " ".join(ENDINGS)
        search.problems.append(f"{options.videos}: no video ({endings}) in a folder of a class")
    # A name in a list is one line without spaces around it.
    search.problems += [
        f"{shown(video.path)}: control characters, or a space at an end of a name"
        for video in search.videos
        for name in (video.path, video.class_name)
        if not is_plain(name) or name != name.strip()
    ]
    classes = defaultdict(list)
    for video in search.videos:
        classes[video.path, video.part].append(video.class_name)
    for (path, _), found in classes.items():
        if len({*found}) > 1:
            search.problems.append(f"label conflict: {path} is of class {listed(found)}")
        elif len(found) > 1:
            search.problems.append(f"{path} is listed twice")
    raise_problems(search.problems)
    return search


def find_in_folders(root: Path, search: Search) -> None:
    """Find a folder for each class, or the folders train and val with a folder for each class."""
    folders = {path.name.lower(): path for path in visible_in(root) if path.is_dir()}
    train, val, test = (
        [folders[name] for name in names if name in folders]
        for names in (TRAIN_FOLDERS, VAL_FOLDERS, TEST_FOLDERS)
    )
    # Some data sets call their validation videos test.
    chosen = val or test
    if not train or not chosen:
        find_in_classes(root, None, search)
        return
    find_in_classes(train[0], False, search)
    find_in_classes(chosen[0], True, search)
    parts = {train[0], chosen[0]}
    search.left_out += [str(path) for path in visible_in(root) if path not in parts]


def find_in_classes(folder: Path, is_val: bool | None, search: Search) -> None:
    """Find the videos in a folder for each class. A folder in it is a group, with all folders in that."""
    outside = []
    for path in visible_in(folder):
        if path.is_dir():
            for video, group in videos_below(path, "", {os.path.realpath(path)}, search):
                search.videos.append(OwnVideo(str(video), path.name, group, is_val))
        elif path.suffix.lower() in ENDINGS:
            outside.append(str(path))
        else:
            search.left_out.append(str(path))
    if outside:
        names = listed(outside, SHOWN)
        search.problems.append(
            f"videos outside the folders of the classes (or give a list with --list): {names}"
        )


def is_folder_of_images(folder: Path) -> bool:
    """Return whether a folder is one video: it holds images, and neither videos nor folders."""
    inside = visible_in(folder)
    others = [path for path in inside if not is_image(path.name)]
    return len(others) < len(inside) and not any(
        path.suffix.lower() in ENDINGS or path.is_dir() for path in others
    )


def videos_below(
    folder: Path, group: str, real_folders: set[str], search: Search
) -> Iterator[tuple[Path, str]]:
    """Yield (video, group) of all videos below a folder. ``real_folders``: those above; links may go round."""
    for path in visible_in(folder):
        if path.is_dir():
            real = os.path.realpath(path)
            if is_folder_of_images(path):
                yield path, group
            elif real not in real_folders:
                yield from videos_below(path, group or path.name, {*real_folders, real}, search)
        elif path.suffix.lower() in ENDINGS:
            yield path, group
        else:
            search.left_out.append(str(path))


def read_list(path: Path, is_val: bool | None, options: argparse.Namespace, search: Search) -> None:
    """Read a list with a line ``path label`` or ``path label group`` for each video.

    Paths are relative to VIDEOS or absolute. A first line with the names start, end and label makes it a
    table of stretches.
    """
    root, num_columns = Root(options.videos), 3 if options.group_column else 2
    findings, found = Findings(is_official=False), list[OwnVideo]()
    separator = options.separator or " "
    if is_table(findings.text(path), separator):
        for place, row in findings.rows(path, "start", "end", "label", separator=separator):
            name, part = next(iter(row.values())), stretch_of(row)
            if name and part and row["label"]:
                video = root.path(name)
                group = row.get("group") or root.name(video)
                found.append(OwnVideo(video, row["label"], group, is_val, part))
            else:
                wrong = "stretch without a video, a label, or an end after its start"
                findings.fault(place, wrong, row)
        # The stretches of one recording are a group, unless there is one recording alone.
        if len({stretch.group for stretch in found}) == 1:
            found = [replace(stretch, group="") for stretch in found]
    else:
        for number, (place, line) in enumerate(findings.lines(path)):
            words = [word.strip() for word in line.rsplit(options.separator, num_columns - 1)]
            if number == 0 and "label" in map(str.lower, words[1:]):
                continue  # the names of the columns
            if len(words) != num_columns or not all(words):
                findings.fault(place, f"line without {num_columns} columns", line)
            else:
                found.append(OwnVideo(root.path(words[0]), *words[1:], is_val=is_val))
    search.videos += found
    search.problems += findings.all_problems()


def with_groups(
    videos: Sequence[OwnVideo], root: Path, regex: str | None, size: int | None
) -> Sequence[OwnVideo]:
    """Return the videos with the groups that --group-regex or --group-numbers finds in their names."""
    if size:
        return grouped_by_numbers(videos, root, size)
    return grouped_by_regex(videos, regex) if regex else videos


def grouped_by_regex(videos: Sequence[OwnVideo], regex: str) -> list[OwnVideo]:
    """Take the group (…) of the pattern, or else the whole match, in the name of a video without its ending.

    Raises InputError if the pattern is wrong or matches no name.
    """
    try:
        pattern = re.compile(regex)
    except re.error as error:
        raise InputError([f"--group-regex {regex!r} is no regular expression: {error}"]) from error
    matches = [pattern.search(Path(video.path).stem) for video in videos]
    if not any(matches):
        example = Path(videos[0].path).stem
        raise InputError([f"--group-regex {regex!r} matches no name, such as {example!r}"])
    place = 1 if pattern.groups else 0
    return [
        replace(video, group=match[place] or "") if match else video
        for video, match in zip(videos, matches, strict=True)
    ]


def text_and_number(video: OwnVideo) -> tuple[str, int]:
    """Divide a path without its ending into a text and the number at its end, which is -1 if there is none."""
    path = Path(video.path)
    text = path.stem.rstrip("0123456789")
    return f"{path.parent}/{text}", int(path.stem[len(text) :] or -1)


def grouped_by_numbers(videos: Sequence[OwnVideo], root: Path, size: int) -> list[OwnVideo]:
    """Group videos of a folder whose names differ only in the number at their end: ``size`` numbers are a group.

    The first group begins with the lowest number. Raises InputError if no name ends in a number.
    """
    lowest = {}
    for text, number in sorted(map(text_and_number, videos), reverse=True):
        if number >= 0:
            lowest[text] = number
    if not lowest:
        raise InputError([f"--group-numbers {size}: no name ends in a number"])
    grouped = [*videos]
    for index, video in enumerate(videos):
        text, number = text_and_number(video)
        if number >= 0:
            first = number - (number - lowest[text]) % size
            group = f"{Root(root).name(text)}{first}-{first + size - 1}"
            grouped[index] = replace(video, group=group)
    return grouped


def groups_text(videos: Sequence[OwnVideo]) -> str:
    """Name the groups with their numbers of videos: "2 groups: anna (10), ben (3)"."""
    sizes = Counter(video.group for video in videos if video.group)
    names = listed([f"{group} ({num})" for group, num in sizes.items()], SHOWN)
    texts = [f"{counted(len(sizes), 'group')}: {names}"] if sizes else []
    if rest := len(videos) - sizes.total():
        texts.append(counted(rest, "video without a group", "videos without a group"))
    return ", and ".join(texts)


def name_lines(videos: Sequence[OwnVideo], root: Path) -> list[str]:
    """Say which groups there are. If there are none, say what the names tell of groups."""
    if any(video.group for video in videos):
        return [groups_text(videos)]
    warning = (
        "no groups. If some videos show the same person or recording, the accuracy is too good."
    )
    lines = [f"warning: {warning}"]
    if all(video.is_val is not None for video in videos):
        return lines
    for regex, size in PROPOSALS:
        with suppress(InputError):
            grouped = with_groups(videos, root, regex, size)
            if is_useful(grouped):
                option = f"regex {shlex.quote(regex)}" if regex else f"numbers {size}"
                lines.append(f"Perhaps --group-{option}, which makes {groups_text(grouped)}.")
                break
    return lines


def is_useful(videos: Sequence[OwnVideo]) -> bool:
    """Tell whether every class has enough groups, which have two videos or more on average."""
    groups = {(video.class_name, video.group) for video in videos}
    least = min(Counter(kind for kind, _ in groups).values())
    is_coarse = 2 * len({group for _, group in groups}) <= len(videos)
    return is_coarse and least >= PROPOSED_GROUPS and all(video.group for video in videos)


def label_conflicts(videos: Sequence[OwnVideo]) -> list[str]:
    """Name the files of two classes that have the same content."""
    # Stretches of one file may have many labels.
    videos = [video for video in videos if video.part is None]
    sizes = Counter(Path(video.path).stat().st_size for video in videos)
    same = defaultdict(list)
    for video in videos:
        path = Path(video.path)
        if path.is_file() and sizes[path.stat().st_size] > 1:
            same[sha256_of(path)].append(video)
    return [
        f"label conflict: the same video is {' and '.join(video.path for video in found)}"
        for found in same.values()
        if len({video.class_name for video in found}) > 1
    ]


def classes_of(
    videos: Sequence[OwnVideo], file: Path | None
) -> tuple[Sequence[str], dict[str, int]]:
    """Return the names of the classes in order, and the number of each class. Raises InputError."""
    order = sorted(class_names(videos))
    are_numbers = all(re.fullmatch(r"[0-9]{1,9}", name) for name in order)
    order = sorted(order, key=int) if are_numbers else order
    if len(order) < 2:
        raise InputError([f"two classes are needed, and all usable videos are of {listed(order)}"])
    if file is None:
        names = [f"class {name}" for name in order] if are_numbers else order
        return names, {name: number for number, name in enumerate(order)}
    names = [*read_class_names(file)]
    if not are_numbers or int(order[-1]) >= len(names):
        raise InputError([f"--classes {file}: {len(names)} classes, and a label is {order[-1]}"])
    return names, {name: int(name) for name in order}


def split(
    videos: Sequence[OwnVideo], options: argparse.Namespace
) -> tuple[list[OwnVideo], list[OwnVideo]]:
    """Split the videos, unless folders or lists have split them. Raises InputError."""
    if any(video.is_val is None for video in videos):
        return split_videos(videos, options.val_share, options.seed)
    train, val = ([video for video in videos if video.is_val is which] for which in (False, True))
    problems = []
    if len({video.unit for video in videos}) == 1 < len(videos):
        problems.append(f"all videos are of one group: {groups_text(videos)}")
    if not train or not val:
        problems.append(f"{len(train)} usable training videos and {len(val)} for validation")
    if untrained := sorted(class_names(val) - class_names(train)):
        problems.append(f"validation has classes without a training video: {listed(untrained)}")
    raise_problems(problems)
    return train, val


def split_videos(
    videos: Sequence[OwnVideo], share: float, seed: int
) -> tuple[list[OwnVideo], list[OwnVideo]]:
    """Split videos into training and validation, each class by ``share``, whole groups only.

    Raises InputError with the classes that cannot be in both lists.
    """
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    for video in videos:
        groups[video.unit][video.class_name] += 1
    total = Counter(video.class_name for video in videos)
    names = sorted(groups)
    random.Random(seed).shuffle(names)
    # Large groups first: the small ones can then fill up what is left of the share.
    names.sort(key=lambda name: -groups[name].total())
    left, chosen = Counter({name: share * num for name, num in total.items()}), set()
    num_val: Counter[str] = Counter()

    def fits(name: str) -> bool:
        """Tell whether each class keeps a training video if validation takes this group."""
        return all(num_val[kind] + num < total[kind] for kind, num in groups[name].items())

    def take(name: str) -> None:
        chosen.add(name)
        num_val.update(groups[name])
        left.subtract(groups[name])

    for name in names:
        # A group is taken if that brings the classes nearer to their shares: Σ (left − n)² < Σ left².
        nearer = sum(num * (num - 2 * left[kind]) for kind, num in groups[name].items()) < 0
        if nearer and fits(name):
            take(name)
    for kind in sorted(total):
        fitting = [name for name in names if groups[name][kind] and fits(name)]
        if not num_val[kind] and fitting:
            take(min(fitting, key=lambda name: groups[name].total()))
    bad = [kind for kind in sorted(total) if not 0 < num_val[kind] < total[kind]]
    if bad:
        found = groups_text([video for video in videos if video.class_name in bad])
        problem = "a class needs usable videos of two groups, and there is no such split of"
        raise InputError([f"class {listed(bad)}: {problem} {found}"])
    return (
        [video for video in videos if video.unit not in chosen],
        [video for video in videos if video.unit in chosen],
    )


def group_lines(train: Sequence[OwnVideo], val: Sequence[OwnVideo]) -> list[str]:
    """Write how the lists are split by groups, in lines."""
    groups = [{video.group for video in videos if video.group} for videos in (train, val)]
    names, num = listed(sorted(groups[1])), len(groups[0])
    lines = [f"Split by group: {num} in training, {len(groups[1])} in validation: {names}."]
    if both := groups[0] & groups[1]:
        lines.append(f"warning: in both lists, so the accuracy is too good: {listed(sorted(both))}")
    if len({video.unit for video in val}) < FEW_GROUPS:
        lines.append(f"warning: fewer than {FEW_GROUPS} groups are in validation: see --val-share")
    classes_in = defaultdict(set)
    for video in (*train, *val):
        classes_in[video.group].add(video.class_name)
    mixed = sorted(group for group, kinds in classes_in.items() if group and len(kinds) > 1)
    if mixed:
        names = listed(mixed, SHOWN)
        lines.append(f"{counted(len(mixed), 'group has', 'groups have')} several classes: {names}")
    groups_of = Counter(kind for kind, _ in {(video.class_name, video.unit) for video in val})
    if single := sorted(kind for kind, num in groups_of.items() if num == 1):
        names = listed(single, SHOWN)
        lines.append(f"warning: validation has one group of {names}: it says little of this class")
    return lines


def alike_pairs(
    train: Sequence[OwnVideo], val: Sequence[OwnVideo], checks: dict[str, VideoCheck], root: Root
) -> list[tuple[str, str]]:
    """List validation videos, each with a training video of another group whose mean frame is nearly the same."""
    frames, of_train = (
        centred([checks[video.path].mean_frame for video in videos]) for videos in (val, train)
    )
    pairs = []
    for video, frame in zip(val, frames, strict=True):
        alike = (train[place] for place in np.flatnonzero(of_train @ frame > ALIKE))
        others = [one for one in alike if one.unit != video.unit and one.path != video.path]
        pairs += [(root.name(video.path), root.name(other.path)) for other in others[:1]]
    return pairs


def centred(mean_frames: Sequence[str]) -> np.ndarray:
    """Return mean frames (videos, pixels) whose products are correlations; 0 if unknown or blank."""
    unknown = "00" * MEAN_SIDE**2
    digits = "".join(frame or unknown for frame in mean_frames)
    frames = np.frombuffer(bytes.fromhex(digits), np.uint8).reshape(len(mean_frames), -1)
    differences = frames - frames.mean(axis=1, keepdims=True)
    return differences / np.maximum(np.linalg.norm(differences, axis=1, keepdims=True), 1e-6)


def list_text(root: Path, videos: Sequence[OwnVideo], labels: dict[str, int]) -> str:
    """Write a line ``path label`` for each video, or a table of stretches. ``labels``: class → number."""
    names = Root(root)
    if not any(video.part for video in videos):
        lines = (f"{names.name(video.path)} {labels[video.class_name]}\n" for video in videos)
        return "".join(lines)
    file = io.StringIO(newline="")
    table = csv.writer(file, delimiter=" ", lineterminator="\n")
    table.writerow(("path", "start", "end", "label"))
    for video in videos:
        table.writerow((names.name(video.path), *(video.part or ()), labels[video.class_name]))
    return file.getvalue()


def recipe_keys(
    checks: Sequence[VideoCheck],
    num_train: int,
    num_val: int,
    steps: int | None,
    crop: int | None,
) -> dict[str, object]:
    """Choose the keys of the baseline that follow from the videos: clip, length of training, views of the test.

    "Nine of ten" videos decide where short or small ones would fail.
    """
    # Folders of images have no rate of their own. DATA.FRAMES_FPS gives it.
    seconds = [
        check.duration_seconds or check.frames / (check.fps or DEFAULT_FRAMES_FPS)
        for check in checks
    ]
    rates = [check.fps or DEFAULT_FRAMES_FPS for check in checks]
    frames = [each * rate for each, rate in zip(seconds, rates, strict=True)]
    small_side = nine_of_ten([min(check.width or 1, check.height or 1) for check in checks])
    crop = crop or next((size for size in CROPS if size <= small_side), CROPS[-1])
    keys: dict[str, object] = {
        "DATA.TRAIN_CROP_SIZE": crop,
        "DATA.TEST_CROP_SIZE": crop,
        "DATA.TRAIN_JITTER_SCALES": [crop, round(1.25 * crop)],
    }
    fits = int((nine_of_ten(seconds) * GRID_FPS - 1) / (FRAMES - 1))
    # With a smaller stride, a clip of a slow video would show the same frame several times.
    least = math.ceil(GRID_FPS / nine_of_ten(rates) - 0.01)
    if nine_of_ten(frames) < FRAMES or fits < least:
        # Short videos: a frame from each of 8 equal parts. A clip of 2 frames then needs a slow frame.
        keys |= {"DATA.NUM_FRAMES": SHORT_FRAMES, "DATA.TEMPORAL_GRID": "segments"}
        keys |= {"SLOWFAST.ALPHA": 2, "TEST.NUM_ENSEMBLE_VIEWS": 1}
    else:
        stride = min(fits, max(MAX_STRIDE, least))
        span_seconds = (stride * (FRAMES - 1) + 1) / GRID_FPS
        # A view has three crops, and a forward pass costs a third of a training step.
        paid = int(TEST_SHARE * CLIPS * (steps or STEPS) / num_val)
        views = max(1, min(10, math.ceil(median(seconds) / span_seconds), paid))
        keys |= {"DATA.NUM_FRAMES": FRAMES, "DATA.SAMPLING_RATE": stride}
        keys |= {"TEST.NUM_ENSEMBLE_VIEWS": views}
    return keys | length_keys(num_train, steps)


def length_keys(num_train: int, steps: int | None) -> dict[str, object]:
    """Choose the epochs, the stages and the warm-up. Raises InputError if the steps are less than an epoch."""
    epochs: float = min(MOST_EPOCHS, max(LEAST_EPOCHS, round(STEPS * CLIPS / num_train)))
    if steps is not None:
        epochs = five_digits(steps * CLIPS / num_train)
        if epochs < 1:
            least = math.ceil(num_train / CLIPS)
            raise InputError([f"--steps {steps}: an epoch of these videos has {least:,} steps"])
    return {
        "SOLVER.MAX_EPOCH": epochs,
        "SOLVER.STEPS": [five_digits(share * epochs) for share in STAGES],
        "SOLVER.WARMUP_EPOCHS": five_digits(WARMUP * epochs),
    }


def nine_of_ten(values: Sequence[float]) -> float:
    """Return the lowest tenth of the values: nine of ten are as large or larger."""
    return quantiles(values, n=10, method="inclusive")[0] if len(values) > 1 else values[0]


def five_digits(epochs: float) -> float:
    """Round epochs: to less than a step in every training of up to 10,000 steps."""
    return float(f"{epochs:.5g}")


def write_rows(
    project: Path,
    options: argparse.Namespace,
    network: dict[str, object] | None,
    checks: Sequence[VideoCheck],
    num_classes: int,
    num_train: int,
    num_val: int,
) -> None:
    """Write baseline.yaml and long.yaml. ``network``: the keys that --from-weights gives."""
    base = "own_data.yaml" if network is None else FINETUNE.name
    of_multigrid = f"in experiments/base/{base}" if network is None else "the paper's"
    keys = {
        "DATA.TRAIN_LIST": str((project / "train.csv").absolute()),
        "DATA.VAL_LIST": str((project / "val.csv").absolute()),
        "DATA.PATH_PREFIX": str(options.videos.absolute()),
        "DATA.CLASSES": str((project / "classes.txt").absolute()),
        "MODEL.NUM_CLASSES": num_classes,
    }
    if network is None:
        keys |= recipe_keys(checks, num_train, num_val, options.steps, options.crop)
    else:
        keys |= network
        if options.steps:
            keys |= length_keys(num_train, options.steps)
    if options.store:
        keys["DATA.STORE"] = str((project / "store").absolute())
    text = [
        "# The baseline on your own videos. tools/own_data.py wrote this file: change what you know better.",
        f"# All other keys are those of experiments/base/{base}.",
        "# Set DATA.RANDOM_FLIP False if left and right tell classes apart.",
        f"# {run_command(project / 'baseline.yaml')}",
        f"_BASE_: {base}",
        "ROW: baseline",
    ]
    for section in dict.fromkeys(key.partition(".")[0] for key in keys):
        text.append(f"{section}:")
        for key, value in keys.items():
            if key.startswith(f"{section}."):
                # YAML reads JSON.
                word = json.dumps(value, ensure_ascii=False)
                text.append(f"  {key.partition('.')[2]}: {word}")
    atomic_write_text(project / "baseline.yaml", "\n".join(text) + "\n")
    text = [
        f"# The same with the long cycle. The keys of MULTIGRID are {of_multigrid}.",
        f"# {run_command(project / 'long.yaml')}",
        "_BASE_: baseline.yaml",
        "ROW: long",
        "MULTIGRID:",
        "  LONG_CYCLE: True  # SHORT_CYCLE: True as well saved more and lost more; see README.md",
    ]
    atomic_write_text(project / "long.yaml", "\n".join(text) + "\n")


def study_text(project: Path, long: Schedule, num_val: int, groups: Sequence[str]) -> str:
    """Write study.yaml: both rows, or the baseline alone if long has too few steps."""
    points = 100 / num_val
    # Two points, or two videos if these are more.
    margin = max(2.0, math.ceil(20 * points) / 10)
    classes = json.dumps(str((project / "classes.txt").absolute()), ensure_ascii=False)
    rows = ["rows: [baseline, long]", "equal_flops: [long]"]
    why = [
        f"The claim: long is not worse than the baseline by more than {counted(margin, 'point')}.",
        f"Change it before the first run, not after. A validation video is {points:.2g} points.",
    ]
    if has_few_steps(long):
        rows, why = ["rows: [baseline]"], few_steps_lines(long)
    text = [
        *(f"# {line}" for line in (*why, *groups)),
        f"# python tools/study.py {shlex.quote(short_path(project))}",
        *rows,
        "seeds: 3  # the page says how many seeds would decide",
        f"margin: {margin:g}",
        "controls: [repeated]  # the baseline on one repeated frame: does motion matter here?",
        f"classes: {classes}",
    ]
    return "\n".join(text) + "\n"


def few_steps_lines(long: Schedule) -> list[str]:
    """Say why long is not a row of the study."""
    return [
        f"The study trains the baseline alone. Long has {long.total_steps:,} steps, and we ask for {FEW_STEPS}.",
        "Make the project again with more --steps, or add long to rows.",
    ]


def run_command(yaml: Path, *below: str) -> str:
    """Write the command that trains a row of a project where tools/study.py looks, or ``below`` its runs."""
    output = Path(yaml.parent, RUNS, *below, yaml.stem, "seed0")
    cfg, place = (shlex.quote(short_path(path)) for path in (yaml, output))
    return f"python tools/run_net.py --cfg {cfg} --output {place}"


def class_table(train: Sequence[OwnVideo], val: Sequence[OwnVideo], names: dict[str, str]) -> str:
    """Write how many videos of each class are in each list. ``names``: class in the lists → its name."""
    counts = [Counter(video.class_name for video in videos) for videos in (train, val)]
    lines = [[name, *(f"{count[kind]:,}" for count in counts)] for kind, name in names.items()]
    total = ["all", f"{len(train):,}", f"{len(val):,}"]
    more = [["…", "", ""]] if len(lines) > MOST_LINES else []
    return aligned([["class", "training", "validation"], *lines[:MOST_LINES], *more, total])


def advice_lines(
    project: Path, has_store: bool, checks: Sequence[VideoCheck], videos: Sequence[OwnVideo]
) -> list[str]:
    """Say what the project makes of the pictures and of classes of different size."""
    cfg = load_config(project / "baseline.yaml")
    side = median(min(check.width or 1, check.height or 1) for check in checks)
    shrinks = side / median(cfg.DATA.TRAIN_JITTER_SCALES)
    lines = []
    if shrinks >= SHRINKS:
        lines.append(f"Training shrinks the pictures {shrinks:.1f} times: see --crop.")
    if shrinks > STORE_PAYS and not has_store:
        lines.append("Decoding may be slower than training: --again --store reads small copies.")
    sizes = Counter(video.class_name for video in videos).most_common()
    (largest, most), (smallest, fewest) = sizes[0], sizes[-1]
    if most >= UNEVEN * fewest:
        times = f"{most / fewest:.1f} times the videos of {smallest}"
        lines.append(f"{largest} has {times}: SOLVER.CLASS_WEIGHTS in baseline.yaml balances them.")
    return lines


def next_lines(project: Path, long: Schedule, has_store: bool) -> str:
    """Say what was written, what our studies advise, and the next commands."""
    folder = shlex.quote(short_path(project))
    trained = f"{folder}/runs/baseline/seed0"
    baseline = project / "baseline.yaml"
    lines = [
        f"{project} is written: two lists, classes.txt, baseline.yaml, long.yaml and study.yaml",
        f"The baseline takes {long.baseline_steps:,} steps, long {long.total_steps:,} with "
        f"{long.flop_saving:.2f} times fewer FLOPs. It may cost accuracy: train the baseline first.",
        *(few_steps_lines(long) if has_few_steps(long) else ()),
        "Next:",
    ]
    if has_store:
        store = f"--cfg {folder}/baseline.yaml --store {folder}/store"
        lines.append(f"  python tools/prepare_data.py {store}    # small copies")
    lines += [
        f"  {run_command(baseline, SMOKE)} --smoke    # a few steps: does it run?",
        f"  {run_command(baseline)}    # the baseline alone",
        f"  python tools/study.py {folder}    # trains all of study.yaml, and writes {folder}/README.md",
    ]
    if not has_few_steps(long):
        doctor = f"--cfg {folder}/long.yaml --run {trained}"
        lines.append(f"  python tools/doctor.py {doctor}    # does long pay?")
    return "\n".join([*lines, f"  python tools/predict.py a_video.mp4 --run {trained}"])


if __name__ == "__main__":
    sys.exit(run_tool(main, "start the same command again to check the rest"))
