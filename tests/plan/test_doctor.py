"""What the doctor finds, from facts given by hand."""

from pathlib import Path

import pytest

from mgexp.plan import doctor


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("2.15.0+cu132", "OK"),
        ("2.9.1", "warning"),
        ("2.16.0", "warning"),
        ("not installed", "problem"),
    ],
)
def test_packages_are_compared_with_their_ranges(version, status, monkeypatch):
    monkeypatch.setattr(doctor, "version_of", lambda name: version if name == "torch" else "19.0")
    declared = ["torch<2.16,>=2.11", 'ruff==0.17.5; extra == "dev"', "av<20,>=14"]
    found = doctor.packages_finding(declared)
    assert found.status == status
    assert (f"torch<2.16,>=2.11 ({version})" in found.text) == (status != "OK")


@pytest.mark.parametrize(
    ("cuda", "gpu", "status"),
    [("13.2", "", "OK"), (None, "", "OK"), ("13.2", "H200", "problem"), (None, "H200", "problem")],
)
def test_a_gpu_that_torch_cannot_use_is_a_problem(cuda, gpu, status):
    found = doctor.no_gpu_finding(cuda, gpu)
    assert (found.status, gpu in found.text) == (status, True)


def test_other_programs_are_a_warning():
    assert doctor.cores_finding(0.0).status == "OK"
    assert doctor.cores_finding(99.0).status == "warning"


def test_a_full_disk_is_a_warning(tmp_path):
    later = tmp_path / "runs" / "later"
    assert doctor.disk_finding(later, least_bytes=0).status == "OK"
    assert doctor.disk_finding(later, least_bytes=2**62).status == "warning"


def test_an_error_of_the_decoder_is_a_problem(monkeypatch):
    def fail():
        raise OSError("no decoder")

    monkeypatch.setattr(doctor, "decode_finding", fail)
    monkeypatch.chdir(Path(__file__).parent)
    (found,) = (one for one in doctor.machine_findings() if one.name == "decoding")
    assert (found.status, found.text) == ("problem", "OSError: no decoder")
