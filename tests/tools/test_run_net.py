"""tools/run_net.py from the command line to the run folder, on small real videos."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tiny import NUM_TRAIN, NUM_VAL, TOOL, command, data_keys, run_net, write_config

from mgexp.record.run_dir import RunDir

NUM_STEPS = 10  # of the tiny row; by hand: (2, 2, 2, 2) of the long cycle and 2 of fine-tuning
RESULT_KEYS = {
    *("experiment", "row", "seed", "commit", "date", "num_train_videos", "num_unusable_videos"),
    *("steps", "epochs", "clips_seen", "train_flops", "params", "metrics", "seconds"),
    *("device", "precision", "expected", "verdict"),
}
SECONDS_KEYS = {
    *("train", "steady", "input_wait", "evaluate", "precise_bn", "checkpoint"),
    *("shape_warmup", "program"),
}
METRICS_KEYS = {
    *("step", "epoch", "phase", "frames", "crop", "clips", "lr", "loss", "step_seconds"),
    *("input_wait_seconds", "clips_per_second", "max_memory_bytes"),
}
EVALUATION_KEYS = {"step", "epoch", "train_seconds", "top1", "top5", "loss", "views"}
OFTEN = ("TRAIN.CHECKPOINT_MINUTES", 0.000001)


@pytest.fixture(scope="module")
def main():
    return run_net().main


@pytest.fixture
def cfg(tiny_data, tmp_path):
    return write_config(tmp_path / "tiny.yaml", data_keys(tiny_data))


@pytest.fixture
def output(tmp_path):
    return tmp_path / "run"


@pytest.fixture
def data(tiny_data, tmp_path):
    """A copy of the data set, to break."""
    return Path(shutil.copytree(tiny_data, tmp_path / "data"))


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def last_checkpoint(folder):
    run = RunDir(folder)
    return torch.load(run.checkpoint(run.checkpoint_steps()[-1]), weights_only=True)


def tensors(folder):
    """Name and tensor of all that a run learned: weights, statistics, momenta, evaluated weights."""
    state = last_checkpoint(folder)
    momenta = state["optimizer"]["state"]
    yield from ((f"model {name}", value) for name, value in state["model"].items())
    yield from ((f"momentum {key}", momenta[key]["momentum_buffer"]) for key in momenta)
    evaluated = torch.load(folder / "model.pt", weights_only=True)
    yield from ((f"evaluated {name}", value) for name, value in evaluated.items())


def assert_bit_identical(folder, other):
    found, wanted = dict(tensors(folder)), dict(tensors(other))
    assert found.keys() == wanted.keys()
    differing = [name for name, value in wanted.items() if not torch.equal(found[name], value)]
    assert differing == []


def losses(folder):
    return [(line["step"], line["loss"]) for line in read_lines(folder / "metrics.jsonl")]


# --- a whole run


def test_a_run_leaves_the_result_of_the_contract(finished_run):
    result = json.loads((finished_run / "result.json").read_text())
    assert result.keys() == RESULT_KEYS
    assert result["seconds"].keys() == SECONDS_KEYS
    assert result["metrics"].keys() == {"top1", "top5"}
    assert (result["row"], result["steps"], result["num_train_videos"]) == (
        "long+short",
        NUM_STEPS,
        NUM_TRAIN,
    )
    assert result["metrics"]["top5"] == 100  # of two classes


def test_seconds_of_a_run_contain_each_other(finished_run):
    seconds = json.loads((finished_run / "result.json").read_text())["seconds"]
    assert seconds["steady"] == pytest.approx(seconds["train"] - seconds["shape_warmup"])
    assert 0 < seconds["input_wait"] < seconds["train"]
    parts = ("train", "evaluate", "precise_bn", "checkpoint")
    assert 0 < sum(seconds[name] for name in parts) <= seconds["program"]


def test_a_run_records_every_step_and_evaluation(finished_run):
    steps = read_lines(finished_run / "metrics.jsonl")
    assert [line["step"] for line in steps] == list(range(NUM_STEPS))
    assert all(line.keys() == METRICS_KEYS for line in steps)
    evaluations = read_lines(finished_run / "evaluations.jsonl")
    assert all(line.keys() >= EVALUATION_KEYS for line in evaluations)
    assert [line["views"] for line in evaluations] == [1, 2]
    assert evaluations[-1]["step"] == NUM_STEPS


def test_a_run_takes_the_clips_and_shapes_of_its_schedule(finished_run):
    steps = read_lines(finished_run / "metrics.jsonl")
    shapes = [(line["clips"], line["frames"], line["crop"]) for line in steps]
    # B = 4, T = 8, S = 32: (T/4, S/√2) (T/2, S/√2) (T/2, S) (T, S), crops S/2 first, then S/√2
    assert shapes[:4] == [(64, 2, 16), (32, 2, 23), (32, 4, 16), (16, 4, 23)]
    assert shapes[6:] == [(16, 8, 16), (8, 8, 23), (16, 8, 16), (16, 8, 16)]


def test_a_finished_run_says_that_it_is_complete(finished_run, tiny_data, tmp_path, main, capsys):
    folder = Path(shutil.copytree(finished_run, tmp_path / "run"))
    cfg = write_config(tmp_path / "tiny.yaml", data_keys(tiny_data))
    before = (folder / "result.json").read_bytes()
    assert main(command(cfg, folder)) == 0
    assert "this run is complete" in capsys.readouterr().out
    assert (folder / "result.json").read_bytes() == before


# --- interruptions


def kill_at(step, arguments, folder):
    """Starts a run in a process of its own and kills it when ``step`` steps are recorded."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, str(TOOL), *arguments],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    metrics, end = folder / "metrics.jsonl", time.monotonic() + 120
    try:
        while time.monotonic() < end and process.poll() is None:
            if metrics.exists() and len(metrics.read_text().splitlines()) >= step:
                break
            time.sleep(0.002)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL


def test_a_killed_run_ends_with_the_same_bits(finished_run, cfg, output, main, record_property):
    step = random.Random().randrange(2, NUM_STEPS - 2)
    record_property("killed_at", step)
    arguments = command(cfg, output, *OFTEN)
    kill_at(step, arguments, output)
    assert not (output / "result.json").exists()
    assert RunDir(output).checkpoint_steps()[-1] > 0
    assert main(arguments) == 0
    assert_bit_identical(output, finished_run)
    assert losses(output) == losses(finished_run)


@pytest.mark.parametrize("step", [0, 3, 4, 8])
def test_a_terminated_run_saves_and_ends_with_the_same_bits(
    step, finished_run, cfg, output, main, monkeypatch
):
    """Step 4 is the one before an evaluation."""
    interrupt_in(step, monkeypatch)
    assert main(command(cfg, output)) == 4
    assert not (output / "result.json").exists()
    monkeypatch.undo()
    assert main(command(cfg, output)) == 0
    assert_bit_identical(output, finished_run)
    assert losses(output) == losses(finished_run)
    assert [line["step"] for line in read_lines(output / "evaluations.jsonl")] == [5, NUM_STEPS]


def interrupt_in(step, monkeypatch):
    """SIGTERM comes while ``step`` is computed."""
    from mgexp.train import loop

    calls, original = [], loop.train_step

    def terminated_step(*arguments):
        calls.append(arguments)
        if len(calls) == step + 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(*arguments)

    monkeypatch.setattr(loop, "train_step", terminated_step)


def test_a_torn_line_and_lines_after_the_checkpoint_are_cut(cfg, output, main, monkeypatch):
    interrupt_in(2, monkeypatch)
    assert main(command(cfg, output)) == 4
    monkeypatch.undo()
    with (output / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "loss": 1.0}\n{"step": 4, "lo')
    assert main(command(cfg, output)) == 0
    assert [step for step, _ in losses(output)] == list(range(NUM_STEPS))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_the_number_of_workers_changes_nothing(workers, finished_run, cfg, output, main):
    assert main(command(cfg, output, "DATA_LOADER.NUM_WORKERS", workers)) == 0
    assert_bit_identical(output, finished_run)


# --- bad input: exit code 2, one message, nothing written


def refused(main, capsys, arguments):
    """The message of a start that is refused."""
    assert main(arguments) == 2
    message = capsys.readouterr().err
    assert message.count("run_net.py: ") == 1
    return message


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        (("SOLVER.BASE_LRR", 0.1), ("SOLVER.BASE_LRR", "nearest: SOLVER.BASE_LR")),
        (("BASE_LR", 0.1), ("no key BASE_LR", "SOLVER.BASE_LR")),
        (("DATA.TRAIN_LIST", "/nowhere/list.txt"), ("/nowhere/list.txt", "does not exist")),
        (("DATA.VAL_LIST", ""), ("DATA.VAL_LIST is not set",)),
        (("DATA.NUM_FRAMES", 10), ("frames",)),
        (("DATA.NUM_FRAMES", 4), ("1 frames", "SLOWFAST.ALPHA")),
        (("DATA.TRAIN_CROP_SIZE", 1), ("crop",)),
        (("MULTIGRID.SHORT_CYCLE_FACTORS", "[0.6, 0.8]"), ("0.6", "5 %")),
        (("DATA.TRAIN_CROP_SIZE", 36), ("DATA.TRAIN_JITTER_SCALES", "36")),
        (("TRAIN.BATCH_SIZE", "many"), ("TRAIN.BATCH_SIZE", "'many'")),
        (("SOLVER.BASE_LR",), ("'SOLVER.BASE_LR' has no value",)),
        (("TEST.FRAME_ORDER", "shuffled"), ("TEST.FRAME_ORDER", "TRAIN.ENABLE False")),
    ],
)
def test_bad_keys_are_refused(pairs, words, cfg, output, main, capsys):
    message = refused(main, capsys, command(cfg, output, *pairs))
    assert "1 problem found" in message
    assert [word for word in words if word not in message] == []
    assert not output.exists()


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("train0.mp4 0\ntrain1.mp4\n", ("train.txt:2", "line without a label")),
        ("train0.mp4 0\ntrain1.mp4 2\n", ("train.txt:2", "label outside the classes", "0 to 1")),
        ("\n\n", ("train.txt", "is empty")),
        ("train0.mp4 0\nlost.mp4 1\n", ("lost.mp4", "1 of 2", "DATA.MAX_UNUSABLE_SHARE")),
    ],
)
def test_bad_lists_are_refused(lines, words, data, tmp_path, output, main, capsys):
    (data / "train.txt").write_text(lines)
    cfg = write_config(tmp_path / "tiny.yaml", data_keys(data))
    message = refused(main, capsys, command(cfg, output))
    assert [word for word in words if word not in message] == []
    assert not output.exists()


def test_a_missing_validation_video_is_refused(data, tmp_path, output, main, capsys):
    (data / "val3.mp4").unlink()
    cfg = write_config(tmp_path / "tiny.yaml", {**data_keys(data), "DATA.MAX_UNUSABLE_SHARE": 0.5})
    message = refused(main, capsys, command(cfg, output))
    assert "1 validation videos are missing" in message
    assert "val3.mp4" in message
    assert not output.exists()


def test_a_batch_that_does_not_divide_over_the_processes_is_refused(
    cfg, output, main, capsys, monkeypatch
):
    monkeypatch.setenv("WORLD_SIZE", "3")
    message = refused(main, capsys, [*command(cfg, output), "--launcher", "torchrun"])
    assert "3 processes" in message
    assert not output.exists()


def test_all_problems_are_in_one_message(data, tmp_path, output, main, capsys):
    (data / "train.txt").write_text("train0.mp4 0\ntrain1.mp4\ntrain2.mp4 7\nlost.mp4 1\n")
    (data / "val.txt").unlink()
    cfg = write_config(tmp_path / "tiny.yaml", {**data_keys(data), "SOLVER.MOMENTUN": 0.5})
    message = refused(
        main, capsys, command(cfg, output, "DATA.NUM_FRAMES", 10, "TRAIN.BATCH_SIZE", 0)
    )
    wanted = (
        *("SOLVER.MOMENTUN", "TRAIN.BATCH_SIZE", "train.txt:2", "train.txt:3", "val.txt"),
        *("lost.mp4", "10 frames"),
    )
    assert [word for word in wanted if word not in message.replace("T = 10", "10 frames")] == []
    assert not output.exists()


def break_video(path):
    path.write_bytes(b"no video" * 50)


def test_a_broken_training_video_stops_the_run(data, tmp_path, output, main, capsys):
    """Only decoding finds it: the folder exists by then, but no result."""
    break_video(data / "train5.mp4")
    cfg = write_config(tmp_path / "tiny.yaml", data_keys(data))
    message = refused(main, capsys, command(cfg, output))
    assert "train5.mp4" in message
    assert "DATA.MAX_UNUSABLE_SHARE" in message
    assert not (output / "result.json").exists()


def test_tolerated_videos_are_replaced_and_counted(data, tmp_path, output, main):
    break_video(data / "train5.mp4")
    (data / "train7.mp4").unlink()
    changes = {**data_keys(data), "DATA.MAX_UNUSABLE_SHARE": 0.5}
    assert main(command(write_config(tmp_path / "tiny.yaml", changes), output)) == 0
    result = json.loads((output / "result.json").read_text())
    assert result["num_unusable_videos"] == 2
    assert result["num_train_videos"] == NUM_TRAIN - 1


def test_every_broken_validation_video_is_named(data, tmp_path, output, main, capsys):
    for index in (1, 6):
        break_video(data / f"val{index}.mp4")
    cfg = write_config(tmp_path / "tiny.yaml", data_keys(data))
    message = refused(main, capsys, command(cfg, output))
    assert "2 validation videos cannot be decoded" in message
    assert "val1.mp4" in message
    assert "val6.mp4" in message
    assert not (output / "result.json").exists()


# --- the run folder


@pytest.fixture
def interrupted(cfg, output, main, monkeypatch):
    """A run folder that stopped after three steps."""
    interrupt_in(2, monkeypatch)
    assert main(command(cfg, output)) == 4
    monkeypatch.undo()
    return output


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_of_another_configuration_is_left_alone(interrupted, cfg, main, capsys):
    before = contents(interrupted)
    message = refused(main, capsys, command(cfg, interrupted, "SOLVER.BASE_LR", 0.001))
    assert "SOLVER.BASE_LR: the run folder has 0.005, this start 0.001" in message
    assert "--override" in message
    assert contents(interrupted) == before


def test_a_folder_of_another_seed_is_left_alone(interrupted, cfg, main, capsys):
    before = contents(interrupted)
    message = refused(main, capsys, [*command(cfg, interrupted), "--seed", "1"])
    assert "RNG_SEED: the run folder has 0, this start 1" in message
    assert contents(interrupted) == before


def test_override_goes_on_all_the_same(interrupted, cfg, main, capsys):
    arguments = command(cfg, interrupted, "SOLVER.WEIGHT_DECAY", 0.001)
    assert main([*arguments, "--override"]) == 0
    assert "going on after step 3 of 10" in capsys.readouterr().err
    assert [step for step, _ in losses(interrupted)] == list(range(NUM_STEPS))


def test_keys_without_effect_may_change(interrupted, cfg, main):
    assert main(command(cfg, interrupted, "DATA_LOADER.PREFETCH_FACTOR", 3)) == 0


# --- evaluation, expectation, smoke run


def test_an_evaluation_of_a_finished_run_appends_a_line(finished_run, cfg, tmp_path, main):
    folder = Path(shutil.copytree(finished_run, tmp_path / "run"))
    kept = {name: (folder / name).read_bytes() for name in ("result.json", "model.pt")}
    before = read_lines(folder / "evaluations.jsonl")
    pairs = ("TRAIN.ENABLE", False, "TEST.FRAME_ORDER", "repeated")
    assert main(command(cfg, folder, *pairs)) == 0
    after = read_lines(folder / "evaluations.jsonl")
    assert after[:-1] == before
    assert after[-1]["frame_order"] == "repeated"
    assert (after[-1]["step"], after[-1]["num_videos"]) == (NUM_STEPS, NUM_VAL)
    assert {name: (folder / name).read_bytes() for name in kept} == kept


def test_the_evaluation_of_a_finished_run_gives_its_accuracy(finished_run, cfg, tmp_path, main):
    folder = Path(shutil.copytree(finished_run, tmp_path / "run"))
    assert main(command(cfg, folder, "TRAIN.ENABLE", False)) == 0
    *_, trained, evaluated = read_lines(folder / "evaluations.jsonl")
    for name in ("top1", "top5", "loss", "step", "epoch", "views"):
        assert evaluated[name] == pytest.approx(trained[name]), name


def test_an_evaluation_needs_a_trained_model(cfg, output, main, capsys):
    message = refused(main, capsys, command(cfg, output, "TRAIN.ENABLE", False))
    assert "model.pt does not exist" in message
    assert not output.exists()


@pytest.mark.parametrize(("tolerance", "code"), [(100, 0), (1, 3)])
def test_a_missed_expectation_is_exit_code_3(tolerance, code, tiny_data, tmp_path, main):
    """Of 8 videos, no accuracy is within 1 % of 6 %."""
    changes = {**data_keys(tiny_data), "EXPECTED": [["top1", 6.0, tolerance]]}
    short = {"SOLVER.STEPS": [0, 0.5], "SOLVER.MAX_EPOCH": 1, "TRAIN.NUM_EVALUATIONS": 1}
    cfg = write_config(tmp_path / "tiny.yaml", {**changes, **short})
    assert main(command(cfg, tmp_path / "run")) == code
    assert main(command(cfg, tmp_path / "run")) == code  # the complete run says the same
    verdict = json.loads((tmp_path / "run" / "result.json").read_text())["verdict"]
    assert verdict == {0: "met", 3: "missed"}[code]


def test_a_smoke_run_keeps_the_shapes(cfg, output, main):
    assert main([*command(cfg, output), "--smoke"]) == 0
    shapes = {(line["frames"], line["crop"]) for line in read_lines(output / "metrics.jsonl")}
    assert {frames for frames, _ in shapes} == {2, 4, 8}
    assert {crop for _, crop in shapes} <= {16, 23, 32}


@pytest.mark.slow
def test_two_processes_learn_what_one_does(cfg, tmp_path, main):
    pairs = ("MODEL.DROPOUT_RATE", 0, "MULTIGRID.BN_BASE_SIZE", 2)
    assert main(command(cfg, tmp_path / "one", *pairs)) == 0
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ]
    arguments = [*command(cfg, tmp_path / "two", *pairs), "--launcher", "torchrun"]
    started = [*launch, str(TOOL), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(started, env=environment, check=True, timeout=300, capture_output=True)
    one, two = (dict(last_checkpoint(tmp_path / name)["model"]) for name in ("one", "two"))
    weights = [name for name in one if "running" not in name and "num_batches" not in name]
    for name in weights:  # the statistics of a process are of its own groups
        torch.testing.assert_close(two[name], one[name], rtol=1e-3, atol=1e-5, msg=name)
    again = subprocess.run(
        started, env=environment, check=True, timeout=120, capture_output=True, text=True
    )
    assert "this run is complete" in again.stdout
