"""The recipe for one's own videos: each choice by what was seen, and the files of a project."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from mgexp.config.check import cross_problems
from mgexp.config.load import load_config
from mgexp.config.study import read_study
from mgexp.data.split import OwnVideo
from mgexp.errors import InputError
from mgexp.models.build import build_network
from mgexp.models.cost import macs_by_shape, train_flops
from mgexp.plan import own_data
from mgexp.plan.own_data import (
    Lists,
    Plan,
    ProjectDir,
    Seen,
    choose,
    config_from,
    write_project,
)
from mgexp.train.setup import build_row_schedule
from mgexp.video.check import VideoCheck

SEEN = Seen(
    class_names=("left turn", "stop"),
    num_train=225,
    num_val=75,
    short_seconds=2.0,
    seconds=3.0,
    few_frames=60,
    fps=30.0,
    small_side=128,
    short_side=240,
    aspect=16 / 9,
)


def chosen(**changes):
    return {one.key: one.value for one in choose(replace(SEEN, **changes))}


def test_what_was_seen_is_summarised():
    checks = [
        VideoCheck(
            f"{n}", "ok", frames=30 * n, fps=30.0, duration_seconds=float(n), width=200, height=100
        )
        for n in range(1, 12)
    ]
    images = VideoCheck("f", "ok", frames=180, width=100, height=300)  # 6 s at 30 images a second
    seen = Seen.of([*checks, images], ("a", "b"), 8, 4)
    assert seen.seconds == 6.0
    assert seen.short_seconds == pytest.approx(2.1)  # nine of ten of the twelve are longer
    assert (seen.small_side, seen.aspect, seen.fps) == (100, 2.0, 30.0)


@pytest.mark.parametrize(("seconds", "stride"), [(0.6, 1), (1.1, 2), (2.0, 3), (2.1, 4), (60.0, 4)])
def test_the_clip_is_as_long_as_fits_up_to_two_seconds(seconds, stride):
    keys = chosen(short_seconds=seconds, few_frames=30 * seconds)
    assert (keys["DATA.NUM_FRAMES"], keys["DATA.SAMPLING_RATE"]) == (16, stride)
    span_frames = stride * 15 + 1
    assert span_frames <= 30 * seconds


@pytest.mark.parametrize("changes", [{"few_frames": 15}, {"short_seconds": 0.5, "few_frames": 60}])
def test_very_short_videos_are_sampled_in_parts(changes):
    keys = chosen(**changes)
    assert "DATA.SAMPLING_RATE" not in keys
    assert (keys["DATA.NUM_FRAMES"], keys["DATA.TEMPORAL_GRID"]) == (8, "segments")
    assert keys["TEST.NUM_ENSEMBLE_VIEWS"] == 1


@pytest.mark.parametrize(("side", "crop"), [(1080, 96), (96, 96), (95, 80), (50, 48), (10, 32)])
def test_the_crop_is_no_larger_than_the_videos(side, crop):
    keys = chosen(small_side=side)
    assert keys["DATA.TRAIN_CROP_SIZE"] == keys["DATA.TEST_CROP_SIZE"] == crop
    assert keys["DATA.TRAIN_JITTER_SCALES"] == [crop, round(1.25 * crop)]


@pytest.mark.parametrize(
    ("names", "flip"),
    [
        (("left turn", "stop"), False),
        (("SlideRight", "stop"), False),
        (("counterclockwise", "up"), False),
        (("theft", "upright", "bright"), True),
    ],
)
def test_clips_are_mirrored_unless_a_class_names_a_side(names, flip):
    assert chosen(class_names=names)["DATA.RANDOM_FLIP"] is flip


@pytest.mark.parametrize(("num", "epochs"), [(10, 200), (225, 71), (1000, 16), (100_000, 10)])
def test_the_epochs_give_about_as_many_steps_for_every_set(num, epochs):
    keys = chosen(num_train=num)
    assert keys["SOLVER.MAX_EPOCH"] == epochs
    shares = [step / epochs for step in keys["SOLVER.STEPS"]]
    assert shares == pytest.approx([0, 0.65, 0.85], abs=0.01)


def test_the_steps_and_the_crop_may_be_given():
    found = {one.key: one for one in choose(SEEN, steps=1000, crop=64)}
    epochs = found["SOLVER.MAX_EPOCH"]
    assert epochs.line() == "MAX_EPOCH: 35.556  # 1,000 steps of 8 clips, as --steps says"
    assert found["SOLVER.STEPS"].value == pytest.approx([0, 0.65 * 35.556, 0.85 * 35.556], rel=1e-4)
    assert found["SOLVER.WARMUP_EPOCHS"].value == pytest.approx(0.12 * 35.556, rel=1e-4)
    assert found["DATA.TRAIN_CROP_SIZE"].line() == (
        "TRAIN_CROP_SIZE: 64  # as --crop says; nine of ten videos have a short side of 128 pixels or more"
    )
    assert found["DATA.TEST_CROP_SIZE"].value == 64
    assert found["DATA.TRAIN_JITTER_SCALES"].value == [64, 80]
    plan = Plan.of(SEEN, steps=1000, crop=64)
    assert (plan.baseline.total_steps, plan.baseline.recipe.crop) == (1000, 64)
    with pytest.raises(InputError, match="an epoch of these videos has 300 steps; give as many"):
        choose(replace(SEEN, num_train=2400), steps=299)
    assert choose(replace(SEEN, num_train=2400), steps=300)


def test_the_test_sees_the_whole_video():
    assert chosen(seconds=3.0)["TEST.NUM_ENSEMBLE_VIEWS"] == 2  # views of 46 frames, 1.53 s
    assert chosen(seconds=600.0)["TEST.NUM_ENSEMBLE_VIEWS"] == 10
    assert (chosen()["TEST.NUM_SPATIAL_CROPS"], chosen(aspect=1.1)["TEST.NUM_SPATIAL_CROPS"]) == (
        3,
        1,
    )


@pytest.mark.parametrize("num", [3, 24, 100, 2400, 50_000])
@pytest.mark.parametrize("frames", [10, 90])
def test_both_schedules_are_possible(num, frames):
    plan = Plan.of(replace(SEEN, num_train=num, few_frames=frames))
    assert plan.long.total_steps < plan.baseline.total_steps
    assert plan.has_few_steps == (num < 90)


def test_the_saving_is_that_of_the_network():
    """As fvcore counts it, which is how the study counts: a clip of fewer frames costs as much less."""
    plan = Plan.of(SEEN)
    network = build_network(config_from(plan.choices))
    macs = macs_by_shape(network, {*plan.baseline.sizes, *plan.long.sizes})
    flops = [train_flops(one, macs) for one in (plan.baseline, plan.long)]
    assert f"and {flops[0] / flops[1]:.2f} times fewer FLOPs of training" in plan.advice()[0]


def test_the_margin_is_two_points_or_two_videos():
    assert Plan.of(SEEN).margin == pytest.approx(2.7)
    assert Plan.of(replace(SEEN, num_val=1000)).margin == 2.0


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of two videos in a folder with a space and a quote in its name."""
    monkeypatch.chdir(tmp_path)
    folder = ProjectDir(tmp_path / "my \"project'")
    videos = tmp_path / "videos"
    one, two = (OwnVideo(str(videos / f"{name}.mp4"), name) for name in ("stop", "left turn"))
    lists = Lists(videos, (one,), (two,))
    folder.root.mkdir()
    write_project(folder, Plan.of(SEEN), lists, {"left turn": 0, "stop": 1})
    return folder


def test_the_files_of_a_project_say_what_was_chosen(project, tmp_path):
    cfg = load_config(project.baseline_yaml)
    assert cross_problems(cfg) == []
    assert (cfg.DATA.SAMPLING_RATE, cfg.DATA.RANDOM_FLIP, cfg.SOLVER.MAX_EPOCH) == (3, False, 71)
    assert str(tmp_path / "videos") == cfg.DATA.PATH_PREFIX
    assert Path(cfg.DATA.TRAIN_LIST).read_text() == "stop.mp4 1\n"
    assert Path(cfg.DATA.VAL_LIST).read_text() == "left turn.mp4 0\n"
    assert Path(cfg.DATA.CLASSES).read_text() == "left turn\nstop\n"
    long = load_config(project.long_yaml)
    assert (long.MULTIGRID.LONG_CYCLE, long.MULTIGRID.SHORT_CYCLE) == (True, False)
    assert build_row_schedule(long, 225).total_steps == Plan.of(SEEN).long.total_steps
    study = read_study(project.root)
    assert study.names == ("baseline", "long")
    assert (study.margin, study.equal_flops) == (2.7, ("long",))
    assert read_study(project.root).classes == cfg.DATA.CLASSES


def test_each_choice_has_its_reason_beside_it(project):
    text = project.baseline_yaml.read_text()
    assert "SAMPLING_RATE: 3  # a clip spans 1.5 s; nine of ten videos have 2.0 s or more" in text
    assert 'RANDOM_FLIP: False  # the class "left turn" tells sides apart' in text
    assert "python tools/run_net.py --cfg 'my \"project'\"'\"'/baseline.yaml'" in text


def test_the_study_says_how_it_was_split(project):
    """Copies are together under the path of the first, which is no group."""

    def video(name, group=None):
        return OwnVideo(f"/v/{name}", "stop", group or f"/v/{name}")

    alone = Lists(Path("/v"), (video("a"), video("copy", "/v/a")), (video("b"),))
    assert alone.groups == ([], [])
    assert "# Not split by group: no groups were found." in project.study_yaml.read_text()
    train = tuple(video(f"t{n}", f"F{n:02d}") for n in range(4))
    val = tuple(video(f"v{n}", f"M{n:02d}") for n in range(12))
    lists = Lists(Path("/v"), (*train, video("a")), val)
    said = own_data.study_text(project, Plan.of(SEEN), lists)
    assert "# Split by group: 16 groups, with none of them in both lists.\n" in said
    assert "# 12 groups are in validation: M00, M01, M02," in said
    assert "M09 and 2 more.\n# 1 video has no group.\n" in said
    mixed = Lists(Path("/v"), train, (*val, train[0]))
    assert mixed.groups_text()[0].endswith("16 groups, with 1 of them in both lists.")


@pytest.mark.parametrize(
    ("val", "share", "warnings"),
    [
        ("AB", None, ["only 2 groups are in validation"]),
        ("ABC", None, []),
        ("AB-", None, []),  # a video by itself is a third group
        ("ABC", 0.5, []),
        ("ABC", 0.2, ["43 % of the videos are in validation, not 20 % as asked"]),
        ("ABC", 0.7, ["43 % of the videos are in validation, not 70 % as asked"]),
    ],
)
def test_few_groups_and_a_share_that_is_far_off_are_warned_of(val, share, warnings):
    def videos(groups):
        return tuple(
            OwnVideo(f"/v/{group}", "stop", group.replace("-", "/v/-")) for group in groups
        )

    lines = Lists(Path("/v"), videos("WXYZ"), videos(val), False, share).groups_text()
    found = [line for line in lines if line.startswith("warning: ")]
    assert len(found) == len(warnings)
    assert all(words in line for words, line in zip(warnings, found, strict=True))


def test_with_too_few_steps_the_study_has_the_baseline_alone(project):
    plan = Plan.of(replace(SEEN, num_train=20, num_val=6))
    study = yaml.safe_load(own_data.study_text(project, plan, Lists(Path(), (), ())))
    assert (study["rows"], "equal_flops" in study) == (["baseline"], False)
    text = own_data.study_text(project, plan, Lists(Path(), (), ()))
    assert text.startswith(
        "# The claim: long, if you add it, is not worse than the baseline by more than"
    )
    assert "compares nothing yet: long has too few steps" in text
    assert f"Make the project again with --steps {plan.enough_steps}, or" in text
    assert f"With --steps {plan.enough_steps} it compares both." in own_data.long_text(
        project, plan
    )


@pytest.mark.parametrize("num_train", [20, 105, 3000])
@pytest.mark.parametrize("steps", [400, 1000])
def test_the_steps_that_are_said_to_be_enough_are_enough_and_few_more(num_train, steps):
    plan = Plan.of(replace(SEEN, num_train=num_train), steps=steps)
    assert plan.has_few_steps
    enough = Plan.of(plan.seen, steps=plan.enough_steps)
    assert not enough.has_few_steps
    assert enough.long.total_steps < 800 or num_train == 20
