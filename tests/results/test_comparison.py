"""Rows, pairs and controls of hand-made run folders."""

from __future__ import annotations

import pytest
from fake_runs import fake_run, unfinished_run

from mgexp.errors import InputError
from mgexp.results.compare import control, load_comparison
from mgexp.run.files import append_jsonl, read_jsonl
from mgexp.run.folder import RunDir


def test_pairs_are_of_the_same_seed_and_setting(tmp_path):
    for seed in (1, 2, 3):
        fake_run(tmp_path, "baseline", seed, train_seconds=100.0 * seed)
    fake_run(tmp_path, "long", 1, train_seconds=50.0)
    fake_run(tmp_path, "long", 2, train_seconds=50.0, threads=1)
    fake_run(tmp_path, "long", 4, train_seconds=50.0)
    comparison = load_comparison(tmp_path)
    long = comparison.row("long")
    assert [run.result.seed for run, _ in comparison.pairs(long)] == [1]
    assert comparison.pairs(long).ratios(lambda run: run.result.train_seconds) == (2.0,)
    assert comparison.seeds == (1, 2, 3, 4)


def test_rows_come_in_the_order_of_the_paper_the_control_last(tmp_path):
    for row in ("coarse", "zebra", "long_short", "another", "baseline", "long", "short"):
        unfinished_run(tmp_path, row)
    names = [row.name for row in load_comparison(tmp_path).rows]
    assert names == ["baseline", "short", "long", "long_short", "another", "zebra", "coarse"]


def test_a_control_is_compared_under_the_same_protocol(tmp_path):
    # The last evaluation in training, 1 view of 240 videos, must not be taken for the final one.
    fake_run(tmp_path, "baseline", top1=97.0, curve=((90.0, 80.0),), controls={"shuffled": 60.0})
    run = load_comparison(tmp_path).row("baseline").runs[1]
    changed, plain = control(run, "shuffled")
    assert (changed.score, plain.score) == (60.0, 97.0)
    assert control(run, "repeated") is None


def test_a_control_with_other_views_is_not_compared(tmp_path):
    run = fake_run(tmp_path, "baseline", controls={"shuffled": 60.0})
    plain, changed = read_jsonl(run.evaluations_jsonl)
    run.evaluations_jsonl.unlink()
    for line in (plain, {**changed, "views": 1}):
        append_jsonl(run.evaluations_jsonl, line)
    assert control(load_comparison(tmp_path).row("baseline").runs[1], "shuffled") is None


def test_a_seed_that_is_not_the_folders_is_bad_input(tmp_path):
    run = fake_run(tmp_path, "baseline", seed=1)
    run.root.rename(run.root.with_name("seed2"))
    with pytest.raises(InputError, match="another seed"):
        load_comparison(tmp_path)


def test_a_run_that_went_on_elsewhere_compares_with_no_other(tmp_path):
    for row in ("baseline", "long"):
        fake_run(tmp_path, row, threads=2)
    moved = RunDir(tmp_path / "long" / "seed1")
    for threads in (2, 16):
        append_jsonl(moved.starts_jsonl, {"threads": threads, "changes": []})
    comparison = load_comparison(tmp_path)
    (row,) = (row for row in comparison.finished if row.name == "long")
    assert row.runs[1].environment["threads"] == "2, then 16"
    assert comparison.pairs(row) == ()
