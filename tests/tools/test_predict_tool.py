"""tools/predict.py on the model of a finished run."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal

import numpy as np
import pytest
from PIL import Image
from run_files import read_lines
from tiny import NUM_CLASSES, NUM_VAL, load_tool

main = load_tool("predict").main


@pytest.fixture
def predict(finished_run):
    """Starts the tool on the tiny run; its exit code."""
    return lambda *arguments: main([*map(str, arguments), "--run", str(finished_run)])


@pytest.fixture
def classes(tmp_path):
    path = tmp_path / "classes.txt"
    path.write_text("to the right\nto the left\n")
    return path


def test_predictions_of_the_validation_videos_are_those_of_the_evaluation(
    predict, finished_run, tiny_data, capsys
):
    videos = [tiny_data / f"val{index}.mp4" for index in range(NUM_VAL)]
    assert predict(*videos, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["video"] for one in found] == [str(video) for video in videos]
    right = [one["classes"][0]["label"] == index % NUM_CLASSES for index, one in enumerate(found)]
    evaluated = read_lines(finished_run / "evaluations.jsonl")[-1]
    assert 100 * sum(right) / NUM_VAL == evaluated["top1"]
    for one in found:
        assert sum(best["probability"] for best in one["classes"]) == pytest.approx(1, abs=1e-5)


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
    predict, tiny_data, tmp_path, capsys
):
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video" * 50)
    good = [tiny_data / "val0.mp4", tiny_data / "val1.mp4"]
    assert predict(good[0], broken, tmp_path / "lost.mp4", good[1], "--json") == 3
    printed = capsys.readouterr()
    assert printed.err.count("broken.mp4") == printed.err.count("lost.mp4") == 1
    errors = [one["error"] is None for one in json.loads(printed.out)]
    assert errors == [True, False, False, True]


@pytest.mark.parametrize("arguments", [("--top", 3), ("--csv", "lost/a.csv")])
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


def test_csv_has_a_line_for_each_video_and_class_and_the_numbers_of_json(
    predict, tiny_data, classes, tmp_path, capsys
):
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video" * 50)
    videos = [tiny_data / "val0.mp4", broken]
    options = ["--json", "--classes", classes, "--csv", tmp_path / "out.csv"]
    assert predict(*videos, *options) == 3
    with (tmp_path / "out.csv").open(newline="") as file:
        *lines, last = csv.DictReader(file)
    best = json.loads(capsys.readouterr().out)[0]["classes"]
    assert [int(line["rank"]) for line in lines] == [1, 2]
    assert [line["name"] for line in lines] == [one["name"] for one in best]
    found = [float(line["probability"]) for line in lines]
    assert found == pytest.approx([one["probability"] for one in best], abs=1e-6)
    assert (last["video"], last["label"]) == (str(broken), "")
    assert "broken.mp4" in last["error"]


def test_ctrl_c_ends_with_one_line_and_keeps_what_is_done(
    finished_run, tiny_data, tmp_path, monkeypatch, capsys
):
    """It comes as the tool prints the first prediction."""
    tool = load_tool("predict")
    original = tool.as_text

    def interrupting(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        return original(*arguments)

    monkeypatch.setattr(tool, "as_text", interrupting)
    table = tmp_path / "out.csv"
    videos = [tiny_data / f"val{index}.mp4" for index in range(4)]
    assert tool.main([*map(str, videos), "--csv", str(table), "--run", str(finished_run)]) == 4
    assert "Traceback" not in capsys.readouterr().err
    with table.open(newline="") as file:
        assert {line["video"] for line in csv.DictReader(file)} == {str(videos[0])}


def test_a_video_is_not_replaced_by_a_table(predict, tiny_data, tmp_path):
    video = shutil.copy(tiny_data / "val0.mp4", tmp_path / "own.mp4")
    before = video.read_bytes()
    assert predict(video, "--csv", video) == 2
    assert video.read_bytes() == before
