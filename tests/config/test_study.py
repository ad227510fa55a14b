"""study.yaml: what it means, in which order its tasks come, and the YAMLs of shorter baselines."""

import pytest
import yaml
from tiny import EXPERIMENTS, tiny_config, write_config

from mgexp.config.check import recipe_digest
from mgexp.config.load import flatten, load_config
from mgexp.config.study import Study, Task, budget_text, read_study, stale_budgets
from mgexp.errors import InputError

STUDY = {"rows": ["baseline", "short", "long"], "seeds": {"short": 1, "others": 2}, "margin": 1}


@pytest.fixture
def write(tmp_path):
    for name in ("baseline", "short", "long"):
        (tmp_path / f"{name}.yaml").write_text("ROW: a row\n")

    def call(**changes):
        values = {key: value for key, value in {**STUDY, **changes}.items() if value is not None}
        (tmp_path / "study.yaml").write_text(yaml.safe_dump(values))
        return tmp_path

    return call


def test_a_study_is_read(write):
    study = read_study(write(target=80, controls=["repeated"], equal_flops=["long"]))
    assert (study.names, study.margin, study.target) == (("baseline", "short", "long"), 1.0, 80.0)
    assert [study.num_seeds(row) for row in (*study.names, "as_long")] == [2, 1, 2, 2]
    assert [study.base_of(row) for row in study.names] == [None, "baseline", "baseline"]
    assert study.yamls["as_long"] == study.folder / "budget" / "as_long.yaml"


def test_runs_are_interleaved_seed_by_seed(write):
    """A B C D, A B D: every row once, then the shorter baselines, then the controls."""
    controls = {"controls": ["repeated"], "control_seeds": 1}
    equal = {"equal_flops": ["long"], "equal_seconds": ["short"], "seconds_pairs": 1}
    assert read_study(write(**controls, **equal)).tasks == (
        *(Task(row, 0) for row in (*STUDY["rows"], "as_long", "as_short_in_seconds")),
        Task("baseline", 0, "repeated"),
        *(Task(row, 1) for row in ("baseline", "long", "as_long")),
    )


def test_rows_of_other_folders_and_other_bases(write, tmp_path):
    best = tmp_path / "quick" / "best.yaml"
    best.parent.mkdir()
    best.touch()
    rows = {"rows": ["quick/best", "baseline", "short", "long"], "seeds": 5, "baseline": "best"}
    study = read_study(write(**rows, compared_with={"others": "baseline", "long": "short"}))
    assert study.yamls["best"] == best
    assert [study.base_of(row) for row in study.names] == [None, "best", "baseline", "short"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"rows": ["baseline", "lost"]}, "lost.yaml does not exist"),
        ({"rows": ["baseline", "long", "long"]}, "has a name twice"),
        ({"seeds": {"short": 1}}, "seeds has no number for baseline, long"),
        ({"seeds": 0}, "seeds = {'others': 0} is not allowed"),
        ({"seeds": {"others": 1.5}}, "seeds = {'others': 1.5} is not a whole number"),
        ({"seeds": "two"}, "seeds = 'two' is not a whole number"),
        ({"compared_with": ["long"]}, "compared_with = ['long'] is not a mapping from names"),
        ({"compared_with": {"long": 1}}, "compared_with = {'long': 1} is not text"),
        ({"margin": 0}, "margin = 0.0 is not allowed"),
        ({"target": 120}, "target = 120"),
        ({"baseline": "best"}, "baseline names best, which is none of baseline, long, short"),
        ({"equal_flops": ["baseline"]}, "equal_flops names baseline, which is none of long, short"),
        ({"compared_with": {"long": "best"}}, "compared_with names best"),
        ({"compared_with": {"long": "long"}}, "long is compared with long, which says nothing"),
        ({"compared_with": {"baseline": "long"}}, "baseline is compared with long, which says"),
        ({"margins": 1}, "there is no key 'margins': there are rows, seeds, margin"),
        ({"equal_seconds": ["short"]}, "short, which has 1 pair, less than 3"),
        ({"controls": ["backward"]}, "backward, which is none of repeated, reversed, shuffled"),
        ({"control_seeds": 0}, "control_seeds = 0 is not allowed"),
        ({"seconds_since": "yesterday"}, "seconds_since = yesterday is not"),
        ({"seconds_since": "2026-11-26T02:05"}, "seconds_since = 2026-11-26T02:05 is not"),
    ],
)
def test_what_is_wrong_is_said(write, changes, problem):
    with pytest.raises(InputError) as caught:
        read_study(write(**changes))
    assert problem in str(caught.value)
    assert "study.yaml" in str(caught.value)


def test_a_folder_without_a_study_says_what_to_write(tmp_path):
    with pytest.raises(InputError, match=r"study\.yaml does not exist"):
        read_study(tmp_path)


def test_a_shorter_baseline_multiplies_every_epoch(tmp_path):
    changes = {"SOLVER.STEPS": [0, 3.5], "SOLVER.WARMUP_EPOCHS": 1.5, "SOLVER.MAX_EPOCH": 10}
    for name in ("baseline", "long"):
        write_config(tmp_path / f"{name}.yaml", changes)
    study = Study(
        tmp_path, ("baseline", "long"), {"others": 1}, 1.0, equal_seconds=("long",), seconds_pairs=1
    )
    name = "as_long_in_seconds"
    text = budget_text(study, name, 0.31, "the seconds of seeds 0, 1, 2")
    (tmp_path / "budget").mkdir()
    study.yamls[name].write_text(text)
    before, after = (dict(flatten(load_config(study.yamls[row]))) for row in ("baseline", name))
    assert {key: value for key, value in after.items() if before[key] != value} == {
        "ROW": "baseline, seconds of long",
        "SOLVER.STEPS": (0.0, 1.085),
        "SOLVER.MAX_EPOCH": 3.1,
        "SOLVER.WARMUP_EPOCHS": 0.465,
    }
    assert len(text.splitlines()) <= 15
    assert stale_budgets(study) == []
    write_config(tmp_path / "long.yaml", {**changes, "SOLVER.BASE_LR": 0.1})
    assert stale_budgets(study) == ["as_long_in_seconds"]


def test_digests_of_recipes(tmp_path):
    values = dict(flatten(tiny_config(tmp_path)))
    digest = recipe_digest(values)
    same = {**values, "RNG_SEED": 7, "ROW": "x", "DATA.TRAIN_LIST": "elsewhere.csv"}
    assert recipe_digest(same) == digest
    # YAML files hold lists, and may write 4.0 as 4.
    assert recipe_digest({**values, "SOLVER.MAX_EPOCH": 4, "SOLVER.STEPS": [0, 3]}) == digest
    # A version that adds a key gives it the default that older runs had.
    assert recipe_digest({k: v for k, v in values.items() if k != "AUG.RE_PROB"}) == digest
    assert recipe_digest({**values, "SOLVER.MAX_EPOCH": 5.0}) != digest


def test_the_studies_of_this_repository_can_be_read():
    for path in EXPERIMENTS.rglob("study.yaml"):
        assert read_study(path.parent).tasks
