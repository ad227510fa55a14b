"""Write experiments/README.md: a line for each study, and one for each row that no study trains."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mgexp.config.study import STUDY_YAML, Study, read_study
from mgexp.config.values import BASE_KEY, parse_yaml
from mgexp.errors import InputError, raise_problems
from mgexp.results.comparison import BASELINE, Pair, Row, row_order
from mgexp.results.render import plain_cell, render_page, split_prose, verdict
from mgexp.results.runs import Run
from mgexp.results.store import WITHOUT_TABLE, stored_runs
from mgexp.run.files import atomic_write_text, understanding
from mgexp.run.folder import METRIC_NAMES, ExperimentsDir, RunsDir

NO_CHANGE = {BASE_KEY, "ROW", "EXPECTED"}
"""Keys that do not change the recipe. A YAML with only these keys is its base under another name."""
FIRST = ("main", "models", "pretraining", "one_gpu", "datasets", "ablations", "tsm", "large_batch")
LAST = ("beyond", "quickstart")
"""Folders of experiments/ in the order of the page. Other folders come between FIRST and LAST."""


# --- the YAMLs


@dataclass(frozen=True)
class Experiment:
    """A YAML that is a row. `name` is its path below experiments/ without .yaml, such as quickstart/baseline.

    `label` is its ROW key, or else the name of its file. `base` is the name of the YAML in its `_BASE_` key, or
    "". `is_plain` says that the YAML changes nothing of its base.
    """

    name: str
    label: str
    base: str
    is_plain: bool

    @property
    def folder(self) -> str:
        return self.name.rpartition("/")[0]

    @property
    def file(self) -> str:
        return self.name.rpartition("/")[2]

    @property
    def is_baseline(self) -> bool:
        """Whether other rows are compared with this one, and it is compared with none."""
        return self.is_plain or self.file.endswith(BASELINE)


def _natural(name: str) -> tuple[tuple[float, str], ...]:
    """Make a sort key that puts 8x before 16x, and 0.0025 before 0.01."""
    parts = re.findall(r"(\d+(?:\.\d+)?)|(\D+)", name)
    return tuple((float(number), "") if number else (float("inf"), text) for number, text in parts)


def read_experiments(root: Path) -> dict[str, Experiment]:
    """Read every YAML below `root` that is a row, by name. Raises InputError if one is not a plain YAML."""
    rows = {}
    for path in sorted(root.rglob("*.yaml")):
        is_in_table = path.relative_to(root).parts[0] not in WITHOUT_TABLE
        if is_in_table and path.name != STUDY_YAML:
            row = _read_row(path, root)
            rows[row.name] = row
    return rows


def _read_row(path: Path, root: Path) -> Experiment:
    with understanding(path):
        try:
            tree = parse_yaml(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise InputError([f"{path} is not a YAML file: {error}"]) from error
    values = tree if isinstance(tree, dict) else {}
    name = _name(path, root)
    # A YAML may have several bases. The first is the one that it changes.
    base = values.get(BASE_KEY, [])
    bases = [base] if isinstance(base, str) else base
    return Experiment(
        name=name,
        label=str(values.get("ROW") or path.stem),
        base=_name(path.parent / bases[0], root) if bases else "",
        is_plain=BASE_KEY in values and not values.keys() - NO_CHANGE,
    )


def _name(path: Path, root: Path) -> str:
    """Return the path of a YAML below ``root`` without .yaml. "" if it lies elsewhere."""
    path, root = path.resolve(), root.resolve()
    if not path.is_relative_to(root):
        return ""
    return path.relative_to(root).as_posix().removesuffix(".yaml")


# --- published.csv


@dataclass(frozen=True)
class Published:
    """A line of published.csv. `value` is percent, as it was published."""

    experiment: str
    metric: str
    value: str
    source: str
    note: str


def read_published(published_csv: Path) -> tuple[Published, ...]:
    """Read the published scores of the rows. Without the file there are none."""
    if not published_csv.exists():
        return ()
    with published_csv.open(encoding="utf-8", newline="") as file, understanding(published_csv):
        lines = [Published(**line) for line in csv.DictReader(file)]
    problems = []
    for line in lines:
        where = f"{published_csv}, {line.experiment}:"
        if line.metric not in METRIC_NAMES:
            problems.append(f"{where} the metric {line.metric!r} is unknown")
        if not line.value.replace(".", "", 1).isdecimal():
            problems.append(f"{where} the value {line.value!r} is not a percentage, such as 76.8")
        if not line.source:
            problems.append(f"{where} has no source")
    raise_problems(problems)
    return tuple(lines)


# --- the page


def count_results(runs: Iterable[Run]) -> tuple[dict[str, Row], tuple[Run, ...]]:
    """Return the runs of each experiment that count, by its name, and all other runs.

    Those count that have the recipe and precision of the newest run of their experiment, and as many training
    videos as the newest run with the same test videos. Each fold has lists of its own.
    """
    groups: defaultdict[str, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.finished_at):
        groups[run.experiment].append(run)
    rows, others = {}, []
    for experiment, group in sorted(groups.items()):
        # A mean over two recipes describes neither.
        recipe = (group[-1].recipe, group[-1].precision)
        num_videos = {_test_list(run): run.num_train_videos for run in group}
        same = [
            run
            for run in group
            if (run.recipe, run.precision) == recipe
            and run.num_train_videos == num_videos[_test_list(run)]
        ]
        counts = {run.seed: run for run in sorted(same, key=lambda run: run.seed)}
        rows[experiment] = Row(experiment, counts)
        others += [run for run in group if run is not counts.get(run.seed)]
    return rows, tuple(others)


def _test_list(run: Run) -> str:
    return run.videos.names_hash if run.videos else ""


@dataclass(frozen=True)
class Page:
    """What the page shows. `root` is the folder experiments/, with its studies, and all rows and runs by name.

    ``others`` are stored runs that do not count.
    """

    root: Path
    experiments: Mapping[str, Experiment]
    published: tuple[Published, ...] = ()
    runs: Mapping[str, Row] = field(default_factory=dict)
    others: tuple[Run, ...] = ()
    studies: tuple[Study, ...] = ()

    @property
    def rows(self) -> list[Experiment]:
        """The rows that no study trains, in the order of the page. As in the paper, each baseline comes first."""
        of_studies = (yaml for study in self.studies for yaml in study.yamls.values())
        in_studies = {_name(yaml, self.root) for yaml in of_studies}

        def order(row: Experiment) -> tuple[object, ...]:
            baseline = self.baseline(row)
            first = baseline if baseline and baseline.folder == row.folder else row
            group = () if baseline and baseline != first else _natural(first.file)
            name = baseline is not None, row_order(row.file)[0], _natural(row.file)
            return *_place(row.folder), group, *name

        return sorted(
            (row for name, row in self.experiments.items() if name not in in_studies), key=order
        )

    def baseline(self, row: Experiment) -> Experiment | None:
        """Find the row to compare ``row`` with. Return None if there is none, as for a baseline.

        It is the first of these that exists: the row baseline_<name of the row> in the same folder; a row called
        <prefix>baseline in the same folder, where the name of the row begins with <prefix> (the longest prefix
        wins); a row in any folder that changes nothing of the base file.
        """
        if row.is_baseline:
            return None
        rows = self.experiments.values()
        beside = [other for other in rows if other.folder == row.folder and other != row]
        own = [other for other in beside if other.file == f"{BASELINE}_{row.file}"]
        prefixed = [
            other
            for other in beside
            if other.file.endswith(BASELINE) and row.file.startswith(other.file[: -len(BASELINE)])
        ]
        # In a folder with baseline and imagenet_baseline, the row imagenet_long belongs to the second.
        prefixed.sort(key=lambda other: -len(other.file))
        # Follow the `_BASE_` keys to the last file. A file that is its own base ends there too.
        seen, base_file = {row.name}, row.base
        while base_file in self.experiments and base_file not in seen:
            seen.add(base_file)
            base_file = self.experiments[base_file].base
        plain = [other for other in rows if other.is_plain and other.base == base_file]
        plain.sort(
            key=lambda other: (other.folder != row.folder, other.file != BASELINE, other.name)
        )
        return next(iter([*own, *prefixed, *plain]), None)

    def row(self, name: str) -> Row:
        """Return the runs of an experiment that count, or an empty Row."""
        return self.runs.get(name, Row(name))

    def against_baseline(self, row: Experiment) -> Pair | None:
        """Pair a row with its baseline. Return None without one, or if the row was not run."""
        own, base = self.row(row.name), self.baseline(row)
        return Pair(own, self.row(base.name)) if base and own.runs else None


def _place(folder: str) -> tuple[object, ...]:
    """Make a sort key: the folders FIRST, others by name, then the folders LAST."""
    top = folder.split("/", maxsplit=1)[0]
    if top in LAST:
        return 2, LAST.index(top), _natural(folder)
    return *((0, FIRST.index(top)) if top in FIRST else (1, 0)), _natural(folder)


def read_page(experiments: ExperimentsDir) -> Page:
    """Read all files. Raises InputError if one cannot be understood or names a row that does not exist."""
    root, published_csv = experiments.root, experiments.published_csv
    rows, published = read_experiments(root), read_published(published_csv)
    unknown = [line.experiment for line in published if line.experiment not in rows]
    raise_problems([f"{published_csv}: {name}.yaml is not a row" for name in unknown])
    folders = sorted(path.parent for path in root.rglob(STUDY_YAML))
    studies = tuple(map(read_study, folders))
    return Page(root, rows, published, *count_results(stored_runs(root)), studies)


# --- the text


def write_page(experiments: ExperimentsDir) -> None:
    """Write README.md. Raises InputError if a file that it reads cannot be understood."""
    atomic_write_text(experiments.readme_md, render_experiments(experiments))


def render_experiments(experiments: ExperimentsDir) -> str:
    """Write the page as Markdown."""
    page = read_page(experiments)
    studies = [_study(page, study) for study in page.studies]
    return render_page(
        "experiments.md.j2",
        # Studies that were run come first.
        studies=sorted(studies, key=lambda study: study["num_runs"] == 0),
        rows=[_row(page, row) for row in page.rows],
        published=page.published,
        metric_names=METRIC_NAMES,
        left_out=[*_left_out(page)],
    )


def _study(page: Page, study: Study) -> dict[str, object]:
    """Collect the line of a study: its title and page, how much of it is done, and its multigrid rows."""
    files = RunsDir(study.folder)
    with understanding(files.prose_md):
        prose = files.prose_md.read_text(encoding="utf-8") if files.prose_md.exists() else ""
    readme = files.readme_md if files.readme_md.exists() else study.folder / STUDY_YAML
    rows = {
        name: page.row(_name(yaml, page.root)).only(range(study.num_seeds(name)))
        for name, yaml in study.yamls.items()
    }
    pairs = {name: Pair(rows[name], rows[study.base_of(name) or name]) for name in study.names}
    return {
        "title": split_prose(prose)[0].removeprefix("# "),
        "folder": study.folder.relative_to(page.root).as_posix(),
        "link": readme.relative_to(page.root).as_posix(),
        "num_runs": sum(len(row.runs) for row in rows.values()),
        "num_tasks": sum(map(study.num_seeds, rows)),
        "margin": study.margin,
        "claims": [pairs.get(name) for name in ("long", "long_short")],
    }


def _row(page: Page, experiment: Experiment) -> dict[str, object]:
    """Collect the line of a row: its published score, ours, and the difference to its baseline."""
    row, pair = page.row(experiment.name), page.against_baseline(experiment)
    published = [each for each in page.published if each.experiment == experiment.name]
    metrics = {"map" if run.top1 is None else "top1" for run in row.runs.values()}
    goals = [each for each in published if each.metric in (metrics or {"top1", "map"})]
    goal = f"{goals[0].value} {METRIC_NAMES[goals[0].metric]}" if goals else "unknown"
    verdicts = [to_published(row.mean("score"), goals[0].value)] if row.runs and goals else []
    verdicts += [verdict(pair)] if pair else []
    return {
        "link": f"[{plain_cell(experiment.name)}]({experiment.name}.yaml)",
        "label": experiment.label,
        "published": goal,
        "row": row,
        "verdict": "; ".join(verdicts),
    }


def to_published(score: float, published: str) -> str:
    """Say how far a score is from a published one: "0.20 points below the published 76.8"."""
    distance = f"{abs(score - float(published)):.2f}"
    if distance == "0.00":
        return f"the published {published}"
    side = "above" if score > float(published) else "below"
    return f"{distance} points {side} the published {published}"


def _left_out(page: Page) -> Iterator[str]:
    """List the stored runs that are neither on this page nor on that of a study, with the reason."""
    yield from (
        f"- {name}: its YAML is gone." for name in page.runs if name not in page.experiments
    )
    shown = {row.name for row in page.rows}
    for run in page.others:
        if run.experiment in shown:
            what = f"{run.steps:,} steps and {run.train_flops:.4g} FLOPs"
            where = f"{run.experiment}, seed {run.seed}, on {run.device}, {run.short_commit}"
            why = "A newer run of the row has another recipe, precision or number of videos."
            yield f"- {where}: {what}. {why}"
