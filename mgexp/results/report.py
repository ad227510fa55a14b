"""Reports on folders of rows, with their figures: what was saved, what was lost, and how it was measured.

    python -m mgexp.results.report runs/quickstart           the runs of a folder
    python -m mgexp.results.report experiments/quickstart    the runs that are stored beside their YAMLs
    python -m mgexp.results.report experiments/main/k400_slowfast_8x8_r50    YAMLs alone: their schedules

Writes report.md, report.html, which is one file with all figures in it, and figures/ (SVG and PNG for two columns,
SVG for one: *_narrow.svg). Exit 0; 2 where the folder holds nothing of that, or a file cannot be understood.
"""

from __future__ import annotations

import argparse
import base64
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from markdown import Markdown

from mgexp.errors import InputError
from mgexp.figures.pages import Picture, load_results, num_classes, pictures
from mgexp.results.cells import (
    DIFFERENCE_COLUMNS,
    EQUAL_FLOPS_COLUMNS,
    NONE,
    ROW_COLUMNS,
    TIME_COLUMNS,
    confused_pairs,
    interval_text,
    markdown,
    mean_text,
    points_text,
    ratio_text,
    table,
    worst_classes,
)
from mgexp.results.compare import (
    BASELINE,
    COARSE_CONTROL,
    Comparison,
    Evaluation,
    FinishedRun,
    Pairs,
    control,
)
from mgexp.results.confusion import read_class_names
from mgexp.results.stats import paired_difference
from mgexp.run.files import atomic_file, atomic_write_text
from mgexp.run.folder import RunsDir

FRAME_ORDERS = {
    "repeated": "the baseline, one frame repeated",
    "shuffled": "the baseline, frames shuffled",
}

CLOCKS = """\
- Training seconds: every training step, waiting for input and the slow first step of each shape
  included; evaluation, precise BN, checkpoints and start-up are not.
- A speed-up is the baseline's training seconds over the row's, for the same seed, device,
  precision and threads; the geometric mean over seeds is shown. The steady speed-up, without what the
  first step of each shape took longer than its second, stands beside it, never instead of it.
- Program seconds: from the start of the process to the end of the evaluation, imports included. All
  clocks go on across resumes; steps that are done again after a kill count once.
- Training FLOPs = 2 × multiply-adds of the forward pass × 3 (forward and backward) × clips.
- A number over several seeds is followed by its range in brackets. Intervals: 95 %, Student's t
  on the differences to the baseline of the same seed, and on the logarithms of the speed-ups; they
  cover the seed, not the choice of data or recipe.
"""


def render(
    title: str,
    comparison: Comparison,
    pictures: Mapping[str, str],
    expected_rows: Sequence[str] = (),
    class_names: Sequence[str] = (),
) -> str:
    """The whole report as Markdown; without a finished run, only what is missing, and the schedules.

    `pictures` are those that there are, by name, as lines of Markdown.
    """
    numbers = _numbers(comparison, pictures, class_names) if comparison.finished else []
    schedules = _section("Schedules", _picture(pictures, "schedule")[:1])
    missing = _section("Not in the tables", _missing(comparison, expected_rows))
    how = _section("How the numbers were taken", _how(comparison)) if comparison.finished else []
    return "\n".join([f"# {title}", *numbers, *schedules, *missing, *how]) + "\n"


def _numbers(
    comparison: Comparison, pictures: Mapping[str, str], class_names: Sequence[str]
) -> list[str]:
    others, finished = comparison.compared, comparison.finished
    return [
        *["", *_picture(pictures, "accuracy"), *_summary(comparison)],
        *_section("Rows", table(ROW_COLUMNS, comparison, finished)),
        *_section(
            "Against the baseline",
            [*_picture(pictures, "speed_up"), *table(DIFFERENCE_COLUMNS, comparison, others)],
        ),
        *_section("At equal FLOPs", _equal_flops(comparison, pictures)),
        *_section(
            "Where the time went",
            [*_picture(pictures, "seconds"), *table(TIME_COLUMNS, comparison, finished)],
        ),
        *_section("Controls", _controls(comparison)),
        *_section("Classes", _classes(comparison, pictures, class_names)),
    ]


def _equal_flops(comparison: Comparison, pictures: Mapping[str, str]) -> list[str]:
    """Rows against the baseline trained for fewer epochs; nothing where that was not run."""
    lines = table(EQUAL_FLOPS_COLUMNS, comparison, comparison.compared_at_equal_flops)
    return [*_picture(pictures, "equal_flops"), *lines] if lines else []


def _picture(pictures: Mapping[str, str], name: str) -> list[str]:
    return [pictures[name], ""] if name in pictures else []


def _classes(
    comparison: Comparison, pictures: Mapping[str, str], class_names: Sequence[str]
) -> Iterator[str]:
    """What the baseline and the fastest row get wrong, in the final evaluations of all seeds together."""
    rows = comparison.confused
    if not rows:
        return
    yield from _picture(pictures, "confusion")
    names = " and ".join(row.name for row in rows)
    yield f"Final evaluations of {names}, the seeds of a row together: the classes of lowest accuracy,"
    yield from ["and the pairs that are confused most.", ""]
    yield from worst_classes(rows, class_names) or ["Every video was taken for what it is."]
    yield from ["", *confused_pairs(rows, class_names)]


def _section(title: str, lines: Iterable[str]) -> list[str]:
    body = list(lines)
    return ["", f"## {title}", "", *body] if body else []


def _summary(comparison: Comparison) -> Iterator[str]:
    """A line for each row: the gain and the loss in one sentence."""
    for row in comparison.compared:
        pairs = comparison.pairs(row)
        difference = pairs.difference
        if difference is None:
            yield f"- **{row.name}**: no comparable baseline run of the same seed."
            continue
        seconds = ratio_text(pairs.ratios(lambda run: run.result.train_seconds))
        flops = ratio_text(pairs.ratios(lambda run: run.result.train_flops))
        yield (
            f"- **{row.name}**: speed-up {seconds} in training time, {flops} in FLOPs; "
            f"{comparison.metric} {points_text(difference.mean)} points "
            f"(95 % interval: {interval_text(difference)}).{_apart(pairs)}"
        )


def _apart(pairs: Pairs) -> str:
    """A warning where the seconds of a pair do not compare."""
    if not pairs.apart:
        return ""
    seeds = ", ".join(map(str, pairs.apart))
    return (
        f" Seeds {seeds}: at another commit than the baseline, or more than an hour apart; "
        "the training time may tell of that."
    )


def _controls(comparison: Comparison) -> list[str]:
    """The same network with the order of time destroyed, and one that never saw a fine clip."""
    headings = ("control", "seeds", f"{comparison.metric} (%)", "difference (points)")
    baseline = comparison.row(BASELINE).runs
    lines = []
    for order, name in FRAME_ORDERS.items():
        found = {seed: control(run, order) for seed, run in baseline.items()}
        lines.append(_control(name, {seed: _scores(pair) for seed, pair in found.items() if pair}))
    coarse = comparison.pairs(comparison.row(COARSE_CONTROL))
    scores = {run.result.seed: (run.score, base.score) for run, base in coarse}
    lines.append(_control("trained at the coarsest shape alone", scores))
    return markdown((*headings, "95 % interval"), lines)


def _scores(pair: tuple[Evaluation, Evaluation]) -> tuple[float, float]:
    return pair[0].score, pair[1].score


def _control(name: str, scores: Mapping[int, tuple[float, float]]) -> list[str]:
    """`scores` are (control, baseline) by seed."""
    difference = paired_difference([changed - plain for changed, plain in scores.values()])
    if difference is None:
        return [name, NONE, "not evaluated", NONE, NONE]
    mean = mean_text([changed for changed, _ in scores.values()], 2)
    seeds = ", ".join(map(str, scores))
    return [name, seeds, mean, points_text(difference.mean), interval_text(difference)]


def _missing(comparison: Comparison, expected_rows: Sequence[str]) -> Iterator[str]:
    """Rows and runs that are not there, and pairs that cannot be compared."""
    there = {row.name for row in comparison.rows}
    yield from (f"- {name}: not run." for name in expected_rows if name not in there)
    for row in comparison.rows:
        for seed, step in row.unfinished.items():
            last = "no step logged" if step is None else f"last logged step {step}"
            yield f"- {row.name}, seed {seed}: unfinished, {last}."
        for seed in sorted({*comparison.seeds} - {*row.runs} - {*row.unfinished}):
            yield f"- {row.name}, seed {seed}: not run."
    yield from _not_comparable(comparison)


def _not_comparable(comparison: Comparison) -> Iterator[str]:
    baseline = comparison.row(BASELINE).runs
    for row in comparison.finished:
        for seed, run in row.runs.items():
            if seed in baseline and run.setting != baseline[seed].setting:
                yield (
                    f"- {row.name}, seed {seed}: not compared with the baseline, "
                    f"{run.setting} against {baseline[seed].setting}."
                )


def _how(comparison: Comparison) -> Iterator[str]:
    """Machine, versions, protocol: every distinct value, so that a mixture shows."""
    runs = [run for row in comparison.finished for run in row.runs.values()]
    for key in ("cpu", "cores", "gpu", "threads", "torch", "torchvision", "python"):
        yield f"- {key}: {_distinct(run.environment.get(key, 'unknown') for run in runs)}"
    yield f"- device: {_distinct(run.result.device for run in runs)}"
    yield f"- precision: {_distinct(run.result.precision for run in runs)}"
    yield f"- seeds: {_distinct(run.result.seed for run in runs)}"
    yield f"- training videos: {_distinct(run.result.num_train_videos for run in runs)}"
    yield f"- final evaluation: {_protocols(runs, full_protocol=True)}"
    yield f"- evaluation during training: {_protocols(runs, full_protocol=False)}"
    yield f"- commit: {_distinct(run.result.commit for run in runs)}"
    dates = sorted(run.result.date for run in runs)
    yield f"- date: {' to '.join(dict.fromkeys([dates[0], dates[-1]]))}"
    yield from CLOCKS.splitlines()


def _protocols(runs: Sequence[FinishedRun], *, full_protocol: bool) -> str:
    curve = (one for run in runs for one in run.curve if one.full_protocol == full_protocol)
    return _distinct(f"{one.num_videos} videos × {one.views} views" for one in curve) or "none"


def _distinct(values: Iterable[object]) -> str:
    return ", ".join(sorted({"none" if value is None else str(value) for value in values}))


RAW_OR_LINK = ("html", "link", "reference", "short_reference", "autolink", "automail")
"""What a report never holds by itself: names of rows and classes stay text, whatever they look like."""

# Figures are white cards in either scheme; the rest takes the colours of the reader's.
PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 62rem; padding: 0 1rem 3rem; }}
h1 {{ font-size: 1.6rem; }}
h2 {{ font-size: 1.2rem; margin-top: 2.2rem; }}
img {{ background: white; border-radius: 6px; box-sizing: border-box; padding: 8px; width: 100%; }}
em {{ font-size: 0.85rem; opacity: 0.8; }}
li {{ overflow-wrap: anywhere; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; }}
td, th {{ border-bottom: 1px solid #8886; padding: 0.25rem 0.6rem; white-space: nowrap; }}
</style>
</head>
<body>
{body}
</body>
</html>
"""
NARROW = "(max-width: 640px)"
"""Screens on which a figure of two columns would have letters of less than 2 mm."""


@dataclass(frozen=True)
class InlinePicture:
    """A figure for two columns and for one, as SVG; `link` is where Markdown finds it, `alt` what it is."""

    alt: str
    link: str
    wide: bytes
    narrow: bytes

    @property
    def markdown(self) -> str:
        """The line that shows it in a report."""
        return f"![{self.alt}]({self.link})"

    @property
    def html(self) -> str:
        """The element that holds it whole."""
        wide, narrow = _data(self.wide), _data(self.narrow)
        source = f'<source media="{NARROW}" srcset="{narrow}">'
        return f'<picture>{source}<img alt="{escape(self.alt)}" src="{wide}"></picture>'


def to_html(text: str, pictures: Sequence[InlinePicture]) -> str:
    """The report in Markdown as a page, with its pictures in the place of their links."""
    converter = Markdown(extensions=["tables", "sane_lists"])
    converter.preprocessors.deregister("html_block")
    for name in RAW_OR_LINK:
        converter.inlinePatterns.deregister(name)
    body = converter.convert(text)
    for one in pictures:
        body = body.replace(f'<img alt="{escape(one.alt)}" src="{escape(one.link)}" />', one.html)
    body = body.replace("<table>", '<div class="scroll"><table>')
    body = body.replace("</table>", "</table></div>")
    title = text.splitlines()[0].removeprefix("# ")
    return PAGE.format(title=escape(title), body=body)


def _data(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def write_report(
    folder: Path,
    expected_rows: Sequence[str] = (),
    class_names: Sequence[str] = (),
    output: Path | None = None,
) -> None:
    """Write report.md, report.html and figures/ into `output`, by default `folder`.

    `folder` is what `figures.build.load_results` takes. `expected_rows` are listed as not run where they have
    no run. `class_names`: those of the classes 0, 1, …; without them they are numbers. Raises InputError
    where a file cannot be understood, or a run has more classes than there are names.
    """
    comparison, rows = load_results(folder)
    class_names = class_names or comparison.class_names
    _check_names(comparison, folder, class_names)
    runs = RunsDir(output or folder)
    drawn = pictures(comparison, rows, class_names)
    inline = [_write_picture(picture, runs) for picture in drawn]
    lines = {
        picture.name: f"{one.markdown}\n\n*{picture.caption}*"
        for picture, one in zip(drawn, inline, strict=True)
    }
    text = render(folder.resolve().name, comparison, lines, expected_rows, class_names)
    atomic_write_text(runs.report_md, text)
    atomic_write_text(runs.report_html, to_html(text, inline))


def _write_picture(picture: Picture, runs: RunsDir) -> InlinePicture:
    """Write its files, and say how the report names it and what it is made of."""
    runs.figures.mkdir(parents=True, exist_ok=True)
    wide, narrow = picture.draw(2), picture.draw(1)
    link = runs.figure(picture.name, "png")
    files = {
        link: wide.file("png"),
        runs.figure(picture.name, "svg"): wide.file("svg"),
        runs.figure(f"{picture.name}_narrow", "svg"): narrow.file("svg"),
    }
    for path, content in files.items():
        with atomic_file(path) as file:
            file.write(content)
    _, wide_svg, narrow_svg = files.values()
    return InlinePicture(picture.alt, link.relative_to(runs.root).as_posix(), wide_svg, narrow_svg)


def _check_names(comparison: Comparison, folder: Path, class_names: Sequence[str]) -> None:
    num = num_classes(comparison)
    if class_names and num > len(class_names):
        problem = f"{folder}: its runs have {num} classes or more, but {len(class_names)} have"
        raise InputError([f"{problem} a name: give the file of their data set, or leave it out"])


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m mgexp.results.report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="folder of runs <row>/seed<N>, or of YAMLs")
    parser.add_argument("--output", type=Path, help="folder for the report (default: the same)")
    parser.add_argument("--classes", type=Path, help="names of the classes, a class a line")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Parse, write the report, say where it is."""
    options = parse(arguments)
    try:
        names = read_class_names(options.classes) if options.classes else ()
        yamls = tuple(sorted(path.stem for path in options.folder.glob("*.yaml")))
        write_report(options.folder, yamls, names, options.output)
    except InputError as error:
        print(f"report: {error}", file=sys.stderr)
        return 2
    written = RunsDir(options.output or options.folder)
    print(f"{written.report_md}\n{written.report_html}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
