"""tools/own_data.py: from a folder of videos to a project, and the commands of docs/own_videos.md."""

from __future__ import annotations

import re
import shlex
import shutil
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from tiny import load_tool

from mgexp.config.load import load_config
from mgexp.plan import advice, own_data

PAGE = Path(__file__).parents[2] / "docs" / "own_videos.md"


@pytest.fixture
def videos(tiny_data, tmp_path, monkeypatch):
    """The tiny videos in a folder for each class, named by persons; the working folder is above it."""
    monkeypatch.chdir(tmp_path)
    for index in range(24):
        to = tmp_path / "videos" / ("calm", "fight")[index % 2] / f"person{index // 4}_{index}.mp4"
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tiny_data / f"train{index}.mp4", to)
    return tmp_path / "videos"


@pytest.fixture(scope="module")
def main():
    return load_tool("own_data").main


def listed(path):
    return [line.rpartition(" ")[0] for line in Path(path).read_text().splitlines()]


def test_a_folder_of_videos_becomes_a_project(main, videos, capsys):
    (videos / "fight/broken.mp4").write_bytes(b"no video" * 50)
    assert main(["videos", "--processes", "1"]) == 0
    project = Path("projects/videos")
    train, val = listed(project / "train.csv"), listed(project / "val.csv")
    assert (len(train), len(val), len({*train, *val})) == (18, 6, 24)
    assert (project / "check/quarantine.txt").read_text() == "fight/broken.mp4\n"
    cfg = load_config(project / "baseline.yaml")
    # 24 frames of 40 × 32 pixels at 30 frames per second.
    assert (cfg.DATA.SAMPLING_RATE, cfg.DATA.TRAIN_CROP_SIZE, cfg.MODEL.NUM_CLASSES) == (1, 32, 2)
    printed = capsys.readouterr().out
    for words in (
        "25 videos, 1 unusable",
        "calm",
        "python tools/study.py projects/videos",
        # The report of this folder then names the smoke run.
        "--output projects/videos/runs/smoke/baseline/seed0 --smoke",
    ):
        assert words in printed
    # What may mislead most stands last, where nothing scrolls it away.
    assert "Not split by group: no groups were found" in printed.splitlines()[-3]


def test_the_steps_and_the_crop_of_the_command_line_are_in_the_project(main, videos):
    given = ["--steps", "120", "--crop", "48"]
    assert main(["videos", "--quick", "--processes", "1", *given]) == 0
    cfg = load_config("projects/videos/baseline.yaml")
    # 18 videos are for training: 120 × 8 / 18 epochs.
    assert (cfg.SOLVER.MAX_EPOCH, cfg.DATA.TRAIN_CROP_SIZE) == (53.333, 48)
    text = Path("projects/videos/baseline.yaml").read_text()
    assert "# 120 steps of 8 clips, as --steps says" in text


def test_groups_are_in_one_list(main, videos, capsys):
    assert main(["videos", "--group-regex", "^(person[0-9]+)_", "--quick", "--processes", "1"]) == 0
    persons = [
        {Path(name).name.partition("_")[0] for name in listed(f"projects/videos/{which}.csv")}
        for which in ("train", "val")
    ]
    assert not persons[0] & persons[1]
    assert len(persons[0] | persons[1]) == 6
    printed = capsys.readouterr().out.splitlines()[-3:]
    names = ", ".join(sorted(persons[1]))
    assert printed[0] == "Split by group: 6 groups, with none of them in both lists."
    assert printed[1] == f"1 group is in validation: {names}."
    assert printed[2].startswith("warning: only 1 group is in validation, and others may score")
    comments = Path("projects/videos/study.yaml").read_text().splitlines()
    assert {f"# {line}" for line in printed} <= {*comments}


def test_a_share_of_validation_far_from_the_one_asked_for_is_a_warning(main, videos, capsys):
    """Two groups can only be split in halves. Where the user has split the videos, nothing was asked for."""
    given = ["videos", "--group-regex", "(.)$", "--quick", "--processes", "1"]
    for index, path in enumerate(sorted(videos.rglob("*.mp4"))):
        path.rename(path.with_stem(f"{index}_{'AB'[index % 2]}"))
    assert main(given) == 0
    warning = (
        "warning: 50 % of the videos are in validation, not 25 % as asked: make groups smaller."
    )
    assert capsys.readouterr().out.splitlines()[-1] == warning
    assert main([*given, "--val-share", "0.4", "--output", "near"]) == 0
    assert "as asked" not in capsys.readouterr().out
    lists = ["--list", "projects/videos/train.csv", "--val-list", "projects/videos/val.csv"]
    assert main([*given, *lists, "--output", "mine"]) == 0
    assert "as asked" not in capsys.readouterr().out
    assert main([*given, *lists, "--output", "two", "--val-share", "0.5", "--seed", "0"]) == 2
    said = capsys.readouterr().err
    assert "--val-share 0.5 has no effect, because the folders or lists are split already" in said
    assert "--seed 0 has no effect" in said
    assert not Path("two/study.yaml").exists()


def test_lists_with_their_split_and_names_of_classes(main, videos, tmp_path):
    files = sorted(str(path.relative_to(videos)) for path in videos.rglob("*.mp4"))
    (tmp_path / "train.txt").write_text(
        "".join(f"{name} {name.startswith('f'):d}\n" for name in files[2:])
    )
    (tmp_path / "val.txt").write_text("".join(f"{name} 0\n" for name in files[:2]))
    (tmp_path / "names.txt").write_text("calm\nfight\n")
    lists = ["--list", "train.txt", "--val-list", "val.txt", "--classes", "names.txt"]
    assert main(["videos", *lists, "--quick", "--processes", "1", "--output", "mine"]) == 0
    assert (listed("mine/train.csv"), listed("mine/val.csv")) == (files[2:], files[:2])
    assert Path("mine/classes.txt").read_text() == "calm\nfight\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere is not a folder"),
        (["videos", "--val-share", "1"], "--val-share 1: give more than 0 and less than 1"),
        (["videos", "--steps", "49"], "--steps 49: give 50 or more"),
        (["videos", "--crop", "31"], "--crop 31: give 32 or more"),
        (["videos", "--group-column"], "--group-column is for lists: add --list FILE"),
        (["videos", "--group-regex", "("], "--group-regex '(' is no regular expression"),
        (["videos", "--list", "lost.txt"], "lost.txt does not exist"),
        (["videos/calm"], "12 videos lie outside the folders of the classes"),
    ],
)
def test_bad_input_is_a_message_and_nothing_is_written(main, videos, arguments, said, capsys):
    assert main(arguments) == 2
    assert said in capsys.readouterr().err
    assert not Path("projects").exists()


def test_a_project_is_not_overwritten(main, videos, capsys):
    Path("projects/videos").mkdir(parents=True)
    Path("projects/videos/study.yaml").write_text("mine")
    assert main(["videos"]) == 2
    assert "study.yaml exists: remove that project" in capsys.readouterr().err
    assert Path("projects/videos/study.yaml").read_text() == "mine"


def test_a_call_that_was_killed_before_study_yaml_is_continued(main, videos, monkeypatch):
    """The folder of the videos is named as the one above this."""
    monkeypatch.chdir(videos / "calm")
    Path("projects/videos").mkdir(parents=True)
    Path("projects/videos/baseline.yaml").write_text("half")
    assert main(["..", "--quick", "--processes", "1"]) == 0
    assert Path("projects/videos/study.yaml").exists()
    assert load_config("projects/videos/baseline.yaml").MODEL.NUM_CLASSES == 2


def test_a_class_without_a_usable_video_is_named(main, videos, capsys):
    (videos / "jump").mkdir()
    (videos / "jump/broken.mp4").write_bytes(b"no video" * 50)
    assert main(["videos", "--quick", "--processes", "1"]) == 2
    said = capsys.readouterr().err
    assert "1 class has no usable video: jump (" in said
    assert "repair some of its videos, or take the class out" in said
    assert not Path("projects/videos/train.csv").exists()


def test_links_out_of_the_folder_are_taken_only_if_allowed(main, videos, tmp_path, capsys):
    (videos / "calm").rename(tmp_path / "calm")
    (videos / "calm").symlink_to(tmp_path / "calm")
    assert main(["videos"]) == 2
    assert "(here: --allow-outside)" in capsys.readouterr().err
    assert main(["videos", "--allow-outside", "--quick", "--processes", "1"]) == 0
    assert load_config("projects/videos/baseline.yaml").DATA.ALLOW_OUTSIDE


def commands_of_the_page():
    blocks = re.findall(r"```bash\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.strip()]
    return [shlex.split(line, comments=True) for line in lines]


@pytest.mark.slow
def test_every_command_of_the_page_runs(videos, tmp_path, monkeypatch, capsys):
    """In their order, on tiny videos. The recipe and the study are made small between the commands."""
    monkeypatch.setattr(own_data, "STEPS", 24)
    monkeypatch.setattr(own_data, "LEAST_EPOCHS", 8)
    monkeypatch.setattr(advice, "FEW_STEPS", 1)
    monkeypatch.setattr(advice, "FEW_PHASE_STEPS", 1)
    files = sorted(path.relative_to(videos) for path in videos.rglob("*.mp4"))
    shutil.copy(videos / files[0], "my_video.mp4")
    line_of = {"all.txt": files, "train.txt": files[1:-1], "val.txt": [files[0], files[-1]]}
    for name, those in line_of.items():
        Path(name).write_text("".join(f"{file} {file.parent}\n" for file in those))
    Path("groups.txt").write_text(
        "".join(f"{file} {file.parent} {file.stem.partition('_')[0]}\n" for file in files)
    )
    told = {}
    for python, tool, *arguments in commands_of_the_page():
        assert python == "python"
        name = Path(tool).stem
        loaded = load_tool(name) if tool.startswith("tools/") else import_module(name)
        assert loaded.main(arguments) == 0, (tool, arguments)
        told[tool], notes = capsys.readouterr()
        if tool == "tools/study.py":
            # It counts the baseline that run_net.py trained.
            assert "long, seed 0" in notes
            assert "baseline, seed 0" not in notes
        baseline = Path("projects/videos/baseline.yaml")
        if baseline.exists() and "RESNET" not in baseline.read_text():
            narrow = "RESNET:\n  WIDTH_PER_GROUP: 8\nDATA_LOADER:\n  NUM_WORKERS: 0\n"
            baseline.write_text(baseline.read_text() + narrow)
            study = yaml.safe_load(Path("projects/videos/study.yaml").read_text())
            study = {**study, "seeds": 1, "controls": [], "equal_flops": []}
            Path("projects/videos/study.yaml").write_text(yaml.safe_dump(study))
    assert "%  calm" in told["tools/predict.py"]
    assert Path("projects/videos/runs/report.html").exists()
    page = Path("projects/videos/README.md").read_text()
    assert "python tools/study.py projects/videos" in page
    assert "open: one seed decides nothing" in page
