"""gpu.sh: pieces that are done, failed, stopped or too long, and the page. The pieces here take no time."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import gpu
import pytest

from mgexp.config.load import read_config

SCRIPT = Path(gpu.__file__).with_name("gpu.sh")
OPTIONS = ("--device", "cpu", "--tiny")


def python(text):
    return [sys.executable, "-c", text]


def piece(name, *texts):
    return gpu.Piece(name, f"The {name}", lambda _: [python(text) for text in texts])


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run these pieces; the exit code and the folder."""

    def call(*pieces, options=()):
        monkeypatch.setattr(gpu, "PIECES", pieces)
        code = gpu.main([*OPTIONS, "--output", str(tmp_path / "found"), *options])
        return code, tmp_path / "found"

    return call


def test_the_page_has_what_each_piece_printed(run):
    code, folder = run(piece("first", "print('a table')"), piece("second", "print('another')"))
    text = (folder / "page.md").read_text()
    assert code == 0
    assert (
        "## The first\n\n```text\n$ python -c 'print('\"'\"'a table'\"'\"')'\na table\n```" in text
    )
    assert "\nanother\n" in text
    assert "Shapes are small" in text
    assert (folder / "second.txt").read_text().endswith("another\n\n")


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ((), "benchmarks/nvidia_h100_80gb_hbm3.md"),
        (("--tiny",), "found/page.md"),
        (("--device", "cpu"), "found/page.md"),
    ],
)
def test_the_page_of_a_gpu_is_beside_those_of_others(options, wanted, tmp_path, monkeypatch):
    machine = {**gpu.describe(), "gpu": "NVIDIA H100 80GB HBM3"}
    monkeypatch.setattr(gpu, "describe", lambda: machine)
    monkeypatch.setattr(gpu, "PIECES", (piece("first", "print('a table')"),))
    monkeypatch.chdir(tmp_path)
    Path("benchmarks").mkdir()
    assert gpu.main(["--output", "found", *options]) == 0
    assert "\na table\n" in Path(wanted).read_text()


def test_the_steps_that_are_not_compiled_list_their_operators(tmp_path):
    place = gpu.Place(tmp_path, "cpu", is_tiny=True)
    pieces = {one.name: one for one in gpu.PIECES}
    for name, lists in (("step_slowfast", True), ("step_slowfast_compiled", False)):
        (command, *_) = pieces[name].commands(place)
        assert ("--operators" in command) is lists


def test_the_page_names_no_folder_of_the_machine(tmp_path):
    """What pytest prints of the tests is on the page."""
    (command,) = gpu.tests(gpu.Place(tmp_path, "cpu", is_tiny=True))
    quick = [*command[:-1], "-k", "keep_freed_memory", *command[-1:]]
    printed = subprocess.run(quick, cwd=gpu.REPOSITORY, capture_output=True, text=True, check=True)
    assert "test_only_a_cpu_needs_the_c_library_to_keep_freed_memory PASSED" in printed.stdout
    assert str(gpu.REPOSITORY) not in printed.stdout
    assert sys.prefix not in printed.stdout


def test_a_piece_that_is_done_is_not_run_again_unless_it_is_wanted(run, tmp_path):
    marks = tmp_path / "marks"
    once = piece("once", f"open({str(marks)!r}, 'a').write('x')")
    for _ in range(2):
        assert run(once)[0] == 0
    assert marks.read_text() == "x"
    assert run(once, options=["--again"])[0] == 0
    assert marks.read_text() == "xx"


def test_a_failure_stops_its_piece_alone_and_is_tried_again(run, tmp_path):
    fails = piece("bad", "print('so far')\nraise SystemExit(2)", "print('never')")
    good = piece("good", "print('fine')")
    code, folder = run(fails, good)
    text = (folder / "page.md").read_text()
    assert code == 1
    assert "**This piece is not complete:**" in text
    assert "so far" in text
    assert "never\n```" not in text
    assert "fine" in text
    assert not (folder / "bad.done.json").exists()
    code, folder = run(piece("bad", "print('mended')"), good)
    assert code == 0
    assert "**" not in (folder / "page.md").read_text()


def test_a_finding_is_no_failure(run):
    assert run(piece("doctor", "raise SystemExit(3)"))[0] == 0


def test_a_piece_that_takes_too_long_saves_and_continues(run, monkeypatch):
    """Its command saves after SIGTERM, as run_net.py does."""
    monkeypatch.setattr(gpu, "LIMIT_SECONDS", 1.0)
    text = """
import signal, time
signal.signal(signal.SIGTERM, signal.default_int_handler)
try:
    time.sleep(60)
except KeyboardInterrupt:
    print("saved")
    raise SystemExit(4)
"""
    begin = time.monotonic()
    code, folder = run(piece("long", text), piece("next", "print('fine')"))
    assert code == 4
    assert time.monotonic() - begin < 30
    assert "saved" in (folder / "long.txt").read_text()
    assert (folder / "next.done.json").exists()


def test_a_killed_piece_continues_with_the_command_that_did_not_end(run, tmp_path):
    """The second command kills the script that runs it, as a machine that is switched off would."""
    marks, mended = tmp_path / "marks", tmp_path / "mended"
    first = f"open({str(marks)!r}, 'a').write('x'); print('first')"
    second = (
        "import os, pathlib, signal; print('second'); "
        f"pathlib.Path({str(mended)!r}).exists() or os.kill(os.getppid(), signal.SIGKILL)"
    )
    two = piece("two", first, second)
    script = get_context("fork").Process(target=run, args=(two,))
    script.start()
    script.join()
    assert script.exitcode == -signal.SIGKILL
    mended.touch()
    code, folder = run(two)
    assert code == 0
    assert marks.read_text() == "x"
    text = (folder / "two.txt").read_text()
    assert text.index("\nfirst\n") < text.index("\nsecond\n")
    assert run(two, options=["--again"])[0] == 0
    assert marks.read_text() == "xx"


def test_a_command_that_is_too_slow_gets_more_time_until_it_ends(run, monkeypatch):
    """It starts anew in each call, as the timing of steps does."""
    monkeypatch.setattr(gpu, "LIMIT_SECONDS", 1.0)
    slow = piece("slow", "import time; time.sleep(3)")
    codes = [run(slow)[0]]
    while codes[-1] == 4 and len(codes) < 8:
        codes.append(run(slow)[0])
    assert codes == [*[4] * (len(codes) - 1), 0]
    assert len(codes) > 2


def test_a_command_that_does_not_save_is_killed(monkeypatch):
    monkeypatch.setattr(gpu, "GRACE_SECONDS", 1.0)
    deaf = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)"
    begin = time.monotonic()
    assert gpu.run(python(deaf), 1.0) == (gpu.STOPPED, "")
    assert time.monotonic() - begin < 30


def test_a_killed_piece_is_measured_in_the_next_call(tmp_path):
    """The whole script is killed while a piece runs."""
    command = ["bash", SCRIPT, *OPTIONS, "--output", tmp_path / "found", "--only", "doctor"]
    environment = {"PYTHON": sys.executable, "PATH": "/usr/bin:/bin", "PYTHONUNBUFFERED": "1"}
    begin = partial(subprocess.Popen, command, env=environment, stdout=subprocess.PIPE, text=True)
    with begin(start_new_session=True) as process:
        assert process.stdout is not None
        while "=== doctor" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "found" / "doctor.done.json").exists()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "found" / "doctor.done.json").read_text())
    assert record["environment"]["torch"]
    assert "decoding" in (tmp_path / "found" / "page.md").read_text()


def test_without_a_gpu_it_says_what_to_do(capsys, monkeypatch):
    monkeypatch.setattr(gpu, "describe", lambda: {"gpu": None})
    assert gpu.main([]) == 2
    assert "--device cpu --tiny" in capsys.readouterr().err


def test_steps_are_timed_before_loading_needs_their_rate(tmp_path):
    names = [one.name for one in gpu.PIECES]
    assert names.index("step_slowfast") < names.index("loading") < names.index("plan_kinetics")
    place = gpu.Place(tmp_path, "cpu", is_tiny=True)
    assert "--steps-per-second" not in gpu.loading(place)[0]
    timed = [{"is_base": True, "ways": {"ours": {"median_seconds": s}}} for s in (0.1, 0.25, 0.5)]
    (tmp_path / "step_slowfast.json").write_text(json.dumps({"shapes": timed}))
    (command,) = gpu.loading(place)
    assert command[command.index("--steps-per-second") + 1] == "4"


def test_transformers_are_timed_whole_and_tried_with_few_channels(tmp_path):
    pieces = {one.name: one.commands for one in gpu.PIECES}
    for name, key in (("step_vit", "VIT.DEPTH"), ("step_mvit", "MVIT.DEPTH")):
        small, whole = (pieces[name](gpu.Place(tmp_path, "cpu", tiny))[0] for tiny in (True, False))
        assert key in small
        assert key not in whole
        for command in (small, whole):
            assert command[command.index("--batch-size") + 1] == "8"
            assert command[command.index("--ways") + 1 :] == ["ours", "plain"]


def test_a_compiled_shape_has_a_command_of_its_own(tmp_path):
    pieces = {one.name: one.commands for one in gpu.PIECES}
    small, whole = (
        pieces["step_i3d_compiled"](gpu.Place(tmp_path, "cpu", tiny)) for tiny in (True, False)
    )
    shapes = [command[command.index("--shapes") + 1] for command in whole]
    assert shapes == ["2x158", "4x158", "4x224", "8x224"]
    assert [command[command.index("--output") + 1] for command in whole] == [
        str(tmp_path / f"step_i3d_compiled_{shape}.json") for shape in shapes
    ]
    assert len(small) == 1


def test_the_study_at_224_pixels_is_tried_small(tmp_path):
    small, whole = (gpu.study_224(gpu.Place(tmp_path, "cpu", tiny))[-1] for tiny in (True, False))
    folder = tmp_path / "small_study"
    assert small[1:] == ["tools/study.py", str(folder)]
    assert whole[1:] == ["tools/study.py", "experiments/quickstart_224"]
    for row in ("baseline", "short"):
        cfg, problems = read_config(folder / f"{row}.yaml", [])
        assert problems == []
        assert (cfg.DEVICE, cfg.DATA.TRAIN_CROP_SIZE) == ("cpu", 32)


def test_a_folder_in_use_is_left_alone(run, tmp_path, capsys):
    folder = tmp_path / "found"
    folder.mkdir()
    text = (
        f"import fcntl, time; file = open({str(folder / 'lock')!r}, 'w'); "
        "fcntl.lockf(file, fcntl.LOCK_EX); print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(python(text), stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        code, _ = run(piece("first", "print('a table')"))
        holder.kill()
    assert code == 2
    assert "another gpu.sh measures there; wait for it" in capsys.readouterr().err
    assert not (folder / "first.txt").exists()
