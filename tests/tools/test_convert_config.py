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
    assert "OUTPUT_DIR" in err
    (tmp_path / "ours.yaml").write_text(out)
    assert load_config(tmp_path / "ours.yaml").MULTIGRID.LONG_CYCLE


def test_output_is_written_whole_with_the_list_on_stdout(convert, tmp_path):
    output = tmp_path / "ours.yaml"
    code, out, err = convert(STEPWISE, "--output", output, "NUM_SHARDS", 2)
    assert (code, err) == (0, "")
    assert "OUTPUT_DIR" in out
    assert load_config(output).TRAIN.BATCH_SIZE == 128
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ours.yaml", "theirs.yaml"]


@pytest.mark.parametrize(
    ("name", "changes", "keys"),
    [
        ("AVA/SLOWFAST_32x2_R50_SHORT", {}, ["DATASET = ava", "LOSS_FUNC = bce", "SOLVER.STEPS"]),
        (STEPWISE, {"SOLVER__WARMUP_EPOCHS": 300}, ["SOLVER.MAX_EPOCH"]),
    ],
)
def test_what_cannot_be_converted_writes_nothing(name, changes, keys, convert, tmp_path):
    code, out, err = convert(name, "--output", tmp_path / "ours.yaml", **changes)
    assert (code, out) == (2, "")
    assert [key for key in keys if key not in err] == []
    assert not (tmp_path / "ours.yaml").exists()
