"""Files survive a kill: the witness is a real process that is killed, or bytes cut by hand.

Locks: on file systems that share them between hosts, that do not, and that have none.
"""

import errno
import fcntl
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mgexp.errors import InputError
from mgexp.run.files import (
    append_jsonl,
    atomic_file,
    atomic_write_text,
    cut_jsonl,
    is_listed,
    lock_file,
    read_json,
    read_jsonl,
    short_path,
    understanding,
    write_json,
)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file.txt"
    atomic_write_text(path, "old")
    with pytest.raises(RuntimeError), atomic_file(path) as file:
        file.write(b"half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.txt"]


def test_json_lines_are_plain_lines(tmp_path):
    path = tmp_path / "lines.jsonl"
    append_jsonl(path, {"step": 1, "loss": 0.5})
    append_jsonl(path, {"step": 2, "loss": None})
    assert read_jsonl(tmp_path / "none.jsonl") == []
    assert path.read_text() == '{"step": 1, "loss": 0.5}\n{"step": 2, "loss": null}\n'
    assert read_jsonl(path) == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": None}]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_not_json_is_an_error_and_leaves_no_trace(tmp_path, value):
    path = tmp_path / "lines.jsonl"
    with pytest.raises(ValueError, match="not JSON compliant"):
        append_jsonl(path, {"loss": value})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"loss": value})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("torn", ['{"step": 3, "lo', '{"step": 3}', "\udcff"])
def test_only_a_torn_last_line_is_left_out(tmp_path, torn):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2}\n' + torn.encode(errors="surrogateescape"))
    assert read_jsonl(path) == [{"step": 1}, {"step": 2}]


@pytest.mark.parametrize("text", ['{"st', "null", "[]", "3"])
def test_a_broken_line_inside_is_named(tmp_path, text):
    path = tmp_path / "lines.jsonl"
    path.write_text(f'{{"step": 1}}\n{text}\n{{"step": 3}}\n')
    with pytest.raises(InputError, match="line 2: "):
        read_jsonl(path)


@pytest.mark.parametrize(
    "error", [KeyError("step"), TypeError("no float"), ValueError("x"), RecursionError("deep")]
)
def test_contents_of_another_kind_name_the_file(tmp_path, error):
    said = rf"result\.json: .*{type(error).__name__}"
    with pytest.raises(InputError, match=said), understanding(tmp_path / "result.json"):
        raise error


def test_cut_drops_what_is_not_kept_and_the_torn_line(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"ste')
    cut_jsonl(path, lambda record: record["step"] < 3)
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'


@pytest.mark.parametrize("text", ["", "{", "[1]", None])
def test_a_file_that_holds_no_json_object_is_bad_input(tmp_path, text):
    path = tmp_path / "result.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=r"result\.json"):
        read_json(path)


WRITER = """
import sys
from pathlib import Path
from mgexp.run.files import atomic_write_text
path, number = Path(sys.argv[1]), 0
while True:
    atomic_write_text(path, f"{number} " * 200_000)
    number += 1
"""


def test_a_killed_writer_leaves_a_whole_file(tmp_path):
    path = tmp_path / "big.txt"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)])
    deadline = time.monotonic() + 30
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    writer.kill()
    writer.wait()
    words = path.read_text().split()
    assert len(words) == 200_000
    assert len(set(words)) == 1


def lock_fails_with(number, monkeypatch):
    def fail(file, flags):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "lockf", fail)


def ended_process():
    """The id of one that is no more."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


@pytest.mark.parametrize("text", ["42 node7 2026-11-22T10:00:00+00:00\n", "42"])
@pytest.mark.parametrize("error", [errno.EAGAIN, errno.EACCES])
def test_a_holder_on_another_host_is_named(text, error, tmp_path, monkeypatch):
    """NFS says that the lock is held, and not by whom; the file does, as far as it can be read."""
    (tmp_path / "lock").write_text(text)
    lock_fails_with(error, monkeypatch)
    with pytest.raises(InputError, match="process 42 on"), lock_file(tmp_path / "lock"):
        pass


def test_a_lock_that_another_host_did_not_release_is_taken_with_a_warning(tmp_path, caplog):
    """It was killed there, or the two do not see each other's locks."""
    (tmp_path / "lock").write_text("42 node7 2026-11-22\n")
    with lock_file(tmp_path / "lock"):
        words = (tmp_path / "lock").read_text().split()
        assert words[:2] == [str(os.getpid()), socket.gethostname()]
    assert "process 42 on node7" in caplog.text
    caplog.clear()
    # The kernel knows that nobody on this host holds it.
    (tmp_path / "lock").write_text(f"42 {socket.gethostname()} 2026-11-22\n")
    with lock_file(tmp_path / "lock"):
        pass
    assert caplog.text == ""


@pytest.mark.parametrize("host", ["node7", None])
def test_without_locks_a_holder_that_may_live_is_left_alone(host, tmp_path, monkeypatch):
    """On this host that can be known, on others not."""
    (tmp_path / "lock").write_text(f"{os.getpid()} {host or socket.gethostname()} 2026-11-22\n")
    lock_fails_with(errno.ENOLCK, monkeypatch)
    with pytest.raises(InputError, match=f"process {os.getpid()}"), lock_file(tmp_path / "lock"):
        pass


@pytest.mark.parametrize(
    "text", ["", f"{ended_process()} {socket.gethostname()} 2026-11-22\n"], ids=["empty", "ended"]
)
def test_without_locks_a_folder_that_nobody_can_hold_is_taken(text, tmp_path, monkeypatch, caplog):
    (tmp_path / "lock").write_text(text)
    lock_fails_with(errno.ENOLCK, monkeypatch)
    with lock_file(tmp_path / "lock"):
        assert (tmp_path / "lock").read_text().split()[0] == str(os.getpid())
    assert "No locks available" in caplog.text
    assert (tmp_path / "lock").read_text() == ""


def test_a_path_for_a_command_is_relative_below_the_working_folder_and_else_absolute(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert short_path(tmp_path / "a" / "b") == "a/b"
    assert short_path(Path("../c")) == str(tmp_path.parent / "c")


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("run_test_split1.txt", True),
        ("*_test_split1.txt", True),
        ("*_test_split2.txt", False),
        ("no.txt", False),
        ("x" * 300, False),
    ],
)
def test_a_list_is_a_file_or_a_pattern(name, listed, tmp_path):
    (tmp_path / "run_test_split1.txt").touch()
    assert is_listed(str(tmp_path / name)) == listed
