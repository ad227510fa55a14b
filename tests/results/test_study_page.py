"""The page of a study: every number from the runs, prose around them, and what is missing."""

from dataclasses import replace

import pytest
from fake_experiments import result
from markdown_tables import row, section, tables

from mgexp.config.study import Study
from mgexp.results.comparison import Comparison, Row
from mgexp.results.render import render_study
from mgexp.results.runs import Evaluation, pack_videos
from mgexp.results.store import StudyRuns

PROSE = "# Four rows\n\nIt shows something.\n\n## The data\n\nBars.\n"
CLOCKS = ("evaluate_seconds", "precise_bn_seconds", "checkpoint_seconds", "shape_warmup_seconds")


def one(name, seed, top1, seconds, flops=1e14, minute=0, **changes):
    """A run of 10 videos that ended at 12:``minute``, with two evaluations."""
    videos = pack_videos((f"v{n}", n < top1 / 10) for n in range(10))
    curve = [
        Evaluation(1, seconds / 2, top1 - 5, 1, 600, False, "forward", round(flops / 2)),
        Evaluation(2, seconds, top1, 1, 3000, True, "forward", round(flops)),
    ]
    if name == "baseline" and seed == 0:
        curve.append(Evaluation(2, seconds, 12.0, 1, 3000, True, "repeated"))
    run = result(
        f"study/{name}",
        seed,
        top1,
        train_seconds=seconds,
        train_flops=flops,
        date=f"2026-11-21T12:{minute:02d}:00+00:00",
        environment={"threads": 2, "cores": 2},
        evaluations=tuple(curve),
    )
    return replace(run, videos=videos, **dict.fromkeys(CLOCKS, 3.5), **changes)


@pytest.fixture
def study(tmp_path):
    for name in ("baseline", "long", "short"):
        (tmp_path / f"{name}.yaml").touch()
    return Study(
        tmp_path,
        ("baseline", "long", "short"),
        {"others": 3},
        margin=1.0,
        target=88.0,
        controls=("repeated",),
        equal_flops=("long",),
    )


@pytest.fixture
def results(study):
    base = [one("baseline", s, 90.0, 100.0, minute=3 * s) for s in range(3)]
    long = [one("long", s, 89.9 - 0.1 * s, 50.0, 5e13, minute=3 * s + 1) for s in range(3)]
    # Beside another program, its seconds do not count, but its accuracy does.
    long[2] = replace(long[2], train_seconds=80.0, program_seconds=90.0, other_cores=0.5)
    as_long = [one("as_long", 0, 80.0, 50.0, 5e13, minute=2)]
    rows = (Row("baseline", dict(enumerate(base))), Row("long", dict(enumerate(long))))
    shorter = (Row("as_long", {0: as_long[0]}),)
    return StudyRuns(study, Comparison(rows, shorter=shorter))


def page(results, prose=PROSE, **changes):
    return render_study(replace(results, **changes), [], prose, "python tools/study.py here")


def table_of(text, heading):
    (found,) = tables(text, f"## {heading}")
    return found


def seconds_to_target(text):
    _, seconds = tables(text, "## Time to target")
    return seconds


def test_what_is_missing_is_counted(results):
    """Nine runs of rows and three of as_long; seven are there."""
    assert "5 of 12 runs are missing" in page(results)


def test_accuracy_has_an_interval_and_a_verdict(results):
    lines = table_of(page(results), "Accuracy")
    # Differences −0.1, −0.2, −0.3: −0.2 ± 4.303·0.1/√3.
    assert list(row(lines, "long").values()) == [
        *("[long](long.yaml)", "3", "89.80 (89.55 to 90.05)"),
        *("baseline", "3", "−0.20", "−0.45 to +0.05", "**holds**"),
    ]
    # The busy run took 90 s.
    assert row(table_of(page(results), "Where the time went"), "long")["program (s)"] == "75"
    assert len(lines) == 2


def test_the_parts_of_the_time_add_up_to_the_program(results):
    """Of 125 s, 100 are training with 5 of waiting, three parts have 3.5 each, and the rest is 14.5."""
    baseline = Row("baseline", {0: one("baseline", 0, 90.0, 100.0, 4.8e12)})
    text = page(replace(results, comparison=Comparison((baseline,))))
    parts = list(row(table_of(text, "Where the time went"), "baseline").values())[1:]
    # 4.8e12 FLOPs in the 96 s of training without the first use of shapes.
    shares = ["80.0 %", "4.0 %", "2.8 %", "2.8 %", "2.8 %", "11.6 %"]
    assert parts == ["125", *shares, "3.5", "50"]


@pytest.mark.parametrize(
    ("place", "controls"), [("coarse", ["repeated"]), ("coarse", []), ("../other/coarse", [])]
)
def test_the_control_at_the_coarsest_shape_is_in_the_table_of_controls_alone(
    place, controls, study, results
):
    coarse = Row("coarse", {0: one("coarse", 0, 40.0, 20.0, 1e13)})
    rows = replace(results.comparison, rows=(*results.comparison.rows, coarse))
    path = study.folder / f"{place}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.touch()
    study = replace(study, rows=(*study.rows, place), controls=(*controls,))
    text = page(replace(results, study=study, comparison=rows))
    rows_shown = [found["row"] for found in table_of(text, "Accuracy")]
    assert rows_shown == ["[baseline](baseline.yaml)", "[long](long.yaml)"]
    assert row(table_of(text, "Controls"), "coarsest shape alone")["top-1 (%)"] == "40.00"


def test_speed_ups_leave_busy_runs_out(results):
    found = row(table_of(page(results), "Training time"), "long")
    assert found["pairs with seconds"] == "2"
    assert (found["speed-up, seconds"], found["speed-up, FLOPs"]) == ("2.00×", "2.00×")
    assert "study/long (seed 2)" in page(results)


def test_time_to_target_counts_misses(results):
    """Half-way the baseline has 85 %, at the end 90 %; long ends at 89.9 and 89.8 %."""
    lines = seconds_to_target(page(results))
    assert list(row(lines, "baseline").values())[1:] == ["3 of 3", "100.0", "100.0", "–"]
    assert list(row(lines, "long").values())[1:] == ["2 of 2", "50.0", "50.0", "2.00×"]
    higher = replace(results.study, target=89.85)
    lines = seconds_to_target(page(results, study=higher))
    assert list(row(lines, "long").values())[1:] == ["1 of 2", "∞", "50.0", "0.00×"]


def test_time_to_target_compares_pairs_of_the_machine_that_it_names(results):
    """Seed 1 ran elsewhere, four times as fast as the baseline."""
    elsewhere = {"threads": 1, "cores": 1}
    base, long = (dict(row.runs) for row in results.comparison.rows)
    base[1] = replace(base[1], environment=elsewhere)
    long[1] = replace(one("long", 1, 89.8, 25.0, 5e13), environment=elsewhere)
    found = Comparison((Row("baseline", base), Row("long", long)))
    text = page(results, comparison=found)
    assert [*row(seconds_to_target(text), "long").values()][-1] == "2.00×"


def test_time_to_target_in_flops_counts_all_runs(results):
    """The runs of long do half of the FLOPs at their first evaluation."""
    text = page(results)
    found, _ = tables(text, "## Time to target")
    assert list(row(found, "baseline").values())[1:] == ["3 of 3", "100.0", "100.0", "–"]
    # The busy run counts here.
    assert list(row(found, "long").values())[1:] == ["3 of 3", "50.0", "50.0", "2.00×"]


def test_the_seconds_of_early_runs_do_not_count(results):
    """Those of seeds 0 and 1 ended before 12:05."""
    study = replace(results.study, seconds_since="2026-11-21T12:05+00:00")
    comparison = results.comparison.timed_since(study.since)
    text = page(results, study=study, comparison=comparison)
    assert row(table_of(text, "Accuracy"), "long")["pairs"] == "3"
    assert row(table_of(text, "Training time"), "long")["pairs with seconds"] == "0"
    assert row(table_of(text, "Training time"), "long")["speed-up, FLOPs"] == "2.00×"
    assert row(seconds_to_target(text), "baseline")["reached"] == "1 of 1"
    # Seed 2 of long is busy.
    assert [line["row"] for line in table_of(text, "Where the time went")] == ["baseline"]
    assert "5 runs that ended before 2026-11-21 12:05 UTC" in text


def test_the_baseline_with_the_same_budget(results):
    (found,) = table_of(page(results), "The baseline with the same budget")
    assert found["the same"] == "FLOPs"
    assert found["baseline"] == "[as_long](budget/as_long.yaml)"
    assert (found["row minus baseline"], found["its FLOPs / the row's"]) == ("+9.90", "1.000×")


def test_single_videos_and_controls(results):
    found = row(table_of(page(results), "Video by video"), "long, against as_long")
    assert (found["only the row right"], found["only the base right"]) == ("1", "0")
    assert found["difference (points)"] == "+10.00"
    # There is one verdict on a page, and it is in the table of accuracies.
    assert page(results).count("not worse by 1 point ") == 1
    # The study has neither the other orders nor the row of the coarsest shape.
    assert len(table_of(page(results), "Controls")) == 1
    repeated = row(table_of(page(results), "Controls"), "one frame repeated")
    assert (repeated["top-1 (%)"], repeated["difference (points)"]) == ("12.00", "−78.00")


def test_results_that_do_not_count_are_named(results):
    other = replace(results.comparison.row("long").runs[1], precision="bf16")
    long = Row("long", {1: other})
    comparison = replace(results.comparison, rows=(results.comparison.row("baseline"), long))
    text = page(results, comparison=comparison, of_another_recipe=(other,))
    lines = section(text, "## To run it again")
    assert lines[-2].startswith("1 stored run does not count") and "study/long" in lines[-2]
    assert "long, seed 1: not compared with baseline" in lines[-1]


def test_a_page_before_any_run_says_what_will_be_run(study):
    nothing = StudyRuns(study, Comparison(()))
    text = render_study(nothing, [], PROSE, "python tools/study.py x")
    assert "12 of 12 runs are missing" in text
    assert "## Accuracy" not in text
    assert "python tools/study.py x" in text


def test_a_baseline_of_another_name_is_the_baseline_of_the_figures(results):
    other = replace(results.study, rows=("long", "baseline"), baseline="long", equal_flops=())
    shown = replace(results, study=other)
    assert [one.name for one in shown.for_figures.rows] == ["row baseline", "baseline"]
    assert shown.for_figures.baseline.scores == results.comparison.row("long").scores
    assert [pair.own.name for pair in shown.pairs] == ["baseline"]
