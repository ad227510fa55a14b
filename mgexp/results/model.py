"""The one model of results: a run, a row (its runs by seed), a pair of rows, and all rows of a folder.

Reports, tables and figures are made from these classes. The seconds of training go from the result.json of a run
through `load.read_run` into `Run.train_seconds`, through `Pair.speed_up` into an estimate over the seeds, and from
there through the filters of `pages` into a template.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import datetime
from functools import cached_property
from operator import attrgetter
from statistics import fmean
from typing import Any

import numpy as np

from mgexp.errors import InputError
from mgexp.results.estimates import Estimate, estimate_mean, estimate_ratio, estimate_score
from mgexp.run.confusion import Confusion, sum_confusions
from mgexp.run.folder import METRIC_NAMES
from mgexp.run.other_programs import is_busy

BASELINE = "baseline"
COARSE_CONTROL = "coarse"
"""The control that trains only at the coarsest shape. It is not a way to train, so tables keep it apart."""
ROW_ORDER = (BASELINE, "short", "long", "long_short")


# --- a run


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
    train_flops: int | None = None
    """The training FLOPs until it. None for a run of an earlier version, and for an evaluation alone."""


@dataclass(frozen=True)
class VideoScores:
    """Which validation videos a run classified correctly in its final evaluation.

    ``bits`` has a bit for each video in the order of their paths, as hexadecimal digits; the last byte may have
    bits to spare. ``names_hash`` identifies the list of paths below their common folder, wherever that lies. Two
    runs are compared only over the same list.
    """

    num_videos: int
    names_hash: str
    bits: str

    @property
    def correct(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        packed = np.frombuffer(bytes.fromhex(self.bits), np.uint8)
        return np.unpackbits(packed, count=self.num_videos).astype(bool)


def pack_videos(correct: Mapping[str, bool]) -> VideoScores:
    """Pack whether each video, by its absolute path, was classified correctly."""
    paths = sorted(correct)
    packed = np.packbits(np.array([correct[path] for path in paths], bool))
    start = len(os.path.commonpath([os.path.dirname(path) for path in paths]))  # noqa: PTH120 (text)
    digest = hashlib.sha256("\n".join(path[start:] for path in paths).encode()).hexdigest()
    return VideoScores(len(paths), digest[:16], packed.tobytes().hex())


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
    other_cores: float | None = None
    """The mean number of this process's cores that other programs kept busy. None where it is unknown."""
    recipe: str = ""
    """A digest of the configuration, see `mgexp.config.check.recipe_digest`. "" where it is unknown."""
    videos: VideoScores | None = None
    is_untimed: bool = False
    """Whether its study says that its seconds do not count."""
    is_smoke: bool = False
    """Whether the run was started with --smoke. Its accuracy then says nothing. runs.jsonl has no such runs."""
    command: str = ""
    """The command that trained it. "" where it is unknown, as in runs.jsonl."""

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
        if score is None:
            raise InputError([f"{self.experiment}: result.json holds neither top1 nor map"])
        return score

    @property
    def key(self) -> tuple[str, int]:
        """The experiment and the seed, which name the run."""
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
        """Whether its seconds count."""
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

    def flops_at(self, evaluation: Evaluation) -> float | None:
        """Return the training FLOPs until an evaluation. None if they are unknown."""
        return self.train_flops if evaluation.step == self.steps else evaluation.train_flops

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


# --- a row, and a pair of rows


@dataclass(frozen=True)
class Row:
    """The finished runs of a YAML by seed, and the last logged step of each unfinished run, if any."""

    name: str
    runs: Mapping[int, Run] = field(default_factory=dict)
    unfinished: Mapping[int, int | None] = field(default_factory=dict)

    @property
    def first(self) -> Run:
        """One of its runs, for what all of them share."""
        return next(iter(self.runs.values()))

    @property
    def scores(self) -> tuple[float, ...]:
        return self.each("score")

    @property
    def score(self) -> Estimate | None:
        return estimate_score(self.scores)

    def each(self, name: str, unit: float = 1.0) -> tuple[float, ...]:
        """Return the number ``name`` of each finished run, such as "steps", divided by ``unit``."""
        return tuple(getattr(run, name) / unit for run in self.runs.values())

    def only(self, seeds: Collection[int]) -> Row:
        return replace(self, runs={seed: self.runs[seed] for seed in self.runs if seed in seeds})

    def mean(self, name: str) -> float:
        return fmean(self.each(name))

    @cached_property
    def confusion(self) -> Confusion | None:
        """The sum of the confusion matrices of its runs; None if no run has one."""
        matrices = [run.confusion for run in self.runs.values() if run.confusion]
        return sum_confusions(matrices) if matrices else None


@dataclass(frozen=True)
class Pair:
    """A row and the row that it is compared with, its base, seed by seed.

    A seed is compared only if both rows have finished it, in settings that allow it.
    """

    own: Row
    base: Row

    @property
    def _both(self) -> list[tuple[Run, Run]]:
        base = self.base.runs
        return [(run, base[seed]) for seed, run in self.own.runs.items() if seed in base]

    @cached_property
    def runs(self) -> tuple[tuple[Run, Run], ...]:
        """(run, run of the base) for each seed whose scores can be compared."""
        return tuple(
            (run, base) for run, base in self._both if run.score_setting == base.score_setting
        )

    @property
    def not_compared(self) -> tuple[tuple[Run, Run], ...]:
        """(run, run of the base) for each seed whose scores cannot be compared."""
        return tuple(
            (run, base) for run, base in self._both if run.score_setting != base.score_setting
        )

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.seed for run, _ in self.runs)

    @property
    def turned(self) -> Pair:
        """The base compared with the row."""
        return Pair(self.base, self.own)

    def only(self, seeds: Collection[int]) -> Pair:
        return Pair(self.own.only(seeds), self.base.only(seeds))

    @cached_property
    def timed(self) -> Pair:
        """The pair with the seeds whose seconds count in both rows, in one setting."""
        seeds = [
            run.seed
            for run, base in self.runs
            if run.setting == base.setting and run.is_timed and base.is_timed
        ]
        return self.only(seeds)

    @property
    def difference(self) -> Estimate | None:
        """The final score minus the base's, in points; None without a seed to compare."""
        return estimate_mean([run.score - base.score for run, base in self.runs])

    def ratio(self, name: str) -> Estimate | None:
        """Divide the number ``name`` of the base by that of the row. None without a seed to compare."""
        return estimate_ratio([getattr(base, name) / getattr(run, name) for run, base in self.runs])

    @property
    def speed_up(self) -> Estimate | None:
        """The ratio of the training seconds, over the seeds of `timed`."""
        return self.timed.ratio("train_seconds")

    @property
    def flop_saving(self) -> Estimate | None:
        return self.ratio("train_flops")


# --- the rows of a folder


def row_order(name: str) -> tuple[int, str]:
    """Make a sort key: baseline, short, long, long_short, then the others by name, the control last."""
    if name in ROW_ORDER:
        return ROW_ORDER.index(name), name
    return len(ROW_ORDER) + (name == COARSE_CONTROL), name


@dataclass(frozen=True)
class Comparison:
    """All rows of a folder, in the order of their tables, to be compared with its baseline.

    ``class_names`` names the classes 0, 1, …; it may be empty. ``shorter`` holds the baseline trained for fewer
    epochs: its row ``as_<row>`` takes as many FLOPs as ``<row>``, and ``as_<row>_in_seconds`` as many seconds.
    """

    rows: tuple[Row, ...]
    class_names: tuple[str, ...] = ()
    shorter: tuple[Row, ...] = ()

    @property
    def metric(self) -> str:
        """The name of the scores: top-1, or mAP where the task has no top-1."""
        has_map = self.runs and all(run.top1 is None for run in self.runs)
        return METRIC_NAMES["map" if has_map else "top1"]

    def with_runs(self, change: Callable[[Run], Run | None]) -> Comparison:
        """Change each run of the rows and the shorter baselines, or leave it out where ``change`` gives None."""

        def changed(row: Row) -> Row:
            runs = {seed: change(run) for seed, run in row.runs.items()}
            return replace(row, runs={seed: run for seed, run in runs.items() if run})

        rows, shorter = tuple(map(changed, self.rows)), tuple(map(changed, self.shorter))
        return replace(self, rows=rows, shorter=shorter)

    @cached_property
    def timed(self) -> Comparison:
        """The rows with the runs whose seconds count, in the setting of most of them."""
        settings = Counter(run.setting for run in self.runs if run.is_timed)
        usual = [setting for setting, _ in settings.most_common(1)]
        return self.with_runs(lambda run: run if run.is_timed and run.setting in usual else None)

    def timed_since(self, moment: datetime | None) -> Comparison:
        """Mark the runs that ended before ``moment``: their seconds do not count. None changes nothing."""
        if moment is None:
            return self
        return self.with_runs(
            lambda run: replace(run, is_untimed=run.is_untimed or run.finished_at < moment)
        )

    @property
    def all_rows(self) -> tuple[Row, ...]:
        """The rows and the shorter baselines."""
        return (*self.rows, *self.shorter)

    @property
    def busy(self) -> tuple[Run, ...]:
        """The runs beside which other programs worked."""
        return tuple(run for row in self.all_rows for run in row.runs.values() if run.is_busy)

    @property
    def num_train_videos(self) -> Mapping[str, set[int]]:
        """The numbers of training videos of each row's runs."""
        return {row.name: {run.num_train_videos for run in row.runs.values()} for row in self.rows}

    @cached_property
    def finished(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.runs)

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """Every finished run of the rows."""
        return tuple(run for row in self.rows for run in row.runs.values())

    def row(self, name: str) -> Row:
        """Return the row or the shorter baseline of that name, or an empty row."""
        return next((row for row in self.all_rows if row.name == name), Row(name))

    @property
    def baseline(self) -> Row:
        return self.row(BASELINE)

    @cached_property
    def compared(self) -> tuple[Row, ...]:
        """The finished rows, without the baseline and the control."""
        return tuple(row for row in self.finished if row.name not in {BASELINE, COARSE_CONTROL})

    def pair(self, row: Row) -> Pair:
        return Pair(row, self.baseline)

    @cached_property
    def equal_flops(self) -> tuple[Pair, ...]:
        """The rows of `compared`, each with the baseline of as many FLOPs, where they share a seed."""
        pairs = [Pair(row, self.row(f"as_{row.name}")) for row in self.compared]
        return tuple(pair for pair in pairs if pair.runs)

    @cached_property
    def confused(self) -> tuple[tuple[str, Confusion], ...]:
        """The confusion matrices of the baseline and of the row with the fewest training seconds, by name.

        A row without a matrix is skipped.
        """
        known = [row for row in self.compared if row.confusion]
        # A figure has room for only two matrices side by side.
        fastest = sorted(known, key=lambda row: row.mean("train_seconds"))[:1]
        matrices = ((row.name, row.confusion) for row in (self.baseline, *fastest))
        return tuple((name, matrix) for name, matrix in matrices if matrix)

    @property
    def num_classes(self) -> int:
        """The number of classes in the matrices of `confused`; 0 where no run has a confusion matrix."""
        return max((matrix.num_classes for _, matrix in self.confused), default=0)

    def with_class_names(self, names: Sequence[str], where: object) -> Comparison:
        """Name the classes, if names are given. Raises an InputError about `where` if a name is missing."""
        named = replace(self, class_names=tuple(names)) if names else self
        # More names than classes are no error, because the last classes may have no test videos.
        num = len(named.class_names)
        if 0 < num < self.num_classes:
            problem = f"its runs have {self.num_classes} classes or more, but {num} have a name"
            raise InputError([f"{where}: {problem}"])
        return named
