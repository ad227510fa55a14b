"""Write README.md and results.csv of this folder: its studies, and the scores of the rows that no study trains."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from mgexp.config.keys import MultigridKeys
from mgexp.config.load import load_config
from mgexp.config.study import STUDY_YAML, Study, read_study, recipe_of
from mgexp.errors import InputError, raise_problems
from mgexp.results.comparison import Row, row_order
from mgexp.results.render import render_page, split_prose
from mgexp.results.runs import COLUMNS, Run
from mgexp.results.store import WITHOUT_TABLE, gather_runs, read_stored
from mgexp.run.files import atomic_write_text, text_of, understanding, write_rows
from mgexp.run.folder import METRIC_NAMES, RunsDir

TEMPLATE = Path(__file__).with_suffix(".md.j2")
FIRST = ("quickstart", "main", "models", "pretraining", "one_gpu", "datasets")
"""The first folders in the order of the page. Other folders come after them by name."""
SHOWN = ("long", "long_short")
"""The rows of a study whose claims its line shows."""


def write_overview(root: Path) -> None:
    """Write both files from the YAMLs, runs.jsonl and published.csv below ``root``.

    Raises InputError if a file cannot be understood, or names a row that does not exist.
    """
    runs = stored_runs(root)
    text = render_overview(root, runs)
    lines: list[Sequence[object]] = [COLUMNS]
    for run in runs:
        values = [getattr(run, name) for name in COLUMNS]
        # Four decimals keep 0.1 ms and 0.0001 percent.
        lines.append([round(v, 4) if isinstance(v, float) else v for v in values])
    write_rows(root / "results.csv", lines)
    atomic_write_text(root / "README.md", text)


def stored_runs(root: Path) -> list[Run]:
    """List the runs that are stored below ``root``: the newest of each row and seed, by date."""
    paths = sorted(root.rglob(RunsDir(root).stored_jsonl.name))
    runs = [run for path in paths for run in read_stored(path).runs]
    # A study also stores rows of other folders, so a run may be there twice.
    newest = {run.key: run for run in sorted(runs, key=attrgetter("finished_at"))}
    return sorted(newest.values(), key=attrgetter("finished_at"))


# --- the rows


def _natural(name: str) -> tuple[tuple[float, str], ...]:
    """Make a sort key that puts 8x before 16x, and 0.0025 before 0.01."""
    parts = re.findall(r"(\d+(?:\.\d+)?)|(\D+)", name)
    return tuple((float(number), "") if number else (float("inf"), text) for number, text in parts)


def _place(name: str) -> tuple[object, ...]:
    """Make a sort key for rows and folders: the folders FIRST, then others by name, each with baselines first."""
    folder, _, row = name.rpartition("/")
    top = name.split("/", maxsplit=1)[0]
    place = FIRST.index(top) if top in FIRST else len(FIRST)
    return place, _natural(folder), row_order(row)[0], _natural(row)


def row_names(root: Path) -> list[str]:
    """List the rows below ``root`` in the order of the page, such as quickstart/baseline."""
    paths = (path.relative_to(root) for path in root.rglob("*.yaml") if path.name != STUDY_YAML)
    rows = (path for path in paths if path.parts[0] not in WITHOUT_TABLE)
    return sorted((path.with_suffix("").as_posix() for path in rows), key=_place)


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


def render_overview(root: Path, runs: Sequence[Run]) -> str:
    """Write the page as Markdown from the stored ``runs``, by date. Raises InputError as `write_overview` does."""
    names, published_csv = row_names(root), root / "published.csv"
    published = read_published(published_csv)
    unknown = {line.experiment for line in published}.difference(names)
    raise_problems([f"{published_csv}: {name}.yaml is not a row" for name in sorted(unknown)])
    runs_of: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        runs_of[run.experiment].append(run)
    left_out = [f"{name}: its YAML is gone" for name in sorted(runs_of.keys() - names)]
    of_studies, studies = set[Path](), []
    for study in map(read_study, sorted(path.parent for path in root.rglob(STUDY_YAML))):
        of_studies |= {*study.yamls.values()}
        with _readable(study.folder.relative_to(root).as_posix(), left_out):
            studies.append(_study(root, study))
    rows = []
    for name in names:
        if (yaml := root / f"{name}.yaml") not in of_studies:
            counted = []
            with _readable(name, left_out):
                counted = _counted(yaml, runs_of[name], left_out)
            rows.append(
                _row(name, counted, [line for line in published if line.experiment == name])
            )
    return render_page(
        TEMPLATE,
        # Studies that were run come first.
        studies=sorted(studies, key=lambda each: (each["num_runs"] == 0, _place(each["folder"]))),
        rows=[row for row in rows if row["published"] or row["row"].runs],
        left_out=left_out,
    )


@contextmanager
def _readable(name: str, left_out: list[str]) -> Iterator[None]:
    """Add to ``left_out`` what needs a YAML that cannot be read here, as that of a custom model."""
    try:
        yield
    except InputError as error:
        left_out.append(f"{name}: {'; '.join(error.problems)}")


def _study(root: Path, study: Study) -> dict[str, Any]:
    """Collect the line of a study: its title and page, how much of it is done, and its multigrid rows."""
    files = RunsDir(study.folder)
    readme = files.readme_md if files.readme_md.exists() else study.folder / STUDY_YAML
    gathered = gather_runs(study, lambda row, seed: ())
    pairs = {pair.own.name: pair for pair in gathered.pairs}
    shown = [name for name in SHOWN if name in study.names and study.base_of(name)]
    return {
        "title": split_prose(text_of(files.prose_md))[0].removeprefix("# "),
        "folder": study.folder.relative_to(root).as_posix(),
        "link": readme.relative_to(root).as_posix(),
        "num_runs": len(gathered.runs),
        "num_tasks": sum(map(study.num_seeds, study.yamls)),
        "margin": study.margin,
        "schedule": " and ".join(sorted({_schedule(study.yamls[name]) for name in shown})),
        "claims": [pairs.get(name) for name in SHOWN],
    }


def _schedule(yaml: Path) -> str:
    """Say whether a row with a long cycle has the schedule of the paper, or a schedule of its own."""
    keys, paper = asdict(load_config(yaml).MULTIGRID), asdict(MultigridKeys())
    other = keys.keys() - {"LONG_CYCLE", "SHORT_CYCLE", "BN_BASE_SIZE"}
    return "the paper's" if all(keys[key] == paper[key] for key in other) else "its own"


def _counted(yaml: Path, runs: Sequence[Run], left_out: list[str]) -> list[Run]:
    """Return the ``runs`` of a row that count, of runs by date. Add the others to ``left_out`` with the reason."""
    recipe = recipe_of(yaml) if runs else ""
    same = [run for run in runs if run.recipe == recipe]
    # Each fold has lists of its own, whose lengths differ.
    newest = {_test_list(run): run for run in same}
    counted = []
    for run in runs:
        if run.recipe != recipe:
            why = "its YAML has another recipe now"
        elif run.precision != same[-1].precision:
            why = f"{run.precision}, and the newest run {same[-1].precision}"
        elif run.num_train_videos != newest[_test_list(run)].num_train_videos:
            why = f"{run.num_train_videos} training videos, and the newest run another number"
        else:
            counted.append(run)
            continue
        what = f"{run.experiment}, seed {run.seed}, on {run.device}, {run.short_commit}"
        left_out.append(f"{what}: {why}")
    return counted


def _test_list(run: Run) -> str:
    return run.videos.names_hash if run.videos else ""


def _row(name: str, runs: Sequence[Run], published: Sequence[Published]) -> dict[str, Any]:
    """Collect the line of a row: its published scores and ours."""
    return {
        "name": name,
        "published": ", ".join(f"{each.value} {METRIC_NAMES[each.metric]}" for each in published),
        "sources": [
            *dict.fromkeys(text for each in published for text in (each.source, each.note))
        ],
        "row": Row(name, {run.seed: run for run in sorted(runs, key=attrgetter("seed"))}),
    }
