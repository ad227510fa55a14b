"""The report of fake runs, its numbers worked out by hand; and its page, which needs nothing but itself."""

import re
from base64 import b64encode

import numpy as np
import pytest
import yaml
from fake_runs import CONFIG, fake_run, save_predictions, unfinished_run
from markdown_tables import row, section, tables

from mgexp.results.render import Picture, render_report
from mgexp.results.report import to_html, write_value_report
from mgexp.results.store import load_comparison, load_runs, read_stored, write_stored
from mgexp.results.tables import read_mistakes
from mgexp.run.files import append_jsonl, json_line, read_json, read_jsonl, write_json
from mgexp.run.folder import RunDir

NAMES = ("open", "close", "push|pull")


@pytest.fixture
def report(tmp_path):
    def call(expected_rows=(), names=()):
        comparison = load_comparison(tmp_path).with_class_names(names, tmp_path)
        return render_report("runs", comparison, (), expected_rows)

    return call


@pytest.fixture
def two_rows(tmp_path):
    for seed, seconds in ((1, 200.0), (2, 220.0)):
        controls = {"repeated": 40.0 + seed, "shuffled": 50.0, "reversed": 20.0}
        base = {"top1": 97.0, "train_seconds": seconds, "controls": controls}
        own = {"top1": 96.0 + 0.4 * seed, "train_seconds": 80.0, "train_flops": 2.5e13}
        fake_run(tmp_path, "baseline", seed, **base)
        fake_run(tmp_path, "long_short", seed, **own, steps=250, epochs=24.0)


def test_the_table_of_rows(report, two_rows):
    (table,) = tables(report(), "## Rows")
    # Steady: (196/76, 216/76) = 2.5789, 2.8421. Waiting: (5/200 + 5/220)/2 = 2.386 %.
    assert row(table, "baseline") == {
        "row": "baseline",
        "seeds": "1, 2",
        "top-1 (%)": "97.00",
        "95 % interval of the test videos": "95.9 to 97.8",
        "steps": "1,000",
        "epochs": "8.0",
        "training FLOPs (10¹²)": "100.0",
        "training (s)": "210 (200–220)",
        "speed-up, FLOPs": "1.00×",
        "speed-up, wall-clock": "1.00×",
        "steady speed-up": "1.00×",
        "waiting for input": "2.4 %",
    }
    assert [*row(table, "long_short").values()] == [
        *("long_short", "1, 2", "96.60 (96.40–96.80)", "95.4 to 97.5", "250", "24.0", "25.0", "80"),
        *("4.00×", "2.62× (2.50–2.75)", "2.71× (2.58–2.84)", "6.2 %"),
    ]


def test_the_table_of_differences(report, two_rows):
    # Speed-ups 2.5 and 2.75: logarithms of mean 0.96394, error 0.04766, times 12.706.
    # Steady FLOP/s: (25/76)/(100/196) = 0.6447 and (25/76)/(100/216) = 0.7105.
    ((found,),) = tables(report(), "## Against the baseline")
    assert [*found.values()] == [
        *("long_short", "1, 2", "−0.40", "−2.94 to +2.14", "1.43× to 4.80×"),
        *("0.25×", "3.00×", "0.68× (0.64–0.71)"),
    ]


def shorter_run(folder, seed, **numbers):
    """Make a run of a baseline with as many FLOPs as long_short."""
    run = fake_run(folder, "as_long_short", seed, **numbers)
    write_json(
        run.result_json, {**read_json(run.result_json), "row": "baseline, FLOPs of long_short"}
    )


@pytest.mark.parametrize("in_budget", [True, False])
def test_shorter_baselines_stand_beside_the_row_of_their_flops(
    report, two_rows, tmp_path, in_budget
):
    assert "## At equal FLOPs" not in report()
    for seed, top1 in ((1, 86.4), (2, 90.8)):
        place = tmp_path / "budget" if in_budget else tmp_path
        shorter_run(place, seed, top1=top1, epochs=2.5)
    assert [row["row"] for row in tables(report(), "## Rows")[0]] == ["baseline", "long_short"]
    # Differences 10 and 6: mean 8, error 2, times 12.706.
    ((found,),) = tables(report(), "## At equal FLOPs")
    assert [*found.values()] == [
        *("long_short", "1, 2", "96.60 (96.40–96.80)", "88.60 (86.40–90.80)", "2.5"),
        *("+8.00", "−17.41 to +33.41"),
    ]


def test_controls_beside_the_baseline(report, two_rows, tmp_path):
    fake_run(tmp_path, "coarse", 1, top1=70.0, train_seconds=20.0)
    text = report()
    (table,) = tables(text, "## Controls")
    # Repeated: 41 and 42 against 97: mean -55.5, error 0.5, times 12.706.
    assert [[*line.values()][1:] for line in table] == [
        ["1, 2", "41.50 (41.00–42.00)", "−55.50", "−61.85 to −49.15"],
        ["1, 2", "50.00", "−47.00", "−47.00 to −47.00"],
        ["1, 2", "20.00", "−77.00", "−77.00 to −77.00"],
        ["seed 1", "70.00", "−27.00", "needs two seeds"],
    ]
    assert "**coarse**" not in text


def test_what_is_missing_is_listed(report, two_rows, tmp_path):
    unfinished_run(tmp_path, "short", 1, steps=5)
    unfinished_run(tmp_path, "short", 2)
    path = fake_run(tmp_path, "coarse", 1).result_json
    write_json(path, {**read_json(path), "precision": "bf16"})
    lines = section(report(("baseline", "short", "long", "long_short")), "## Not in the tables")
    names = ["long", "short, seed 1", "short, seed 2", "coarse, seed 2", "coarse, seed 1"]
    assert [line[2:].partition(":")[0] for line in lines] == names
    assert "bf16" in lines[4]


# --- what comes first


def test_data_and_guessing_come_before_the_tables(report, two_rows, tmp_path):
    for seed in (1, 2):
        counts = ((0, 0, 900), (1, 0, 36), (1, 1, 264))
        save_predictions(RunDir(tmp_path / "baseline" / f"seed{seed}"), counts)
    before = report().split("## Rows")[0]
    # 100/1200 = 0.083, and 900 of the 1200 videos have the most common class.
    for said in ("960 training videos", "1,200 test videos", "0.08 points", "75.00 %"):
        assert said in before


def save_scores(run, right):
    """Four videos of class 0, of which the network calls the first ``right`` so."""
    scores = np.array([[0.8, 0.2]] * right + [[0.1, 0.9]] * (4 - right), np.float32)
    videos = np.array([f"/videos/{n}.mp4" for n in range(4)])
    np.savez(run.scores("1x1_forward"), videos=videos, labels=np.zeros(4, int), scores=scores)


def test_test_videos_count_once_where_only_some_runs_have_their_scores(report, tmp_path):
    """Two of four videos right: 15.0 to 85.0 % by Wilson. With eight videos it would be 21.5 to 78.5 %."""
    for seed in (1, 2):
        run = fake_run(tmp_path, "baseline", seed, top1=50.0)
        lines = [{**line, "num_videos": 4} for line in read_jsonl(run.evaluations_jsonl)]
        run.evaluations_jsonl.write_text("".join(map(json_line, lines)))
    save_scores(run, 2)
    (found,) = tables(report(), "## Rows")[0]
    assert found["95 % interval of the test videos"] == "15.0 to 85.0"


def test_groups_beside_the_validation_list_are_counted(report, tmp_path):
    """Videos 2 and 3 are a group, and the others a group each. The deviations have the squares ¼, ¼ and 1.

    √(3/2 · 1.5) / 4 is 37.5 points, and Student's t is 4.303. The groups are stored beside the rows too.
    """
    run = fake_run(tmp_path / "runs", "baseline", 1, top1=50.0)
    lines = [{**line, "num_videos": 4} for line in read_jsonl(run.evaluations_jsonl)]
    run.evaluations_jsonl.write_text("".join(map(json_line, lines)))
    save_scores(run, 2)
    (found,) = load_comparison(tmp_path / "runs").rows
    assert found.runs[1].videos.groups == []
    data = f"DATA:\n  VAL_LIST: {tmp_path}/val.csv\n  PATH_PREFIX: /videos\n"
    run.config_yaml.write_text(data)
    (tmp_path / "groups.json").write_text('{"0.mp4": "a", "2.mp4": "b", "3.mp4": "b"}')
    comparison = load_comparison(tmp_path / "runs")
    assert comparison.rows[0].runs[1].videos.groups == [0, 1, 2, 2]
    write_stored(tmp_path / "runs.jsonl", comparison)
    for each in (comparison, read_stored(tmp_path / "runs.jsonl")):
        text = render_report("runs", each)
        assert "4 test videos in 3 groups: one of them is 25.00 points." in text
        assert tables(text, "## Rows")[0][0]["95 % interval of the test videos"] == "0.0 to 100.0"


def test_a_video_is_worth_points_of_accuracy_and_not_of_map(report, tmp_path):
    run = fake_run(tmp_path, "baseline")
    assert "1,200 test videos: one of them is 0.08 points." in report()
    write_json(run.result_json, {**read_json(run.result_json), "metrics": {"map": 40.0}})
    assert "1,200 test videos.\n" in report()


def test_a_smoke_run_is_marked_and_its_command_shown(report, tmp_path):
    run = fake_run(tmp_path, "baseline")
    given = ["TRAIN.BATCH_SIZE", "RNG_SEED", "--smoke"]
    append_jsonl(run.starts_jsonl, {"changes": [], "given": given})
    text = report()
    assert "Smoke runs" in text
    command = f"--cfg experiments/{tmp_path.name}/baseline.yaml --smoke --seed 1 TRAIN.BATCH_SIZE 8"
    assert f"python tools/run_net.py {command}" in text


def test_the_command_of_an_own_run_has_the_configuration_of_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = fake_run(tmp_path / "my project" / "runs", "baseline", 0)
    write_json(run.result_json, {**read_json(run.result_json), "experiment": "baseline"})
    append_jsonl(run.starts_jsonl, {"changes": [], "given": ["RNG_SEED"]})
    folder = "my project/runs/baseline/seed0"
    assert load_runs(run.root.parents[1]).baseline.runs[0].command == (
        f"python tools/run_net.py --cfg '{folder}/config.yaml' --output '{folder}' --seed 0"
    )


def test_a_command_names_the_files_of_its_import(report, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = fake_run(tmp_path, "baseline")
    own = f"{tmp_path}/my, nets.py (0123456789ab), /other/loss.py (ba9876543210)"
    for imports in (own, "/later/x.py (0123456789ab)"):
        append_jsonl(run.starts_jsonl, {"changes": [], "given": [], "imports": imports})
    command = "baseline.yaml --import 'my, nets.py' --import /other/loss.py\n"
    assert f"--cfg experiments/{tmp_path.name}/{command}" in report()


# --- classes


@pytest.fixture
def confused(tmp_path):
    """Baseline of two seeds; long_short is faster than short."""
    of_seeds = (
        ((0, 0, 3), (0, 1, 1), (1, 1, 4), (2, 2, 4)),
        ((0, 0, 2), (0, 2, 2), (1, 0, 1), (1, 1, 3), (2, 2, 4)),
    )
    for seed, counts in enumerate(of_seeds, start=1):
        save_predictions(fake_run(tmp_path, "baseline", seed), counts)
    shorter_run(tmp_path, 1, train_seconds=20.0)
    for name, seconds in (("short", 80.0), ("long_short", 40.0), ("coarse", 10.0)):
        run = fake_run(tmp_path, name, 1, train_seconds=seconds)
        save_predictions(run, ((0, 0, 4), (1, 2, 4), (2, 2, 4)))


def test_the_worst_classes_and_pairs_of_the_baseline_and_the_fastest_row(report, confused):
    worst, pairs = tables(report(names=NAMES), "## Classes")
    # Baseline, both seeds: class 0 5 of 8, taken twice for class 2; class 1 7 of 8; class 2 is perfect.
    assert [[*line.values()] for line in worst] == [
        ["baseline", "open", "8", "62.5", r"push\|pull"],
        ["baseline", "close", "8", "87.5", "open"],
        ["long_short", "close", "4", "0.0", r"push\|pull"],
    ]
    assert [[*line.values()] for line in pairs] == [
        ["baseline", "open", r"push\|pull", "2", "25.0 %"],
        ["baseline", "open", "close", "1", "12.5 %"],
        ["baseline", "close", "open", "1", "12.5 %"],
        ["long_short", "close", r"push\|pull", "4", "100.0 %"],
    ]


# --- mistakes


def test_the_most_confident_mistake_comes_first(tmp_path):
    scores = np.array([[0.7, 0.3], [0.4, 0.6], [0.1, 0.9], [0.8, 0.2]], np.float32)
    videos = np.array([f"/data/videos/{name}.mp4" for name in ("right", "unsure", "sure", "too")])
    run = fake_run(tmp_path, "baseline", 0, top1=50.0)
    np.savez(run.scores("1x1_forward"), videos=videos, labels=np.zeros(4, int), scores=scores)
    runs = load_runs(tmp_path).with_class_names(("open", "close"), tmp_path)
    mistakes = read_mistakes(tmp_path, runs)
    assert [(each["video"], each["predicted"], round(each["confidence"])) for each in mistakes] == [
        ("videos/sure.mp4", "close", 90),
        ("videos/unsure.mp4", "close", 60),
    ]


# --- the table of a sweep: a line for each value


@pytest.fixture
def sweep(tmp_path):
    """Two learning rates of one row, which sort as numbers, and two seeds of the first."""
    for rate, seed, top1 in ((0.05, 0, 90.0), (0.05, 1, 92.0), (0.4, 0, 80.0)):
        folder = tmp_path / "runs" / f"SOLVER.BASE_LR={rate}" / "quickstart"
        run = fake_run(folder, "baseline", seed, top1=top1, train_seconds=100.0 + seed)
        values = {**CONFIG, "SOLVER": {**CONFIG["SOLVER"], "BASE_LR": rate}, "RNG_SEED": seed}
        run.config_yaml.write_text(yaml.safe_dump(values))
    return tmp_path / "runs"


def test_each_value_has_a_line_with_mean_and_interval(sweep):
    place = write_value_report(sweep)
    (table,) = tables(place.report_md.read_text(), "## Values")
    # 90 and 92: deviation 1.414, error 1, times 12.706 for one degree of freedom.
    assert [[*line.values()] for line in table] == [
        ["quickstart/baseline", "0.05", "0, 1", "91.00 ± 12.71", "1,000", "100 (100–101)"],
        ["quickstart/baseline", "0.4", "seed 0", "80.00, one seed", "1,000", "100"],
    ]
    assert "SOLVER.BASE_LR" in table[0]
    assert "0.05" in place.report_html.read_text()


def test_equal_names_in_two_projects_are_no_values(sweep):
    """A YAML outside experiments/ is named by its file alone."""
    for number, place in enumerate(sorted(sweep.glob("*/quickstart/baseline/*"))):
        write_json(
            place / "result.json", {**read_json(place / "result.json"), "experiment": "baseline"}
        )
        values = yaml.safe_load((place / "config.yaml").read_text())
        values["DATA"] = {"TRAIN_LIST": f"project{number // 2}/train.csv"}
        (place / "config.yaml").write_text(yaml.safe_dump(values))
    assert write_value_report(sweep) is None


# --- the page

PICTURE = Picture("accuracy", "accuracy & more", "What it shows.", b"png", b"<svg>accuracy</svg>")


def test_the_page_loads_nothing_and_runs_no_script():
    page = to_html("# runs\n\n![accuracy & more](figures/accuracy.png)\n", [PICTURE])
    assert f'src="data:image/svg+xml;base64,{b64encode(PICTURE.svg).decode()}"' in page
    assert "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\"" in page
    assert "<script" not in page
    assert re.findall(r'(?:src|srcset|href)="(?!data:)[^"]*"', page) == []
