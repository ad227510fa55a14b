"""tools/predict.py on the model of a finished run."""

import csv
import json
import os
import shutil
import signal

import numpy as np
import pytest
import torch
from PIL import Image
from run_files import read_lines
from tiny import LONG_SHORT, NUM_VAL, data_keys, load_tool, write_keys

from mgexp.results.comparison import grouped_interval

main = load_tool("predict").main


def read_csv(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def predict(finished_run):
    """Starts the tool on the tiny run; its exit code."""
    return lambda *arguments: main([*map(str, arguments), "--run", str(finished_run)])


@pytest.fixture
def classes(tmp_path):
    path = tmp_path / "classes.txt"
    path.write_text("to the right\nto the left\n")
    return path


def test_a_run_may_have_names_of_classes_a_store_that_is_gone_and_workers_that_it_chose(
    finished_run, tiny_data, classes, tmp_path, capsys
):
    run = shutil.copytree(finished_run, tmp_path / "run")
    shutil.copy(classes, run / "classes.txt")
    text = (run / "config.yaml").read_text()
    for old, new in (("NUM_WORKERS: 0", "NUM_WORKERS: auto"), ("STORE: ''", "STORE: gone")):
        assert old in text
        text = text.replace(old, new)
    (run / "config.yaml").write_text(text)
    assert main([str(tiny_data / "val0.mp4"), "--run", str(run)]) == 0
    assert "to the left" in capsys.readouterr().out


def test_a_video_that_cannot_be_read_is_one_message_and_the_others_go_on(
    predict, tiny_data, classes, tmp_path, capsys
):
    """The CSV has a line for each class of a video, with the numbers of the JSON."""
    broken, table = tmp_path / "broken.mp4", tmp_path / "out.csv"
    broken.write_bytes(b"no video" * 50)
    good = [tiny_data / "val0.mp4", tiny_data / "val1.mp4"]
    options = ("--json", "--classes", classes, "--csv", table)
    assert predict(good[0], broken, tmp_path / "lost.mp4", good[1], *options) == 3
    printed = capsys.readouterr()
    assert printed.err.count("broken.mp4") == printed.err.count("lost.mp4") == 1
    found, lines = json.loads(printed.out), read_csv(table)
    assert [one["error"] is None for one in found] == [True, False, False, True]
    assert [line["rank"] for line in lines] == ["1", "2", "", "", "1", "2"]
    for line, one in zip(lines[:2], found[0]["classes"], strict=True):
        assert line["name"] == one["name"]
        assert float(line["probability"]) == pytest.approx(one["probability"], abs=1e-6)
    assert (lines[2]["video"], lines[2]["label"]) == (str(broken), "")
    assert "broken.mp4" in lines[2]["error"]


@pytest.mark.parametrize("arguments", [("--top", 3), ("--csv", "lost/a.csv"), ("--every", -1)])
def test_bad_input_is_exit_code_2(arguments, predict, capsys):
    assert predict("a.mp4", *arguments) == 2
    assert arguments[0] in capsys.readouterr().err


def test_an_unfinished_run_and_a_model_of_another_configuration_are_refused(
    finished_run, tmp_path, capsys
):
    text = (finished_run / "config.yaml").read_text()
    changed = text.replace("NUM_CLASSES: 2", "NUM_CLASSES: 3")
    assert changed != text
    (tmp_path / "config.yaml").write_text(changed)
    assert main(["a.mp4", "--run", str(tmp_path)]) == 2
    assert "model.pt" in capsys.readouterr().err
    shutil.copy(finished_run / "model.pt", tmp_path)
    assert main(["a.mp4", "--run", str(tmp_path)]) == 2
    assert "is not the model of" in capsys.readouterr().err


def test_a_folder_is_searched_and_what_is_skipped_is_named(predict, tiny_data, tmp_path, capsys):
    folder = tmp_path / "videos" / "below"
    folder.mkdir(parents=True)
    for name in ("val0.mp4", "val1.MP4"):
        shutil.copy(tiny_data / name.lower(), folder / name)
    (folder / "notes.md").write_text("words")
    (folder / ".hidden.mp4").write_bytes(b"")
    frames = tmp_path / "videos" / "frames"
    frames.mkdir()
    for number in range(12):
        Image.fromarray(np.zeros((32, 40, 3), np.uint8)).save(frames / f"img_{number:05d}.jpg")
    named_twice = folder / "val0.mp4"
    assert predict(tmp_path / "videos", named_twice, "--json") == 0
    printed = capsys.readouterr()
    videos = [found["video"] for found in json.loads(printed.out)]
    assert videos == [str(named_twice), str(folder / "val1.MP4"), str(frames)]
    assert str(folder / "notes.md") in printed.err
    (tmp_path / "empty").mkdir()
    assert predict(tmp_path / "empty") == 2


def test_ctrl_c_ends_with_one_line_and_keeps_what_is_done(
    finished_run, tiny_data, tmp_path, monkeypatch, capsys
):
    """It comes as the tool prints the first prediction."""
    tool = load_tool("predict")
    original = tool.as_lines

    def interrupting(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        return original(*arguments)

    monkeypatch.setattr(tool, "as_lines", interrupting)
    table = tmp_path / "out.csv"
    videos = [tiny_data / f"val{index}.mp4" for index in range(4)]
    assert tool.main([*map(str, videos), "--csv", str(table), "--run", str(finished_run)]) == 4
    assert "Traceback" not in capsys.readouterr().err
    assert {line["video"] for line in read_csv(table)} == {str(videos[0])}


def test_a_video_is_not_replaced_by_a_table(predict, tiny_data, tmp_path):
    video = shutil.copy(tiny_data / "val0.mp4", tmp_path / "own.mp4")
    before = video.read_bytes()
    assert predict(video, "--csv", video) == 2
    assert video.read_bytes() == before


def test_a_labelled_list_has_the_numbers_of_the_evaluation_of_the_run(
    predict, finished_run, tiny_data, tmp_path, capsys
):
    """Its scores, its table of confusions, and Wilson's interval of the accuracy."""
    options = ("--csv", tmp_path / "out.csv", "--features", tmp_path / "out.npz")
    assert predict("--list", tiny_data / "val.txt", "--json", *options) == 0
    found = json.loads(capsys.readouterr().out)
    evaluated = read_lines(finished_run / "evaluations.jsonl")[-1]
    assert found["num_videos"] == NUM_VAL
    assert found["metrics"] == {"top1": evaluated["top1"], "top5": 100.0}
    with np.load(finished_run / "scores_2x1_forward.npz") as file:
        scores, labels = file["scores"] / file["num_views"], file["labels"]
    right = {label: sum(scores.argmax(1)[labels == label] == label) for label in range(2)}
    assert {one["label"]: one["num_correct"] for one in found["classes"]} == right
    assert [one["num_videos"] for one in found["classes"]] == [4, 4]
    lines = read_csv(tmp_path / "out.csv")
    assert [line["video"] for line in lines] == [
        str(tiny_data / f"val{index}.mp4") for index in range(NUM_VAL)
    ]
    assert [int(line["truth"]) for line in lines] == labels.tolist()
    assert [int(line["label"]) for line in lines] == scores.argmax(1).tolist()
    confidences = [float(line["probability"]) for line in lines]
    assert confidences == pytest.approx(scores.max(1).tolist(), abs=1e-5)
    with np.load(tmp_path / "out.npz") as file:
        assert file["features"].shape[0] == NUM_VAL
        assert file["labels"].tolist() == labels.tolist()
        assert file["videos"].tolist() == [line["video"] for line in lines]


def test_the_accuracy_is_printed_with_its_interval(predict, tiny_data, tmp_path, capsys):
    """Half of two videos is right if both have one prediction: 9.5 to 90.5 %, by Wilson's formula by hand."""
    assert predict("--list", tiny_data / "val.txt", "--json") == 0
    videos = json.loads(capsys.readouterr().out)["videos"]
    label = videos[0]["classes"][0]["label"]
    other = next(i for i in range(1, NUM_VAL) if videos[i]["classes"][0]["label"] == label)
    lines = [f"val0.mp4 {label}", f"val{other}.mp4 {1 - label}"]
    (tmp_path / "test.csv").write_text("\n".join(lines))
    assert predict("--list", tmp_path / "test.csv") == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "2 videos: top-1 50.00 %; 95 % interval of top-1: 9.45 to 90.55 %"


def test_without_all_its_videos_a_list_has_no_accuracy(predict, tiny_data, tmp_path, capsys):
    (tmp_path / "broken.mp4").write_bytes(b"no video" * 50)
    test = tmp_path / "test.csv"
    test.write_text(f"{tiny_data}/val0.mp4 0\n{tmp_path}/broken.mp4 1\n")
    assert predict("--list", test) == 3
    printed = capsys.readouterr()
    assert printed.out == "" and "broken.mp4" in printed.err
    test.write_text("val0.mp4 0\nlost.mp4 1\n")
    assert predict("--list", test) == 2
    assert "lost.mp4" in capsys.readouterr().err


def test_weights_of_a_file_score_as_those_of_the_run(finished_run, tiny_data, tmp_path, capsys):
    weights = torch.load(finished_run / "model.pt", weights_only=True)
    cfg = write_keys(tmp_path / "tiny.yaml", {**LONG_SHORT, **data_keys(tiny_data)})
    what = ("--list", str(tiny_data / "val.txt"), "--json")
    assert main([*what, "--run", str(finished_run)]) == 0
    wanted = json.loads(capsys.readouterr().out)
    released = tmp_path / "released.pyth"
    torch.save({"model_state": weights}, released)
    assert main([*what, "--cfg", str(cfg), "--weights", str(released)]) == 0
    assert json.loads(capsys.readouterr().out) == wanted
    head = [name for name in weights if ".proj." in name]
    torch.save({"model_state": {**weights, **{name: weights[name][:1] for name in head}}}, released)
    assert main([*what, "--run", str(finished_run), "--weights", str(released)]) == 2
    assert "classifier of 2 classes" in capsys.readouterr().err


def test_the_best_checkpoint_has_the_score_and_the_loss_of_its_evaluation(
    predict, finished_run, tiny_data, capsys
):
    """The loss of one view is the mean of -log p of the true class. Precise statistics of batch norm count."""
    during = [
        line for line in read_lines(finished_run / "evaluations.jsonl") if not line["full_protocol"]
    ]
    best = max(during, key=lambda line: (line["top1"], line["step"]))
    options = ("--list", tiny_data / "val.txt", "--checkpoint", "best", "--json", "--top", 2)
    assert predict(*options, "TEST.NUM_ENSEMBLE_VIEWS", 1) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["metrics"]["top1"] == best["top1"]
    shares = [
        next(each["probability"] for each in one["classes"] if [each["label"]] == one["truth"])
        for one in found["videos"]
    ]
    assert -np.log(shares).mean() == pytest.approx(best["loss"], rel=1e-4)


def test_every_says_what_happens_when(predict, tiny_data, tmp_path, capsys):
    """A video of 0.8 s has stretches that begin at 0, 0.3 and 0.6 s."""
    video, table = tiny_data / "val0.mp4", tmp_path / "out.csv"
    features = tmp_path / "out.npz"
    assert predict(video, "--every", 0.3, "--csv", table, "--features", features) == 0
    path, *lines = capsys.readouterr().out.splitlines()
    assert path == str(video)
    assert [line.split(" s ")[0].strip() for line in lines] == ["0.0", "0.3", "0.6"]
    rows = read_csv(table)
    assert [(row["video"], row["seconds"]) for row in rows] == [
        (str(video), seconds) for seconds in ("0.0", "0.3", "0.6")
    ]
    for line, row in zip(lines, rows, strict=True):
        assert row["name"] in line and f"{100 * float(row['probability']):.1f} %" in line
    with np.load(features) as file:
        assert file["seconds"] == pytest.approx([0, 0.3, 0.6])
        assert len(file["features"]) == 3


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("a.mp4",), "--cfg"),
        (("a.mp4", "--run", "r", "--cfg", "row.yaml"), "--cfg"),
        (("a.mp4", "--run", "r", "--weights", "w.pt", "--checkpoint", "best"), "--weights"),
        (("--run", "r", "--list", "a.csv", "--every", "2"), "--every"),
        (("--run", "r"), "--list"),
    ],
)
def test_options_that_do_not_go_together_are_exit_code_2(arguments, named, capsys):
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2
    assert named in capsys.readouterr().err.splitlines()[-1]


def test_the_interval_counts_groups_where_they_are_known(predict, tiny_data, tmp_path, capsys):
    """Two groups of four videos, in the file that own_data.py writes beside its lists."""
    lists = tmp_path / "data"
    shutil.copytree(tiny_data, lists)
    groups = {f"val{number}.mp4": f"g{number // 4}" for number in range(NUM_VAL)}
    (lists / "groups.json").write_text(json.dumps(groups))
    options = ("--csv", tmp_path / "out.csv", "--json")
    assert predict("--list", lists / "val.txt", *options, "DATA.PATH_PREFIX", str(lists)) == 0
    score = json.loads(capsys.readouterr().out)
    right = [line["label"] == line["truth"] for line in read_csv(tmp_path / "out.csv")]
    assert score["num_groups"] == 2
    interval = grouped_interval(np.array(right, float), [0] * 4 + [1] * 4)
    assert score["top1_interval"] == pytest.approx(interval)


def test_a_worker_without_shared_memory_is_one_message(
    finished_run, tiny_data, monkeypatch, capsys
):
    def fail(*arguments):
        raise RuntimeError("DataLoader worker (pid 5) exited unexpectedly with exit code 74.")

    tool = load_tool("predict")
    monkeypatch.setattr(tool, "build_view_loader", fail)
    assert tool.main([str(tiny_data / "val0.mp4"), "--run", str(finished_run)]) == 1
    assert "--shm-size" in capsys.readouterr().err
