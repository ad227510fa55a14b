"""Files of tensors: what is damaged is found, and torch and zip still read what is not."""

import hashlib
import os
import zipfile

import pytest
import torch

from mgexp.errors import TrainingError
from mgexp.run.torch_file import DamagedFileError, check_whole, load_torch, read_seal, save_torch


@pytest.fixture
def path(tmp_path):
    """A sealed file of some tensors."""
    found = tmp_path / "some.pt"
    save_torch(found, {"weight": torch.arange(5000.0), "step": 7})
    return found


def unsealed(path):
    """The same, as torch writes it."""
    torch.save({"weight": torch.arange(5000.0), "step": 7}, path)
    return path


def flip(path, position):
    """Another bit at ``position``, from the end where that is negative."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_tensors_come_back(path):
    found = load_torch(path)
    assert found["step"] == 7
    assert torch.equal(found["weight"], torch.arange(5000.0))


def test_torch_and_zip_read_a_sealed_file_as_any_other(path):
    for mmap in (False, True):
        found = torch.load(path, weights_only=True, mmap=mmap)
        assert torch.equal(found["weight"], torch.arange(5000.0))
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.comment.decode() == read_seal(path)


def test_the_seal_is_the_hash_that_sha256sum_prints(path):
    data = path.read_bytes()
    seal = read_seal(path)
    archive = data[: -len(seal)]
    assert (
        seal == f"mgexp sha256 {hashlib.sha256(archive).hexdigest()} of {len(archive):015d} bytes"
    )


@pytest.mark.parametrize("position", [0, 3000, 12000, -150, -30])
def test_another_bit_anywhere_is_found(position, path):
    flip(path, position)
    with pytest.raises(DamagedFileError, match=r"some\.pt cannot be read"):
        load_torch(path)


@pytest.mark.parametrize("share", [0, 0.01, 0.5, 0.999])
def test_a_file_that_was_cut_short_is_found(share, path):
    os.truncate(path, int(share * path.stat().st_size))
    with pytest.raises(DamagedFileError, match=r"some\.pt cannot be read"):
        load_torch(path)


def test_a_file_with_a_hole_says_how_much_is_missing(path):
    data = path.read_bytes()
    path.write_bytes(data[:4000] + data[4100:])
    size = len(data) - len(read_seal(path))
    with pytest.raises(DamagedFileError, match=f"it has {size - 100} bytes, but {size} were"):
        check_whole(path)


def test_a_file_without_a_seal_is_damaged(tmp_path):
    with pytest.raises(DamagedFileError, match="its end is missing or damaged"):
        load_torch(unsealed(tmp_path / "plain.pt"))


def test_what_is_no_torch_file_is_named(tmp_path):
    path = tmp_path / "step_00000005.pt"
    path.write_bytes(b"half a file")
    with pytest.raises(
        DamagedFileError, match=r"step_00000005\.pt cannot be read: its end is missing"
    ):
        load_torch(path)


def test_code_in_a_file_is_not_run_and_no_damage(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    save_torch(tmp_path / "evil.pt", {"model": Evil()})
    with pytest.raises(TrainingError) as caught:
        load_torch(tmp_path / "evil.pt")
    assert not isinstance(caught.value, DamagedFileError)
    assert not (tmp_path / "ran").exists()


def test_a_missing_file_is_no_damage(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_torch(tmp_path / "none.pt")


def test_large_files_are_sealed_as_small_ones_are(tmp_path):
    """More than is read at a time."""
    save_torch(tmp_path / "large.pt", {"weight": torch.zeros(2_000_000)})
    check_whole(tmp_path / "large.pt")
    flip(tmp_path / "large.pt", 7_000_000)
    with pytest.raises(DamagedFileError, match="SHA-256"):
        check_whole(tmp_path / "large.pt")
