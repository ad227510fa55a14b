"""Write experiments/README.md: a table for each folder of rows, from the stored runs and published.csv."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mgexp.config.study import STUDY_YAML
from mgexp.config.values import BASE_KEY, parse_yaml
from mgexp.errors import InputError, raise_problems
from mgexp.results.comparison import BASELINE, COARSE_CONTROL, ROW_ORDER, Pair, Row, row_order
from mgexp.results.render import plain_cell, render_page, verdict, with_seeds
from mgexp.results.runs import Run
from mgexp.results.store import WITHOUT_TABLE, stored_runs
from mgexp.run.files import atomic_write_text, understanding
from mgexp.run.folder import METRIC_NAMES, ExperimentsDir

NO_CHANGE = {BASE_KEY, "ROW", "EXPECTED"}
"""Keys that do not change the recipe. A YAML with only these keys is its base under another name."""
COMMAND = re.compile(r"^# *(python tools/run_net\.py .*(?:(?<=\\)\n#.*)*)", re.MULTILINE)
"""The command in the comments of a YAML. A line that ends with a backslash continues in the next line."""
FIRST = ("main", "models", "pretraining", "one_gpu", "datasets", "ablations", "tsm", "large_batch")
LAST = ("beyond", "quickstart")
"""Folders of experiments/ in the order of their tables. Other folders come between FIRST and LAST."""


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
    command: str

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
        text = path.read_text(encoding="utf-8")
        try:
            tree = parse_yaml(text)
        except ValueError as error:
            raise InputError([f"{path} is not a YAML file: {error}"]) from error
    values = tree if isinstance(tree, dict) else {}
    name = _name(path, root)
    # A YAML may have several bases. The first is the one that it changes.
    base = values.get(BASE_KEY, [])
    bases = [base] if isinstance(base, str) else base
    command = f"python tools/run_net.py --cfg {root.name}/{name}.yaml"
    if match := re.search(COMMAND, text):
        # The command may have several lines of comment. Make them lines of a shell.
        command = re.sub(r"\n# *", "\n    ", match[1]).strip()
    return Experiment(
        name=name,
        label=str(values.get("ROW") or path.stem),
        base=_name(path.parent / bases[0], root) if bases else "",
        is_plain=BASE_KEY in values and not values.keys() - NO_CHANGE,
        command=command,
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
    """What the page shows. `root` is the folder experiments/, with all its rows and their runs by name.

    ``others`` are stored runs that do not count.
    """

    root: Path
    experiments: Mapping[str, Experiment]
    published: tuple[Published, ...] = ()
    runs: Mapping[str, Row] = field(default_factory=dict)
    others: tuple[Run, ...] = ()

    @property
    def folders(self) -> list[str]:
        """The tables, in the order of the page."""

        def place(folder: str) -> tuple[object, ...]:
            top = folder.split("/", maxsplit=1)[0]
            if top in LAST:
                return 2, LAST.index(top), _natural(folder)
            return *((0, FIRST.index(top)) if top in FIRST else (1, 0)), _natural(folder)

        return sorted({row.folder for row in self.experiments.values()}, key=place)

    def table(self, folder: str) -> list[Experiment]:
        """List the rows of a folder. As in the paper, each baseline comes before the rows that belong to it."""

        def order(row: Experiment) -> tuple[object, ...]:
            baseline = self.baseline(row)
            first = baseline if baseline and baseline.folder == row.folder else row
            group = () if baseline and baseline != first else _natural(first.file)
            return group, baseline is not None, row_order(row.file)[0], _natural(row.file)

        inside = (row for row in self.experiments.values() if row.folder == folder)
        return sorted(inside, key=order)

    def parent(self, row: Experiment) -> Experiment | None:
        """Return the row that the `_BASE_` key of ``row`` names, or None if the key names a base file."""
        return self.experiments.get(row.base)

    def baseline(self, row: Experiment) -> Experiment | None:
        """Find the row to compare ``row`` with. Return None if there is none, as for a baseline.

        It is the first of these that exists: the row baseline_<name of the row> in the same folder; a row called
        <prefix>baseline in the same folder, where the name of the row begins with <prefix> (the longest prefix
        wins); a row in any table that changes nothing of the base file.
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

    def row(self, experiment: Experiment) -> Row:
        """Return the runs of an experiment that count, or an empty Row."""
        return self.runs.get(experiment.name, Row(experiment.name))

    def pair(self, row: Experiment, base: Experiment | None) -> Pair | None:
        """Pair a row with another. Return None without the other, or if the row was not run."""
        own = self.row(row)
        return Pair(own, self.row(base)) if base and own.runs else None

    def against_baseline(self, row: Experiment) -> Pair | None:
        return self.pair(row, self.baseline(row))


def read_page(experiments: ExperimentsDir) -> Page:
    """Read all files. Raises InputError if one cannot be understood or names a row that does not exist."""
    root, published_csv = experiments.root, experiments.published_csv
    rows, published = read_experiments(root), read_published(published_csv)
    unknown = [line.experiment for line in published if line.experiment not in rows]
    raise_problems([f"{published_csv}: {name}.yaml is not a row" for name in unknown])
    return Page(root, rows, published, *count_results(stored_runs(root)))


# --- the text


def write_page(experiments: ExperimentsDir) -> None:
    """Write README.md. Raises InputError if a file that it reads cannot be understood."""
    atomic_write_text(experiments.readme_md, render_experiments(experiments))


def render_experiments(experiments: ExperimentsDir) -> str:
    """Write the page as Markdown."""
    page = read_page(experiments)
    tables = [_table(page, folder) for folder in page.folders]
    return render_page(
        "experiments.md.j2",
        # Tables that were run come first.
        index=sorted(tables, key=lambda table: table["num_run"] == 0),
        tables=tables,
        published=page.published,
        metric_names=METRIC_NAMES,
        left_out=[*_left_out(page)],
    )


def _table(page: Page, folder: str) -> dict[str, object]:
    """Collect the links, the results and the commands of a folder, and its line in the index."""
    rows = page.table(folder)
    baselines = {row.name: page.baseline(row) for row in rows}
    parents = {row.name: page.parent(row) for row in rows}
    elsewhere = [row for row in (*baselines.values(), *parents.values()) if row]
    outside = [row for row in dict.fromkeys(elsewhere) if row.folder != folder]
    # Baselines and parents from other folders come first.
    shown = [*outside, *rows]
    names = {row.name for row in shown}
    # A table shows one score for each row. results.csv also has top-5.
    runs = [run for row in shown for run in page.row(row).runs.values()]
    ours = {"map" if run.top1 is None else "top1" for run in runs}
    published = {each.metric for each in page.published if each.experiment in names} - {"top5"}
    metrics = sorted(ours or published, reverse=True)
    metric = " or ".join(METRIC_NAMES[metric] for metric in metrics)
    # A README or report is beside the YAMLs, or one folder above them.
    places = [folder, folder.rpartition("/")[0]]
    paths = [f"{place}/{name}" for place in places if place for name in ("README.md", "report.md")]

    def compared(bases: Mapping[str, Experiment | None]) -> list[tuple[str, str, Pair]]:
        """List (link of a row, link of its base, pair) for the pairs that can be compared."""
        both = [(row, base) for row in rows if (base := bases.get(row.name))]
        pairs = [(row, base, page.pair(row, base)) for row, base in both]
        return [
            (_link(row, folder), _link(base, folder), pair)
            for row, base, pair in pairs
            if pair and pair.runs
        ]

    usual = [page.against_baseline(row) for row in rows if row.file == ROW_ORDER[-1]]
    return {
        "folder": folder,
        # GitHub makes the anchor of a heading from its letters and digits.
        "anchor": re.sub(r"[^\w\- ]", "", folder.lower()).replace(" ", "-"),
        "num_rows": len(rows),
        "num_run": sum(bool(page.row(row).runs) for row in rows),
        # The verdict on long+short, multigrid's usual row.
        "verdicts": [verdict(pair) for pair in usual if pair],
        "links": [f"[{path}]({path})" for path in paths if (page.root / path).exists()],
        "unit": f", {metric} (%)" if metric else " (%)",
        "has_runs": bool(runs),
        "results": [_result(page, folder, row, metrics) for row in shown],
        "baselines": compared(baselines),
        "parents": compared({name: row for name, row in parents.items() if row != baselines[name]}),
        "commands": [row.command for row in rows],
    }


def _result(
    page: Page, folder: str, experiment: Experiment, metrics: Sequence[str]
) -> dict[str, object]:
    """Compare the published score of a row with ours."""
    row, pair = page.row(experiment), page.against_baseline(experiment)
    goals = [each for each in page.published if each.experiment == experiment.name]
    goal = next((each.value for each in goals if each.metric in metrics), None)
    runs = [*row.runs.values()]
    devices = " and ".join(dict.fromkeys(run.device for run in runs))
    verdicts = []
    if runs and goal:
        verdicts.append(to_published(row.mean("score"), goal))
    if experiment.file == COARSE_CONTROL:
        verdicts.append("control")
    alone = "baseline" if experiment.is_baseline else "no baseline to compare with"
    verdicts.append(verdict(pair) if pair else alone)
    return {
        "link": _link(experiment, folder),
        "published": goal or "unknown",
        "row": row,
        "measured_on": f"{devices}, {row.first.precision}, {_commits(runs)}" if runs else "",
        "verdict": "; ".join(verdicts),
    }


def to_published(score: float, published: str) -> str:
    """Say how far a score is from a published one: "0.20 points below the published 76.8"."""
    distance = f"{abs(score - float(published)):.2f}"
    if distance == "0.00":
        return f"the published {published}"
    side = "above" if score > float(published) else "below"
    return f"{distance} points {side} the published {published}"


def _link(experiment: Experiment, folder: str) -> str:
    """Link to the YAML, and name its folder if that is another one."""
    where = "" if experiment.folder == folder else f" ({experiment.folder})"
    return f"[{plain_cell(experiment.label)}]({experiment.name}.yaml){where}"


def _commits(runs: Iterable[Run]) -> str:
    """Name the commit of the runs. If there are several, name each with its seeds."""
    commits = [(run.short_commit, run.seed) for run in runs]
    if len({commit for commit, _ in commits}) == 1:
        return commits[0][0]
    return with_seeds(commits)


def _left_out(page: Page) -> Iterator[str]:
    """List the stored runs that no table shows, with the reason."""
    yield from (
        f"- {name}: its YAML is gone." for name in page.runs if name not in page.experiments
    )
    for run in page.others:
        what = f"{run.steps:,} steps and {run.train_flops:.4g} FLOPs"
        where = f"{run.experiment}, seed {run.seed}, on {run.device}, {run.short_commit}"
        why = "A newer run of the row has another recipe, precision or number of videos."
        yield f"- {where}: {what}. {why}"
