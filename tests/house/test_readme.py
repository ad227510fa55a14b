"""What README and INSTALL tell people to type exists: tools, files, options and keys."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from mgexp.config.keys import BY_NAME
from mgexp.config.load import load_config

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    *("README.md", "INSTALL.md", "SECURITY.md", "CHANGELOG.md", "data/README.md"),
    *("experiments/README.md", "experiments/quickstart/prose.md"),
    "experiments/large_batch/prose.md",
    "experiments/beyond/augmentation_by_shape/prose.md",
    "docs/gpu.md",
    "docs/other_loops.md",
    "docs/predict.md",
    "docs/transformers.md",
)


def commands():
    """(page, words) of each line of a bash block, continued lines joined."""
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if words:
                    yield page, words


OF_TOOLS = [words for _, words in commands() if any(word.startswith("tools/") for word in words)]


def what_it_says(tool, monkeypatch, capsys):
    """The help of a tool in Python, the text of one in bash."""
    if tool.suffix != ".py":
        return tool.read_text(encoding="utf-8")
    monkeypatch.setattr(sys, "argv", [str(tool), "--help"])
    with pytest.raises(SystemExit):
        runpy.run_path(str(tool), run_name="__main__")
    return capsys.readouterr().out


def test_there_are_commands_to_test():
    assert len(OF_TOOLS) >= 4


def test_tools_options_and_keys_exist(monkeypatch, capsys):
    helps = {}
    for words in OF_TOOLS:
        tool = next(word for word in words if word.startswith("tools/"))
        if tool not in helps:
            helps[tool] = what_it_says(ROOT / tool, monkeypatch, capsys)
        own = words[
            words.index(tool) :
        ]  # the words before it belong to what starts it, such as torchrun
        unknown = [word for word in own if word.startswith("--") and word not in helps[tool]]
        keys = [word for word in words if re.fullmatch(r"[A-Z]+\.[A-Z_]+", word)]
        assert unknown + [key for key in keys if key not in BY_NAME] == [], " ".join(words)


def test_the_yamls_that_commands_name_load():
    named = {words[words.index("--cfg") + 1] for words in OF_TOOLS if "--cfg" in words}
    assert len(named) >= 4
    for name in sorted(named):
        load_config(ROOT / name)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!http)([^)#]+)\)", text)
    assert [link for link in links if not (ROOT / page).parent.joinpath(link).exists()] == []


def test_the_loop_shown_is_that_of_the_example():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert shown in (ROOT / "examples" / "plain_pytorch.py").read_text(encoding="utf-8")


def test_the_yaml_shown_is_the_file():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert shown is not None
    assert shown[1] == (ROOT / "experiments/quickstart/long_short.yaml").read_text(encoding="utf-8")
