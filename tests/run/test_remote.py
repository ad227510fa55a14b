"""Files at addresses: copied once, checked by their sums, and one message for everything that fails."""

import hashlib
from pathlib import Path

import pytest
from served import served, write_handler

from mgexp.errors import InputError
from mgexp.registry import import_file
from mgexp.run import remote
from mgexp.run.remote import is_remote, local_file

pytestmark = pytest.mark.usefixtures("own_code")

CONTENT = b"some weights"
SUM = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "mgexp" / "files"


@pytest.fixture
def server(tmp_path):
    (tmp_path / "www" / "a").mkdir(parents=True)
    (tmp_path / "www" / "a" / "w.pyth").write_bytes(CONTENT)
    with served(tmp_path / "www") as found:
        yield found


def one_problem(text: str) -> str:
    with pytest.raises(InputError) as caught:
        local_file(text)
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize(
    ("text", "remote"),
    [
        *(("https://host/a", True), ("s3://bucket/a", True), ("", False)),
        *(("videos/a:b", False), ("/https://host", False), ("C:/videos", False)),
    ],
)
def test_an_address_has_a_scheme(text, remote):
    assert is_remote(text) == remote
    assert remote or local_file(text) == Path(text)


def test_a_file_is_fetched_once_and_keeps_its_name(server, cache):
    address, requests = server
    for _ in range(2):
        file = local_file(f"{address}/a/w.pyth")
    assert file.read_bytes() == CONTENT
    assert file.name == "w.pyth"
    assert file.is_relative_to(cache)
    assert requests == ["/a/w.pyth"]


def test_files_of_one_path_on_two_servers_are_two(server, tmp_path):
    (tmp_path / "other" / "a").mkdir(parents=True)
    (tmp_path / "other" / "a" / "w.pyth").write_bytes(b"other weights")
    with served(tmp_path / "other") as (address, _):
        assert local_file(f"{address}/a/w.pyth").read_bytes() == b"other weights"
    assert local_file(f"{server[0]}/a/w.pyth").read_bytes() == CONTENT


def test_no_address_leads_out_of_the_cache(server, cache):
    for path in ("../../../../a/..", "x/../a/w.pyth?x=/../../y", "a/%2e%2e/a/w.pyth"):
        file = local_file(f"{server[0]}/{path}")
        assert file.resolve().is_relative_to(cache.resolve())


def test_the_right_sum_passes(server):
    assert local_file(f"{server[0]}/a/w.pyth#sha256={SUM.upper()}").read_bytes() == CONTENT


def test_a_wrong_sum_is_one_message_and_the_copy_is_deleted(server, cache):
    wrong = f"{server[0]}/a/w.pyth#sha256={'0' * 64}"
    for _ in range(2):
        problem = one_problem(wrong)
        assert wrong in problem
        assert f"is {SUM}, not {'0' * 64}" in problem
        assert list(cache.rglob("w.pyth")) == []


@pytest.mark.parametrize("mark", ["#sha256=12", "#md5=0", "#"])
def test_a_mark_that_is_no_sum_is_refused(server, mark):
    assert "sha256=" in one_problem(f"{server[0]}/a/w.pyth{mark}")
    assert server[1] == []


def test_the_name_of_a_published_file_has_its_sum(tmp_path, monkeypatch):
    file = tmp_path / "resnet50.pth"
    file.write_bytes(CONTENT)
    monkeypatch.setattr(remote, "_web_copy", lambda address: file)
    place = "https://download.pytorch.org/models/resnet50"
    assert local_file(f"{place}-{SUM[:8]}.pth") == file
    assert f"is {SUM}, not 0676ba61" in one_problem(f"{place}-0676ba61.pth")
    assert file.exists()  # not in the cache, so not ours


def test_what_a_server_refuses_is_one_message(server, cache, monkeypatch):
    """So is a server that is not there, and a cache that cannot be written."""
    assert "404" in one_problem(f"{server[0]}/none.pyth")
    assert list(cache.rglob("none*")) == []
    with served(Path.cwd()) as (address, _):
        pass
    assert "Connection refused" in one_problem(f"{address}/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert "NotADirectoryError" in one_problem(f"{server[0]}/a/w.pyth")


def test_a_handler_of_an_imported_file_is_asked(tmp_path):
    folder = tmp_path / "bucket"
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "list.txt").write_text("x")
    import_file(write_handler(tmp_path / "my_handlers.py", folder))
    assert local_file("test://a/list.txt") == folder / "a" / "list.txt"
    assert "test://a/none.txt" in one_problem("test://a/none.txt")
    assert "SHA-256" in one_problem(f"test://a/list.txt#sha256={'0' * 64}")
    assert (folder / "a" / "list.txt").exists()
