"""tools/predict.py on the model of a finished run."""

from __future__ import annotations

import json
import shutil

import pytest
from run_files import read_lines
from tiny import NUM_CLASSES, NUM_VAL, load_tool


@pytest.fixture(scope="module")
def main():
    return load_tool("predict").main


@pytest.fixture
def predict(main, finished_run):
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


def test_names_and_percents_for_people(predict, tiny_data, classes, capsys):
    assert predict(tiny_data / "val0.mp4", "--classes", classes) == 0
    path, *lines = capsys.readouterr().out.splitlines()
    assert path == str(tiny_data / "val0.mp4")
    assert sorted(line.split("%  ")[1] for line in lines) == ["to the left", "to the right"]
    percents = [float(line.split("%")[0]) for line in lines]
    assert percents == sorted(percents, reverse=True)
    assert sum(percents) == pytest.approx(100, abs=0.2)


def test_names_are_those_of_the_run(main, finished_run, tiny_data, classes, tmp_path, capsys):
    run = shutil.copytree(finished_run, tmp_path / "run")
    shutil.copy(classes, run / "classes.txt")
    assert main([str(tiny_data / "val0.mp4"), "--run", str(run)]) == 0
    assert "to the left" in capsys.readouterr().out


def test_top_limits_what_is_shown(predict, tiny_data, capsys):
    assert predict(tiny_data / "val0.mp4", "--top", 1) == 0
    _, line = capsys.readouterr().out.splitlines()
    assert "class " in line


def test_a_video_that_cannot_be_read_is_one_message_and_the_others_go_on(
    predict, tiny_data, tmp_path, capsys
):
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video" * 50)
    good = [tiny_data / "val0.mp4", tiny_data / "val1.mp4"]
    assert predict(good[0], broken, tmp_path / "lost.mp4", good[1], "--json") == 3
    printed = capsys.readouterr()
    assert printed.err.count("broken.mp4") == 1
    assert printed.err.count("lost.mp4") == 1
    errors = [one["error"] is None for one in json.loads(printed.out)]
    assert errors == [True, False, False, True]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--top", 3), "--top 3: the model has 2 classes"),
        (("--top", 0), "--top 0"),
        (("--classes", "/nowhere/classes.txt"), "/nowhere/classes.txt cannot be read"),
    ],
)
def test_bad_input_is_exit_code_2(arguments, words, predict, capsys):
    assert predict("a.mp4", *arguments) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert printed.out == ""


def test_the_names_must_be_as_many_as_the_classes(predict, classes, capsys):
    classes.write_text("one\ntwo\nthree\n")
    assert predict("a.mp4", "--classes", classes) == 2
    assert "names 3 classes, the model has 2" in capsys.readouterr().err


def test_an_unfinished_run_is_refused(main, finished_run, tmp_path, capsys):
    assert main(["a.mp4", "--run", str(tmp_path)]) == 2
    assert "is not a run folder" in capsys.readouterr().err
    shutil.copy(finished_run / "config.yaml", tmp_path)
    assert main(["a.mp4", "--run", str(tmp_path)]) == 2
    assert "model.pt does not exist" in capsys.readouterr().err


def test_a_model_of_another_configuration_is_refused(main, finished_run, tmp_path, capsys):
    text = (finished_run / "config.yaml").read_text()
    changed = text.replace("NUM_CLASSES: 2", "NUM_CLASSES: 3")
    assert changed != text
    (tmp_path / "config.yaml").write_text(changed)
    shutil.copy(finished_run / "model.pt", tmp_path)
    assert main(["a.mp4", "--run", str(tmp_path)]) == 2
    assert "is not the model of" in capsys.readouterr().err
