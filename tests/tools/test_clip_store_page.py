"""Every command of docs/clip_store.md does its job, on a tiny data set and with a tiny row."""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
from served import served, write_handler
from tiny import data_keys, load_tool, tiny_config, write_config

from mgexp.models.build import build_model
from mgexp.models.weights import write_weights
from mgexp.registry import import_file
from mgexp.run import remote
from mgexp.run.files import read_json
from mgexp.video.store import StoreDir

PAGE = (Path(__file__).parents[2] / "docs" / "clip_store.md").read_text(encoding="utf-8")
ROW = "experiments/own_data/slowfast_long.yaml"


def commands() -> list[list[str]]:
    """The words of each command of the page."""
    blocks = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines if line.strip()]


MAKE, TRAIN, PLAN, PACK, VERIFY, BENCH, FROM_WEB, FROM_HANDLER = commands()


@pytest.fixture
def place(tiny_data, tmp_path, monkeypatch, own_code) -> Path:
    """The working folder of the page, with its lists, videos and row."""
    shutil.copytree(tiny_data, tmp_path / "videos")
    for split in ("train", "val"):
        shutil.move(tmp_path / "videos" / f"{split}.txt", tmp_path / f"{split}.csv")
    write_config(tmp_path / "row.yaml", {})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(remote, "_KNOWN", {})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(words: list[str], *more: str, **replaced: str) -> int:
    """Run a command of the page, with ``replaced`` texts and more words."""
    python, tool, *arguments = words
    assert python == "python"
    for before, after in {ROW: "row.yaml", **replaced}.items():
        arguments = [word.replace(before, after) for word in arguments]
    return load_tool(Path(tool).stem).main([*arguments, *more])


def num_shards(place: Path) -> int:
    return len(list((place / "store").glob("*/*.tar")))


def test_making_planning_packing_and_verifying(place, capsys):
    assert run(PLAN, "--processes", "1") == 0
    assert "GB" in capsys.readouterr().out
    assert not (place / "store").exists()
    assert run(MAKE, "--processes", "1") == 0
    assert num_shards(place) == 0
    assert run(PACK, "--processes", "1") == 0
    assert num_shards(place) == 1  # both short sides are larger than the videos
    assert run(VERIFY, "--processes", "1") == 0
    assert "0 videos copied, 32 kept" in capsys.readouterr().out
    assert len(StoreDir(place / "store").read()) == 32


@pytest.mark.slow
def test_training_and_measuring(place, capsys):
    assert run(PACK, "--processes", "1") == 0
    assert run(TRAIN, "--output", "run") == 0
    assert set(read_json(place / "run" / "result.json")["clips_by_level"]) == {"160"}
    assert run(BENCH, "--num-clips", "2", "--repeats", "1") == 0
    assert "store" in capsys.readouterr().out


@pytest.mark.slow
def test_reading_from_addresses(place, tiny_data):
    assert run(PACK, "--processes", "1") == 0
    (place / "www").mkdir()
    for name in ("store", "train.csv", "val.csv"):
        shutil.move(place / name, place / "www" / name)
    shutil.rmtree(place / "videos")
    (place / "videos").mkdir()
    weights = place / "www" / "weights.safetensors"
    write_weights(weights, build_model(tiny_config(place, data_keys(tiny_data))).state_dict())
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    with served(place / "www") as (address, _):
        changed = {"https://example.org": address, "SUM": digest}
        assert run(FROM_WEB, "--output", "run", **changed) == 0
    assert read_json(place / "run" / "init_weights.json")["sha256"] == digest
    write_handler(place / "my_handlers.py", place / "www")
    assert run(FROM_HANDLER, "--output", "run2", **{"s3://bucket": "test:/"}) == 0


def test_the_handler_of_the_page_reads_s3(place, monkeypatch):
    """boto3 is not needed for tests, so a module of the same name stands for it."""
    transfer = ModuleType("boto3.s3.transfer")
    transfer.TransferConfig = lambda **options: options
    for name, module in (("boto3", ModuleType("boto3")), ("boto3.s3", ModuleType("boto3.s3"))):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "boto3.s3.transfer", transfer)
    monkeypatch.setattr(remote.PATHS, "_path_handlers", dict(remote.PATHS._path_handlers))
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (place / "my_handlers.py").write_text(code)
    import_file(place / "my_handlers.py")
    assert "s3://" in remote.PATHS._path_handlers
