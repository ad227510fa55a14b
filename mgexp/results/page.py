"""Write experiments/README.md: a table for each folder of rows, from results.csv and published.csv.

python -m mgexp.results.page [experiments]

`write_site` writes the same tables as a static site: an index, a page for each table, and every file they link to.
The site is a folder of plain files, as GitHub Pages serves them. Links stay inside it, and it loads nothing from
elsewhere.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape, unescape
from pathlib import Path, PurePosixPath
from statistics import fmean
from urllib.parse import quote, unquote

from markdown import Markdown

from mgexp.errors import InputError
from mgexp.results.html import Block
from mgexp.results.html import page as html_page
from mgexp.results.model import COARSE_CONTROL, ROW_ORDER, Pair, Row, Run
from mgexp.results.rows import Experiment, Page, Published, read_page
from mgexp.results.tables import (
    INTERVAL,
    SEEDS,
    deviation_text,
    difference_text,
    markdown,
    plain_cell,
    ratio_text,
    seeds_cell,
    seeds_text,
    table,
    timed_seeds,
    times_text,
    to_published,
    verdict,
)
from mgexp.run.files import atomic_file, atomic_write_text
from mgexp.run.folder import METRIC_NAMES, ExperimentsDir, RunsDir

NOT_RUN = "not run"
OTHER_SITTING = " †"

HEAD = """\
<!-- Written by tools/collect.py from results.csv, published.csv and the YAMLs: change those, not this file. -->

# Experiments

This page shows for every row what was published, what we measured, and what the row gains or loses. The name of a
row links to its YAML. `python tools/collect.py runs/` adds finished runs and writes this page. The end of the
page says [how to read it](#how-to-read-it)."""

INDEX_WORDS = """\
The last column says what long+short does against the baseline of its table. "Loses 2 points" means that its
accuracy is 2 percentage points lower, on average over the seeds. "Which may be chance" means that the 95 %
interval in the brackets contains "no difference": these seeds cannot tell. A row that is faster and loses accuracy
has won nothing until the same baseline, trained for as short a time, is worse. [More on this](#how-to-read-it)."""

LEGEND = """\
- **Published**: percent, from [published.csv](published.csv). The sources are [above](#published-numbers).
  "unknown" means that we had no source.
- **Ours**: percent, from the final evaluation: the mean over the seeds ± their standard deviation.
  [results.csv](results.csv) has top-5, steps, seconds and everything else.
- **Points**: ours minus the baseline's. This is the mean over pairs of runs with the same seed, precision and
  number of training videos. The devices of a pair may differ. We treat this difference as that of another seed.
  A minus is a loss. The 95 % interval is Student's t over the seeds. It covers the choice of the seed, but not
  the choice of data or recipe.
- **Speed-up**: the baseline's training seconds divided by the row's. Only pairs count whose two runs had the same
  device. If a study stored the runs, the threads must be the same too, no other program may have been beside
  them, and neither may have ended before the `seconds_since` of its study. Other lines do not say these things.
  If these are not all pairs, their seeds are named. We show the
  geometric mean, with the range over the seeds in brackets. Below 1, the row is slower. The 95 % interval is
  Student's t on the logarithms. The speed-up in FLOPs is the same ratio over all pairs.
- **†**: the two runs of a seed were at different commits, or more than an hour (or more than they took together)
  apart. Other code, or other work on the machine, may then be a part of the difference. In this case the verdict
  uses FLOPs.
- **Verdict**: the row against the baseline. "May be chance" means that the 95 % interval, in brackets, contains
  "no difference". "One seed" has no interval. A control is not a way to train.
- **The baseline of a row** is the first of these that exists: `baseline_<row>` in the same folder; the
  `…baseline` in the same folder whose name begins like the row's; the row that adds nothing to the base file of
  both.
- **Which results count**: the newest result by date for the same row, seed, precision and number of training
  videos, if it has the newest recipe of its row. If a line mixes several commits, it names them with their seeds.
- **Commands**: `--seed N` trains another seed. Lists have `path label` lines. Official files of Kinetics and
  Something-Something V2 need `DATA.FORMAT kinetics` or `ssv2`. The commands start one process. Rows of real data
  sets need several GPUs: `torchrun --nproc-per-node 8 tools/run_net.py … --launcher torchrun`, or Slurm."""


def write_page(experiments: ExperimentsDir) -> None:
    """Write README.md. Raises InputError if a file that it reads cannot be understood."""
    atomic_write_text(experiments.readme_md, render(experiments))


def render(experiments: ExperimentsDir) -> str:
    """Write the page as Markdown."""
    parts = page_parts(experiments)
    return "\n\n".join([parts.head, *parts.tables.values(), parts.end]) + "\n"


@dataclass(frozen=True)
class PageParts:
    """The page in parts: what comes before the tables, the section of each folder, and what comes after."""

    head: str
    tables: Mapping[str, str]
    end: str


def page_parts(experiments: ExperimentsDir) -> PageParts:
    """Write the parts of the page as Markdown. Raises InputError if a file cannot be understood."""
    page = read_page(experiments)
    end = ["## Published numbers", "", *_sources(page)]
    if left_out := _left_out(page):
        end += ["", "## Results that do not count", "", *left_out]
    end += ["", "## How to read it", "", LEGEND]
    return PageParts(
        head="\n".join([HEAD, "", INDEX_WORDS, "", *_index(page)]),
        tables={one: "\n".join(_section(page, one)) for one in page.experiments.folders},
        end="\n".join(end),
    )


def anchor_of(folder: str) -> str:
    """Return the anchor of the section of a folder. GitHub makes it from the letters and digits of the heading."""
    return re.sub(r"[^\w\- ]", "", folder.lower()).replace(" ", "-")


def _index(page: Page) -> list[str]:
    """List all tables, those that were run first. Each has the verdict on long+short, multigrid's usual row."""
    cells = []
    for folder in page.experiments.folders:
        experiments = page.experiments.table(folder)
        num_run = sum(one.name in page.counted.rows for one in experiments)
        rows = [
            row for one in experiments if one.file == ROW_ORDER[-1] for row in page.rows_of(one)
        ]
        verdicts = [
            verdict(pair) + (f" ({_setting(page, row)})" if len(rows) > 1 else "")
            for row in rows
            if (pair := page.against_baseline(row))
        ]
        run = str(num_run) if num_run else NOT_RUN
        cells.append(
            [f"[{folder}](#{anchor_of(folder)})", str(len(experiments)), run, "<br>".join(verdicts)]
        )
    cells.sort(key=lambda one: one[2] == NOT_RUN)
    return markdown(("table", "rows", "with results", "long+short"), cells, ("long+short",))


def _section(page: Page, folder: str) -> Iterator[str]:
    """Write the section of a folder: its links, its tables and its commands."""
    yield from [f"## {folder}", ""]
    # A README or report is beside the YAMLs, or one folder above them.
    places = [folder, folder.rpartition("/")[0]]
    paths = [f"{place}/{name}" for place in places if place for name in ("README.md", "report.md")]
    if links := [f"[{path}]({path})" for path in paths if (page.root / path).exists()]:
        yield from [f"More: {', '.join(links)}.", ""]
    yield from _result_table(page, folder)

    def name(pair: Pair) -> str:
        several = len(page.counted.rows[pair.own.name]) > 1
        setting = f" on {_setting(page, pair.own)}" if several else ""
        return _link(page.experiments.rows[pair.own.name], folder) + setting

    own = page.experiments.table(folder)
    rows = [row for experiment in own for row in page.rows_of(experiment)]
    pairs = [pair for row in rows if (pair := page.against_baseline(row)) and pair.runs]
    if pairs:
        yield from ["", "Against the baseline:", "", *table(pairs, [("row", name), *PAIR_COLUMNS])]
    pairs = [pair for row in rows if (pair := page.against_parent(row)) and pair.runs]
    if pairs:
        yield from ["", "Against the row that each row changes:", ""]
        changed = ("changes", lambda pair: _link(page.experiments.rows[pair.base.name], folder))
        columns = [("row", name), changed, *PAIR_COLUMNS, ("verdict", verdict)]
        yield from table(pairs, columns, ("changes", "verdict"))
    commands = "\n".join(experiment.command for experiment in own)
    yield from ["", "<details><summary>Commands</summary>", "", "```bash", commands, "```", ""]
    yield "</details>"


# --- tables


def _result_table(page: Page, folder: str) -> list[str]:
    """Compare published scores with ours. Empty columns are left out."""
    rows = page.rows(folder)
    # A table shows one score for each row. results.csv also has top-5.
    ours = {"map" if run.top1 is None else "top1" for row in rows for run in row.runs.values()}
    names = {row.name for row in rows}
    published = {one.metric for one in page.published if one.experiment in names} - {"top5"}
    metrics = sorted(ours or published, reverse=True)
    unit = f", {' or '.join(METRIC_NAMES[metric] for metric in metrics)} (%)" if metrics else " (%)"
    headings = ("row", f"published{unit}", f"ours{unit}", "seeds", "measured on", "verdict")
    cells = []
    for row in rows:
        experiment = page.experiments.rows[row.name]
        goals = [one for one in page.published if one.experiment == row.name]
        goal = next((one.value for one in goals if one.metric in metrics), None)
        cells.append([_link(experiment, folder), goal or "unknown"])
        if not row.runs:
            cells[-1] += [NOT_RUN, "", "", ""]
            continue
        verdicts = [to_published(fmean(row.scores), goal)] if goal else []
        if experiment.file == COARSE_CONTROL:
            verdicts.append("control")
        alone = "baseline" if experiment.is_baseline else "no baseline to compare with"
        pair = page.against_baseline(row)
        verdicts.append(verdict(pair) if pair else alone)
        measured = f"{_setting(page, row)}, {_commits(row.runs.values())}"
        numbers = [deviation_text(row.scores), seeds_cell(row.runs)]
        cells[-1] += [*numbers, measured, "; ".join(verdicts)]
    # The rows of a folder that was not run have neither devices nor verdicts. Half of the table would be empty.
    kept = [n for n in range(len(headings)) if any(one[n] for one in cells)]
    lines = [[one[n] for n in kept] for one in cells]
    return markdown([headings[n] for n in kept], lines, ("measured on", "verdict"))


def _speed_up(pair: Pair) -> str:
    """Write the ratio of the seconds, its seeds if they are not all, and a mark if it proves nothing."""
    if pair.speed_up is None:
        return ratio_text(None)
    mark = OTHER_SITTING if pair.timed.seeds_apart else ""
    return ratio_text(pair.speed_up) + timed_seeds(pair) + mark


PAIR_COLUMNS = (
    SEEDS,
    ("points", lambda pair: difference_text(pair.difference)),
    INTERVAL,
    ("speed-up, wall-clock", _speed_up),
    ("95 % interval", lambda pair: times_text(pair.speed_up)),
    ("speed-up, FLOPs", lambda pair: ratio_text(pair.flop_saving)),
)


def _sources(page: Page) -> list[str]:
    """List the published numbers with their sources."""
    columns: list[tuple[str, Callable[[Published], str]]] = [
        ("row", lambda one: f"[{one.experiment}]({one.experiment}.yaml)"),
        ("metric", lambda one: METRIC_NAMES[one.metric]),
        ("value (%)", lambda one: one.value),
        ("source", lambda one: plain_cell(one.source)),
        ("note", lambda one: plain_cell(one.note)),
    ]
    return table(page.published, columns, ("source", "note")) or ["None are known."]


def _left_out(page: Page) -> list[str]:
    """List the lines of results.csv that no table shows, with the reason."""
    gone = dict.fromkeys(one.experiment for one in page.results)
    lines = [f"- {name}: its YAML is gone." for name in gone if name not in page.experiments.rows]
    for one in page.counted.of_another_recipe:
        what = f"{one.steps:,} steps and {one.train_flops:.4g} FLOPs"
        where = f"{one.experiment}, seed {one.seed}, on {one.device}, {one.short_commit}"
        lines.append(
            f"- {where}: {what}. A newer run of the row has another recipe or other numbers."
        )
    if page.counted.older:
        lines.append(f"- Older results of runs that were repeated: {len(page.counted.older)}.")
    return lines


# --- cells


def _link(experiment: Experiment, folder: str) -> str:
    """Link to the YAML, and name its folder if that is another one."""
    where = "" if experiment.folder == folder else f" ({experiment.folder})"
    return f"[{plain_cell(experiment.label)}]({experiment.name}.yaml){where}"


def _setting(page: Page, row: Row) -> str:
    """Name the devices and the precision. Add the number of videos if the row was run with several numbers."""
    several = len({one.num_train_videos for one in page.counted.rows[row.name]}) > 1
    videos = f", {row.setting.num_train_videos:,} videos" if several else ""
    devices = dict.fromkeys(run.device for run in row.runs.values())
    return f"{' and '.join(devices)}, {row.setting.precision}{videos}"


def _commits(runs: Iterable[Run]) -> str:
    """Name the commit of the runs. If there are several, name each with its seeds."""
    seeds: dict[str, list[int]] = {}
    for run in runs:
        seeds.setdefault(run.short_commit, []).append(run.seed)
    if len(seeds) == 1:
        return next(iter(seeds))
    return ", ".join(f"{commit} ({seeds_text(which)})" for commit, which in seeds.items())


# --- the site

INDEX = "index.html"
MANIFEST = "mgexp-site.txt"
"""The list of the files of a site. It shows that a folder is a site, and which old files to delete."""
IMAGES = (".png", ".svg", ".jpg", ".jpeg", ".gif")
FILES = "files"
"""The folder of the site for the files of the repository that its pages link to."""
LINK = re.compile(r'<(a|img)\b([^>]*?)\s(href|src)="([^"]*)"')
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
NAV = '<nav><a href="{index}">All tables</a></nav>\n'

BlocksOf = Callable[[Path], Sequence[Block]]
"""A function that takes a folder of rows and returns the blocks of its page, such as its curves."""


def write_site(experiments: ExperimentsDir, out: Path, blocks_of: BlocksOf) -> Path:
    """Write the site into the folder ``out`` and return its index.

    Raises InputError if ``out`` holds other files, or if a file of ``experiments`` cannot be understood.
    """
    before = _read_manifest(out)
    site = _Site(experiments.root.resolve(), blocks_of)
    site.add_tables(experiments)
    # If this call is stopped, the next one must know the folder and the files in it.
    out.mkdir(parents=True, exist_ok=True)
    _write_manifest(out, before | site.files.keys())
    for name, content in site.files.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            file.write(content)
    for name in before - site.files.keys():
        (out / name).unlink(missing_ok=True)
    _write_manifest(out, site.files.keys())
    return out / INDEX


def _write_manifest(out: Path, names: Iterable[str]) -> None:
    """Write which files of the folder ``out`` are the site's."""
    atomic_write_text(out / MANIFEST, "".join(f"{name}\n" for name in sorted(names)))


def _read_manifest(out: Path) -> set[str]:
    """Return the files that an earlier call wrote into ``out``. Raises InputError if others wrote there too."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return set()
    if not (out / MANIFEST).is_file():
        raise InputError([f"--site {out} exists and is no site of mgexp: name a new folder"])
    names = (out / MANIFEST).read_text(encoding="utf-8").splitlines()
    # The file may have been edited. A name must not lead out of the folder.
    root = out.resolve()
    return {name for name in names if (out / name).resolve().is_relative_to(root)}


class _Site:
    """The files of a site by name, and the pages of Markdown files that wait to be written."""

    def __init__(self, root: Path, blocks_of: BlocksOf) -> None:
        self.root, self.repository = root, root.parent
        self.blocks_of = blocks_of
        # GitHub Pages would leave out some files without this one.
        self.files: dict[str, bytes] = {".nojekyll": b""}
        self.pages: dict[Path, str] = {}
        self.waiting: list[Path] = []

    def add_tables(self, experiments: ExperimentsDir) -> None:
        """Add the index, the page of each table, and everything that they link to."""
        parts = page_parts(experiments)
        self.pages[experiments.readme_md.resolve()] = self.pages[self.root] = INDEX
        for folder in parts.tables:
            own = RunsDir(self.root / folder)
            for path in (own.root, own.readme_md, own.report_md):
                self.pages[path] = f"{folder}/{INDEX}"
        for folder, section in parts.tables.items():
            self._add_table(folder, section)
        head = parts.head
        for folder in parts.tables:
            head = head.replace(f"](#{anchor_of(folder)})", f"]({quote(folder)})")
        self._add_page(INDEX, f"{head}\n\n{parts.end}", self.root)
        while self.waiting:
            path = self.waiting.pop()
            self._add_page(self.pages[path], path.read_text(encoding="utf-8"), path.parent)

    def _add_table(self, folder: str, section: str) -> None:
        """Add the page of a table: the page of its study or its report, curves, and the table itself."""
        own = RunsDir(self.root / folder)
        path = next((one for one in (own.readme_md, own.report_md) if one.is_file()), None)
        text = path.read_text(encoding="utf-8") if path else f"# {folder}\n"
        name = f"{folder}/{INDEX}"
        # What stands before the first section opens the page. The verdicts and the curves come next.
        opening, heading, rest = self._convert(text, own.root, name).partition("<h2")
        # The links of the section are relative to experiments/.
        section = section.replace(f"## {folder}", "## In the table of all experiments", 1)
        blocks = "".join(
            f"\n<h2>{escape(one.heading)}</h2>\n{one.html}\n" for one in self.blocks_of(own.root)
        )
        body = opening + self._convert(section, self.root, name) + blocks + heading + rest
        self._write(name, folder, body)

    def _add_page(self, name: str, text: str, folder: Path) -> None:
        title = next((line for line in text.splitlines() if line.startswith("# ")), name)
        self._write(name, title.removeprefix("# "), self._convert(text, folder, name))

    def _write(self, name: str, title: str, body: str) -> None:
        nav = NAV.format(index=posixpath.relpath(INDEX, posixpath.dirname(name) or "."))
        self.files[name] = html_page(title, nav + body, "'self' data:").encode()

    def _convert(self, text: str, folder: Path, name: str) -> str:
        """Turn a Markdown file of ``folder`` into the body of the page ``name``, with links inside the site."""
        # In Markdown, GitHub also converts what stands inside <details>.
        text = text.replace("<details>", '<details markdown="1">')
        extensions = ["tables", "sane_lists", "fenced_code", "md_in_html", "toc"]
        converter = Markdown(extensions=extensions, extension_configs={"toc": {"slugify": _slug}})
        body = converter.convert(text).replace("<p><img", '<p class="scroll figure"><img')
        return LINK.sub(lambda found: self._link(found, folder, name), body)

    def _link(self, found: re.Match[str], folder: Path, name: str) -> str:
        """Rewrite a link of a page. A link to nothing in the repository becomes plain text."""
        tag, before, kind, target = found[1], found[2], found[3], unescape(found[4])
        if ELSEWHERE.match(target) or target.startswith("#"):
            return found[0]
        path, _, fragment = target.partition("#")
        there = self._place((folder / unquote(path)).resolve())
        if there is None:
            return f"<{tag}{before}"
        link = quote(posixpath.relpath(there, posixpath.dirname(name) or "."))
        # The sections of a text file and of a table's page have other anchors than in the repository.
        if fragment and there.endswith(".html") and there != INDEX:
            link += f"#{fragment}"
        return f'<{tag}{before} {kind}="{escape(link)}"'

    def _place(self, target: Path) -> str | None:
        """Return the name of a file of the repository in the site, and add it. None if there is no such file."""
        if target in self.pages:
            return self.pages[target]
        if target.is_dir():
            target = target / "README.md"
            if target in self.pages:
                return self.pages[target]
        if not target.is_file() or not target.is_relative_to(self.repository):
            return None
        inside = PurePosixPath(FILES, target.relative_to(self.repository).as_posix())
        if target.suffix == ".md":
            self.pages[target] = str(inside.with_suffix(".html"))
            self.waiting.append(target)
            return self.pages[target]
        # A browser shows a text file, and would only save a YAML.
        name = str(inside) if target.suffix.lower() in IMAGES else f"{inside}.txt"
        if name not in self.files:
            self.files[name] = target.read_bytes()
        return name


def _slug(heading: str, separator: str) -> str:
    """Make the anchor of a heading as GitHub does."""
    return anchor_of(heading).replace(" ", separator)


def main(arguments: Sequence[str]) -> int:
    """Write the page of a folder, by default experiments."""
    experiments = ExperimentsDir(Path(arguments[0] if arguments else "experiments"))
    try:
        write_page(experiments)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(experiments.readme_md)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
