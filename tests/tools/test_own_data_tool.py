"""tools/own_data.py: from a folder of videos to a project, and the commands of docs/own_videos.md."""

import json
import re
import shlex
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from tiny import load_tool

from mgexp.config.load import load_config
from mgexp.config.study import read_study
from mgexp.errors import InputError
from mgexp.plan import advice
from mgexp.video.check import VideoCheck

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


tool = load_tool("own_data")
main = tool.main


def listed(path):
    return [line.rpartition(" ")[0] for line in Path(path).read_text().splitlines()]


def test_a_folder_of_videos_becomes_a_project(videos, capsys):
    (videos / "fight/broken.mp4").write_bytes(b"no video" * 50)
    assert main(["videos", "--processes", "1"]) == 0
    project = Path("projects/videos")
    train, val = listed(project / "train.csv"), listed(project / "val.csv")
    assert (len(train), len(val), len({*train, *val})) == (18, 6, 24)
    assert (project / "check/quarantine.txt").read_text() == "fight/broken.mp4\n"
    cfg = load_config(project / "baseline.yaml")
    # 24 frames of 40 × 32 pixels at 30 frames per second.
    assert (cfg.DATA.SAMPLING_RATE, cfg.DATA.TRAIN_CROP_SIZE, cfg.MODEL.NUM_CLASSES) == (1, 32, 2)
    assert "python tools/study.py projects/videos" in capsys.readouterr().out
    assert main(["videos"]) == 2  # a project is not overwritten
    assert load_config(project / "baseline.yaml") == cfg


def test_groups_are_in_one_list(videos):
    assert main(["videos", "--group-regex", "^(person[0-9]+)_", "--quick", "--processes", "1"]) == 0
    persons = [
        {Path(name).name.partition("_")[0] for name in listed(f"projects/videos/{which}.csv")}
        for which in ("train", "val")
    ]
    assert not persons[0] & persons[1]
    assert len(persons[0] | persons[1]) == 6
    # The study has the baseline alone, since long has too few steps.
    assert read_study(Path("projects/videos")).names == ("baseline",)


def never(*_):
    raise AssertionError("it decodes")


def test_one_group_of_all_videos_is_refused_before_decoding(videos, monkeypatch, capsys):
    monkeypatch.setattr(tool, "check_in_folder", never)
    assert main(["videos", "--group-regex", "^(person)"]) == 2
    assert "class calm, fight" in (message := capsys.readouterr().err)
    assert "1 group: person (24)" in message
    for index in range(24):  # the classes have a group each
        path = next(videos.glob(f"*/*_{index}.mp4"))
        path.rename(path.with_name(f"{path.parent.name}_{index}.mp4"))
    assert main(["videos", "--group-regex", "^([a-z]+)_"]) == 2
    assert "2 groups: calm (12), fight (12)" in capsys.readouterr().err
    assert not Path("projects").exists()


@pytest.mark.parametrize(
    ("form", "groups"),
    [
        ("v_{kind}_g0{group}_c0{clip}", "6 groups: v_a_g01 (2)"),
        ("anna{group}_{kind}_{clip}", "3 groups: anna1 (4)"),
    ],
)
def test_a_proposal_was_tried_on_the_names(make, tmp_path, form, groups):
    names = [
        f"{kind}/{form.format(kind=kind, group=group, clip=clip)}.mp4"
        for kind in "ab"
        for group in (1, 2, 3)
        for clip in (1, 2)
    ]
    (line,) = (one for one in tool.name_lines(make(*names), tmp_path) if "Perhaps" in one)
    assert groups in line


def test_numbered_names_make_groups_of_which_there_are_three(make, tmp_path):
    """Twelve numbers of a class make 3 groups of 5, 5 and 2, and only 2 groups of 10."""
    names = [f"{kind}/IR_{number:03}.mp4" for kind in "ab" for number in range(1, 13)]
    (line,) = (one for one in tool.name_lines(make(*names), tmp_path) if "Perhaps" in one)
    assert "--group-numbers 5, which makes 6 groups: a/IR_1-5 (5), a/IR_6-10 (5), " in line


def test_few_groups_are_not_proposed(make, tmp_path):
    """Class b has two groups of each kind."""
    names = ("a/1.mp4", "a/3.mp4", "a/5.mp4", "a/6.mp4", "b/1.mp4", "b/2.mp4", "b/4.mp4")
    assert not [line for line in tool.name_lines(make(*names), tmp_path) if "Perhaps" in line]


def test_numbers_in_a_row_are_a_group(make, tmp_path):
    """From the lowest number of each text on; 4 is missing, and a name without a number is a group itself."""
    names = [f"a/c_{number}.mp4" for number in (2, 3, 5, 6, 10)] + ["a/c_.mp4", "b/c_7.mp4"]
    found = tool.with_groups(make(*names), tmp_path, None, 3)
    assert {Path(one.path).stem: one.group for one in found} == {
        **dict.fromkeys(("c_2", "c_3"), "a/c_2-4"),
        **dict.fromkeys(("c_5", "c_6"), "a/c_5-7"),
        "c_10": "a/c_8-10",
        "c_": "",
        "c_7": "b/c_7-9",
    }
    with pytest.raises(InputError, match="no name ends in a number"):
        tool.with_groups([one for one in found if not one.group], tmp_path, None, 3)


def test_another_split_decodes_nothing_again(videos, monkeypatch, capsys):
    assert main(["videos", "--processes", "1"]) == 0
    project = Path("projects/videos")
    first = (project / "val.csv").read_text()
    monkeypatch.setattr(
        "mgexp.video.check_log.check_videos", lambda paths, **_: (never() for _ in paths)
    )
    assert main(["videos", "--seed", "1"]) == 2
    assert "--again" in capsys.readouterr().err
    assert main(["videos", "--again", "--seed", "1"]) == 0
    assert (project / "val.csv").read_text() != first
    assert not (project / "groups.json").exists()
    assert main(["videos", "--again", "--group-regex", "^(person[0-9]+)_"]) == 0
    groups = json.loads((project / "groups.json").read_text())
    assert (len(groups), groups["calm/person5_22.mp4"]) == (24, "person5")
    # A smoke run may lie there, and a run of the study may not.
    for folder, code in (("runs/smoke/baseline/seed0", 0), ("runs/baseline/seed0", 2)):
        (project / folder).mkdir(parents=True)
        (project / folder / "config.yaml").touch()
        assert main(["videos", "--again"]) == code
    assert "has runs" in capsys.readouterr().err


def test_the_same_video_in_two_classes_is_a_conflict(videos, capsys):
    shutil.copy(videos / "calm/person0_0.mp4", videos / "fight/z.mp4")
    assert main(["videos", "--quick", "--processes", "1"]) == 2
    message = capsys.readouterr().err
    assert "1 problem found" in message
    assert re.search(
        r"label conflict: the same video is \S+calm/person0_0.mp4 and \S+fight/z.mp4", message
    )


def test_a_video_listed_in_two_classes_is_a_conflict(make, tmp_path):
    (tmp_path / "list.txt").write_text("a.mp4 run\na.mp4 stop\n")
    with pytest.raises(InputError, match=r"label conflict: \S+a.mp4 is of class run, stop"):
        make(options=("--list", str(tmp_path / "list.txt")))


def test_near_backgrounds_of_different_groups_are_counted(tmp_path):
    """Frames of one slope correlate whatever their brightness and contrast; a blank one is like no other."""
    slope, blank = bytes(range(0, 128, 2)).hex(), "07" * 64
    frames = {
        "/t1": bytes(range(100, 164)).hex(),
        "/t2": slope,
        "/t3": bytes(range(64, 0, -1)).hex(),
        "/t4": "",
        "/t5": blank,
        "/v1": slope,
        "/v2": blank,
    }
    checks = {path: VideoCheck(path, "ok", mean_frame=frame) for path, frame in frames.items()}
    videos = [tool.OwnVideo(path, "a", "g" if path in {"/t2", "/v1"} else "") for path in checks]
    train, val = videos[:5], videos[5:]
    assert tool.alike_pairs(train, val, checks, tool.Root(Path("/"))) == [("v1", "t1")]
    assert tool.alike_pairs(train[1:], val, checks, tool.Root(Path("/"))) == []


def test_few_and_mixed_groups_are_named():
    """Class b has one group in validation, and group 2 has both classes."""
    train = [tool.OwnVideo("/a2", "a", "2"), tool.OwnVideo("/b2", "b", "2")]
    val = [tool.OwnVideo(f"/{name}", name[0], name[1:]) for name in ("a1", "a3", "b4")]
    _, mixed, single = tool.group_lines(train, val)
    assert mixed == "1 group has several classes: 2"
    assert single.startswith("warning: validation has one group of b:")


@pytest.mark.parametrize(
    "arguments",
    [
        *(["nowhere"], ["videos", "--steps", "49"], ["videos/calm"]),
        *(["videos", "--group-regex", "("], ["videos", "--group-regex", "x"]),
    ],
)
def test_bad_input_is_a_message_and_nothing_is_written(videos, arguments, capsys):
    assert main(arguments) == 2
    assert arguments[-1] in capsys.readouterr().err
    assert not Path("projects").exists()


@pytest.fixture
def make(tmp_path):
    """Makes files, and returns what the tool finds in their folder, with any options."""

    def find(*names, options=()):
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
        return tool.find_videos(tool.parse([str(tmp_path), *options])).videos

    return find


def places(videos, root):
    return [(str(Path(one.path).relative_to(root)), one.class_name, one.group) for one in videos]


def test_a_folder_is_a_class_and_a_folder_in_it_is_a_group(make, tmp_path):
    files = ("b/x.mp4", "a/y.AVI", "a/p1/d1/z.mp4", "a/.hidden/w.mp4", "b/p1/clip/1.jpg", "no.txt")
    assert places(make(*files), tmp_path) == [
        ("a/p1/d1/z.mp4", "a", "p1"),
        ("a/y.AVI", "a", ""),
        ("b/p1/clip", "b", "p1"),
        ("b/x.mp4", "b", ""),
    ]


@pytest.mark.parametrize(
    "folders", [("train", "val", "test"), ("Train", "validation"), ("train", "test")]
)
def test_folders_of_a_split_are_kept(make, folders):
    videos = make(*(f"{folder}/a/{folder}.mp4" for folder in folders))
    wanted = [(folders[0], False), (folders[1], True)]
    assert [(Path(one.path).stem, one.is_val) for one in videos] == wanted


@pytest.mark.parametrize("first", ["", "path label group\n"])
def test_a_list_has_labels_and_perhaps_groups(first, make, tmp_path):
    (tmp_path / "list.txt").write_text(first + "my file.mp4 run p1\n\nb.mp4\tstop\tp2\n")
    videos = make(options=("--list", str(tmp_path / "list.txt"), "--group-column"))
    wanted = [("my file.mp4", "run", "p1"), ("b.mp4", "stop", "p2")]
    assert places(videos, tmp_path) == wanted


@pytest.mark.parametrize("line", ["a.mp4", "a.mp4 0\na.mp4 0"])
def test_a_bad_line_is_named(make, tmp_path, line):
    (tmp_path / "list.txt").write_text(line + "\n")
    with pytest.raises(InputError, match=r"list.txt:1|a.mp4 is listed twice"):
        make(options=("--list", str(tmp_path / "list.txt")))


def videos_of(counts, group_of=lambda kind, number: ""):
    return [
        tool.OwnVideo(f"/{kind}/{number}.mp4", kind, group_of(kind, number))
        for kind, num in counts.items()
        for number in range(num)
    ]


def test_each_class_is_split_by_the_share_and_the_seed():
    videos = videos_of({"a": 40, "b": 100, "c": 2})
    train, val = tool.split_videos(videos, 0.25, 0)
    assert Counter(one.class_name for one in val) == {"a": 10, "b": 25, "c": 1}
    assert not {one.path for one in train} & {one.path for one in val}
    assert tool.split_videos(videos, 0.25, 0) == (train, val)
    assert tool.split_videos(videos, 0.25, 2) != (train, val)


@pytest.mark.parametrize("seed", range(5))
def test_groups_stay_together_and_the_shares_are_near(seed):
    """Twelve persons of different numbers of videos do both actions."""
    videos = videos_of({"a": 120, "b": 120}, lambda kind, number: f"p{number**2 % 13}")
    train, val = tool.split_videos(videos, 0.25, seed)
    assert not {one.group for one in train} & {one.group for one in val}
    assert 40 <= len(val) <= 80
    assert {one.class_name for one in train} == {one.class_name for one in val} == {"a", "b"}


@pytest.mark.parametrize("group", ["", "all"])
def test_a_class_that_cannot_be_in_both_lists_is_named(group):
    with pytest.raises(InputError, match="class a"):
        tool.split_videos(videos_of({"a": 1, "b": 9}, lambda *_: group), 0.25, 0)


def keys_of(seconds=3.0, fps=30.0, side=128, num_train=225, num_val=75, steps=None, crop=None):
    check = VideoCheck("v", "ok", round(fps * seconds), fps=fps, duration_seconds=seconds)
    checks = [replace(check, width=2 * side, height=side)] * 9
    return tool.recipe_keys(checks, num_train, num_val, steps, crop)


@pytest.mark.parametrize(
    ("seconds", "fps", "stride"),
    [
        *((0.6, 30, 1), (1.1, 30, 2), (2.0, 30, 3), (2.1, 30, 4), (60, 30, 4)),
        # The frames of a clip of a slow video differ.
        *((60, 60, 4), (60, 25, 4), (60, 7.5, 4), (60, 5, 6), (60, 1, 30)),
    ],
)
def test_the_clip_is_as_long_as_fits_up_to_two_seconds(seconds, fps, stride):
    keys = keys_of(seconds, fps)
    assert (keys["DATA.NUM_FRAMES"], keys["DATA.SAMPLING_RATE"]) == (16, stride)
    assert stride * 15 + 1 <= 30 * seconds


@pytest.mark.parametrize(("side", "crop"), [(1080, 96), (96, 96), (95, 80), (50, 48), (10, 32)])
def test_the_crop_is_no_larger_than_the_videos(side, crop):
    keys = keys_of(side=side)
    assert (keys["DATA.TRAIN_CROP_SIZE"], keys["DATA.TEST_CROP_SIZE"]) == (crop, crop)
    assert keys_of(side=side, crop=50)["DATA.TRAIN_JITTER_SCALES"] == [50, 62]


@pytest.mark.parametrize(("num", "epochs"), [(10, 200), (225, 71), (1000, 16), (100_000, 10)])
def test_the_epochs_give_about_as_many_steps_for_every_set(num, epochs):
    # 18 videos make 120 steps of 8 clips in 120 × 8 / 18 epochs.
    assert keys_of(num_train=18, steps=120)["SOLVER.MAX_EPOCH"] == 53.333
    keys = keys_of(num_train=num)
    assert keys["SOLVER.MAX_EPOCH"] == epochs
    assert keys["SOLVER.STEPS"] == pytest.approx([0, 0.65 * epochs, 0.85 * epochs])


def commands_of_the_page():
    blocks = re.findall(r"```bash\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.strip()]
    return [shlex.split(line, comments=True) for line in lines]


@pytest.mark.slow
def test_every_command_of_the_page_runs(videos, tmp_path, monkeypatch, capsys):
    """In their order, on tiny videos. The recipe and the study are made small between the commands."""
    own_data = load_tool("own_data")
    monkeypatch.setattr(own_data, "STEPS", 24)
    monkeypatch.setattr(own_data, "LEAST_EPOCHS", 8)
    monkeypatch.setattr(advice, "FEW_STEPS", 1)
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
        loaded = own_data if name == "own_data" else load_tool(name)
        assert loaded.main(arguments) == 0, (tool, arguments)
        told[tool], notes = capsys.readouterr()
        if tool == "tools/study.py":
            assert "baseline, seed 0" not in notes  # run_net.py has trained it
        baseline = Path("projects/videos/baseline.yaml")
        if baseline.exists() and "RESNET" not in baseline.read_text():
            narrow = "RESNET:\n  WIDTH_PER_GROUP: 8\nDATA_LOADER:\n  NUM_WORKERS: 0\n"
            baseline.write_text(baseline.read_text() + narrow)
            study = yaml.safe_load(Path("projects/videos/study.yaml").read_text())
            study = {**study, "seeds": 1, "controls": [], "equal_flops": []}
            Path("projects/videos/study.yaml").write_text(yaml.safe_dump(study))
    assert "%  calm" in told["tools/predict.py"]
    assert "multigrid: length" in told["tools/doctor.py"]
    assert Path("projects/videos/runs/report.html").exists()
    assert "tools/study.py projects/videos" in Path("projects/videos/README.md").read_text()
