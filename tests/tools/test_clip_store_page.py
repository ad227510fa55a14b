"""Every command of docs/clip_store.md does its job, on a tiny data set and with a tiny row."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from tiny import load_tool, write_config

from mgexp.run.files import read_json
from mgexp.video.store import StoreDir

PAGE = (Path(__file__).parents[2] / "docs" / "clip_store.md").read_text(encoding="utf-8")
ROW = "experiments/own_data/slowfast_long.yaml"


def commands() -> list[list[str]]:
    """The words of each command of the page."""
    blocks = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines if line.strip()]


MAKE, TRAIN, PLAN, BENCH = commands()


@pytest.fixture
def place(tiny_data, tmp_path, monkeypatch) -> Path:
    """The working folder of the page, with its lists, videos and row."""
    shutil.copytree(tiny_data, tmp_path / "videos")
    for split in ("train", "val"):
        shutil.move(tmp_path / "videos" / f"{split}.txt", tmp_path / f"{split}.csv")
    write_config(tmp_path / "row.yaml", {})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(words: list[str], *more: str) -> int:
    """Run a command of the page with more words."""
    python, tool, *arguments = words
    assert python == "python"
    arguments = [word.replace(ROW, "row.yaml") for word in arguments]
    return load_tool(Path(tool).stem).main([*arguments, *more])


def test_planning_and_making(place, capsys):
    assert run(PLAN, "--processes", "1") == 0
    assert "GB" in capsys.readouterr().out
    assert not (place / "store").exists()
    assert run(MAKE, "--processes", "1") == 0
    assert len(StoreDir(place / "store").read()) == 32


@pytest.mark.slow
def test_training_and_measuring(place, capsys):
    assert run(MAKE, "--processes", "1") == 0
    assert run(TRAIN, "--output", "run") == 0
    assert set(read_json(place / "run" / "result.json")["clips_by_level"]) == {"160"}
    assert run(BENCH, "--num-clips", "2", "--repeats", "1") == 0
    assert "store" in capsys.readouterr().out
