"""What every row of experiments/ keeps to: short, its command, sourced numbers; an ablation changes one key."""

import csv
import re
import shlex
from collections import Counter

import yaml
from tiny import EXPERIMENTS, ROWS

from mgexp.config.check import cross_problems
from mgexp.config.load import flatten, load_config

ABLATIONS = [name for name in ROWS if name.startswith("ablations/")]
MAX_LINES = 15
OF_THE_ROW = {"ROW", "EXPECTED"}
EXPECTING = {"main/k400_slowfast_8x8_r50/long_short"}
"""Rows with the recipe and the test of a published number; the headers of the others say what differs."""
SAME_RUNS = [{"large_batch/sgd_1x", "quickstart/baseline"}]
"""Rows that are one run under two names; every other row has one home."""

with (EXPERIMENTS / "published.csv").open(encoding="utf-8", newline="") as file:
    PUBLISHED = list(csv.DictReader(file))


def base_of(path):
    """The file that a row stands over."""
    base = yaml.safe_load(path.read_text(encoding="utf-8"))["_BASE_"]
    return (path.parent / base).resolve()


def header(name):
    """The comment at the top of a row, without its signs."""
    lines = ROWS[name].read_text(encoding="utf-8").splitlines()
    end = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    return [line.removeprefix("#").strip() for line in lines[:end]]


def command(name):
    """The words of the command in the header."""
    text = "\n".join(header(name)).replace("\\\n", " ")
    (line,) = [line for line in text.splitlines() if line.startswith("python ")]
    return shlex.split(line)


def values(path, pairs=()):
    """Every key of a row but its name and what it expects."""
    found = dict(flatten(load_config(path, pairs)))
    return {key: value for key, value in found.items() if key not in OF_THE_ROW}


def published_of(name):
    """(metric, value) that the table has of a row."""
    return {
        (line["metric"], float(line["value"])) for line in PUBLISHED if line["experiment"] == name
    }


def test_rows_are_short():
    lengths = {name: len(path.read_text().splitlines()) for name, path in ROWS.items()}
    assert len(lengths) > 90
    assert {name: length for name, length in lengths.items() if length > MAX_LINES} == {}


def test_rows_stand_over_a_base_or_another_row():
    bases = {name: base_of(path) for name, path in ROWS.items()}
    allowed = {*ROWS.values(), *(EXPERIMENTS / "base").glob("*.yaml")}
    assert {name: base for name, base in bases.items() if base not in allowed} == {}


def test_the_header_has_the_command_of_the_row():
    wrong = {}
    for name, path in ROWS.items():
        words = command(name)
        expected = ["python", "tools/run_net.py", "--cfg", f"experiments/{name}.yaml"]
        problems = cross_problems(load_config(path, words[4:]))
        if words[:4] != expected or problems:
            wrong[name] = (words, problems)
    assert wrong == {}


def test_the_header_says_what_was_published():
    wrong = {}
    for name in ROWS:
        text = " ".join(header(name))
        said = {(m, float(v)) for m, v in re.findall(r"\b(top1|top5|map) (\d+\.\d+)", text)}
        is_unknown = "Published: unknown" in text
        if text.count("Published: ") != 1 or said != published_of(name) or is_unknown == bool(said):
            wrong[name] = (said, published_of(name))
    assert wrong == {}


def test_a_row_expects_what_was_published_of_the_same_recipe_and_test():
    for name, path in ROWS.items():
        expected = {(metric, value) for metric, value, _ in load_config(path).EXPECTED}
        assert expected == (published_of(name) if name in EXPECTING else set()), name


def test_every_published_number_has_a_source_and_is_of_a_row():
    lines = [(line["experiment"], line["metric"]) for line in PUBLISHED]
    assert list(PUBLISHED[0]) == ["experiment", "metric", "value", "source", "note"]
    assert [name for name, _ in lines if name not in ROWS] == []
    assert max(Counter(lines).values()) == 1
    assert {metric for _, metric in lines} <= {"top1", "top5", "map"}
    assert [line for line in PUBLISHED if not line["source"]] == []
    values = [line["value"] for line in PUBLISHED]
    assert [value for value in values if not value.replace(".", "", 1).isdecimal()] == []


def test_names_of_rows_are_unique_in_a_folder():
    names = Counter((path.parent, load_config(path).ROW) for path in ROWS.values())
    assert [name for name, count in names.items() if count > 1 or not name[1]] == []


def test_every_row_has_one_home():
    homes = {}
    for name, path in ROWS.items():
        homes.setdefault(tuple(sorted(values(path).items())), set()).add(name)
    assert [names for names in homes.values() if len(names) > 1] == SAME_RUNS


def test_an_ablation_changes_one_key_of_its_parent():
    for name in ABLATIONS:
        parent, path = base_of(ROWS[name]), ROWS[name]
        assert parent in ROWS.values(), name
        before, after = values(parent), values(path)
        changed = [key for key in after if after[key] != before[key]]
        assert len(changed) == (5 if path.stem == "paper" else 1), name


def test_one_ablation_of_the_quickstart_is_the_schedule_of_the_paper():
    paper = load_config(EXPERIMENTS / "main" / "k400_slowfast_8x8_r50" / "long_short.yaml")
    found = load_config(ROWS["ablations/quickstart/paper"])
    assert found.MULTIGRID == paper.MULTIGRID
