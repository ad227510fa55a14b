"""Locks on file systems that share them between hosts, that do not, and that have none."""

import errno
import fcntl
import os
import socket
import subprocess
import sys

import pytest

from mgexp.errors import InputError
from mgexp.run.files import lock_file


def lock_fails_with(number, monkeypatch):
    def fail(file, flags):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "lockf", fail)


def ended_process():
    """The id of one that is no more."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_a_holder_on_another_host_is_named(tmp_path, monkeypatch):
    """NFS says that the lock is held, and not by whom; the file does."""
    (tmp_path / "lock").write_text("42 node7 2026-11-22T10:00:00+00:00\n")
    lock_fails_with(errno.EAGAIN, monkeypatch)
    message = "in use by process 42 on node7 since 2026-11-22T10:00:00"
    with pytest.raises(InputError, match=message), lock_file(tmp_path / "lock"):
        pass


def test_a_lock_that_another_host_did_not_release_is_taken_with_a_warning(tmp_path, caplog):
    """It was killed there, or the two do not see each other's locks."""
    (tmp_path / "lock").write_text("42 node7 2026-11-22\n")
    with lock_file(tmp_path / "lock"):
        words = (tmp_path / "lock").read_text().split()
        assert words[:2] == [str(os.getpid()), socket.gethostname()]
    assert "was not released by process 42 on node7 since 2026-11-22" in caplog.text


def test_one_that_this_host_did_not_release_is_taken_without_a_word(tmp_path, caplog):
    """The kernel knows that nobody holds it."""
    (tmp_path / "lock").write_text(f"42 {socket.gethostname()} 2026-11-22\n")
    with lock_file(tmp_path / "lock"):
        pass
    assert caplog.text == ""


@pytest.mark.parametrize("host", ["node7", None])
def test_without_locks_a_holder_that_may_live_is_left_alone(host, tmp_path, monkeypatch):
    """On this host that can be known, on others not."""
    (tmp_path / "lock").write_text(f"{os.getpid()} {host or socket.gethostname()} 2026-11-22\n")
    lock_fails_with(errno.ENOLCK, monkeypatch)
    message = f"names process {os.getpid()} .* cannot lock it .*then remove the file"
    with pytest.raises(InputError, match=message), lock_file(tmp_path / "lock"):
        pass


@pytest.mark.parametrize(
    "text", ["", f"{ended_process()} {socket.gethostname()} 2026-11-22\n"], ids=["empty", "ended"]
)
def test_without_locks_a_folder_that_nobody_can_hold_is_taken(text, tmp_path, monkeypatch, caplog):
    (tmp_path / "lock").write_text(text)
    lock_fails_with(errno.ENOLCK, monkeypatch)
    with lock_file(tmp_path / "lock"):
        assert (tmp_path / "lock").read_text().split()[0] == str(os.getpid())
    assert "cannot be locked (No locks available): do not run twice" in caplog.text
    assert (tmp_path / "lock").read_text() == ""


def test_a_text_that_says_little_is_read_all_the_same(tmp_path, monkeypatch):
    (tmp_path / "lock").write_text("42")
    lock_fails_with(errno.EACCES, monkeypatch)
    message = "in use by process 42 on unknown since unknown"
    with pytest.raises(InputError, match=message), lock_file(tmp_path / "lock"):
        pass
