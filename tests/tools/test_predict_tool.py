"""tools/predict.py on the model of a finished run."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
from pathlib import Path

import av
import pytest
from run_files import read_lines
from tiny import NUM_CLASSES, NUM_FRAMES, NUM_VAL, load_tool


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


def test_a_run_may_have_a_store_that_is_gone_and_workers_that_it_chose(
    main, finished_run, tiny_data, tmp_path, capsys
):
    run = shutil.copytree(finished_run, tmp_path / "run")
    text = (run / "config.yaml").read_text()
    for old, new in (("NUM_WORKERS: 0", "NUM_WORKERS: auto"), ("STORE: ''", "STORE: gone")):
        assert old in text
        text = text.replace(old, new)
    (run / "config.yaml").write_text(text)
    assert main([str(tiny_data / "val0.mp4"), "--run", str(run)]) == 0
    assert "class " in capsys.readouterr().out


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
    assert printed.err.splitlines()[-1] == "predict.py: 2 of 4 videos predicted, 2 not"
    errors = [one["error"] is None for one in json.loads(printed.out)]
    assert errors == [True, False, False, True]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--top", 3), "--top 3: the model has 2 classes"),
        (("--top", 0), "--top 0"),
        (("--classes", "/nowhere/classes.txt"), "/nowhere/classes.txt does not exist"),
    ],
)
def test_bad_input_is_exit_code_2(arguments, words, predict, capsys):
    assert predict("a.mp4", *arguments) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert printed.out == ""
    assert "no video in ;" not in printed.err


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


def test_a_folder_is_searched_and_what_is_skipped_is_told(predict, tiny_data, tmp_path, capsys):
    folder = tmp_path / "videos" / "below"
    folder.mkdir(parents=True)
    for name in ("val0.mp4", "val1.mp4"):
        shutil.copy(tiny_data / name, folder)
    (folder / "notes.md").write_text("words")
    assert predict(tmp_path / "videos", "--json") == 0
    printed = capsys.readouterr()
    videos = [one["video"] for one in json.loads(printed.out)]
    assert videos == [str(folder / "val0.mp4"), str(folder / "val1.mp4")]
    assert f"skipped 1 file that does not end like a video: {folder / 'notes.md'}" in printed.err


def test_a_folder_without_videos_is_bad_input(predict, tmp_path, capsys):
    (tmp_path / "notes.md").write_text("words")
    assert predict(tmp_path) == 2
    assert f"no video in {tmp_path}; skipped 1 file" in capsys.readouterr().err


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


def test_an_overlay_is_written_beside_the_text(predict, tiny_data, tmp_path, capsys):
    out = tmp_path / "out.mp4"
    assert predict(tiny_data / "val0.mp4", "--overlay", out, "--every", 0.1) == 0
    with av.open(str(out)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(frames) == NUM_FRAMES
    # 32 x 40 pixels are enlarged eight times, and the panel with its letters is below them.
    assert frames[0].shape == (256 + 34, 320, 3)
    assert (frames[0][256:] > 200).all(-1).any()
    assert f"wrote {out}" in capsys.readouterr().err


def test_what_a_clip_of_segments_shows_is_said(main, finished_run, tiny_data, tmp_path, capsys):
    """The video has 0.8 s, so its one clip shows less than 4 s."""
    run = shutil.copytree(finished_run, tmp_path / "run")
    config = (run / "config.yaml").read_text()
    for old, new in (("GRID: stride", "GRID: segments"), ("BLE_VIEWS: 2", "BLE_VIEWS: 1")):
        assert old in config
        config = config.replace(old, new)
    (run / "config.yaml").write_text(config)
    given = [str(tiny_data / "val0.mp4"), "--run", str(run), "--overlay", str(tmp_path / "o.mp4")]
    assert main(given) == 0
    assert "each clip shows 4 s, or a whole video that is shorter; if" in capsys.readouterr().err


def test_a_stream_is_watched_as_a_camera_would_be(predict, tiny_data, tmp_path, capsys):
    out, table = tmp_path / "out.mkv", tmp_path / "out.csv"
    options = ["--overlay", out, "--csv", table, "--every", 0.2]
    assert predict("--webcam", tiny_data / "val0.mp4", *options) == 0
    lines = capsys.readouterr().out.splitlines()
    # 24 frames at 30 per second hold three windows of 8 frames that are 0.2 s apart.
    assert [float(line.split(" s ")[0]) for line in lines] == pytest.approx(
        [0.1, 0.3, 0.5], abs=0.05
    )
    with table.open(newline="") as file:
        seconds = [line["seconds"] for line in csv.DictReader(file)]
    assert seconds == ["0.117"] * 2 + ["0.317"] * 2 + ["0.517"] * 2
    with av.open(str(out)) as container:
        assert sum(1 for _ in container.decode(video=0)) == NUM_FRAMES


def test_seconds_end_a_stream(predict, tiny_data, capsys):
    assert predict("--webcam", tiny_data / "val0.mp4", "--every", 0.2, "--seconds", 0.4) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.skipif(Path("/dev/video0").exists(), reason="this machine has a camera")
def test_a_camera_that_does_not_exist_is_bad_input(predict, capsys):
    assert predict("--webcam", 0) == 2
    assert "--webcam 0: there is no device /dev/video0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "nothing is given"),
        (("a.mp4", "--webcam", 0), "both are given"),
        (("a.mp4", "--seconds", 3), "--seconds 3.0 is for --webcam"),
        (("a.mp4", "--every", 3), "--every 3.0 is for --webcam or --overlay"),
        (("a.mp4", "--font", "a.ttf"), "--font a.ttf is for --overlay"),
        (("a.mp4", "b.mp4", "--overlay", "a.mp4"), "there are 2 videos"),
        (("a.mp4", "--csv", "lost/a.csv"), "--csv lost/a.csv: there is no folder"),
        (("a.mp4", "--overlay", "b.mp4", "--every", -1), "--every -1: give more than 0"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments, words, predict, capsys):
    assert predict(*arguments) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert printed.out == ""
    assert "no video in ;" not in printed.err


def test_names_that_the_font_cannot_draw_are_refused_before_anything_is_written(
    predict, tiny_data, classes, tmp_path, capsys
):
    classes.write_text("走る\nleft\n")
    out = tmp_path / "out.mp4"
    assert predict(tiny_data / "val0.mp4", "--classes", classes, "--overlay", out) == 2
    assert "has no letter '走る'" in capsys.readouterr().err
    assert not out.exists()


@pytest.fixture
def interrupted_predict(finished_run, monkeypatch):
    """Starts the tool; Ctrl-C comes as it prints the first prediction."""
    tool = load_tool("predict")
    original = tool.as_text

    def interrupting(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        return original(*arguments)

    monkeypatch.setattr(tool, "as_text", interrupting)
    return lambda *words: tool.main([*map(str, words), "--run", str(finished_run)])


def test_ctrl_c_ends_with_one_line_and_keeps_what_is_done(
    interrupted_predict, tiny_data, tmp_path, capsys
):
    table = tmp_path / "out.csv"
    videos = [tiny_data / f"val{index}.mp4" for index in range(4)]
    assert interrupted_predict(*videos, "--csv", table) == 4
    message = capsys.readouterr().err
    assert message.splitlines()[-1] == ("predict.py: stopped by SIGINT after 1 of 4 videos")
    assert "Traceback" not in message
    with table.open(newline="") as file:
        assert {line["video"] for line in csv.DictReader(file)} == {str(videos[0])}


def test_ctrl_c_ends_a_camera_and_keeps_its_video(interrupted_predict, tiny_data, tmp_path, capsys):
    out = tmp_path / "out.mp4"
    video = tiny_data / "val0.mp4"
    assert interrupted_predict("--webcam", video, "--overlay", out, "--every", 0.2) == 4
    assert capsys.readouterr().err.splitlines()[-1] == "predict.py: stopped by SIGINT"
    with av.open(str(out)) as container:
        # The first window ends with frame 7.
        assert sum(1 for _ in container.decode(video=0)) == 8


def test_ctrl_c_in_an_overlay_leaves_no_part_of_it(finished_run, tiny_data, tmp_path, monkeypatch):
    def interrupting(items, total, unit, what):
        for number, item in enumerate(items):
            if (number, what) == (3, "frames drawn"):
                os.kill(os.getpid(), signal.SIGINT)
            yield item

    monkeypatch.setattr("mgexp.deploy.show.with_progress", interrupting)
    out = tmp_path / "out.mp4"
    arguments = [tiny_data / "val0.mp4", "--overlay", out, "--run", finished_run]
    assert load_tool("predict").main([*map(str, arguments)]) == 4
    assert list(tmp_path.iterdir()) == []


def test_a_video_is_not_replaced_by_a_table(predict, tiny_data, tmp_path, capsys):
    video = shutil.copy(tiny_data / "val0.mp4", tmp_path / "own.mp4")
    before = video.read_bytes()
    assert predict(video, "--csv", video) == 2
    assert "own.mp4 exists and does not end in .csv" in capsys.readouterr().err
    assert video.read_bytes() == before
