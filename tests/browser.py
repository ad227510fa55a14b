"""A real browser, Debian's chromium, that loads a page without a window and tells what became of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no chromium; install it with apt-get install chromium"
)


def dom(page: Path, folder: Path, script: str = "", width: int = 1280) -> str:
    """The page as HTML after its scripts, and then ``script``, have run. ``folder`` takes the browser's files.

    The policy of the page forbids a script of others, so a page that gets one loses its policy here.
    """
    if script:
        text = page.read_text(encoding="utf-8")
        text = re.sub(r"<meta http-equiv.*?>\n", "", text, count=1, flags=re.DOTALL)
        waits = f"<script>setTimeout(() => {{ {script} }}, 500)</script></body>"
        page = folder / "with_script.html"
        page.write_text(text.replace("</body>", waits), encoding="utf-8")
    return run(folder, page, width, "--dump-dom").stdout


def screenshot(page: Path, file: Path, folder: Path, *options: str, width: int = 1280) -> bytes:
    """The page as a PNG, also written to ``file``."""
    run(folder, page, width, f"--screenshot={file}", *options)
    return file.read_bytes()


def run(folder: Path, page: Path, width: int, *options: str) -> subprocess.CompletedProcess[str]:
    """Start the browser on a page, without a network, and wait for its end."""
    fixed = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000"]
    size = f"--window-size={width},1400"
    nowhere = "--host-resolver-rules=MAP * ~NOTFOUND"
    return subprocess.run(
        [
            CHROMIUM,
            *fixed,
            size,
            nowhere,
            f"--user-data-dir={folder / 'profile'}",
            *options,
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "HOME": str(folder)},
    )
