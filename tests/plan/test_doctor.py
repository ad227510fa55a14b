"""What the doctor finds, from facts given by hand."""

from pathlib import Path

import pytest

from mgexp.plan import doctor
from mgexp.plan.doctor import Finding, in_range

DECLARED = [
    "torch<2.16,>=2.11",
    "torchvision<0.30,>=0.26",
    "av<19,>=14",
    'ruff==0.17.5; extra == "dev"',
]


@pytest.mark.parametrize(
    ("found", "wanted", "is_in"),
    [
        ("2.15.0+cu132", "<2.16,>=2.11", True),
        ("2.11.0", "<2.16,>=2.11", True),
        ("2.16.0", "<2.16,>=2.11", False),
        ("2.9.1", "<2.16,>=2.11", False),
        ("0.1.5", "==0.1.5", True),
    ],
)
def test_a_range_is_that_of_numbers(found, wanted, is_in):
    assert in_range(found, wanted) == is_in


def test_a_version_out_of_the_range_is_a_warning_with_the_range():
    found = doctor.range_finding("torch", "2.10.0", DECLARED)
    assert (found.status, found.remedy) == ("warning", "pip install 'torch<2.16,>=2.11'")
    assert doctor.range_finding("torchvision", "0.29.2", DECLARED).status == "OK"
    assert doctor.range_finding("av", "not installed", DECLARED).status == "problem"


@pytest.mark.parametrize(
    ("cuda", "gpu", "has_cuda", "status", "words"),
    [
        ("13.2", "H200", True, "OK", "CUDA 13.2"),
        ("13.2", "", False, "OK", "without a GPU"),
        ("13.2", "H200", False, "problem", "torch cannot use H200"),
        (None, "H200", False, "problem", "CPU only, beside H200"),
        (None, "", False, "OK", "CPU only"),
    ],
)
def test_the_wheel_is_judged_beside_the_gpu(cuda, gpu, has_cuda, status, words):
    found = doctor.wheel_finding(cuda, gpu, has_cuda)
    assert found.status == status and words in found.found


@pytest.mark.parametrize(
    ("version", "status"), [((3, 9), "problem"), ((3, 10), "OK"), ((3, 14), "warning")]
)
def test_pythons(version, status):
    assert doctor.python_finding(version).status == status


def test_little_room_is_a_warning_and_no_room_to_write_a_problem(tmp_path, monkeypatch):
    folder = tmp_path / "not" / "yet"
    assert doctor.disk_finding(folder, 0).status == "OK"
    assert doctor.disk_finding(folder, 2**70).status == "warning"
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    assert doctor.disk_finding(folder, 0).status == "problem"


def test_shared_memory_memory_and_cores():
    assert doctor.shared_memory_finding(64 * 2**20).status == "warning"
    assert doctor.shared_memory_finding(8 * 2**30).status == "OK"
    assert doctor.memory_finding(2 * 2**30).status == "warning"
    assert doctor.cores_finding(8, 2).found == "2 of 8 are this process's"
    assert doctor.cores_finding(8, 8) == Finding("cores", "OK", "8")


def test_other_programs_are_named(monkeypatch):
    monkeypatch.setattr("mgexp.run.other_programs.num_cores", lambda: 2)
    assert doctor.others_finding(None).status == "OK"
    assert doctor.others_finding(0.1).found == "Other programs keep 0.1 of 2 cores busy"
    found = doctor.others_finding(0.8)
    assert found.status == "warning" and "close them" in found.remedy


def test_decoding_is_measured():
    found = doctor.decode_finding()
    assert "core-ms per clip" in found.found


def test_a_decoder_that_breaks_is_a_problem(monkeypatch):
    def broken(path):
        raise OSError("no codec")

    monkeypatch.setattr(doctor, "_write_video", broken)
    found = [one for one in doctor.machine_findings([Path()]) if one.name == "decoding"]
    assert [(one.status, one.found) for one in found] == [("problem", "OSError: no codec")]
