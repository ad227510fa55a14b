"""Freed memory stays with the process that asked for that."""

import platform
import subprocess
import sys

import pytest

CODE = """
import sys
import numpy as np
from mgexp.train.step import keep_memory


def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6


if sys.argv[1] == "keep":
    assert keep_memory()
before = resident_mb()
block = np.ones(300_000_000, np.uint8)
del block
print(resident_mb() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc alone has mallopt")
@pytest.mark.parametrize(("how", "least", "most"), [("keep", 290, 320), ("give", -20, 20)])
def test_a_large_block_stays(how, least, most):
    done = subprocess.run(
        [sys.executable, "-c", CODE, how], check=True, capture_output=True, text=True
    )
    assert least < float(done.stdout) < most
