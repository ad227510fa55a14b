"""Append finished runs to experiments/results.csv, write the report of each folder of rows, and all tables.

    python tools/collect.py runs
    python tools/collect.py runs/quickstart --json
    python tools/collect.py runs/quickstart --store    # also for experiments/quickstart and the notebooks

The tables are experiments/README.md. A run that was given other values than its YAML's, on the command line or
by a grid, is told as "not a row". Exit 0, or 2 if a run was refused (its config is not what its YAML says now)
or a file is bad.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import simplejson

from mgexp.config.load import flatten, load_config
from mgexp.errors import InputError
from mgexp.results.collect import collect
from mgexp.results.confusion import read_class_names

EXPERIMENTS = Path(__file__).resolve().parents[1] / "experiments"


def main() -> int:
    """Parse, collect, print."""
    parser = argparse.ArgumentParser(description="Collect finished runs.")
    parser.add_argument("runs", type=Path, help="folder that holds run folders at any depth")
    parser.add_argument(
        "--results",
        type=Path,
        default=EXPERIMENTS / "results.csv",
        help="another table than experiments/results.csv; experiments/README.md stays as it is then",
    )
    parser.add_argument("--classes", type=Path, help="names for the reports, a class a line")
    parser.add_argument(
        "--store",
        action="store_true",
        help="also keep what figures need beside the YAMLs, in runs.jsonl",
    )
    parser.add_argument("--json", action="store_true", help="print for machines")
    arguments = parser.parse_args()
    try:
        names = read_class_names(arguments.classes) if arguments.classes else ()
        summary = collect(
            arguments.runs, arguments.results, EXPERIMENTS, resolve, names, arguments.store
        )
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(simplejson.dumps(summary.as_json(), indent=2) if arguments.json else summary.as_text())
    return 2 if summary.collected.refused else 0


def resolve(experiment: str) -> dict[str, object]:
    """Flat configuration that the YAML of an experiment such as quickstart/baseline means now."""
    return dict(flatten(load_config(EXPERIMENTS / f"{experiment}.yaml", [])))


if __name__ == "__main__":
    sys.exit(main())
