"""Both notebooks run to their end on what is committed, and are kept without what they print."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="pip install --editable '.[notebooks]'")
nbclient = pytest.importorskip("nbclient", reason="pip install --editable '.[notebooks]'")

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
FIGURES = {"01_schedule": 2, "02_speedup_vs_accuracy": 3}
LIMIT_SECONDS = 120


def code_cells(path):
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """What a clean checkout has of what notebooks need: no runs, no videos."""
    ignored = shutil.ignore_patterns("__pycache__", "report.html", ".ipynb_checkpoints")
    for folder in ("mgexp", "experiments", "notebooks"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for place in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(place, str(tmp_path / place.lower()))
    return tmp_path


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_from_a_clean_checkout(path, checkout):
    notebook = nbformat.read(checkout / "notebooks" / path.name, as_version=4)
    before = {one: one.stat().st_mtime_ns for one in checkout.rglob("*") if one.suffix != ".pyc"}
    start = time.monotonic()
    client = nbclient.NotebookClient(
        notebook,
        timeout=LIMIT_SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(checkout / "notebooks")}},
    )
    client.execute()
    assert time.monotonic() - start < LIMIT_SECONDS
    outputs = [one for cell in notebook.cells for one in cell.get("outputs", [])]
    assert sum("image/svg+xml" in one.get("data", {}) for one in outputs) == FIGURES[path.stem]
    written = [one for one in before if one.is_file() and one.stat().st_mtime_ns != before[one]]
    assert written == []  # it reads results only


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_kept_without_outputs(path):
    """They would be another copy of the figures, megabytes that change with every version of matplotlib."""
    assert [cell["outputs"] for cell in code_cells(path) if cell["outputs"]] == []
    assert {cell["execution_count"] for cell in code_cells(path)} == {None}
