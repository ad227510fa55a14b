"""What a run checks before it writes its first file: recipe, schedule, lists, task, memory."""

import ast
import re
from contextlib import nullcontext
from pathlib import Path

import pytest
from tiny import data_keys, tiny_config

from mgexp.config.keys import BY_NAME
from mgexp.data.records import Action, ActionRecord, VideoList, VideoRecord
from mgexp.errors import InputError, collected
from mgexp.train import setup as build
from mgexp.train.setup import (
    Inputs,
    build_inputs,
    build_multigrid,
    build_num_videos,
    build_row_schedule,
    build_sizes,
    build_split_problems,
    frame_problems,
    list_problems,
    unusable_problem,
)
from mgexp.video.pyav import PyavReader

OFF = {"MULTIGRID.LONG_CYCLE": False, "MULTIGRID.SHORT_CYCLE": False}
NO_STEP = {"SOLVER.MAX_EPOCH": 0.001, "SOLVER.STEPS": [0], "SOLVER.WARMUP_EPOCHS": 0}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({**OFF, **NO_STEP, "MULTIGRID.FINE_TUNING": False}, "at least one step of 4 clips"),
        # Twelve clips, at the shape that takes twice as many, do not make groups of eight.
        ({"TRAIN.BATCH_SIZE": 6, "MULTIGRID.BN_BASE_SIZE": 8}, "TRAIN.BATCH_SIZE = 6 becomes 12 "),
        ({"SOLVER.STEPS": [0, 5000]}, "SOLVER.STEPS and then SOLVER.MAX_EPOCH must increase"),
        ({"SOLVER.STEPS": [0]}, "MULTIGRID.FINE_TUNING needs at least two stages"),
        ({"SOLVER.WARMUP_EPOCHS": 5000}, "SOLVER.WARMUP_EPOCHS = 5000 is not less than"),
    ],
)
def test_a_recipe_that_makes_no_schedule_is_one_problem(changes, said, tmp_path):
    with pytest.raises(InputError) as caught:
        build_row_schedule(tiny_config(tmp_path, changes), 24)
    (problem,) = caught.value.problems
    assert said in problem


@pytest.mark.parametrize(("precise", "num_problems"), [(True, 1), (False, 0)])
def test_mini_batches_of_the_baseline_must_make_groups_for_precise_bn(
    precise, num_problems, tiny_data, tmp_path
):
    """Without fine-tuning no phase may have the full shape: 12 clips become 24 here, which are 3 groups of 8."""
    changes = {
        **data_keys(tiny_data),
        "TRAIN.BATCH_SIZE": 12,
        "BN.USE_PRECISE_STATS": precise,
        "MULTIGRID.BN_BASE_SIZE": 8,
        "MULTIGRID.FINE_TUNING": False,
        "MULTIGRID.SHORT_CYCLE": False,
        "MULTIGRID.LONG_CYCLE_FACTORS": [[0.5, 1.0]],
    }
    problems = []
    with collected(problems):
        build_inputs(tiny_config(tmp_path, changes), [], num_processes=1)
    assert len(problems) == num_problems
    for problem in problems:
        assert problem.startswith(
            "BN.USE_PRECISE_STATS = True: 12 clips per process neither divide"
        )


def test_every_argument_that_a_message_of_the_core_names_has_a_key():
    named = set()
    for path in (Path(build.__file__).parents[1] / "multigrid").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            text = node.value if isinstance(node, ast.Constant) else ""
            named |= {*re.findall(r"\b(?:recipe|multigrid)\.(?!py\b)\w+", str(text))}
    assert named == build.ARGUMENTS.keys()
    assert [key for key in build.ARGUMENTS.values() if key not in BY_NAME] == []


@pytest.mark.parametrize(("long", "num_long"), [(True, 4), (False, 1)])
@pytest.mark.parametrize(("short", "num_short"), [(True, 2), (False, 0)])
def test_a_cycle_that_is_off_has_one_shape(long, num_long, short, num_short, tmp_path):
    changes = {"MULTIGRID.LONG_CYCLE": long, "MULTIGRID.SHORT_CYCLE": short}
    found = build_multigrid(tiny_config(tmp_path, changes))
    assert (len(found.long_factors), len(found.short_factors)) == (num_long, num_short)
    assert found.epoch_factor == (2.0 if long or short else 1.0)
    assert found.fine_tuning == long


def test_sizes_of_all_clips_are_known_before_their_ratios(tmp_path):
    # 0.6² of the pixels have no whole ratio.
    changes = {
        "DATA.NUM_FRAMES": 16,
        "DATA.TRAIN_CROP_SIZE": 100,
        "MULTIGRID.LONG_CYCLE_FACTORS": [[0.5, 0.6], [1.0, 1.0]],
        "MULTIGRID.SHORT_CYCLE_FACTORS": [0.7],
    }
    found = build_sizes(tiny_config(tmp_path, changes))
    assert found == {(8, 60), (8, 70), (16, 70), (16, 100)}


@pytest.mark.parametrize(
    ("num_bytes", "num_workers", "fits"), [(75, 1, True), (76, 1, False), (76, 0, True)]
)
def test_a_folder_for_temporary_files_may_be_too_long_for_workers(
    num_bytes, num_workers, fits, tiny_data, tmp_path, monkeypatch
):
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/" + "x" * (num_bytes - 1))
    cfg = tiny_config(tmp_path, {**data_keys(tiny_data), "DATA_LOADER.NUM_WORKERS": num_workers})
    with nullcontext() if fits else pytest.raises(InputError, match=r"TMPDIR.* 1 bytes too long"):
        build_inputs(cfg, [], 1)


def test_the_number_of_videos_is_given_else_listed_else_configured(tiny_data, tmp_path):
    listed = tiny_config(tmp_path, {**data_keys(tiny_data), "DATA.NUM_VIDEOS": 7})
    assert build_num_videos(listed, 5) == (5, [])
    assert build_num_videos(listed, None) == (24, [])
    assert build_num_videos(tiny_config(tmp_path, {"DATA.NUM_VIDEOS": 7}), None) == (7, [])
    assert build_num_videos(tiny_config(tmp_path), None)[1]
    # An official list is counted without its videos.
    (tmp_path / "train.csv").write_text("id,actions\nAAAAA,c000 0 1\nBBBBB,\nCCCCC,c001 0 1\n")
    keys = {"DATA.FORMAT": "charades", "DATA.TRAIN_LIST": str(tmp_path / "train.csv")}
    cfg = tiny_config(tmp_path, {**keys, "DATA.PATH_PREFIX": str(tmp_path)})
    assert build_num_videos(cfg, None) == (3, [])


@pytest.mark.parametrize(
    ("text", "changes", "num_videos"),
    [
        ("path label\na.mp4 0\nb.mp4 1\n\nc.mp4 0\n", {}, 3),
        ("a.mp4 0\nb.mp4 1\n", {}, 2),
        ("path start end label\na.mp4 0 1 0\na.mp4 1 2 1\n", {}, 2),
        ("path num_frames label\na 9 0\nb 9 1\n", {"DATA.FORMAT": "rawframes"}, 2),
        ("path label\na.mp4 0\nb.mp4 1\nc.mp4 0\n", {"DATA.MAX_TRAIN_VIDEOS": 2}, 2),
    ],
)
def test_a_first_line_of_names_is_no_video(text, changes, num_videos, tmp_path, monkeypatch):
    """No file of a video is looked for."""
    monkeypatch.setattr("mgexp.data.formats._first_usable", None)
    (tmp_path / "train.txt").write_text(text)
    keys = {"DATA.TRAIN_LIST": str(tmp_path / "train.txt"), "DATA.PATH_PREFIX": "/gone", **changes}
    assert build_num_videos(tiny_config(tmp_path, keys), None) == (num_videos, [])


def test_an_empty_list_is_a_problem_whatever_the_number(tmp_path):
    (tmp_path / "train.txt").touch()
    keys = {"DATA.TRAIN_LIST": str(tmp_path / "train.txt"), "DATA.NUM_VIDEOS": 7}
    assert build_num_videos(tiny_config(tmp_path, keys), None)[1][0].endswith("is empty")


@pytest.mark.parametrize(
    ("format_", "name"),
    [
        *(("list", name) for name in ("x" * 300, "/", "~", "binary")),
        *(("hmdb51", name) for name in (".", "/", "a**b", "[", "x" * 300)),
        *(("folders", name) for name in ("binary", "x" * 300)),
        *(("kinetics", name) for name in ("binary", "/dev/full")),
    ],
)
def test_lists_that_are_none_are_problems(format_, name, tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe 0\n")
    file = str(tmp_path / name) if name == "binary" else name
    keys = {"DATA.TRAIN_LIST": file, "DATA.VAL_LIST": file, "DATA.QUARANTINE": file}
    cfg = tiny_config(tmp_path, {**keys, "DATA.FORMAT": format_, "DATA.STORE": name})
    with pytest.raises(InputError):
        build_inputs(cfg, [], 1)
    assert build_num_videos(cfg, None)[1] != []


@pytest.mark.slow
def test_the_largest_model_is_looked_at_without_its_memory(tiny_data, tmp_path):
    changes = {"RESNET.WIDTH_PER_GROUP": 10_000, "SLOWFAST.FUSION_CONV_CHANNEL_RATIO": 1000}
    cfg = tiny_config(tmp_path, {**data_keys(tiny_data), **changes, "MODEL.NUM_CLASSES": 10**6})
    build_inputs(cfg, [], 1)


RECORDS = tuple(VideoRecord(f"/{index}.mp4", index % 2) for index in range(10))


@pytest.mark.parametrize(
    ("num", "share", "is_fine"), [(0, 0, 1), (1, 0, 0), (2, 0.2, 1), (3, 0.2, 0)]
)
def test_the_share_of_unusable_videos_is_a_limit(num, share, is_fine):
    names = [f"{index}.mp4" for index in range(num)]
    assert (unusable_problem(names, 10, (), 10, share) is None) == bool(is_fine)
    assert (unusable_problem((), 10, names, 10, share) is None) == bool(is_fine)


def test_missing_videos_count_in_the_list_and_broken_ones_among_those_used():
    assert unusable_problem(["a.mp4"], 10, ["b.mp4"], 10, 0.2) is None
    problem = unusable_problem(["a.mp4"], 1000, ["b.mp4"], 2, 0.2)
    assert (
        "1 of 1000 training videos are missing or quarantined and 1 of 2 cannot be decoded"
        in problem
    )


def test_a_missing_validation_video_is_never_tolerated():
    val = VideoList(RECORDS[1:], ("/0.mp4",), ())
    problems = list(list_problems(VideoList(RECORDS, (), ()), val, 1.0))
    assert len(problems) == 1
    assert "/0.mp4" in problems[0]


def test_frames_must_divide_by_alpha(tmp_path):
    schedule = build_row_schedule(tiny_config(tmp_path), 24)  # 2, 4 and 8 frames
    assert list(frame_problems(schedule, "SlowFast", 2)) == []
    (problem,) = frame_problems(schedule, "SlowFast", 4)
    assert "2 frames" in problem
    assert len(list(frame_problems(schedule, "SlowFast", 8))) == 2


def test_i3d_needs_two_frames(tmp_path):
    i3d = {"MODEL.MODEL_NAME": "I3D"}
    build_row_schedule(tiny_config(tmp_path, i3d), 24)
    short = tiny_config(tmp_path, {**i3d, "DATA.NUM_FRAMES": 4})  # 1, 2 and 4 frames
    with pytest.raises(InputError, match="I3D cannot take a shape of 1 frame"):
        build_row_schedule(short, 24)


def test_cuda_graphs_cannot_add_up_parts(tmp_path):
    keys = {"TRAIN.COMPILE": "cuda_graphs", "TRAIN.MAX_CLIPS_PER_GPU": 16}
    cfg = tiny_config(tmp_path, keys)
    (problem,) = build_split_problems(cfg, build_row_schedule(cfg, 24))
    assert "TRAIN.MAX_CLIPS_PER_GPU = 16: a process has up to 64 clips in a step" in problem
    for other in ({"TRAIN.COMPILE": "default"}, {"TRAIN.MAX_CLIPS_PER_GPU": 64}):
        cfg = tiny_config(tmp_path, {**keys, **other})
        assert build_split_problems(cfg, build_row_schedule(cfg, 24)) == []


def test_cuda_graphs_are_for_one_process(tmp_path):
    cfg = tiny_config(tmp_path, {"TRAIN.COMPILE": "cuda_graphs"})
    with pytest.raises(InputError, match="one process alone"):
        build_inputs(cfg, [], 2, is_here=False)


def test_the_fingerprint_knows_paths_labels_and_order(tmp_path):
    schedule = build_row_schedule(tiny_config(tmp_path), 10)
    other_label = (VideoRecord("/0.mp4", 1), *RECORDS[1:])
    kinds = [RECORDS, RECORDS[::-1], RECORDS[:-1], other_label]
    found = [Inputs(kind, kind[:1], (), 10, schedule, PyavReader).fingerprint() for kind in kinds]
    assert len({one["train_sha256"] for one in found}) == 4
    assert len({one["val_sha256"] for one in found}) == 3  # the third starts as the first
    other_val = Inputs(RECORDS, RECORDS, (), 10, schedule, PyavReader).fingerprint()
    assert other_val["train_sha256"] == found[0]["train_sha256"]


def test_the_fingerprint_knows_actions_and_their_seconds(tmp_path):
    schedule = build_row_schedule(tiny_config(tmp_path), 10)
    kinds = [(), (Action(1, 0.0, 2.0),), (Action(1, 0.0, 2.5),), (Action(2, 0.0, 2.0),)]
    records = [(ActionRecord("/0.mp4", kind, 3),) for kind in kinds]
    found = {
        Inputs(one, one, (), 1, schedule, PyavReader).fingerprint()["val_sha256"] for one in records
    }
    assert len(found) == 4
