"""The site: every link and image leads to a file of it, and nothing of others is overwritten."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest
from browser import dom, needs_browser
from fake_experiments import experiments_with, result

from mgexp.errors import InputError
from mgexp.results.html import Block, to_html
from mgexp.results.page import ELSEWHERE, write_site
from mgexp.results.tables import markdown, plain_cell
from mgexp.run.folder import ExperimentsDir

REPOSITORY = Path(__file__).parents[2]
YAMLS = {
    "quickstart/baseline": "_BASE_: ../base/small.yaml\n",
    "quickstart/long_short": "_BASE_: ../base/small.yaml\nROW: long+short\nA: 1\n",
    "main/k400 x/baseline": "_BASE_: ../../base/small.yaml\n",
}
README = """\
# A study

![a figure](figures/accuracy.png)

[the YAML](long_short.yaml), [a guide](../../docs/guide.md#a-part), [lost](nowhere.md), [out](../../../secret.txt),
[a folder](../../docs), [elsewhere](https://example.org/x), [another table](../main/k400%20x/README.md)
"""


def no_blocks(folder):
    return []


@pytest.fixture
def experiments(tmp_path):
    """A repository with two tables, the page of a study with a figure, and a guide."""
    root = tmp_path / "repository" / "experiments"
    results = [result("quickstart/baseline", 0, 98.0), result("quickstart/long_short", 0, 97.0)]
    made = experiments_with(root, YAMLS, *results)
    (root / "quickstart" / "figures").mkdir()
    (root / "quickstart" / "figures" / "accuracy.png").write_bytes(b"png")
    (root / "quickstart" / "README.md").write_text(README)
    docs = root.parent / "docs"
    docs.mkdir()
    (docs / "guide.md").write_text("# Guide\n\n## A part\n\n[back](../experiments/README.md)\n")
    (tmp_path / "secret.txt").write_text("secret")
    return made


def broken(site):
    """The links and images of all pages that lead to no file of the site, or to no section of a page."""
    found = []
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        for _, target in re.findall(r'\b(href|src)="([^"]*)"', text.partition("<body>")[2]):
            if ELSEWHERE.match(target):
                continue
            name, _, fragment = unescape(target).partition("#")
            there = (path.parent / unquote(name)).resolve() if name else path.resolve()
            if (
                not there.is_file()
                or not there.is_relative_to(site.resolve())
                or (fragment and f'id="{fragment}"' not in there.read_text(encoding="utf-8"))
            ):
                found.append((str(path), target))
    return found


def test_every_table_has_a_page_with_its_figures_and_links_that_lead_somewhere(
    experiments, tmp_path
):
    index = write_site(experiments, tmp_path / "site", no_blocks)
    assert broken(tmp_path / "site") == []
    assert 'href="quickstart/index.html"' in index.read_text()
    page = (tmp_path / "site" / "quickstart" / "index.html").read_text()
    assert 'src="../files/experiments/quickstart/figures/accuracy.png"' in page
    assert 'href="../files/experiments/quickstart/long_short.yaml.txt"' in page
    assert 'href="../files/docs/guide.html#a-part"' in page
    assert 'href="../main/k400%20x/index.html"' in page
    assert "loses 1.00 points" in page
    assert "<a>lost</a>" in page


@pytest.mark.parametrize(
    "name",
    [
        *("<script>alert(1)</script>", "<style>td{display:none}</style>", "a<!--b", "</details>"),
        *("R&D", "&lt;", r"a\|b", "x | y", "end\\", "a`b", "`code`", "c`d|e", "*em* and _em_"),
        *("__init__", "![i](data:x)", "[l](javascript:alert(1))", "<http://a.b>", "open <div>"),
    ],
)
def test_the_name_of_a_class_is_text_on_every_page(name, experiments, tmp_path):
    lines = markdown(("class", "videos"), [[plain_cell(name), "3"]])
    text = "\n".join(["# A study", "", *lines, "", "## After", ""])
    (experiments.root / "quickstart" / "README.md").write_text(text)
    write_site(experiments, tmp_path / "site", no_blocks)
    for page in (to_html(text, []), (tmp_path / "site/quickstart/index.html").read_text()):
        cells = re.findall(r"<td[^>]*>(.*?)</td>", page.partition("<h1")[2])[:2]
        assert [unescape(cell) for cell in cells] == [name, "3"]
        assert "<" not in cells[0]
        assert ">After</h2>" in page


def test_nothing_outside_the_repository_is_copied(experiments, tmp_path):
    write_site(experiments, tmp_path / "site", no_blocks)
    texts = [path.read_bytes() for path in (tmp_path / "site").rglob("*") if path.is_file()]
    assert [text for text in texts if text == b"secret"] == []


def test_the_blocks_of_a_folder_are_on_its_page(experiments, tmp_path):
    def blocks(folder):
        return [Block("Curves", f"<p>of {folder.name}</p>")] if folder.name == "quickstart" else []

    write_site(experiments, tmp_path / "site", blocks)
    page = (tmp_path / "site" / "quickstart" / "index.html").read_text()
    assert "<h2>Curves</h2>\n<p>of quickstart</p>" in page


def test_a_folder_of_others_is_refused_before_anything_is_written(experiments, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "thesis.tex").touch()
    with pytest.raises(InputError, match="is no site of mgexp: name a new folder"):
        write_site(experiments, tmp_path / "site", no_blocks)
    assert [path.name for path in (tmp_path / "site").iterdir()] == ["thesis.tex"]


def test_a_call_that_was_stopped_is_made_again(experiments, tmp_path, monkeypatch):
    def full_disk(path):
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("mgexp.results.page.atomic_file", full_disk)
        with pytest.raises(OSError, match="No space left"):
            write_site(experiments, tmp_path / "site", no_blocks)
    write_site(experiments, tmp_path / "site", no_blocks)
    assert broken(tmp_path / "site") == []


def test_a_second_call_removes_the_pages_of_tables_that_are_gone(experiments, tmp_path):
    write_site(experiments, tmp_path / "site", no_blocks)
    (experiments.root / "main" / "k400 x" / "baseline.yaml").unlink()
    write_site(experiments, tmp_path / "site", no_blocks)
    assert not (tmp_path / "site" / "main" / "k400 x" / "index.html").exists()
    assert broken(tmp_path / "site") == []


def test_no_link_of_the_site_of_this_repository_is_broken(tmp_path):
    write_site(ExperimentsDir(REPOSITORY / "experiments"), tmp_path / "site", no_blocks)
    assert broken(tmp_path / "site") == []


@needs_browser
@pytest.mark.slow
def test_a_browser_shows_the_figures_of_a_page(tmp_path):
    write_site(ExperimentsDir(REPOSITORY / "experiments"), tmp_path / "site", no_blocks)
    page = tmp_path / "site" / "quickstart" / "index.html"
    script = """
        const images = [...document.images];
        document.title = `${images.length > 0} ${images.every((one) => one.naturalWidth > 0)}`;
    """
    # The page gets a script, so it is opened as a copy, which must lie in the same folder.
    assert "<title>true true</title>" in dom(page, page.parent, script)
