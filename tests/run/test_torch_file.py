"""Files of tensors: what is damaged is found, and what is not is read."""

import errno
import os
import struct

import pytest
import torch

from mgexp.errors import TrainingError
from mgexp.run import torch_file
from mgexp.run.torch_file import DamagedFileError, check_whole, load_torch, read_seal, save_torch

CONTENT = {"weight": torch.arange(300.0), "step": 7}


@pytest.fixture
def path(tmp_path):
    """A file of some tensors."""
    found = tmp_path / "some.pt"
    save_torch(found, CONTENT)
    return found


def is_content(found):
    return found["step"] == 7 and torch.equal(found["weight"], CONTENT["weight"])


def test_a_file_of_an_older_version_is_read(path):
    """It has a seal as the comment of the archive, whose length is in the last two bytes."""
    assert is_content(load_torch(path))
    seal, archive = read_seal(path), path.read_bytes()[:-2]
    comment = f"mgexp sha256 {'0' * 64} of {len(archive) + 2:015d} bytes".encode()
    path.write_bytes(archive + struct.pack("<H", len(comment)) + comment)
    assert is_content(load_torch(path))
    assert read_seal(path) == seal


def test_another_content_has_another_seal(path, tmp_path):
    save_torch(tmp_path / "other.pt", {**CONTENT, "step": 8})
    assert read_seal(tmp_path / "other.pt") != read_seal(path)


def test_another_bit_is_found_or_changes_nothing(path):
    """The time of a member and the bytes between members do not count."""
    data, num_found = path.read_bytes(), 0
    for position in range(0, len(data), 7):
        changed = bytearray(data)
        changed[position] ^= 1 << position % 8
        path.write_bytes(changed)
        try:
            assert is_content(load_torch(path)), position
        except DamagedFileError as error:
            num_found += 1
            assert str(error).startswith(f"{path} cannot be read: ")
    assert num_found > len(data) / 7 / 2


def test_a_tensor_that_torch_would_take_for_a_folder_is_found(path):
    """torch.load then returns what is in memory. Source of the places: PKWARE's APPNOTE.TXT, section 4.3.12."""
    data = bytearray(path.read_bytes())
    place = 0
    while (place := data.find(b"PK\x01\x02", place + 1)) > 0:
        data[place + 38] ^= 0x10
    path.write_bytes(data)
    with pytest.raises(DamagedFileError, match="attributes"):
        check_whole(path)


@pytest.mark.parametrize("share", [0, 0.01, 0.3, 0.5, 0.8, 0.999])
def test_a_file_that_was_cut_short_is_found(share, path):
    os.truncate(path, int(share * path.stat().st_size))
    with pytest.raises(DamagedFileError, match=r"some\.pt cannot be read"):
        load_torch(path)


@pytest.mark.parametrize("share", [0, 0.3, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("filling", [b"", bytes(100)])
def test_a_hole_is_found(share, filling, path):
    data = path.read_bytes()
    start = int(share * len(data))
    path.write_bytes(data[:start] + filling + data[start + 100 :])
    with pytest.raises(DamagedFileError, match=r"some\.pt cannot be read"):
        load_torch(path)


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.EIO, DamagedFileError), (errno.EACCES, PermissionError)]
)
def test_a_disk_that_fails_is_damage_and_a_missing_permission_is_none(
    number, kind, path, monkeypatch
):
    def fail(path):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(torch_file, "ZipFile", fail)
    with pytest.raises(kind):
        check_whole(path)


def test_code_in_a_file_is_not_run_and_no_damage(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    save_torch(tmp_path / "evil.pt", {"model": Evil()})
    with pytest.raises(TrainingError) as caught:
        load_torch(tmp_path / "evil.pt")
    assert not isinstance(caught.value, DamagedFileError)
    assert not (tmp_path / "ran").exists()
