"""Mutated rows as run_net.py takes them: a job, or one message before anything is written."""

from __future__ import annotations

from collections import Counter

import pytest
from cases import changes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_fuzz import MAX_SECONDS, time_limit
from tiny import data_keys, run_net, write_config, write_dataset

from mgexp.config.keys import BY_NAME
from mgexp.dist import Processes
from mgexp.errors import InputError
from mgexp.launch.run import build_job

NUM_QUICK, NUM_SLOW = 15, 150
MIN_VALID_SHARE = 0.3
NAMED = (
    *(*BY_NAME, "KEY VALUE", "line", "MODEL_NAME"),
    *("videos", "class list", "list file", "train.txt", "val.txt"),
)
"""One of these stands in each problem."""
SLOW_KEYS = {
    *("DATA_LOADER.NUM_WORKERS", "RESNET.WIDTH_PER_GROUP"),
    *("MODEL.NUM_CLASSES", "RESNET.DEPTH"),
}
"""Measures the loading of videos where it is auto; takes seconds to be looked at where it is large."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("fuzzed_data"))


def starts(tool, arguments, output):
    """Whether a run would start; fails where neither that nor a message comes, or something is written."""
    try:
        with time_limit(6 * MAX_SECONDS):
            job = build_job(tool.read(tool.parse(arguments)), Processes())
    except InputError as error:
        assert error.problems != ()
        for problem in error.problems:
            assert all(line.isprintable() for line in problem.split("\n"))
            assert any(name in problem for name in NAMED)
        return False
    except SystemExit as stopped:  # argparse
        return stopped.code == 0
    finally:
        assert not output.exists()
    assert job.inputs.schedule.total_steps > 0
    return True


@pytest.mark.parametrize("num", [NUM_QUICK, pytest.param(NUM_SLOW, marks=pytest.mark.slow)])
def test_a_run_starts_or_says_why_not(num, data, tmp_path, record_property):
    tool, counts, output = run_net(), Counter(), tmp_path / "run"
    cfg = write_config(tmp_path / "tiny.yaml", data_keys(data))

    @settings(
        max_examples=num,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[*HealthCheck],
    )
    @given(st.lists(changes(), max_size=3, unique_by=lambda change: change[0]), st.booleans())
    def one(changed, is_smoke):
        pairs = [
            word for name, _, text in changed if name not in SLOW_KEYS for word in (name, text)
        ]
        words = ["--cfg", str(cfg), "--output", str(output), *["--smoke"] * is_smoke, *pairs]
        counts["checked"] += 1
        counts["valid"] += starts(tool, words, output)

    one()
    record_property("valid_share", counts["valid"] / counts["checked"])
    assert counts["valid"] >= MIN_VALID_SHARE * counts["checked"]
