"""A web server of a folder on this machine, and a handler that reads test:// from a folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

HANDLER = """
from iopath.common.file_io import PathHandler
from mgexp.run.remote import PATHS

class InFolder(PathHandler):
    def _get_supported_prefixes(self):
        return ["test://"]

    def _get_local_path(self, path, force=False, **options):
        return {folder!r} + path.removeprefix("test:/")

PATHS.register_handler(InFolder(), allow_override=True)
"""


class Quiet(SimpleHTTPRequestHandler):
    """Counts the requests, and prints nothing."""

    def log_message(self, *words: object) -> None:
        self.server.requests.append(self.path)


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Give the address of a server of ``folder``, and the paths that it was asked for."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    server.requests = []
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def write_handler(path: Path, folder: Path) -> Path:
    """Write a file for --import that maps test:// onto ``folder``."""
    path.write_text(HANDLER.format(folder=str(folder)))
    return path
