"""From options to a job."""

from tiny import data_keys, write_config

from mgexp.config import load
from mgexp.dist import Processes
from mgexp.launch.run import RunOptions, build_job


def test_a_job_knows_what_was_given_beside_its_yaml(tiny_data, tmp_path):
    options = RunOptions(
        config=write_config(tmp_path / "tiny.yaml", data_keys(tiny_data)),
        overrides=("SOLVER.BASE_LR", "0.1"),
        seed=3,
        output=tmp_path / "run",
        given=("SOLVER.MOMENTUM", "0.5"),
        is_smoke=True,
    )
    given = build_job(options, Processes()).given
    assert given == ("SOLVER.MOMENTUM", "SOLVER.BASE_LR", "RNG_SEED", "--smoke")


def test_a_frozen_copy_of_the_code_keeps_the_name_of_the_experiment(
    tiny_data, tmp_path, monkeypatch
):
    """The copy has no rows, so the YAML lies outside its repository."""
    place = tmp_path / "experiments" / "group"
    place.mkdir(parents=True)
    row = write_config(place / "tiny.yaml", data_keys(tiny_data))
    assert build_job(RunOptions(row), Processes()).experiment == "tiny"
    monkeypatch.setattr(load, "EXPERIMENTS", tmp_path / "experiments")
    queued = RunOptions(row)
    monkeypatch.undo()
    assert build_job(queued, Processes()).experiment == "group/tiny"
