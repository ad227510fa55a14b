"""From the configuration to recipe, schedule and inputs."""

from types import SimpleNamespace

import pytest
from tiny import data_keys, tiny_config

from mgexp.errors import InputError
from mgexp.train import setup as build
from mgexp.train.setup import (
    build_inputs,
    build_multigrid,
    build_recipe,
    memory_problems,
    num_videos_of,
    ready_bytes,
    schedule_of,
)

OFF = {"MULTIGRID.LONG_CYCLE": False, "MULTIGRID.SHORT_CYCLE": False}


def test_the_recipe_is_the_baseline_of_the_row(tmp_path):
    recipe = build_recipe(tiny_config(tmp_path))
    assert (recipe.clips, recipe.frames, recipe.crop, recipe.stride) == (4, 8, 32, 1)
    assert (tuple(recipe.stage_epochs), recipe.max_epoch) == ((0, 3), 4)
    assert build_recipe(tiny_config(tmp_path, OFF)) == recipe


def test_segments_have_no_stride(tmp_path):
    assert build_recipe(tiny_config(tmp_path, {"DATA.TEMPORAL_GRID": "segments"})).stride is None


@pytest.mark.parametrize(("long", "num_long"), [(True, 4), (False, 1)])
@pytest.mark.parametrize(("short", "num_short"), [(True, 2), (False, 0)])
def test_a_cycle_that_is_off_has_one_shape(long, num_long, short, num_short, tmp_path):
    changes = {"MULTIGRID.LONG_CYCLE": long, "MULTIGRID.SHORT_CYCLE": short}
    found = build_multigrid(tiny_config(tmp_path, changes))
    assert (len(found.long_factors), len(found.short_factors)) == (num_long, num_short)
    assert found.epoch_factor == (2.0 if long or short else 1.0)
    assert found.fine_tuning == long


def test_the_baseline_has_one_shape_in_all_steps(tmp_path):
    schedule = schedule_of(tiny_config(tmp_path, OFF), 24)
    plans = [schedule.plan_at(step) for step in range(schedule.total_steps)]
    assert len(plans) == 24  # 4 epochs of 24 videos by 4
    assert {(plan.clips, plan.frames, plan.crop) for plan in plans} == {(4, 8, 32)}


def test_inputs_hold_the_videos_of_the_lists(tiny_data, tmp_path):
    cfg = tiny_config(tmp_path, data_keys(tiny_data))
    found = build_inputs(cfg, [], 1)
    assert (len(found.train), len(found.val), found.missing) == (24, 8, ())
    assert found.schedule == schedule_of(cfg, 24)


CLIP = 3 * 8 * 32**2
"""Bytes of a clip of the tiny row at the full shape: 8 frames of 32 pixels."""


@pytest.mark.parametrize(
    ("changes", "processes", "wanted"),
    [
        # 4 training clips of 32 pixels, and the 16 clips of TEST.BATCH_SIZE beside them.
        (OFF, 1, (4 + 16) * CLIP),
        (OFF, 2, (2 + 16) * CLIP),
        (
            {**OFF, "TEST.BATCH_SIZE": 1},
            1,
            (4 + 4) * CLIP,
        ),  # precise BN loads more than an evaluation
        ({**OFF, "TEST.BATCH_SIZE": 1, "BN.USE_PRECISE_STATS": False}, 1, (4 + 1) * CLIP),
        (
            {**OFF, "DATA.TEST_CROP_SIZE": 64},
            1,
            16 * 4 * CLIP,
        ),  # the final evaluation is the worst time
        ({**OFF, "TRAIN.ENABLE": False}, 1, 16 * CLIP),
    ],
)
def test_bytes_that_loaders_keep_ready_at_a_time(changes, processes, wanted, tmp_path):
    cfg = tiny_config(tmp_path, changes)
    assert ready_bytes(cfg, schedule_of(cfg, 24), processes) == wanted


def test_too_little_shared_memory_is_refused_before_workers_start(tiny_data, tmp_path, monkeypatch):
    cfg = tiny_config(tmp_path, {**data_keys(tiny_data), **OFF, "DATA_LOADER.NUM_WORKERS": 2})
    needed = 5 * 20 * CLIP
    free = SimpleNamespace(free=needed)
    monkeypatch.setattr(build, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(build.shutil, "disk_usage", {tmp_path: free}.__getitem__)
    build_inputs(cfg, [], 1)
    free.free = needed - 1
    with pytest.raises(InputError, match="--shm-size"):
        build_inputs(cfg, [], 1)
    monkeypatch.setattr(build, "SHARED_MEMORY", tmp_path / "none")  # not Linux
    build_inputs(cfg, [], 1)


def test_processes_on_this_machine_share_its_memory(tmp_path, monkeypatch):
    cfg = tiny_config(tmp_path, {**OFF, "DATA_LOADER.NUM_WORKERS": 2})
    monkeypatch.setattr(build, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(build.shutil, "disk_usage", lambda _: SimpleNamespace(free=5 * 18 * CLIP))
    schedule = schedule_of(cfg, 24)
    assert memory_problems(cfg, schedule, 2, num_local=1) == []
    assert len(memory_problems(cfg, schedule, 2, num_local=2)) == 1


def test_problems_given_come_first_and_with_those_found(tmp_path):
    cfg = tiny_config(tmp_path, {"DATA.NUM_FRAMES": 10})
    with pytest.raises(InputError) as caught:
        build_inputs(cfg, ["a key is misspelt"], 1)
    problems = caught.value.problems
    assert problems[0] == "a key is misspelt"
    for words in ("DATA.TRAIN_LIST is not set", "DATA.VAL_LIST is not set", "10 frames"):
        assert any(words in problem for problem in problems)


def test_the_number_of_videos_is_given_else_listed_else_configured(tiny_data, tmp_path):
    listed = tiny_config(tmp_path, {**data_keys(tiny_data), "DATA.NUM_VIDEOS": 7})
    assert num_videos_of(listed, 5) == (5, [])
    assert num_videos_of(listed, None) == (24, [])
    assert num_videos_of(tiny_config(tmp_path, {"DATA.NUM_VIDEOS": 7}), None) == (7, [])
    assert num_videos_of(tiny_config(tmp_path), None)[1]


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
    assert num_videos_of(cfg, None)[1] != []


@pytest.mark.slow
def test_the_largest_model_is_looked_at_without_its_memory(tiny_data, tmp_path):
    changes = {"RESNET.WIDTH_PER_GROUP": 10_000, "SLOWFAST.FUSION_CONV_CHANNEL_RATIO": 1000}
    cfg = tiny_config(tmp_path, {**data_keys(tiny_data), **changes, "MODEL.NUM_CLASSES": 10**6})
    build_inputs(cfg, [], 1)


def test_order_of_shapes_and_plain_batch_norm_are_keys(tmp_path):
    changes = {"MULTIGRID.SHAPE_ORDER": "random", "MULTIGRID.BN_BASE_SIZE": 0}
    schedule = schedule_of(tiny_config(tmp_path, changes), 24)
    assert {(p.shape_order, p.num_bn_groups) for p in schedule.phases} == {("random", 1)}
    ordered = schedule_of(tiny_config(tmp_path), 24)
    assert {phase.shape_order for phase in ordered.phases} == {"coarse_to_fine"}
