"""plan.py: measurement, prediction and comparison of a tiny row, and exit codes."""

import shutil

import pytest
import simplejson
from bench_videos import BenchVideos
from tiny import data_keys, load_tool, write_config

FAST = ("--budget-seconds", "0.1")


@pytest.fixture(scope="module")
def plan():
    return load_tool("plan")


@pytest.fixture(scope="module")
def planned(plan, tiny_data, tmp_path_factory):
    """(YAML, the file of its plan)."""
    folder = tmp_path_factory.mktemp("plan")
    cfg = write_config(folder / "tiny.yaml", data_keys(tiny_data))
    output = folder / "plan.json"
    arguments = ["--cfg", str(cfg), *FAST, "--output", str(output)]
    assert plan.main(arguments) == 0
    return cfg, output


def test_the_file_has_measurement_predictions_and_environment(planned):
    found = simplejson.loads(planned[1].read_text())
    assert found["environment"]["commit"]
    (row,) = found["predictions"]
    assert row["row"] == "tiny"
    assert row["train_seconds"] > 0
    assert list(found["measurement"]["loading"]) == ["as configured"]
    steps = sum(leg["steps"] * leg["step"] for leg in row["legs"])
    assert row["train_seconds"] == pytest.approx(
        steps + row["first_use_seconds"] + row["start_seconds"]
    )


def test_seconds_of_clips_are_printed_as_a_key(plan, planned, capsys):
    cfg, output = planned
    assert plan.main(["--cfg", str(cfg), "--from", str(output)]) == 0
    key = capsys.readouterr().out.split("MULTIGRID.CLIP_SECONDS '")[1].split("'")[0]
    steps = simplejson.loads(output.read_text())["measurement"]["steps"]
    wanted = {}
    for step in sorted(steps, key=lambda one: one["clips"]):
        wanted[step["frames"], step["crop"]] = step["seconds"] / step["clips"]
    found = {(frames, crop): seconds for frames, crop, seconds in simplejson.loads(key)}
    assert found == pytest.approx(wanted, rel=1e-3)


def test_loading_is_timed_on_made_videos(plan, tmp_path, monkeypatch):
    """The schedule keeps the number of videos of the configuration."""
    folders = (tmp_path, tmp_path / "store", tmp_path / "shards")
    videos = BenchVideos(tmp_path / "train.csv", *folders)
    made = []
    monkeypatch.setattr(
        plan, "make_bench_videos", lambda folder, progress: made.append(folder) or videos
    )
    cfg = write_config(tmp_path / "tiny.yaml", {"DATA.NUM_VIDEOS": 5000, "DATA.MEAN": [0.5] * 3})
    (row,) = plan.read_rows(plan.parse(["--cfg", str(cfg), "--make-videos", str(tmp_path)]))
    assert made == [tmp_path]
    assert row.num_videos == 5000
    data = row.cfg.DATA
    assert (str(videos.list_file), str(videos.store)) == (data.TRAIN_LIST, data.STORE)
    assert (data.PATH_PREFIX, data.FORMAT, data.MEAN[0]) == (str(tmp_path), "list", 0.5)


def test_it_is_compared_with_a_run(plan, planned, finished_run, capsys):
    arguments = ["--from", str(planned[1]), "--measured-run", str(finished_run), "--json"]
    assert plan.main(arguments) == 0
    (run,) = simplejson.loads(capsys.readouterr().out)["measured_runs"]
    result = simplejson.loads((finished_run / "result.json").read_text())
    assert run["measured_train_seconds"] == result["seconds"]["train"]
    assert run["ratio"] == pytest.approx(
        run["predicted_train_seconds"] / run["measured_train_seconds"]
    )


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("result.json", '{"experiment": "tiny"}', "KeyError: 'steps'"),
        ("metrics.jsonl", '{"clips": 3}\n', "KeyError: 'frames'"),
    ],
)
def test_a_damaged_run_is_one_message(
    name, text, said, plan, planned, finished_run, tmp_path, capsys
):
    run = shutil.copytree(finished_run, tmp_path / "run")
    (run / name).write_text(text)
    assert plan.main(["--from", str(planned[1]), "--measured-run", str(run)]) == 2
    error = capsys.readouterr().err
    assert f"its result.json or metrics.jsonl, or the plan, is damaged ({said}" in error


def test_an_earlier_measurement_serves_other_numbers_of_gpus(plan, planned, capsys):
    cfg, output = planned
    keys = ["TRAIN.BATCH_SIZE", "4"]
    arguments = ["--cfg", str(cfg), "--from", str(output), "--num-gpus", "1", "2", *keys]
    assert plan.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "tiny on 1 process" in printed
    assert "tiny on 2 GPUs" in printed


def test_rows_beside_the_given_one_are_planned(plan, tiny_data, tmp_path, capsys):
    base = write_config(tmp_path / "baseline.yaml", data_keys(tiny_data))
    write_config(tmp_path / "long.yaml", {**data_keys(tiny_data), "MULTIGRID.SHORT_CYCLE": False})
    assert plan.main(["--cfg", str(base), *FAST]) == 0
    rows = capsys.readouterr().out.split("\n\n")[0]
    assert [line.split()[0] for line in rows.splitlines()[2:]] == ["baseline", "long"]


def test_rows_of_different_models_end_with_2(plan, tiny_data, tmp_path, capsys):
    base = write_config(tmp_path / "baseline.yaml", data_keys(tiny_data))
    changes = {"RESNET.WIDTH_PER_GROUP": 16, "TRAIN.MAX_CLIPS_PER_GPU": 16}
    write_config(tmp_path / "long.yaml", {**data_keys(tiny_data), **changes})
    assert plan.main(["--cfg", str(base), *FAST]) == 2
    said = "baseline and long differ in TRAIN.MAX_CLIPS_PER_GPU, RESNET.WIDTH_PER_GROUP, so their"
    assert said in capsys.readouterr().err


def test_loading_is_unknown_without_videos(plan, tmp_path, capsys):
    cfg = write_config(tmp_path / "tiny.yaml", {"DATA.NUM_VIDEOS": 24})
    assert plan.main(["--cfg", str(cfg), *FAST]) == 0
    assert "loading is unknown" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give --cfg, --rows or --from"),
        (["--cfg", "tiny", "--num-gpus", "0"], "--num-gpus 0: give 1 or more"),
        (["--cfg", "tiny", "--budget-seconds", "0"], "--budget-seconds 0: give more than 0"),
        (["--cfg", "tiny", "--workers", "-1"], "--workers -1: give 0 or more"),
        (["--cfg", "tiny", "--bandwidth", "0", "1"], "--bandwidth needs numbers above 0"),
        (["--cfg", "tiny", "--bandwidth", "1", "nan"], "--bandwidth needs numbers above 0"),
        (["--cfg", "tiny", "--output", "nowhere/plan.json"], "there is no folder nowhere"),
        (["--cfg", "tiny", "--num-gpus", "3"], "does not divide over 3 processes"),
        (
            ["--cfg", "tiny", "--from", "planned", "--num-gpus", "4", "--gpus-per-node", "3"],
            "on 4 GPUs: 4 GPUs do not fill nodes of 3: give another number, or nodes of another size\n",
        ),
        (["--cfg", "tiny", "DATA.NO_SUCH_KEY", "1"], "NO_SUCH_KEY"),
        (["--cfg", "tiny", "--rows", "tiny"], "--cfg is not read with --rows: leave one out"),
        (
            ["--from", "planned", "--measured-run", "v", "--num-gpus", "8"],
            "--num-gpus is not read with --from without --cfg or --rows: leave it out",
        ),
        (
            ["--from", "planned", "--measured-run", "v", "--workers", "0"],
            "--workers is not read with --from",
        ),
        (["--from", "planned", "--measured-run", "v", "--cores", "2"], "--cores is not read with"),
        (
            ["--from", "planned", "--measured-run", "v", "TRAIN.BATCH_SIZE", "8"],
            "TRAIN.BATCH_SIZE 8 is not read with --from",
        ),
        (
            ["--from", "planned", "--measured-run", "v", "--latency", "5", "9"],
            "--latency is not read with --from",
        ),
        (
            ["--from", "planned", "--measured-run", "v", "--gpus-per-node", "8"],
            "--gpus-per-node is not read with --from",
        ),
        (
            ["--cfg", "tiny", "--from", "planned", "--budget-seconds", "9"],
            "--budget-seconds is not read with --from, which measures nothing",
        ),
        (
            ["--cfg", "tiny", "TRAIN.COMPILE", "default"],
            "the steps that are timed are not compiled, so they take longer; add TRAIN.COMPILE off",
        ),
        (
            ["--cfg", "tiny", "TRAIN.MAX_CLIPS_PER_GPU", "2"],
            "tiny on 1 GPUs: TRAIN.MAX_CLIPS_PER_GPU = 2 is too few for",
        ),
        (
            ["--cfg", "tiny", "MODEL.MODEL_NAME", "ViT", "MULTIGRID.BATCH_RATIO", "pixels"],
            "does not divide into tubelets",
        ),
        (["--cfg", "tiny", "--from", "nowhere.json"], "nowhere.json"),
        (["--from", "nowhere.json"], "--from alone has nothing to do"),
        (
            ["--cfg", "tiny", "--make-videos", "v"],
            "--make-videos needs the number of training videos",
        ),
        (
            ["--from", "planned", "--measured-run", "v", "--make-videos", "v"],
            "--from measures nothing: leave one out",
        ),
    ],
)
def test_bad_input_ends_with_2(plan, planned, capsys, arguments, said):
    files = {"tiny": str(planned[0]), "planned": str(planned[1])}
    given = [files.get(word, word) for word in arguments]
    assert plan.main(given) == 2
    assert said in capsys.readouterr().err


def test_a_gpu_that_is_asked_for_must_be_here_to_measure(plan, planned, capsys, monkeypatch):
    """A measurement of a machine with a GPU serves everywhere."""
    cfg, output = planned
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    keys = ["DEVICE", "cuda", "TRAIN.MAX_CLIPS_PER_GPU", "2"]
    assert plan.main(["--cfg", str(cfg), *FAST, *keys]) == 2
    error = capsys.readouterr().err
    assert "DEVICE = cuda, but torch finds no GPU" in error and "PER_GPU = 2 is too few" in error
    assert plan.main(["--cfg", str(cfg), "--from", str(output), "DEVICE", "cuda"]) == 0


def test_a_run_that_was_not_planned_ends_with_2(plan, planned, tmp_path, capsys):
    (tmp_path / "result.json").write_text('{"experiment": "other", "steps": 1}')
    arguments = ["--from", str(planned[1]), "--measured-run", str(tmp_path)]
    assert plan.main(arguments) == 2
    assert "which was not planned: tiny" in capsys.readouterr().err


@pytest.mark.parametrize(
    "keys",
    [
        ("RESNET.WIDTH_PER_GROUP", "64"),
        ("TRAIN.MAX_CLIPS_PER_GPU", "16"),
        ("AUG.RANDAUGMENT_OPS", "2"),
        ("DATA.TRAIN_JITTER_SCALES", "[32, 64]"),
    ],
)
def test_costs_of_other_settings_are_not_taken(plan, planned, capsys, keys):
    cfg, output = planned
    assert plan.main(["--cfg", str(cfg), "--from", str(output), *keys]) == 2
    said = "was measured with another network than that of tiny, or with other keys of steps or"
    assert said in capsys.readouterr().err
