"""convert_config.py: a YAML that is accepted, or one message and nothing written."""

import pytest
from released import write_released
from tiny import load_tool

from mgexp.config.load import load_config

STEPWISE = "Kinetics/SLOWFAST_8x8_R50_stepwise"


@pytest.fixture
def convert(tmp_path, capsys):
    """Runs the tool on a released file; returns (exit code, stdout, stderr)."""
    main = load_tool("convert_config").main

    def run(name, *arguments, **changes):
        path = write_released(tmp_path / "theirs.yaml", name, **changes)
        code = main([str(path), *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_the_yaml_goes_to_stdout_and_the_list_to_stderr(convert, tmp_path):
    code, out, err = convert(f"{STEPWISE}_multigrid")
    assert code == 0
    assert out.startswith("# From PySlowFast's theirs.yaml, by tools/convert_config.py.\n")
    assert "OUTPUT_DIR = .: the run folder is --output of tools/run_net.py" in err
    (tmp_path / "ours.yaml").write_text(out)
    assert load_config(tmp_path / "ours.yaml").MULTIGRID.LONG_CYCLE


def test_output_is_written_whole_with_the_list_on_stdout(convert, tmp_path):
    output = tmp_path / "ours.yaml"
    code, out, err = convert(STEPWISE, "--output", output, "NUM_SHARDS", 2)
    assert (code, err) == (0, "")
    assert "are dropped" in out
    assert load_config(output).TRAIN.BATCH_SIZE == 128
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ours.yaml", "theirs.yaml"]


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("Kinetics/X3D_M", {"X3D__DIM_C1": 24}, ["X3D.DIM_C1 = 24 has no counterpart"]),
        ("AVA/SLOWFAST_32x2_R50_SHORT", {}, ["DATASET = ava", "LOSS_FUNC = bce has no", "SOLVER.STEPS"]),
        (STEPWISE, {"SOLVER__WARMUP_EPOCHS": 300}, ["is not less than SOLVER.MAX_EPOCH"]),
    ],
)  # fmt: skip
def test_what_cannot_be_converted_writes_nothing(name, changes, said, convert, tmp_path):
    code, out, err = convert(name, "--output", tmp_path / "ours.yaml", **changes)
    assert (code, out) == (2, "")
    assert err.startswith("convert_config.py: nothing was written; ")
    assert [words for words in said if words not in err] == []
    assert not (tmp_path / "ours.yaml").exists()
