"""Write the tables of experiments/ as a static site: an index, a page for each table, and every file they link to.

The site is a folder of plain files, as GitHub Pages serves them. Links stay inside it, and it loads nothing from
elsewhere.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from html import escape, unescape
from pathlib import Path, PurePosixPath
from urllib.parse import quote, unquote

from markdown import Markdown

from mgexp.errors import InputError
from mgexp.results.html import Block, page
from mgexp.results.page import anchor_of, page_parts
from mgexp.run.files import atomic_file, atomic_write_text
from mgexp.run.folder import ExperimentsDir, RunsDir

INDEX = "index.html"
MANIFEST = "mgexp-site.txt"
"""The list of the files of a site. It shows that a folder is a site, and which old files to delete."""
IMAGES = (".png", ".svg", ".jpg", ".jpeg", ".gif")
FILES = "files"
"""The folder of the site for the files of the repository that its pages link to."""
LINK = re.compile(r'<(a|img)\b([^>]*?)\s(href|src)="([^"]*)"')
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
NAV = '<nav><a href="{index}">All tables</a></nav>\n'

BlocksOf = Callable[[Path], Sequence[Block]]
"""A function that takes a folder of rows and returns the blocks of its page, such as its curves."""


def write_site(experiments: ExperimentsDir, out: Path, blocks_of: BlocksOf) -> Path:
    """Write the site into the folder ``out`` and return its index.

    Raises InputError if ``out`` holds other files, or if a file of ``experiments`` cannot be understood.
    """
    before = _read_manifest(out)
    site = _Site(experiments.root.resolve(), blocks_of)
    site.add_tables(experiments)
    for name, content in site.files.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            file.write(content)
    for name in before - site.files.keys():
        (out / name).unlink(missing_ok=True)
    atomic_write_text(out / MANIFEST, "".join(f"{name}\n" for name in sorted(site.files)))
    return out / INDEX


def _read_manifest(out: Path) -> set[str]:
    """Return the files that an earlier call wrote into ``out``. Raises InputError if others wrote there too."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return set()
    if not (out / MANIFEST).is_file():
        raise InputError([f"--site {out} exists and is no site of mgexp: name a new folder"])
    names = (out / MANIFEST).read_text(encoding="utf-8").splitlines()
    # The file may have been edited. A name must not lead out of the folder.
    root = out.resolve()
    return {name for name in names if (out / name).resolve().is_relative_to(root)}


class _Site:
    """The files of a site by name, and the pages of Markdown files that wait to be written."""

    def __init__(self, root: Path, blocks_of: BlocksOf) -> None:
        self.root, self.repository = root, root.parent
        self.blocks_of = blocks_of
        # GitHub Pages would leave out some files without this one.
        self.files: dict[str, bytes] = {".nojekyll": b""}
        self.pages: dict[Path, str] = {}
        self.waiting: list[Path] = []

    def add_tables(self, experiments: ExperimentsDir) -> None:
        """Add the index, the page of each table, and everything that they link to."""
        parts = page_parts(experiments)
        self.pages[experiments.readme_md.resolve()] = self.pages[self.root] = INDEX
        for folder in parts.tables:
            own = RunsDir(self.root / folder)
            for path in (own.root, own.readme_md, own.report_md):
                self.pages[path] = f"{folder}/{INDEX}"
        for folder, section in parts.tables.items():
            self._add_table(folder, section)
        head = parts.head
        for folder in parts.tables:
            head = head.replace(f"](#{anchor_of(folder)})", f"]({quote(folder)})")
        self._add_page(INDEX, f"{head}\n\n{parts.end}", self.root)
        while self.waiting:
            path = self.waiting.pop()
            self._add_page(self.pages[path], path.read_text(encoding="utf-8"), path.parent)

    def _add_table(self, folder: str, section: str) -> None:
        """Add the page of a table: the page of its study or its report, curves, and the table itself."""
        own = RunsDir(self.root / folder)
        path = next((one for one in (own.readme_md, own.report_md) if one.is_file()), None)
        text = path.read_text(encoding="utf-8") if path else f"# {folder}\n"
        name = f"{folder}/{INDEX}"
        # What stands before the first section opens the page. The verdicts and the curves come next.
        opening, heading, rest = self._convert(text, own.root, name).partition("<h2")
        # The links of the section are relative to experiments/.
        section = section.replace(f"## {folder}", "## In the table of all experiments", 1)
        blocks = "".join(
            f"\n<h2>{escape(one.heading)}</h2>\n{one.html}\n" for one in self.blocks_of(own.root)
        )
        body = opening + self._convert(section, self.root, name) + blocks + heading + rest
        self._write(name, folder, body)

    def _add_page(self, name: str, text: str, folder: Path) -> None:
        title = next((line for line in text.splitlines() if line.startswith("# ")), name)
        self._write(name, title.removeprefix("# "), self._convert(text, folder, name))

    def _write(self, name: str, title: str, body: str) -> None:
        nav = NAV.format(index=posixpath.relpath(INDEX, posixpath.dirname(name) or "."))
        self.files[name] = page(title, nav + body, "'self' data:").encode()

    def _convert(self, text: str, folder: Path, name: str) -> str:
        """Turn a Markdown file of ``folder`` into the body of the page ``name``, with links inside the site."""
        # In Markdown, GitHub also converts what stands inside <details>.
        text = text.replace("<details>", '<details markdown="1">')
        extensions = ["tables", "sane_lists", "fenced_code", "md_in_html", "toc"]
        converter = Markdown(extensions=extensions, extension_configs={"toc": {"slugify": _slug}})
        body = converter.convert(text).replace("<p><img", '<p class="scroll figure"><img')
        return LINK.sub(lambda found: self._link(found, folder, name), body)

    def _link(self, found: re.Match[str], folder: Path, name: str) -> str:
        """Rewrite a link of a page. A link to nothing in the repository becomes plain text."""
        tag, before, kind, target = found[1], found[2], found[3], unescape(found[4])
        if ELSEWHERE.match(target) or target.startswith("#"):
            return found[0]
        path, _, fragment = target.partition("#")
        there = self._place((folder / unquote(path)).resolve())
        if there is None:
            return f"<{tag}{before}"
        link = quote(posixpath.relpath(there, posixpath.dirname(name) or "."))
        # The sections of a text file and of a table's page have other anchors than in the repository.
        if fragment and there.endswith(".html") and there != INDEX:
            link += f"#{fragment}"
        return f'<{tag}{before} {kind}="{escape(link)}"'

    def _place(self, target: Path) -> str | None:
        """Return the name of a file of the repository in the site, and add it. None if there is no such file."""
        if target in self.pages:
            return self.pages[target]
        if target.is_dir():
            target = target / "README.md"
            if target in self.pages:
                return self.pages[target]
        if not target.is_file() or not target.is_relative_to(self.repository):
            return None
        inside = PurePosixPath(FILES, target.relative_to(self.repository).as_posix())
        if target.suffix == ".md":
            self.pages[target] = str(inside.with_suffix(".html"))
            self.waiting.append(target)
            return self.pages[target]
        # A browser shows a text file, and would only save a YAML.
        name = str(inside) if target.suffix.lower() in IMAGES else f"{inside}.txt"
        if name not in self.files:
            self.files[name] = target.read_bytes()
        return name


def _slug(heading: str, separator: str) -> str:
    """Make the anchor of a heading as GitHub does."""
    return anchor_of(heading).replace(" ", separator)
