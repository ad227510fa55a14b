"""experiments/README.md of small trees, its cells worked out by hand; that of this repository is not stale."""

from pathlib import Path

import pytest
from fake_experiments import experiments_with, result
from fake_runs import fake_run
from markdown_tables import section, tables
from overview import (
    Published,
    read_published,
    render_overview,
    row_names,
    stored_runs,
    write_overview,
)

from mgexp.errors import InputError
from mgexp.results.runs import VideoScores
from mgexp.results.store import load_runs, write_stored

OVER_BASE = "_BASE_: ../base/small.yaml\n"
YAMLS = {
    "base/small": "TRAIN:\n  BATCH_SIZE: 8\n",
    "quickstart/baseline": OVER_BASE,
    "quickstart/long_short": OVER_BASE + "ROW: long+short\n",
    "quickstart/coarse": OVER_BASE + "ROW: coarsest shape alone\n",
    "quickstart/short": OVER_BASE + "LOG_PERIOD: 2\n",
}


@pytest.fixture
def page(tmp_path):
    def make(yamls, *results, published=""):
        root = tmp_path / "experiments"
        write_overview(experiments_with(root, yamls, *results, published=published))
        return (root / "README.md").read_text(encoding="utf-8")

    return make


def three_seeds(name, *tops, **changes):
    return [result(name, seed, top1, **changes) for seed, top1 in enumerate(tops)]


def test_rows_with_a_score(page):
    text = page(
        YAMLS,
        *three_seeds("quickstart/baseline", 97.75, 98.0, 98.25, train_seconds=200.0),
        *three_seeds("quickstart/long_short", 97.0, 97.0, 96.25, train_flops=2.5e13),
        result("quickstart/coarse", 0, 48.25),
        published="quickstart/baseline,top1,97.5,A zoo,a note\nquickstart/baseline,top5,99.7,A zoo,\n",
    )
    (rows,) = tables(text, "## Published scores, and ours")
    # There is no score of quickstart/short.
    assert [[*line.values()] for line in rows] == [
        [
            *("[quickstart/baseline](quickstart/baseline.yaml)", "97.5 top-1, 99.7 top-5"),
            *("A zoo; a note", "98.00 ± 0.25 (seeds 0, 1, 2)"),
        ],
        [
            *("[quickstart/long_short](quickstart/long_short.yaml)", "unknown", ""),
            "96.75 ± 0.43 (seeds 0, 1, 2)",
        ],
        ["[quickstart/coarse](quickstart/coarse.yaml)", "unknown", "", "48.25 (seed 0)"],
    ]
    assert "## Studies" not in text


def test_a_study_has_one_line_and_its_rows_none(page, tmp_path):
    for name, rows in (("done", "baseline, long"), ("planned", "baseline")):
        folder = tmp_path / "experiments" / name
        folder.mkdir(parents=True)
        (folder / "study.yaml").write_text(f"rows: [{rows}]\nseeds: 2\nmargin: 1.5\n")
    (tmp_path / "experiments/done/prose.md").write_text("# Two rows\n")
    (tmp_path / "experiments/done/README.md").touch()
    names = ("done/baseline", "done/long", "planned/baseline", "planned/beside")
    text = page(
        {**dict.fromkeys(names, OVER_BASE), "base/small": "MULTIGRID:\n  LONG_CYCLE: True\n"},
        *(result("done/baseline", seed, 90.0 + seed) for seed in range(3)),
        *(result("done/long", seed, 90.0 + 1.1 * seed, train_flops=5e13) for seed in range(3)),
        result("planned/beside", 0, 80.0),
    )
    (studies,) = tables(text, "## Studies")
    # Seed 2 is not of the study. The differences are 0 and 0.1: mean 0.05, half a width of 12.706 × 0.05.
    assert [[*line.values()] for line in studies] == [
        [
            *("[Two rows](done/README.md) (done)", "4 of 4", "1.5", "the paper's"),
            *("+0.05 (−0.59 to +0.69), 2.00× fewer FLOPs: **holds**", ""),
        ],
        ["[planned](planned/study.yaml)", "0 of 2", "1.5", "", "", ""],
    ]
    (rows,) = tables(text, "## Published scores, and ours")
    assert [line["row"] for line in rows] == ["[planned/beside](planned/beside.yaml)"]


@pytest.mark.parametrize(("key", "said"), [("EPOCH_FACTOR: 1.0", "its own"), ("", "the paper's")])
def test_the_schedule_of_a_study(key, said, page, tmp_path):
    (tmp_path / "experiments/s").mkdir(parents=True)
    study = tmp_path / "experiments/s/study.yaml"
    study.write_text("rows: [baseline, long_short]\nseeds: 2\nmargin: 1.5\n")
    text = page(
        {"s/baseline": "ROW: b\n", "s/long_short": f"MULTIGRID:\n  SHORT_CYCLE: True\n  {key}\n"}
    )
    assert tables(text, "## Studies")[0][0]["schedule"] == said


def test_results_that_do_not_count_are_told(page):
    text = page(
        YAMLS,
        result("gone/row"),
        result("quickstart/baseline", 0),
        result("quickstart/baseline", 1, recipe="old", date="2026-11-20T12:00:00+00:00"),
    )
    gone, other = section(text, "## Results that do not count")
    assert "gone/row" in gone
    assert "quickstart/baseline, seed 1" in other


def test_runs_of_another_recipe_precision_or_number_of_videos_do_not_count(page):
    """The learning rate was changed after seed 1, which left the steps and the FLOPs as they were."""
    days = [f"2026-11-{day}T12:00:00+00:00" for day in (20, 21, 22)]
    other = VideoScores(1, "another list", "80")
    text = page(
        {"q/x": "ROW: x\n"},
        result("q/x", 1, 91.0, date=days[2], recipe="old"),
        result("q/x", 2, 92.0, date=days[0], precision="bf16"),
        result("q/x", 4, 92.0, date=days[0], num_train_videos=480),
        result("q/x", 3, 10.0, date=days[0]),
        result("q/x", 5, 12.0, date=days[0], num_train_videos=470, videos=other),
        result("q/x", 0, 11.0, date=days[1]),
    )
    ((row,),) = tables(text, "## Published scores, and ours")
    assert row["ours (%)"] == "11.00 ± 1.00 (seeds 0, 3, 5)"
    left_out = section(text, "## Results that do not count")
    reasons = {2: "bf16, ", 4: "480 training videos", 1: "another recipe"}
    for line, (seed, why) in zip(left_out, reasons.items(), strict=True):
        assert line.startswith(f"- q/x, seed {seed}, on ")
        assert why in line


def test_a_yaml_that_cannot_be_read_here_leaves_the_others_on_the_page(page, tmp_path):
    """Such as the row of a custom model, whose file nobody imports here."""
    (tmp_path / "experiments/mine").mkdir(parents=True)
    study = tmp_path / "experiments/mine/study.yaml"
    study.write_text("rows: [baseline]\nseeds: 1\nmargin: 1\n")
    custom = "MYNET: {WIDTH: 8}\n"
    text = page(
        {"q/own": custom, "q/x": "ROW: x\n", "mine/baseline": custom},
        result("q/own", recipe="any"),
        result("q/x"),
    )
    (rows,) = tables(text, "## Published scores, and ours")
    assert [line["row"] for line in rows] == ["[q/x](q/x.yaml)"]
    left_out = section(text, "## Results that do not count")
    assert [line.partition(":")[0] for line in left_out] == ["- mine", "- q/own"]


def test_moments_are_compared_and_not_their_texts(tmp_path):
    """The first is 11:00 UTC."""
    early = result("q/x", 0, 91.0, date="2026-11-21T13:00:00+02:00", precision="bf16")
    late = result("q/x", 1, 92.0, date="2026-11-21T12:00:00+00:00")
    root = experiments_with(tmp_path, {"q/x": "ROW: x\n"}, early, late)
    assert [run.seed for run in stored_runs(root)] == [0, 1]


def test_the_page_of_this_repository_is_what_its_files_say():
    """Else run: python tools/study.py experiments/quickstart --only-page"""
    root = Path(__file__).parents[2] / "experiments"
    page = root / "README.md"
    assert page.read_text(encoding="utf-8") == render_overview(root, stored_runs(root))


# --- the rows


def test_baselines_come_first_and_numbers_are_in_order(tmp_path):
    names = ("long_short", "short", "baseline", "coarse", "8x", "16x", "0.01", "0.0025")
    no_rows = {"base/small": "", "own_data/mine": OVER_BASE, "t/study": ""}
    rows = {f"t/{name}": OVER_BASE for name in names}
    assert row_names(experiments_with(tmp_path, {**no_rows, **rows})) == [
        *("t/baseline", "t/short", "t/long_short", "t/0.0025", "t/0.01", "t/8x", "t/16x"),
        "t/coarse",
    ]


# --- published.csv

HEADER = "experiment,metric,value,source,note\n"


@pytest.fixture
def table(tmp_path):
    def write(text):
        path = tmp_path / "published.csv"
        path.write_text(text)
        return path

    return write


def test_a_line_is_a_number_with_its_source(table):
    path = table(HEADER + 'main/x,top1,76.8,"A zoo, column ""standard""",\n')
    assert read_published(path) == (
        Published("main/x", "top1", "76.8", 'A zoo, column "standard"', ""),
    )


def test_a_text_with_a_comma_needs_quotes(table):
    with pytest.raises(InputError, match=r"published\.csv"):
        read_published(table(HEADER + "y,map,1.5,a zoo,column, standard\n"))


@pytest.mark.parametrize("name", ["published.csv", "a/study.yaml"])
def test_a_file_in_another_encoding_is_named(name, tmp_path):
    root = experiments_with(tmp_path, {"a/baseline": "ROW: x\n"})
    (tmp_path / name).write_bytes("# Étude\n".encode("cp1252"))
    with pytest.raises(InputError, match=name):
        write_overview(root)


# --- results.csv

HEADINGS = (
    "experiment,row,seed,top1,top5,map,steps,epochs,clips_seen,train_flops,train_seconds,"
    "steady_seconds,input_wait_seconds,program_seconds,device,precision,num_train_videos,commit,date"
)
LINE = (
    "quickstart/baseline,baseline,1,93.4167,99.5,,1000,8.0,7680,100000000000000.0,100.0,"
    "96.0,5.0,125.0,cpu,fp32,960,c0ffee,2026-11-21T12:00:00+00:00"
)


def test_a_run_is_a_line(tmp_path):
    fake_run(tmp_path / "quickstart", "baseline", top1=93.4166667)
    place = tmp_path / "experiments"
    (place / "quickstart").mkdir(parents=True)
    write_stored(place / "quickstart" / "runs.jsonl", load_runs(tmp_path / "quickstart"))
    write_overview(place)
    assert (place / "results.csv").read_text() == f"{HEADINGS}\n{LINE}\n"


def test_the_newest_run_of_a_row_and_seed_counts_wherever_it_is_stored(tmp_path):
    """A study stores rows of other folders too."""
    own, study = tmp_path / "quickstart", tmp_path / "ablations"
    for folder, day in ((own, 2), (study, 3)):
        folder.mkdir()
        run = fake_run(
            tmp_path / str(day) / "quickstart", "long", 0, date=f"2026-11-0{day}T12:00+00:00"
        )
        write_stored(folder / "runs.jsonl", load_runs(run.root.parents[1]))
    (run,) = stored_runs(tmp_path)
    assert run.date == "2026-11-03T12:00+00:00"
