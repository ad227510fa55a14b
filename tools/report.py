"""Write the report on a folder of rows with its figures: what was saved, what was lost, and how it was measured.

    python tools/report.py runs/quickstart           the runs of a folder
    python tools/report.py experiments/quickstart --output runs/report    the runs stored beside their YAMLs
    python tools/report.py experiments/main/k400_slowfast_8x8_r50    YAMLs alone: their schedules
    python tools/report.py runs/sweeps/quickstart/runs               a sweep: a line for each value

The tool writes report.md, report.html, which is one file with all figures in it, and figures/ (as PNG and SVG). In
the folder of a study, figures/ belongs to the page of the study, so --output must name another one.
Exit 0; 2 if the folder holds neither runs nor YAMLs, or if a file cannot be understood; 4 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mgexp.config.study import STUDY_YAML, row_yamls
from mgexp.data.classes import read_class_names
from mgexp.errors import InputError
from mgexp.figures.report_figures import report_with_figures
from mgexp.options import ToolParser, add_import_option, local_folder, run_tool
from mgexp.results.report import write_value_report
from mgexp.run.folder import RunsDir


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = ToolParser(__doc__)
    add_import_option(parser)
    parser.add_argument("folder", type=Path, help="folder of runs <row>/seed<N>, or of YAMLs")
    parser.add_argument(
        "--output", type=local_folder, help="folder for the report (default: the same)"
    )
    text = "names of the classes, as DATA.CLASSES takes (default: those that the runs keep)"
    parser.add_argument("--classes", type=Path, help=text)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    names = read_class_names(options.classes) if options.classes else ()
    rows = [path.stem for path in row_yamls(options.folder)]
    output = options.output or options.folder
    if (output / STUDY_YAML).is_file():
        problem = f"{output / 'figures'} belongs to the page of tools/study.py"
        raise InputError([f"{problem}: give another folder with --output"])
    has_rows = rows or any(RunsDir(options.folder).runs())
    # The runs of a sweep lie in a folder for each choice of values.
    if has_rows or not write_value_report(options.folder, output):
        report_with_figures(options.folder, rows, names, output)
    written = RunsDir(output)
    print(f"{written.report_md}\n{written.report_html}")
    return 0


if __name__ == "__main__":
    sys.exit(run_tool(main))
