"""Write experiments/README.md: a line for each study, and one for each other row that has a score."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mgexp.config.keys import MultigridKeys
from mgexp.config.load import load_config
from mgexp.config.study import STUDY_YAML, Study, read_study
from mgexp.errors import raise_problems
from mgexp.results.comparison import Pair, Row, row_order
from mgexp.results.render import render_page, split_prose
from mgexp.results.runs import Run
from mgexp.results.store import WITHOUT_TABLE, stored_runs
from mgexp.run.files import atomic_write_text, text_of, understanding
from mgexp.run.folder import METRIC_NAMES, ExperimentsDir, RunsDir

FIRST = ("quickstart", "main", "models", "pretraining", "one_gpu", "datasets")
"""The first folders of experiments/ in the order of the page. Other folders come after them by name."""
SHOWN = ("long", "long_short")
"""The rows of a study whose claims its line shows."""


# --- the YAMLs


def _natural(name: str) -> tuple[tuple[float, str], ...]:
    """Make a sort key that puts 8x before 16x, and 0.0025 before 0.01."""
    parts = re.findall(r"(\d+(?:\.\d+)?)|(\D+)", name)
    return tuple((float(number), "") if number else (float("inf"), text) for number, text in parts)


def row_names(root: Path) -> set[str]:
    """List the rows below `root`: paths of YAMLs without the ending, such as quickstart/baseline."""
    paths = (path.relative_to(root) for path in root.rglob("*.yaml") if path.name != STUDY_YAML)
    return {_name(path) for path in paths if path.parts[0] not in WITHOUT_TABLE}


def _name(path: Path) -> str:
    return path.as_posix().removesuffix(".yaml")


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
    with (
        published_csv.open(encoding="utf-8", newline="") as file,
        understanding(published_csv, "published scores"),
    ):
        return tuple(Published(**line) for line in csv.DictReader(file))


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
    """What the page shows: the studies in `root`, and the other rows by name with their runs and published scores.

    ``others`` are stored runs that do not count.
    """

    root: Path
    names: set[str]
    published: tuple[Published, ...]
    runs: Mapping[str, Row]
    others: tuple[Run, ...]
    studies: tuple[Study, ...]

    @property
    def rows(self) -> list[str]:
        """The rows that no study trains, in the order of the page."""
        of_studies = {self.name(yaml) for study in self.studies for yaml in study.yamls.values()}
        return sorted(self.names - of_studies, key=_place)

    def name(self, yaml: Path) -> str:
        return _name(yaml.relative_to(self.root))

    def row(self, name: str) -> Row:
        """Return the runs of a row that count, or an empty Row."""
        return self.runs.get(name, Row(name))


def _place(name: str) -> tuple[object, ...]:
    """Make a sort key for rows and folders: the folders FIRST, then others by name, each with baselines first."""
    folder, _, row = name.rpartition("/")
    top = name.split("/", maxsplit=1)[0]
    place = FIRST.index(top) if top in FIRST else len(FIRST)
    return place, _natural(folder), row_order(row)[0], _natural(row)


def read_page(experiments: ExperimentsDir) -> Page:
    """Read all files. Raises InputError if one cannot be understood or names a row that does not exist."""
    root, published_csv = experiments.root, experiments.published_csv
    names, published = row_names(root), read_published(published_csv)
    unknown = [line.experiment for line in published if line.experiment not in names]
    raise_problems([f"{published_csv}: {name}.yaml is not a row" for name in unknown])
    folders = sorted(path.parent for path in root.rglob(STUDY_YAML))
    studies = tuple(map(read_study, folders))
    return Page(root, names, published, *count_results(stored_runs(root)), studies)


# --- the text


def write_page(experiments: ExperimentsDir) -> None:
    """Write README.md. Raises InputError if a file that it reads cannot be understood."""
    atomic_write_text(experiments.readme_md, render_experiments(experiments))


def render_experiments(experiments: ExperimentsDir) -> str:
    """Write the page as Markdown."""
    page = read_page(experiments)
    studies = [_study(page, study) for study in page.studies]
    rows = [_row(page, row) for row in page.rows]
    return render_page(
        "experiments.md.j2",
        # Studies that were run come first.
        studies=sorted(studies, key=lambda each: (each["num_runs"] == 0, _place(each["folder"]))),
        rows=[row for row in rows if row["published"] or row["row"].runs],
        left_out=[*_left_out(page)],
    )


def _study(page: Page, study: Study) -> dict[str, Any]:
    """Collect the line of a study: its title and page, how much of it is done, and its multigrid rows."""
    files = RunsDir(study.folder)
    readme = files.readme_md if files.readme_md.exists() else study.folder / STUDY_YAML
    rows = {
        name: page.row(page.name(yaml)).only(range(study.num_seeds(name)))
        for name, yaml in study.yamls.items()
    }
    bases = {name: base for name in SHOWN if name in rows and (base := study.base_of(name))}
    return {
        "title": split_prose(text_of(files.prose_md))[0].removeprefix("# "),
        "folder": study.folder.relative_to(page.root).as_posix(),
        "link": readme.relative_to(page.root).as_posix(),
        "num_runs": sum(len(row.runs) for row in rows.values()),
        "num_tasks": sum(map(study.num_seeds, rows)),
        "margin": study.margin,
        "schedule": " and ".join(sorted({_schedule(study.yamls[name]) for name in bases})),
        "claims": [
            Pair(rows[name], rows[bases[name]]) if name in bases else None for name in SHOWN
        ],
    }


def _schedule(yaml: Path) -> str:
    """Say whether a row with a long cycle has the schedule of the paper, or a schedule of its own."""
    keys, paper = asdict(load_config(yaml).MULTIGRID), asdict(MultigridKeys())
    other = keys.keys() - {"LONG_CYCLE", "SHORT_CYCLE", "BN_BASE_SIZE"}
    return "the paper's" if all(keys[key] == paper[key] for key in other) else "its own"


def _row(page: Page, name: str) -> dict[str, Any]:
    """Collect the line of a row: its published scores and ours."""
    published = [each for each in page.published if each.experiment == name]
    return {
        "name": name,
        "published": ", ".join(f"{each.value} {METRIC_NAMES[each.metric]}" for each in published),
        "sources": [
            *dict.fromkeys(text for each in published for text in (each.source, each.note))
        ],
        "row": page.row(name),
    }


def _left_out(page: Page) -> Iterator[str]:
    """List the stored runs that are neither on this page nor on that of a study, with the reason."""
    yield from (f"- {name}: its YAML is gone." for name in page.runs if name not in page.names)
    shown = page.rows
    for run in page.others:
        if run.experiment in shown:
            what = f"{run.steps:,} steps and {run.train_flops:.4g} FLOPs"
            where = f"{run.experiment}, seed {run.seed}, on {run.device}, {run.short_commit}"
            why = "A newer run of the row has another recipe, precision or number of videos."
            yield f"- {where}: {what}. {why}"
