"""Reading, weights, unknown keys, the YAML and the report."""

import pytest
import yaml
from released import released, write_released

from mgexp.config.values import convert as convert_value
from mgexp.convert.keys import CONVERTED, DROPPED, FIXED, read
from mgexp.convert.pyslowfast import convert, read_pyslowfast
from mgexp.errors import InputError

STEPWISE = "Kinetics/SLOWFAST_8x8_R50_stepwise"


def test_a_key_is_in_one_table_with_a_default_of_its_kind():
    assert not (CONVERTED.keys() & FIXED.keys() | CONVERTED.keys() & DROPPED.keys())
    assert not FIXED.keys() & DROPPED.keys()
    for name, default in CONVERTED.items():
        assert read(name, default) == default


def test_a_based_file_and_pairs_are_read(tmp_path):
    write_released(tmp_path / "base.yaml", STEPWISE)
    path = tmp_path / "row.yaml"
    path.write_text("_BASE_: base.yaml\nSOLVER: {MAX_EPOCH: 240}\n")
    pairs = ["NUM_SHARDS", "2", "DATA.PATH_PREFIX", "2024_01"]
    values = read_pyslowfast(path, pairs)
    assert values["SOLVER.MAX_EPOCH"] == 240
    assert values["SOLVER.STEPS"] == [0, 94, 154, 196]
    assert (values["NUM_SHARDS"], values["DATA.PATH_PREFIX"]) == (2, "2024_01")


@pytest.mark.parametrize(
    ("text", "pairs", "said"),
    [
        ("A: !!python/object/apply:os.system [true]", [], "is not a YAML file"),
        ("[1, 2]", [], "is not a YAML file"),
        ("NUM_GPUS: 8", ["NUM_SHARDS"], "'NUM_SHARDS' has no value"),
        (None, [], "does not exist: it takes a YAML file of PySlowFast"),
    ],
)
def test_a_file_that_cannot_be_read(text, pairs, said, tmp_path):
    path = tmp_path / "row.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=said):
        read_pyslowfast(path, pairs)


def test_unknown_keys_are_listed():
    conversion = convert(released(STEPWISE, DATA__NUM_FRAME=3, MINE=1))
    assert [note.name for note in conversion.unknown] == ["DATA.NUM_FRAME", "MINE"]
    assert "DATA.NUM_FRAME = 3: no key of PySlowFast that is known here" in conversion.report()


ODD = (None, "x", [], [[]], -1, 0.5, {}, [[["a"]]] * 4, [["a"]] * 4, [1] * 4)


@pytest.mark.parametrize("row", [STEPWISE, "Kinetics/I3D_NLN_8x8_R50"])
def test_an_odd_value_is_converted_or_refused_but_never_fails(row):
    given = released(row)
    for name in sorted({*CONVERTED, *FIXED}):
        for value in ODD:
            conversion = convert({**given, name: value})
            is_told = name in conversion.kept or name in conversion.report()
            assert conversion.problems or is_told, (name, value)


def test_weights_to_start_from():
    path = "TRAIN__CHECKPOINT_FILE_PATH"
    keys = convert(released(STEPWISE, **{path: "zoo/x.pyth"})).keys
    assert keys["TRAIN.INIT_WEIGHTS"] == "zoo/x.pyth"
    conversion = convert(released(STEPWISE, **{path: "zoo/x.pkl"}))
    assert conversion.keys["TRAIN.INIT_WEIGHTS"] == "zoo/x.safetensors"
    assert "tools/convert_weights.py zoo/x.pkl zoo/x.safetensors" in conversion.report()


def test_weights_that_are_only_tested_have_no_counterpart():
    changes = {"TEST__CHECKPOINT_FILE_PATH": "x.pyth"}
    assert convert(released(STEPWISE, **changes)).problems == []
    (problem,) = convert(released(STEPWISE, TRAIN__ENABLE=False, **changes)).problems
    assert "a run tests its own weights" in problem


def test_mixed_precision_is_fp16():
    keys = convert(released(STEPWISE, TRAIN__MIXED_PRECISION=True)).keys
    assert keys["TRAIN.PRECISION"] == "fp16"
    assert "TRAIN.PRECISION" not in convert(released(STEPWISE, TRAIN__MIXED_PRECISION=False)).keys


def test_the_yaml_is_short_and_safe_and_says_where_it_comes_from():
    text = convert(released(f"{STEPWISE}_multigrid")).yaml_text("From there.")
    assert text == (
        "# From there.\n"
        "DATA_LOADER:\n"
        "  NUM_WORKERS: 8\n"
        "MULTIGRID:\n"
        "  LONG_CYCLE: True\n"
        "  SHORT_CYCLE: True\n"
        "  GRANULARITY: epoch\n"
        "SOLVER:\n"
        "  STEPS: [0, 94, 154, 196]\n"
        "  MAX_EPOCH: 239\n"
        "  WARMUP_EPOCHS: 34\n"
        "TEST:\n"
        "  BATCH_SIZE: 8\n"
    )


def test_the_yaml_reads_back_to_the_same_values():
    conversion = convert(released("Kinetics/I3D_NLN_8x8_R50", SOLVER__WEIGHT_DECAY="1e-6"))
    values = yaml.safe_load(conversion.yaml_text(""))
    assert convert_value(float, values["SOLVER"]["WEIGHT_DECAY"]) == 1e-6
    assert values["NONLOCAL"]["LOCATION"] == [[], [1, 3], [1, 3, 5], []]


def test_the_report_gives_each_key_its_reason():
    report = convert(released(STEPWISE)).report()
    assert "keys mean the same here, and are kept" in report
    assert "  NUM_GPUS = 8: processes are chosen at the start: torchrun" in report
    assert "  TEST.BATCH_SIZE = 64 -> 8: of one process of 8" in report
