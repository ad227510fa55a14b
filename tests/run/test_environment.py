"""Versions against the packages themselves, commits against a repository made here."""

import os
import subprocess
from datetime import datetime, timedelta, timezone

import pytest
import torch

from mgexp.run import environment
from mgexp.run.environment import describe, git_commit, num_cores


def git(folder, *arguments):
    identity = ("-c", "user.name=t", "-c", "user.email=t@t")
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "experiments").mkdir()
    (tmp_path / "code.py").write_text("1")
    (tmp_path / "experiments" / "results.csv").write_text("a")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


@pytest.mark.parametrize("changed", ["code.py", "new.py"])
def test_a_changed_or_new_file_is_dirty(repository, changed):
    (repository / changed).write_text("2")
    assert git_commit(repository) == git(repository, "rev-parse", "HEAD") + "-dirty"


@pytest.mark.parametrize(
    "path",
    [
        *("results.csv", "README.md"),
        *("quick/runs.jsonl", "quick/report.md", "quick/figures/accuracy.svg"),
        *("quick/README.md", "quick/budget/as_long.yaml"),
    ],
)
def test_collected_results_are_not_code(repository, path):
    file = repository / "experiments" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("a\nb")
    assert git_commit(repository) == git(repository, "rev-parse", "HEAD")


def test_a_package_inside_another_repository_has_no_commit(repository):
    assert git_commit(repository / "experiments") == "unknown"


def test_no_repository_and_no_commit_are_unknown(tmp_path):
    assert git_commit(tmp_path) == "unknown"
    git(tmp_path, "init", "-q")
    assert git_commit(tmp_path) == "unknown"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("max 100000\n", 6),
        ("250000 100000\n", 2),
        ("900000 100000\n", 6),
        ("50000 100000\n", 1),
        ("", 6),
        (None, 6),
    ],
)
def test_a_container_has_the_cores_of_its_quota(text, wanted, tmp_path, monkeypatch):
    file = tmp_path / "cpu.max"
    if text is not None:
        file.write_text(text)
    monkeypatch.setattr(environment, "CPU_MAX", file)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(6)))
    assert num_cores() == wanted


def test_description_is_of_this_machine():
    described = describe()
    assert described["torch"] == torch.__version__
    assert described["threads"] == torch.get_num_threads()
    assert (described["gpu"] is None) == (not torch.cuda.is_available())
    assert described["cores"] >= 1
    assert described["cpu"].endswith(f" ({torch.backends.cpu.get_cpu_capability()})")
    age = datetime.now(timezone.utc) - datetime.fromisoformat(described["date"])
    assert timedelta(0) <= age < timedelta(minutes=1)
    names = "date commit python torch torchvision av numpy pytorchvideo fvcore cpu cores threads"
    assert set(described) == {*names.split(), "spin_count", "gpu", "imports"}
