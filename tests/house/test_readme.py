"""What the pages tell people to type is what the tools take: options, files, keys and their values."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from fake_runs import fake_run
from released import write_released
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
PAGES_WITH_TESTS = ("docs/own_videos.md", "docs/predict.md")
"""Tests of their own in tests/tools run all commands of these pages."""
NOT_RUN = (
    *(r"bench_(loader|step)\.py", r"(check|prepare|own)_data\.py", r"(collect|predict|plan)\.py"),
    *(
        r"convert_weights\.py",
        r"doctor\.py --cfg",
        r"make_quickstart\.py",
        r"show_model\.py (?!.*--check)",
    ),
    *(
        r"run_net\.py (?!--list-keys)",
        r"study\.py",
        r"sweep\.py (?!.*--dry-run)",
    ),
)
"""The commands that are only parsed here, as they need data, networks or minutes. tests/tools runs their tools."""


def expanded(word):
    """The words that bash makes of ``a{b,c}d``."""
    braces = re.fullmatch(r"(.*)\{(.*)\}(.*)", word)
    if not braces or "," not in braces[2]:
        return [word]
    return [f"{braces[1]}{part}{braces[3]}" for part in braces[2].split(",")]


def commands():
    """(page, words) of each line of a bash block, continued lines joined."""
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                words = [one for word in shlex.split(line, comments=True) for one in expanded(word)]
                if words:
                    yield page, words


def of_tool(words):
    """(name of the tool, its arguments) of a command, or None. The words before it start it, as torchrun does."""
    place = next((n for n, word in enumerate(words) if word.startswith("tools/")), None)
    return None if place is None else (words[place].removeprefix("tools/"), words[place + 1 :])


def of_tools(without=()):
    """(name of the tool, *arguments) of the commands of all pages but ``without``, each once."""
    found = (of_tool(words) for page, words in commands() if page not in without)
    return sorted({(name, *own) for name, own in filter(None, found)})


OF_TOOLS = of_tools()
PYTHON_TOOLS = [one for one in OF_TOOLS if one[0].endswith(".py")]
RUN_HERE = [
    one
    for one in of_tools(PAGES_WITH_TESTS)
    if one in PYTHON_TOOLS and not re.match("|".join(NOT_RUN), " ".join(one))
]


def test_readme_is_a_page_to_land_on():
    assert (ROOT / "README.md").read_text(encoding="utf-8").count("\n") <= MAX_README_LINES


def test_every_page_of_docs_is_linked_and_starts_with_a_command():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for page in sorted(ROOT.glob("docs/*.md")):
        assert f"(docs/{page.name})" in readme
        before, fence, _ = page.read_text(encoding="utf-8").partition("```")
        assert fence, page
        assert before.count("\n") < 12, page


def test_scripts_exist_and_say_what_their_options_do():
    scripts = [one for one in OF_TOOLS if not one[0].endswith(".py")]
    assert len(scripts) >= 2
    for name, *own in scripts:
        text = (ROOT / "tools" / name).read_text(encoding="utf-8")
        assert [word for word in own if word.startswith("--") and word not in text] == []


@pytest.mark.parametrize("words", PYTHON_TOOLS, ids=" ".join)
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


@pytest.fixture
def place(tmp_path, tiny_data, monkeypatch):
    """A working folder with the rows, and small files in the place of those that commands read."""
    for name in ("experiments", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "data").mkdir()
    quickstart = Path(shutil.copytree(tiny_data, tmp_path / "data" / "quickstart"))
    for split in ("train", "val"):
        (quickstart / f"{split}.txt").rename(quickstart / f"{split}.csv")
    for row in ("baseline", "long"):
        fake_run(tmp_path / "runs" / "quickstart", row)
    for name in ("SLOWFAST_8x8_R50", "MVITv2_S_16x4"):
        write_released(tmp_path / f"{name}.yaml", f"Kinetics/{name}")
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("words", RUN_HERE, ids=" ".join)
def test_a_command_that_needs_seconds_runs(words, place, capsys, own_code):
    name, *own = words
    try:
        code = load_tool(name.removesuffix(".py")).main(own)
    except SystemExit as done:  # --list-keys
        code = done.code or 0
    printed = capsys.readouterr()
    assert code == 0, printed.err
    assert printed.out.count("\n") >= 2


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
