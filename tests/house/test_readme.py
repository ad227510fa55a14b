"""What the pages tell people to type is what the tools take: options, files, keys and their values."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tiny import load_tool

from mgexp.config.load import read_config

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    *("README.md", "INSTALL.md", "SECURITY.md", "CHANGELOG.md"),
    *("data/README.md", "benchmarks/README.md"),
    *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/*.md")),
    *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("experiments/**/prose.md")),
    "experiments/README.md",
)
MAX_README_LINES = 150


def expanded(word):
    """The words that bash makes of ``a{b,c}d``."""
    braces = re.fullmatch(r"(.*)\{(.*)\}(.*)", word)
    if not braces or "," not in braces[2]:
        return [word]
    return [f"{braces[1]}{part}{braces[3]}" for part in braces[2].split(",")]


def commands():
    """(name of the tool, *arguments) of each command in a bash block, continued lines joined."""
    found = set()
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                words = [one for word in shlex.split(line, comments=True) for one in expanded(word)]
                # What stands before the tool starts it, as torchrun does.
                while words and not words[0].startswith("tools/"):
                    del words[0]
                if words and words[0].endswith(".py"):
                    found.add((words[0].removeprefix("tools/"), *words[1:]))
    return sorted(found)


def test_the_readme_is_short_and_every_page_is_linked_and_starts_with_a_command():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.count("\n") <= MAX_README_LINES
    for page in sorted(ROOT.glob("docs/*.md")):
        assert f"(docs/{page.name})" in readme
        before, fence, _ = page.read_text(encoding="utf-8").partition("```")
        assert fence, page
        assert before.count("\n") < 12, page


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_a_tool_takes_the_command(words, monkeypatch, own_code):
    """Its own parser reads the options. The configuration that the command describes has no problem."""
    name, *own = words
    monkeypatch.chdir(ROOT)
    # A file of the reader's own is not here. The tests of the page that names it make one.
    if "--import" in own and not Path(own[place := own.index("--import") + 1]).exists():
        del own[place - 1 : place + 1]
    tool = load_tool(name.removesuffix(".py"))
    has_name = bool(own) and own[0] in getattr(tool, "COMMANDS", {})
    try:
        options = tool.parse_command(own[0], own[1:]) if has_name else tool.parse(own)
    except SystemExit as done:  # options such as --list-keys print, and that is all
        assert not done.code
        return
    if getattr(options, "cfg", None) and options.cfg.is_relative_to("projects"):
        return  # likewise, the project of a reader
    if getattr(options, "cfg", None):
        keys = options.overrides if hasattr(options, "overrides") else options.words
        assert read_config(Path(options.cfg), keys)[1] == []


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page):
    lost = []
    for link, anchor in re.findall(
        r"\]\((?!http)([^)#]*)#?([^)]*)\)", (ROOT / page).read_text("utf-8")
    ):
        found = (ROOT / page).parent / link if link else ROOT / page
        if not found.exists() or (anchor and anchor not in anchors(found.read_text("utf-8"))):
            lost.append(f"{link}#{anchor}")
    assert lost == []


def anchors(text):
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


def test_the_yaml_shown_is_the_file():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert shown is not None
    assert shown[1] == (ROOT / "experiments/quickstart/long.yaml").read_text(encoding="utf-8")
