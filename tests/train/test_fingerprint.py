"""What a schedule does is compared, whatever it is made from."""

from dataclasses import replace

import torch
from tiny import tiny_config

from mgexp.train.resume import differences, fingerprint
from mgexp.train.setup import schedule_of


def changed(schedule, number, **fields):
    """The schedule as other code might have made it."""
    phases = list(schedule.phases)
    phases[number] = replace(phases[number], **fields)
    return replace(schedule, phases=tuple(phases))


def test_values_are_plain_and_come_back(tmp_path):
    schedule = schedule_of(tiny_config(tmp_path), 24)
    found = fingerprint(schedule, 0)
    torch.save(found, tmp_path / "x.pt")
    assert torch.load(tmp_path / "x.pt", weights_only=True) == found
    assert differences(found, fingerprint(schedule, 0)) == []
    assert found["phases"][0] == {
        "steps": "0–2",
        "stage": 0,
        "first clip": 0,
        "mini-batches": "64x2x16² 32x2x23² 32x2x23²",
        "strides": "1–4",
        "clips of a BN group": 4,
        "first learning rate": 0.04,
        "last learning rate": 0.04,
    }


def test_each_change_is_told_in_words(tmp_path):
    schedule = schedule_of(tiny_config(tmp_path), 24)
    saved = fingerprint(schedule, 0)
    (text,) = differences(saved, fingerprint(changed(schedule, 1, lr_factor=1.0), 0))
    assert text == (
        "schedule: phase 1: first learning rate: 0.02 before, now 0.005, "
        "last learning rate: 0.02 before, now 0.005"
    )
    (text,) = differences(saved, fingerprint(changed(schedule, 2, num_bn_groups=1), 0))
    assert text == "schedule: phase 2: clips of a BN group: 4 before, now 8"
    shorter = replace(schedule, phases=schedule.phases[:-1])
    count, phase = differences(saved, fingerprint(shorter, 0))
    assert (count, phase) == ("schedule: steps: 10 before, now 9", "schedule: phase 5 is gone")
    assert differences(fingerprint(shorter, 0), saved)[1] == "schedule: phase 5 is new"


def test_other_draws_are_another_schedule(tmp_path):
    schedule = schedule_of(tiny_config(tmp_path), 24)
    (text,) = differences(fingerprint(schedule, 0), fingerprint(schedule, 1))
    assert text.startswith("schedule: first videos of the stream: [")


def test_more_videos_are_another_schedule(tmp_path):
    cfg = tiny_config(tmp_path)
    few, many = (fingerprint(schedule_of(cfg, num), 0) for num in (24, 240))
    texts = differences(few, many)
    assert texts[0] == "schedule: training videos: 24 before, now 240"
    assert texts[-1].count("phase ") == 6


def test_the_number_of_processes_changes_nothing(tmp_path):
    cfg = tiny_config(tmp_path)
    wanted = fingerprint(schedule_of(cfg, 24), 0)
    for num in (2, 4):  # one group of 4 clips then spans all processes at the full shape
        assert differences(wanted, fingerprint(schedule_of(cfg, 24, num), 0)) == []


def test_the_last_bits_of_a_learning_rate_may_differ(tmp_path):
    schedule = schedule_of(tiny_config(tmp_path), 24)
    factor = schedule.phases[0].lr_factor * (1 + 1e-14)
    other = fingerprint(changed(schedule, 0, lr_factor=factor), 0)
    assert differences(fingerprint(schedule, 0), other) == []


def test_another_order_of_shapes_is_told(tmp_path):
    short = {"MULTIGRID.LONG_CYCLE": False}
    ordered = fingerprint(schedule_of(tiny_config(tmp_path, short), 24), 0)
    changes = {**short, "MULTIGRID.SHAPE_ORDER": "random"}
    permuted = fingerprint(schedule_of(tiny_config(tmp_path, changes), 24), 0)
    assert "phase 1: mini-batches: " in " ".join(differences(ordered, permuted))
