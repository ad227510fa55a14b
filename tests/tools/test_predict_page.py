"""Every command of docs/predict.md runs, with the tiny run in the place of the quickstart's."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import load_tool

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import demo

PAGE = (Path(__file__).parents[2] / "docs" / "predict.md").read_text(encoding="utf-8")
LINES = [
    line
    for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]
EXPORTS = [line for line in LINES if "export" in line]
PREDICTIONS = [line for line in LINES if line not in EXPORTS and "demo.py 0 " not in line]


@pytest.fixture
def place(finished_run, tiny_data, tmp_path, monkeypatch):
    """A folder in which the names of the page exist, as the working directory."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished_run, "runs/quickstart/long/seed0")
    for folder in ("my_videos", "data/quickstart"):
        Path(folder).mkdir(parents=True)
    Path("data/quickstart/classes.txt").write_text("to the right\nto the left\n")
    shutil.copy(tiny_data / "val0.mp4", "my_videos")
    shutil.copy(tiny_data / "val1.mp4", "my_video.mp4")
    return tmp_path


def words_of(line):
    python, tool, *words = shlex.split(line, comments=True)
    assert python == "python"
    return tool, words


def test_the_page_begins_with_its_commands():
    assert PAGE.splitlines()[2] == "```bash"
    assert len(PREDICTIONS) == 2
    assert [words_of(line)[0] for line in EXPORTS] == ["tools/export.py", "exported/load_model.py"]


@pytest.mark.parametrize("line", PREDICTIONS)
def test_a_prediction_of_the_page_runs(line, place, capsys):
    tool, words = words_of(line)
    main = load_tool("predict").main if "predict" in tool else demo.main
    assert main(words) == 0, capsys.readouterr().err
    for option in ("--csv", "--output"):
        if option in words:
            assert Path(words[words.index(option) + 1]).stat().st_size > 0


@pytest.mark.slow
def test_the_export_of_the_page_runs_and_its_python_loads_the_files(place):
    pytest.importorskip("onnxruntime")
    (_, exporting), (loader, _) = map(words_of, EXPORTS)
    assert load_tool("export").main(exporting) == 0
    subprocess.run([sys.executable, loader], check=True, capture_output=True)
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    checks = (
        "assert probabilities.shape == logits.shape == (4, 2)\nassert 'mgexp' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", f"{code}\n{checks}"], check=True)
