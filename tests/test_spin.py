"""How long torch's threads spin: set before torch is imported, unless the user has said how threads wait."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WAITS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME", "KMP_LIBRARY")
SHOW = "import os, sys, mgexp; print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules)"


def fresh(*arguments, check=True, **variables):
    """Run a fresh interpreter that knows of these variables only, and return what it prints."""
    clean = {name: value for name, value in os.environ.items() if name not in WAITS}
    return subprocess.run(
        [sys.executable, *arguments],
        env={**clean, "PYTHONPATH": str(ROOT), **variables},
        check=check,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, "20000"),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "PASSIVE"}, "None"),
        ({"KMP_BLOCKTIME": "0"}, "None"),
    ],
)
def test_the_user_wins(variables, wanted):
    assert fresh("-c", SHOW, **variables).stdout.split() == [wanted, "False"]


QUICKSTART = str(ROOT / "experiments" / "quickstart" / "baseline.yaml")


def test_openmp_reads_it():
    """GNU OpenMP prints its settings when it is loaded. Lists are read after that, and this file is none."""
    arguments = ("--cfg", QUICKSTART, "DATA.TRAIN_LIST", QUICKSTART, "DATA.VAL_LIST", QUICKSTART)
    path = ROOT / "tools" / "run_net.py"
    printed = fresh(path, *arguments, check=False, OMP_DISPLAY_ENV="VERBOSE").stderr
    assert "GOMP_SPINCOUNT = '20000'" in printed
