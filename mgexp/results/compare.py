"""runs.jsonl: what reports and figures need of finished runs, a few kilobytes each, kept beside their YAMLs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from mgexp.config.load import from_yaml
from mgexp.errors import InputError
from mgexp.results.confusion import Confusion, read_confusion, sum_confusions
from mgexp.results.stats import Difference, paired_difference
from mgexp.results.table import Result, differences, read_result
from mgexp.run.files import atomic_write_text, json_line, read_json, read_jsonl
from mgexp.run.folder import METRIC_NAMES, RunDir, RunsDir

BASELINE = "baseline"
COARSE_CONTROL = "coarse"  # a control, not a way to train: it is kept apart in table and picture
ROW_ORDER = (BASELINE, "short", "long", "long_short")

SHORTER = "budget"
"""The folder beside the rows with the baseline for fewer epochs: ``as_<row>`` takes the FLOPs of ``<row>``."""

SITTING_SECONDS = 3600.0
"""Other work on a shared machine comes and goes: hours later the same steps took 1.5 times as long (measured)."""


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

    @property
    def protocol(self) -> tuple[int, bool, int, int]:
        """What must agree before a control is compared with the plain evaluation."""
        return (self.step, self.full_protocol, self.num_videos, self.views)


@dataclass(frozen=True)
class FinishedRun:
    """A run folder that holds a result."""

    result: Result
    seconds: Mapping[str, float]
    environment: Mapping[str, Any]
    evaluations: tuple[Evaluation, ...]
    confusion: Confusion | None = None

    @property
    def score(self) -> float:
        """Final top-1 (mAP where there is no top-1) in percent."""
        score = self.result.map if self.result.top1 is None else self.result.top1
        if score is None:
            raise InputError([f"{self.result.experiment}: result.json holds neither top1 nor map"])
        return score

    @property
    def setting(self) -> tuple[object, ...]:
        """What must agree before two runs are compared."""
        machine = (self.result.device, self.result.precision, self.environment.get("threads"))
        return (*machine, self.result.num_train_videos)

    @property
    def steady_flops_per_second(self) -> float:
        """Training FLOPs over seconds of training without the first use of each shape."""
        return self.result.train_flops / self.result.steady_seconds

    @property
    def curve(self) -> tuple[Evaluation, ...]:
        """Evaluations of the plain videos, in time."""
        forward = (one for one in self.evaluations if one.frame_order == "forward")
        return tuple(sorted(forward, key=lambda one: (one.train_seconds, one.full_protocol)))


@dataclass(frozen=True)
class Row:
    """A row of the table: its finished runs by seed, and the last logged step, if any, of the others."""

    name: str
    runs: Mapping[int, FinishedRun]
    unfinished: Mapping[int, int | None]

    @cached_property
    def confusion(self) -> Confusion | None:
        """That of all its finished runs that have one, together."""
        found = [run.confusion for run in self.runs.values() if run.confusion]
        return sum_confusions(found) if found else None

    def mean_train_seconds(self) -> float:
        """Over its finished runs."""
        return fmean(run.result.train_seconds for run in self.runs.values())


class Pairs(tuple[tuple[FinishedRun, FinishedRun], ...]):
    """(run, run of the base) of the same seed and setting; each number below has one entry for each pair."""

    @classmethod
    def of(cls, own: Mapping[int, FinishedRun], base: Mapping[int, FinishedRun]) -> Pairs:
        """Of the seeds that both have finished in the same setting."""
        both = ((run, base[seed]) for seed, run in own.items() if seed in base)
        return cls((run, other) for run, other in both if run.setting == other.setting)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of the runs."""
        return tuple(run.result.seed for run, _ in self)

    @property
    def differences(self) -> tuple[float, ...]:
        """Final score minus that of the base, in points."""
        return tuple(run.score - base.score for run, base in self)

    @property
    def difference(self) -> Difference | None:
        """Mean of `differences` and its interval; None without a pair."""
        return paired_difference(self.differences)

    def ratios(self, of: Callable[[FinishedRun], float]) -> tuple[float, ...]:
        """`of` the base over `of` the run."""
        return tuple(of(base) / of(run) for run, base in self)

    @property
    def apart(self) -> tuple[int, ...]:
        """Seeds whose seconds do not compare: of other code, or not in one sitting."""
        return tuple(
            run.result.seed for run, base in self if not is_one_sitting(run.result, base.result)
        )


@dataclass(frozen=True)
class Comparison:
    """All rows of a folder, baseline first, the control last. ``class_names``: of the classes 0, 1, …, or none.

    ``shorter``: rows of the baseline with fewer epochs, as ``SHORTER`` says.
    """

    rows: tuple[Row, ...]
    class_names: tuple[str, ...] = ()
    shorter: tuple[Row, ...] = ()

    @property
    def metric(self) -> str:
        """What the scores are: top-1, or mAP where the task has no top-1."""
        results = (run.result for row in self.rows for run in row.runs.values())
        return METRIC_NAMES["map" if all(result.top1 is None for result in results) else "top1"]

    @cached_property
    def finished(self) -> tuple[Row, ...]:
        """Rows with at least one finished run."""
        return tuple(row for row in self.rows if row.runs)

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """Every seed that some row was trained with."""
        return tuple(sorted({seed for row in self.rows for seed in (*row.runs, *row.unfinished)}))

    def row(self, name: str) -> Row:
        """The row of that name; without runs where there is none."""
        return next((row for row in self.rows if row.name == name), Row(name, {}, {}))

    @cached_property
    def compared(self) -> tuple[Row, ...]:
        """Ways to train that are held against the baseline: the control is not one."""
        return tuple(row for row in self.finished if row.name not in {BASELINE, COARSE_CONTROL})

    @cached_property
    def confused(self) -> tuple[Row, ...]:
        """The baseline and the row of least training seconds, of those whose runs say what they confuse."""
        known = [row for row in self.compared if row.confusion]
        fastest = sorted(known, key=Row.mean_train_seconds)[:1]
        return tuple(row for row in (self.row(BASELINE), *fastest) if row.confusion)

    def pairs(self, row: Row) -> Pairs:
        """(run, baseline run) of the seeds that both have finished in the same setting."""
        return Pairs.of(row.runs, self.row(BASELINE).runs)

    def pairs_of_equal_flops(self, row: Row) -> Pairs:
        """(run, run of the baseline with as many FLOPs), likewise; none where that was not run."""
        found = (one.runs for one in self.shorter if one.name == f"as_{row.name}")
        return Pairs.of(row.runs, next(found, {}))

    @cached_property
    def compared_at_equal_flops(self) -> tuple[Row, ...]:
        """Those of `compared` with such a pair."""
        return tuple(row for row in self.compared if self.pairs_of_equal_flops(row))


def is_one_sitting(one: Result, other: Result) -> bool:
    """The same code, and from one's end to the other's start an hour at most, or what the two took together."""
    earlier, later = sorted((one, other), key=lambda result: result.moment)
    between = (later.moment - earlier.moment).total_seconds() - later.program_seconds
    took = one.program_seconds + other.program_seconds
    return one.commit == other.commit and between <= max(SITTING_SECONDS, took)


def control(run: FinishedRun, frame_order: str) -> tuple[Evaluation, Evaluation] | None:
    """The last evaluation with that order of frames, and the plain one of the same protocol."""
    plain = {one.protocol: one for one in run.curve}
    changed = (one for one in run.evaluations if one.frame_order == frame_order)
    matched = [(one, plain[one.protocol]) for one in changed if one.protocol in plain]
    return max(matched, key=lambda pair: pair[0].protocol, default=None)


def load_comparison(folder: Path) -> Comparison:
    """Every <row>/seed<N> of `folder` and of its SHORTER. Raises InputError where a file cannot be understood."""
    return Comparison(_load_rows(folder), shorter=_load_rows(folder / SHORTER))


def _load_rows(folder: Path) -> tuple[Row, ...]:
    found = list(RunsDir(folder).runs())
    names = sorted({name for name, _, _ in found}, key=row_order)
    rows = (_load_row(name, {s: run for row, s, run in found if row == name}) for name in names)
    return tuple(rows)


def row_order(name: str) -> tuple[int, str]:
    """Baseline, short, long, long_short, then others by name, the control last."""
    if name in ROW_ORDER:
        return ROW_ORDER.index(name), name
    return len(ROW_ORDER) + (name == COARSE_CONTROL), name


def _load_row(name: str, runs: Mapping[int, RunDir]) -> Row:
    finished = {seed: _load_run(run) for seed, run in runs.items() if run.result_json.exists()}
    others = {seed: _last_step(run) for seed, run in runs.items() if seed not in finished}
    wrong = [seed for seed, run in finished.items() if run.result.seed != seed]
    if wrong:
        raise InputError([f"{runs[seed].root}: result.json has another seed" for seed in wrong])
    return Row(name, finished, others)


def _load_run(run: RunDir) -> FinishedRun:
    evaluations = tuple(map(_evaluation, read_jsonl(run.evaluations_jsonl)))
    seconds = read_json(run.result_json)["seconds"]
    confusion = read_confusion(run.confusion_csv)
    return FinishedRun(read_result(run), seconds, _environment(run), evaluations, confusion)


def _environment(run: RunDir) -> dict[str, Any]:
    """That of the run's starts; a value that was not always the same shows all, and equals no other."""
    found = read_json(run.environment_json)
    for start in read_jsonl(run.starts_jsonl):
        for name, value in found.items():
            now = start.get(name, value)
            found[name] = value if now == value else f"{value}, then {now}"
    return found


def _evaluation(line: Mapping[str, Any]) -> Evaluation:
    return Evaluation(
        step=line["step"],
        train_seconds=line["train_seconds"],
        score=line["map"] if line.get("top1") is None else line["top1"],
        views=line["views"],
        num_videos=line["num_videos"],
        full_protocol=line["full_protocol"],
        frame_order=line["frame_order"],
    )


def _last_step(run: RunDir) -> int | None:
    lines = read_jsonl(run.metrics_jsonl)
    return int(lines[-1]["step"]) if lines else None


def store(
    folder: RunsDir,
    known: Collection[Path],
    experiments_root: Path,
    resolve: Callable[[str], Mapping[str, object]],
    class_names: Sequence[str] = (),
) -> RunsDir:
    """Keep the finished runs of `folder` beside their YAMLs, in the place of those kept before; says where.

    `known` are the run folders that results.csv has: no others are kept. `resolve` as in `append_results`. Raises
    InputError where there is none, one was trained with other values than its YAML has now, or their YAMLs lie in
    several folders.
    """
    comparison = load_comparison(folder.root)
    runs = {(name, seed): run for name, seed, run in folder.runs() if run.root in known}
    rows = tuple(
        replace(row, runs={s: run for s, run in row.runs.items() if (row.name, s) in runs})
        for row in comparison.rows
    )
    kept = replace(comparison, rows=rows, class_names=tuple(class_names))
    experiments = {run.result.experiment for row in kept.finished for run in row.runs.values()}
    groups = sorted({(experiments_root / one).parent for one in experiments})
    if len(groups) != 1:
        found = ", ".join(map(str, groups)) or "no YAML"
        problem = (
            f"{folder.root}: its runs are of {found}: only runs of one folder of rows are stored"
        )
        raise InputError([problem])
    problems = [
        f"{run.root} is not stored: {one}"
        for (name, seed), run in runs.items()
        for one in differences(
            from_yaml(run.config_yaml), resolve(kept.row(name).runs[seed].result.experiment)
        )
    ]
    if problems:
        raise InputError(problems)
    place = RunsDir(groups[0])
    write_stored(place.stored_jsonl, kept)
    return place


def write_stored(path: Path, comparison: Comparison) -> None:
    """Write the names of the classes and, a line each, the finished runs."""
    runs = (
        json_line({"name": row.name, **asdict(run)})
        for row in comparison.finished
        for run in row.runs.values()
    )
    atomic_write_text(path, json_line({"class_names": comparison.class_names}) + "".join(runs))


def read_stored(path: Path) -> Comparison:
    """What `write_stored` wrote; stored runs are finished ones. Raises InputError where it is something else."""
    head, *lines = read_jsonl(path) or [{}]
    rows: dict[str, dict[int, FinishedRun]] = {}
    try:
        class_names = tuple(head["class_names"])
        for line in lines:
            run = _run(line)
            rows.setdefault(line["name"], {})[run.result.seed] = run
    except (KeyError, TypeError) as error:
        problem = f"{path}: does not hold stored runs ({error!r})"
        raise InputError([f"{problem}: restore it from git, or store the runs again"]) from error
    names = sorted(rows, key=row_order)
    return Comparison(tuple(Row(name, rows[name], {}) for name in names), class_names)


def _run(line: Mapping[str, Any]) -> FinishedRun:
    confusion = line["confusion"]
    return FinishedRun(
        result=Result(**line["result"]),
        seconds=line["seconds"],
        environment=line["environment"],
        evaluations=tuple(Evaluation(**one) for one in line["evaluations"]),
        confusion=confusion and Confusion(tuple(tuple(count) for count in confusion["counts"])),
    )
