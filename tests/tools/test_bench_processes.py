"""bench_processes.py: processes that share the steps of a tiny row, and its exit codes."""

import pytest
import simplejson
from tiny import load_tool, write_config


@pytest.fixture
def bench():
    return load_tool("bench_processes")


@pytest.fixture
def arguments(tmp_path):
    cfg = write_config(tmp_path / "tiny.yaml", {})
    return lambda *others: ["--cfg", str(cfg), *map(str, others)]


@pytest.mark.slow
def test_it_measures_one_process_and_two(bench, arguments, tmp_path, capsys):
    output = tmp_path / "teams.json"
    assert bench.main(arguments("--steps", 2, "--warmup", 1, "--output", output)) == 0
    assert "32x2x23²" in capsys.readouterr().out
    found = simplejson.loads(output.read_text())
    teams = [(team["num_processes"], team["num_threads"]) for team in found["teams"]]
    assert teams == [(1, 1), (2, 1), (1, 2)]
    for team in found["teams"]:
        assert [shape["clips"] for shape in team["shapes"]] == [32, 16, 8, 4]
        assert all(len(shape["seconds"]) == 2 for shape in team["shapes"])


@pytest.mark.parametrize(
    ("others", "said"),
    [
        (["--processes", "1"], "--processes 1: give 2 or more"),
        (["--processes", "999"], "--processes 999: this machine has"),
        (["--steps", "0"], "--steps 0: give 1 or more"),
        (["--output", "nowhere/x.json"], "there is no folder nowhere"),
        (["TRAIN.BATCH_SIZE", "3"], "BN_BASE_SIZE"),
        (["NO.KEY", "1"], "NO.KEY"),
    ],
)
def test_bad_input_ends_with_2(bench, arguments, capsys, others, said):
    assert bench.main(arguments(*others)) == 2
    assert said in capsys.readouterr().err
