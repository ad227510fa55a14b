"""A finished run: its numbers, its evaluations, and which videos it had right."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np

from mgexp.results.confusion import Confusion
from mgexp.run.other_programs import is_busy


@dataclass(frozen=True)
class Evaluation:
    """A line of evaluations.jsonl. `score` is percent: top-1, or mAP where there is no top-1."""

    step: int
    train_seconds: float
    score: float
    views: int
    num_videos: int
    full_protocol: bool
    frame_order: str
    # The training FLOPs until it. None for an evaluation alone, after the training.
    train_flops: int | None = None


@dataclass(frozen=True)
class VideoScores:
    """Which validation videos a run classified correctly in its final evaluation.

    ``bits`` has a bit for each video in the order of their paths, as hexadecimal digits; the last byte may have
    bits to spare. ``names_hash`` identifies the list of paths below their common folder, wherever that lies. Two
    runs are compared only over the same list. ``groups`` has the number of the group of each video, and is empty
    where no groups are known.
    """

    num_videos: int
    names_hash: str
    bits: str
    groups: Sequence[int] = field(default_factory=list)

    @property
    def correct(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        packed = np.frombuffer(bytes.fromhex(self.bits), np.uint8)
        return np.unpackbits(packed, count=self.num_videos).astype(bool)


def pack_videos(
    correct: Iterable[tuple[str, bool]], groups: Mapping[str, str] | None = None
) -> VideoScores:
    """Pack whether each video, by its absolute path, was classified correctly. ``groups``: path → group.

    A path comes as often as it is listed: a list may have several stretches of a video.
    """
    # The sort keeps the order of the stretches of a video.
    paths, bits = zip(*sorted(correct, key=itemgetter(0)), strict=True)
    packed = np.packbits(np.array(bits, bool))
    start = len(os.path.commonpath([os.path.dirname(path) for path in paths]))  # noqa: PTH120 (text)
    digest = hashlib.sha256("\n".join(path[start:] for path in paths).encode()).hexdigest()
    of_videos = group_numbers(paths, groups) if groups else []
    return VideoScores(len(paths), digest[:16], packed.tobytes().hex(), of_videos)


def group_numbers(paths: Sequence[str], groups: Mapping[str, str]) -> list[int]:
    """Return the number of the group of each video, from 0. A video that is not named is a group itself."""
    names = [groups.get(path, path) for path in paths]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return [numbers[name] for name in names]


@dataclass(frozen=True)
class Run:
    """A finished execution of a row. The fields without a default are the columns of results.csv, in order.

    Accuracies are percent. A metric that the task does not have is None. `train_seconds` includes the waiting for
    input and the first use of each shape. `steady_seconds` leaves out the first uses.
    """

    experiment: str
    row: str
    seed: int
    top1: float | None
    top5: float | None
    map: float | None
    steps: int
    epochs: float
    clips_seen: int
    train_flops: float
    train_seconds: float
    steady_seconds: float
    input_wait_seconds: float
    program_seconds: float
    device: str
    precision: str
    num_train_videos: int
    commit: str
    date: str
    evaluate_seconds: float = 0.0
    precise_bn_seconds: float = 0.0
    checkpoint_seconds: float = 0.0
    shape_warmup_seconds: float = 0.0
    environment: Mapping[str, Any] = field(default_factory=dict)
    evaluations: tuple[Evaluation, ...] = ()
    confusion: Confusion | None = None
    # The mean number of this process's cores that other programs kept busy. None where it is unknown.
    other_cores: float | None = None
    recipe: str = ""  # a digest of the configuration
    videos: VideoScores | None = None
    is_untimed: bool = False  # its study says that its seconds do not count
    # A smoke run's accuracy says nothing. runs.jsonl has no such runs.
    is_smoke: bool = False
    command: str = ""  # what trained it; "" where it is unknown, as in runs.jsonl

    def __post_init__(self) -> None:
        # Runs are sorted by their ends, and moments without a time zone have no order.
        if self.finished_at.tzinfo is None:
            raise ValueError(f"the date {self.date} has no time zone")

    @property
    def num_test_videos(self) -> int | None:
        """The number of videos of the final evaluation. None where it is unknown."""
        final = [each for each in self.curve if each.full_protocol]
        return final[-1].num_videos if final else None

    @property
    def score(self) -> float:
        """Final top-1 (mAP where there is no top-1) in percent."""
        score = self.map if self.top1 is None else self.top1
        assert score is not None
        return score

    @property
    def key(self) -> tuple[str, int]:
        return self.experiment, self.seed

    @property
    def score_setting(self) -> tuple[str, int]:
        """What two runs must share before their scores are compared."""
        # Another device or number of threads adds up in another order, which moves a score as another seed does.
        return self.precision, self.num_train_videos

    @property
    def setting(self) -> tuple[object, ...]:
        """What two runs must share before their seconds are compared."""
        threads, torch = self.environment.get("threads"), self.environment.get("torch")
        return *self.score_setting, self.device, threads, torch, self.commit

    @property
    def is_busy(self) -> bool:
        """Whether other programs worked beside it."""
        return is_busy(self.other_cores or 0.0)

    @property
    def is_timed(self) -> bool:
        return not self.is_untimed and not self.is_busy

    @property
    def finished_at(self) -> datetime:
        return datetime.fromisoformat(self.date)

    @property
    def short_commit(self) -> str:
        """The first seven digits of the commit, and "-dirty" where files had changed."""
        return re.sub(r"^([0-9a-f]{7})[0-9a-f]{33}", r"\1", self.commit)

    @property
    def rest_seconds(self) -> float:
        """The seconds outside training, evaluation, precise BN and checkpoints, such as start-up."""
        training = self.train_seconds + self.evaluate_seconds
        return self.program_seconds - (training + self.precise_bn_seconds + self.checkpoint_seconds)

    @property
    def steady_flops_per_second(self) -> float:
        return self.train_flops / self.steady_seconds

    @property
    def end(self) -> Evaluation:
        """Its final score, at the end of training."""
        videos = self.num_test_videos or 0
        return Evaluation(self.steps, self.train_seconds, self.score, 0, videos, True, "forward")

    def flops_at(self, evaluation: Evaluation) -> float:
        """Return the training FLOPs until an evaluation of the training."""
        flops = self.train_flops if evaluation.step == self.steps else evaluation.train_flops
        assert flops is not None
        return flops

    @property
    def curve(self) -> tuple[Evaluation, ...]:
        """The evaluations of the plain videos, in the order of time."""
        plain = [each for each in self.evaluations if each.frame_order == "forward"]
        # The clock of training stands still during evaluations, so two of them can have the same time.
        return tuple(sorted(plain, key=lambda each: (each.train_seconds, each.full_protocol)))

    def control(self, frame_order: str) -> tuple[Evaluation, Evaluation] | None:
        """Return the last evaluation with that order of frames, and the plain one of the same protocol."""
        protocol = attrgetter("step", "full_protocol", "num_videos", "views")
        plain = {protocol(evaluation): evaluation for evaluation in self.curve}
        pairs = [
            (evaluation, plain[protocol(evaluation)])
            for evaluation in self.evaluations
            if evaluation.frame_order == frame_order and protocol(evaluation) in plain
        ]
        # A run may have been evaluated several times. The protocol begins with the step, so `max` takes the last.
        return max(pairs, key=lambda pair: protocol(pair[0]), default=None)


COLUMNS = tuple(
    column.name
    for column in fields(Run)
    if column.default is MISSING and column.default_factory is MISSING
)
"""The columns of results.csv, in order."""
