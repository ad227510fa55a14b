"""Reports on folders of rows, with their figures: what was saved, what was lost, and how it was measured.

    python -m mgexp.record.report runs/quickstart           the runs of a folder
    python -m mgexp.record.report experiments/quickstart    the runs that are stored beside their YAMLs
    python -m mgexp.record.report experiments/main/k400_slowfast_8x8_r50    YAMLs alone: their schedules

Writes report.md, report.html, which is one file with all figures in it, and figures/ (SVG and PNG for two columns,
SVG for one: *_narrow.svg). Exit 0; 2 where the folder holds nothing of that, or a file cannot be understood.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from mgexp.errors import InputError
from mgexp.record.comparison import Comparison
from mgexp.record.confusion import read_class_names
from mgexp.record.figures.all_figures import Picture, num_classes, pictures
from mgexp.record.figures.build import load_results
from mgexp.record.files import atomic_file, atomic_write_text
from mgexp.record.report_html import InlinePicture, to_html
from mgexp.record.report_text import render
from mgexp.record.run_dir import RunsDir


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
        prog="python -m mgexp.record.report",
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
