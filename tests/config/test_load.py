"""Configuration files and KEY VALUE pairs: what is read, what is refused, and how it is said."""

from pathlib import Path

import pytest
from tiny import EXPERIMENTS

from mgexp.config.check import differing_keys
from mgexp.config.keys import BY_NAME, KEYS
from mgexp.config.load import experiment_name, flatten, load_config, read_config
from mgexp.errors import InputError


@pytest.fixture
def write(tmp_path):
    def write_file(text, name="row.yaml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write_file


@pytest.fixture
def empty(write):
    return write("{}")


def only_problem(path, *pairs):
    with pytest.raises(InputError) as caught:
        load_config(path, pairs)
    (problem,) = caught.value.problems
    return problem


def value_of(path, name, *pairs):
    return dict(flatten(load_config(path, pairs)))[name]


# --- values


def test_a_file_without_keys_is_the_defaults(empty):
    assert dict(flatten(load_config(empty))) == {key.name: key.default for key in KEYS}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("SOLVER.BASE_LR", "1e-4", 1e-4),
        ("SOLVER.BASE_LR", "1", 1.0),
        ("SOLVER.STEPS", "[0, 5]", (0.0, 5.0)),
        ("SOLVER.STEPS", "(0, 5)", (0.0, 5.0)),
        ("DATA.TRAIN_JITTER_SCALES", "[64, 80]", (64, 80)),
        ("DATA.MEAN", "[-0.5, 0, 1e-1]", (-0.5, 0.0, 0.1)),
        ("MULTIGRID.LONG_CYCLE", "False", False),
        ("MULTIGRID.LONG_CYCLE", "true", True),
        ("MULTIGRID.LONG_CYCLE_FACTORS", "[(0.5, 1), (1, 1)]", ((0.5, 1.0), (1.0, 1.0))),
        ("EXPECTED", "[['top1', 90, 1.5]]", (("top1", 90.0, 1.5),)),
        ("TRAIN.BATCH_SIZE", "32", 32),
        ("MODEL.MODEL_NAME", "I3D", "I3D"),
    ],
)
def test_pairs_are_read_as_in_pyslowfast(empty, name, text, value):
    found = value_of(empty, name, name, text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", ["2024_01", "007", "1e5", "yes", "a: b", "/data/[x]", ""])
def test_text_and_paths_stay_as_they_were_typed(empty, text):
    # As a number, 2024_01 is 202401; as YAML 1.1, 007 is 7 and yes is True.
    assert value_of(empty, "DATA.PATH_PREFIX", "DATA.PATH_PREFIX", text) == text
    assert value_of(empty, "ROW", "ROW", text) == text


@pytest.mark.parametrize("text", [" ", ",", "\t"])
def test_a_separator_can_be_given_as_a_pair(empty, text):
    name = "DATA.PATH_LABEL_SEPARATOR"
    assert value_of(empty, name, name, text) == text


def test_numbers_of_a_file_may_lack_the_point_that_yaml_wants(write):
    assert load_config(write("SOLVER: {WEIGHT_DECAY: 1e-6}")).SOLVER.WEIGHT_DECAY == 1e-6


def test_pairs_win_over_the_file_and_later_groups_over_earlier(write):
    path = write("TRAIN: {BATCH_SIZE: 2}")
    assert value_of(path, "TRAIN.BATCH_SIZE", "TRAIN.BATCH_SIZE", "4") == 4
    cfg, problems = read_config(path, ["TRAIN.BATCH_SIZE", "4"], ["TRAIN.BATCH_SIZE", "6"])
    assert (cfg.TRAIN.BATCH_SIZE, problems) == (6, [])


# --- _BASE_


def test_base_is_relative_to_its_file_and_loses_to_it(write):
    write("TRAIN: {BATCH_SIZE: 2, NUM_THREADS: 3}\nROW: lowest\nLOG_PERIOD: 7", "base/lowest.yaml")
    write("_BASE_: lowest.yaml\nTRAIN: {BATCH_SIZE: 4}\nROW: middle", "base/middle.yaml")
    cfg = load_config(write("_BASE_: ../base/middle.yaml\nROW: top", "rows/top.yaml"))
    assert (cfg.ROW, cfg.TRAIN.BATCH_SIZE) == ("top", 4)
    assert (cfg.TRAIN.NUM_THREADS, cfg.LOG_PERIOD) == (3, 7)


def test_missing_base_is_named(write):
    problem = only_problem(write("_BASE_: nowhere.yaml"))
    assert "row.yaml: its _BASE_" in problem
    assert "nowhere.yaml cannot be read: No such file" in problem
    assert f"nor in {EXPERIMENTS / 'base'}" in problem


@pytest.mark.parametrize("name", ["own_data.yaml", "base/own_data.yaml"])
def test_a_base_of_the_repository_is_found_by_its_name(write, name):
    cfg = load_config(write(f"_BASE_: {name}\nROW: mine"))
    assert (cfg.ROW, cfg.DATA.NUM_FRAMES, cfg.DATA.TRAIN_JITTER_SCALES) == ("mine", 16, (96, 120))


def test_a_file_beside_comes_before_a_base_of_the_repository(write):
    write("ROW: beside", "own_data.yaml")
    assert load_config(write("_BASE_: own_data.yaml")).ROW == "beside"


def test_base_that_leads_back_is_an_error(write):
    write("_BASE_: row.yaml", "other.yaml")
    assert "leads back to the file itself" in only_problem(write("_BASE_: other.yaml"))


# --- problems


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("SOLVER.BASE_LRR", "SOLVER.BASE_LR"),
        ("solver.base_lr", "SOLVER.BASE_LR"),
        ("TRAIN.NUM_FRAMES", "DATA.NUM_FRAMES"),
        ("MULTIGRID.LONGCYCLE", "MULTIGRID.LONG_CYCLE"),
    ],
)
def test_unknown_key_is_named_with_the_nearest(empty, name, nearest):
    problem = only_problem(empty, name, "1")
    assert problem.startswith(f"the command line: there is no key {name}; nearest: {nearest}")


def test_unknown_key_of_a_file_is_named_with_the_file(write):
    path = write("TRIAN: {BATCH_SIZE: 3}")
    problem = only_problem(path)
    assert problem.startswith(f"{path}: there is no key TRIAN.BATCH_SIZE; nearest: ")
    assert "TRAIN.BATCH_SIZE" in problem


def test_a_file_of_an_earlier_version_is_read_and_is_the_same_recipe(write):
    former = {"DATA.DECODING_BACKEND": "pyav"}
    path = write("DATA: {DECODING_BACKEND: pyav, NUM_FRAMES: 4}")
    assert load_config(path).DATA.NUM_FRAMES == 4
    assert list(differing_keys(former, {})) == []
    assert only_problem(path, "DATA.DECODING_BACKEND", "pyav").startswith("the command line: ")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("TRAIN.BATCH_SIZE", "8.5", "= 8.5 is not a whole number"),
        ("TRAIN.BATCH_SIZE", "True", "= True is not a whole number"),
        ("TRAIN.BATCH_SIZE", "many", "= 'many' is not a whole number"),
        ("TRAIN.BATCH_SIZE", "-4", "= -4 is not allowed; it takes 1 or more"),
        ("SOLVER.BASE_LR", "fast", "= 'fast' is not a number"),
        ("SOLVER.BASE_LR", "0", "= 0 is not allowed; it takes more than 0"),
        ("SOLVER.GAMMA", ".nan", "= nan is not finite"),
        ("SOLVER.STEPS", "5", "= 5 is not a list"),
        ("SOLVER.STEPS", "[0, 5, 5]", "is not allowed; it takes increasing, the first 0"),
        ("NONLOCAL.LOCATION", "[[],[1,1],[],[]]", "it takes four lists of different numbers"),
        ("DATA.TRAIN_JITTER_SCALES", "[80, 64]", "it takes [min, max] with 0 < min <= max"),
        ("MULTIGRID.LONG_CYCLE", "1", "= 1 is not True or False"),
        ("MULTIGRID.LONG_CYCLE_FACTORS", "[[1, 1, 1]]", "has [1, 1, 1] where 2 values belong"),
        ("MULTIGRID.SHORT_CYCLE_FACTORS", "[2]", "it takes numbers in (0, 1]"),
        ("MULTIGRID.SHORT_CYCLE_FACTORS", "[]", "one or more"),
        ("MULTIGRID.GRANULARITY", "day", "it takes one of step, epoch"),
        ("EXPECTED", "[['mean', 90, 1]]", "it takes metrics top1, top5 or map"),
    ],
)
def test_wrong_value_is_said_with_key_value_and_what_it_takes(empty, name, text, said):
    problem = only_problem(empty, name, text)
    assert problem.startswith(f"the command line: {name} = ")
    assert said in problem


def test_path_of_a_file_that_is_no_text_is_refused_not_changed(write):
    # YAML reads this folder as the number 202401.
    problem = only_problem(write("DATA: {PATH_PREFIX: 2024_01}"))
    assert "DATA.PATH_PREFIX = 202401 is not text" in problem


def test_key_with_a_problem_has_its_default(empty):
    cfg, _ = read_config(empty, ["TRAIN.BATCH_SIZE", "-4"])
    assert BY_NAME["TRAIN.BATCH_SIZE"].default == cfg.TRAIN.BATCH_SIZE


def test_key_without_a_value_is_named(empty):
    assert "'ROW' has no value" in only_problem(empty, "LOG_PERIOD", "3", "ROW")


def test_missing_file_is_named(tmp_path):
    """It is the only problem, whatever else the command line has."""
    with pytest.raises(InputError) as error:
        read_config(tmp_path / "no.yaml", ["NO_KEY", "1"])
    (problem,) = error.value.problems
    assert problem.startswith(f"{tmp_path / 'no.yaml'} cannot be read: No such file")


@pytest.mark.parametrize(
    "text",
    ["- a\n- b", "hello", "", "TRAIN: {", "_BASE_: 5", "x: !!python/object/apply:os.getcwd []"],
    ids=["list", "text", "nothing", "no YAML", "base is no text", "code"],
)
def test_file_without_keys_is_an_error(write, text):
    assert "row.yaml is not a YAML file of configuration keys" in only_problem(write(text))


def test_section_whose_keys_are_all_comments_is_an_error(write):
    assert "no key TRAIN, which is a section: give it keys" in only_problem(write("TRAIN:\n"))


def test_all_problems_are_in_one_error(write):
    path = write("TRAIN: {BATCH_SIZE: 0, BATCHSIZE: 4}\nROW: 3")
    with pytest.raises(InputError) as caught:
        load_config(path, ["SOLVER.STEPS", "x", "NO.KEY", "1", "LOG_PERIOD", "0"])
    names = ("TRAIN.BATCH_SIZE", "TRAIN.BATCHSIZE", "ROW", "SOLVER.STEPS", "NO.KEY", "LOG_PERIOD")
    assert len(caught.value.problems) == len(names)
    for name, problem in zip(names, caught.value.problems, strict=True):
        assert f"{name} " in problem or f"{name};" in problem
    assert all(problem in str(caught.value) for problem in caught.value.problems)
    assert "6 problems" in str(caught.value)


def test_configuration_cannot_be_edited(empty):
    cfg = load_config(empty)
    with pytest.raises(AttributeError):
        cfg.ROW = "other"
    with pytest.raises(AttributeError):
        cfg.SOLVER.BASE_LR = 1.0


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (EXPERIMENTS / "main" / "x.yaml", "main/x"),
        (EXPERIMENTS / "base" / ".." / "main" / "x.yaml", "main/x"),
        ("/somewhere/experiments/quickstart/baseline.yaml", "baseline"),
        ("/somewhere/mine.yaml", "mine"),
        ("/somewhere/experiments.yaml", "experiments"),
    ],
)
def test_only_a_row_of_this_repository_is_named_by_its_path(path, name):
    assert experiment_name(Path(path)) == name


def test_a_pair_that_is_given_twice_is_refused(empty):
    _, problems = read_config(empty, ["SOLVER.BASE_LR", "0.1", "SOLVER.BASE_LR", "0.3"])
    assert problems == ["KEY VALUE pairs: 'SOLVER.BASE_LR' is given twice"]
