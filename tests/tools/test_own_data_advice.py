"""What tools/own_data.py chooses beside the split: first weights, a store, views; and what it advises."""

import re
import shutil

import pytest
import torch
from tiny import load_tool, write_config

from mgexp.config.load import load_config, read_config
from mgexp.data.lists import build_list
from mgexp.models.build import build_on_meta

tool = load_tool("own_data")


@pytest.fixture
def videos(tiny_data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for index in range(8):
        to = tmp_path / "videos" / ("calm", "fight")[index % 2] / f"{index}.mp4"
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tiny_data / f"train{index}.mp4", to)
    return "videos"


def weights_of(path, *pairs):
    """A file with the tensors of a network of 400 classes, each of which holds one value alone."""
    cfg, _ = read_config(tool.FINETUNE, ["MODEL.NUM_CLASSES", "400", *pairs])
    state = build_on_meta(cfg).state_dict()
    torch.save({name: torch.zeros(()).expand(tensor.shape) for name, tensor in state.items()}, path)
    return str(path)


def test_the_project_has_the_network_the_clips_and_the_rate_of_fine_tuning(videos, tmp_path):
    file = weights_of(tmp_path / "i3d.pyth", "MODEL.MODEL_NAME", "I3D")
    assert tool.main([videos, "--from-weights", file]) == 0
    cfg = load_config(tmp_path / "projects" / "videos" / "long.yaml")
    assert (cfg.MODEL.MODEL_NAME, cfg.RESNET.DEPTH, cfg.MODEL.NUM_CLASSES) == ("I3D", 50, 2)
    clip = (cfg.DATA.NUM_FRAMES, cfg.DATA.SAMPLING_RATE, cfg.DATA.TRAIN_CROP_SIZE)
    assert clip == (8, 8, 224)
    assert (file, 0.015) == (cfg.TRAIN.INIT_WEIGHTS, cfg.SOLVER.BASE_LR)
    assert cfg.MULTIGRID.LONG_CYCLE


def test_weights_of_another_network_are_refused_before_a_video_is_decoded(videos, tmp_path, capsys):
    file = weights_of(tmp_path / "x3d.pyth", "MODEL.MODEL_NAME", "X3D")
    assert tool.main([videos, "--from-weights", file]) == 2
    assert "--from-weights" in capsys.readouterr().err
    assert not (tmp_path / "projects").exists()


def test_uneven_classes_are_told(videos, tmp_path, capsys):
    for index in range(1, 7, 2):
        (tmp_path / "videos" / "fight" / f"{index}.mp4").rename(
            tmp_path / "videos" / "calm" / f"{index}.mp4"
        )
    shutil.copy(tmp_path / "videos/calm/0.mp4", tmp_path / "videos/fight/one_more.mp4")
    (tmp_path / "videos/calm/0.mp4").unlink()
    assert tool.main([videos]) == 0
    assert "calm has 3.0 times the videos of fight" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("side", "has_store", "named"),
    [
        (53, False, []),
        (54, False, ["--crop"]),
        (72, False, ["--crop"]),
        (73, False, ["--crop", "--store"]),
        (73, True, ["--crop"]),
    ],
)
def test_pictures_that_training_shrinks_are_told(side, has_store, named, tmp_path):
    """Short sides of 32 to 40 pixels are seen: 36 on average."""
    write_config(tmp_path / "baseline.yaml", {})
    checks = [tool.VideoCheck("v", "ok", width=2 * side, height=side)]
    videos = [tool.OwnVideo("v", "calm"), tool.OwnVideo("w", "fight")]
    lines = tool.advice_lines(tmp_path, has_store, checks, videos)
    assert [re.search("--crop|--store", line)[0] for line in lines] == named


def test_a_project_with_a_store_reads_it_and_names_the_command_that_makes_it(
    videos, tmp_path, capsys
):
    assert tool.main([videos, "--store"]) == 0
    cfg = load_config(tmp_path / "projects" / "videos" / "baseline.yaml")
    assert tmp_path / "projects" / "videos" / "store" == tmp_path / cfg.DATA.STORE
    assert "tools/prepare_data.py --cfg projects/videos/baseline.yaml" in capsys.readouterr().out


def test_a_test_costs_a_quarter_of_the_training_at_most():
    check = tool.VideoCheck("v", "ok", 900, fps=30.0, duration_seconds=30.0, width=128, height=96)
    views = {
        (num_val, steps): tool.recipe_keys([check] * 9, 100, num_val, steps, None)[
            "TEST.NUM_ENSEMBLE_VIEWS"
        ]
        for num_val, steps in ((100, None), (1000, None), (1000, 500), (9000, None))
    }
    # 2,000 steps of 8 clips are 16,000 clips; a view of a video costs as much as one.
    assert views == {(100, None): 10, (1000, None): 4, (1000, 500): 1, (9000, None): 1}


@pytest.mark.parametrize(("recordings", "both"), [(["0", "2", "4"], 0), (["0"], 1)])
def test_stretches_of_a_recording_are_in_one_list_if_there_are_others(
    videos, tmp_path, recordings, both
):
    lines = [
        f"calm/{name}.mp4,{start},{start + 0.2},{label}"
        for name in recordings
        for start, label in ((0, "a"), (0.2, "b"), (0.4, "a"), (0.6, "b"))
    ]
    (tmp_path / "table.csv").write_text("\n".join(["video,start,end,label", *lines]) + "\n")
    assert tool.main([videos, "--list", "table.csv", "--separator", ","]) == 0
    cfg = load_config(tmp_path / "projects" / "videos" / "baseline.yaml")
    lists = [build_list(cfg, key) for key in ("TRAIN_LIST", "VAL_LIST")]
    train, val = ({record.path for record in videos.records} for videos in lists)
    assert len(train & val) == both
    assert sum(len(videos.records) for videos in lists) == len(lines)
    assert all(record.part[1] - record.part[0] < 0.21 for record in lists[0].records)
