"""tools/study.py: which options and pairs it refuses, and the command on the page. Nothing is trained."""

from __future__ import annotations

import pytest
import yaml
from fake_runs import CONFIG
from tiny import load_tool


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A study of two rows, which differ in their number of clips."""
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "project"
    place.mkdir()
    for name, clips in (("baseline", 8), ("long", 16)):
        values = {**CONFIG, "TRAIN": {"BATCH_SIZE": clips}}
        (place / f"{name}.yaml").write_text(yaml.safe_dump(values))
    (place / "study.yaml").write_text("{rows: [baseline, long], seeds: 1, margin: 1}")
    return place


@pytest.fixture
def study(monkeypatch, folder):
    """Start the tool in this process."""
    tool = load_tool("study")
    monkeypatch.setattr(tool, "draw", lambda results: [])
    return lambda *arguments: tool.main(["project", *arguments])


@pytest.mark.parametrize(
    ("option", "words"), [("--only-page", "--minutes 4"), ("--status", "--launcher slurm")]
)
def test_what_trains_nothing_refuses_the_options_of_training(words, option, study, capsys):
    assert study(option, *words.split()) == 2
    assert f"{words.split()[0]}: {option} trains nothing" in capsys.readouterr().err


def test_a_pair_that_changes_only_a_row_is_refused_too(study, capsys):
    """The baseline has this value, and the row another one."""
    assert study("--only-page", "TRAIN.BATCH_SIZE", "8") == 2
    assert "TRAIN.BATCH_SIZE can change the result" in capsys.readouterr().err


def test_the_page_has_the_whole_command(study, folder, tmp_path, own_code):
    (tmp_path / "my nets.py").touch()
    assert study("--only-page", "--import", "my nets.py", "DATA.PATH_PREFIX", "here") == 0
    command = "python tools/study.py project --import 'my nets.py' DATA.PATH_PREFIX here"
    assert f"\n{command}\n" in (folder / "README.md").read_text()
