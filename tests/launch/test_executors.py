"""What Slurm is given: the batch script, read and run by bash with stand-ins for Slurm's programs."""

import subprocess
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from mgexp.config.load import load_config
from mgexp.errors import InputError
from mgexp.launch import hold_signals, submit
from mgexp.launch.resources import Resources
from mgexp.launch.run import RunOptions
from mgexp.launch.submit import _gpus, to_slurm
from mgexp.launch.task import Submission
from mgexp.run.environment import REPOSITORY
from mgexp.run.folder import LaunchDir, RunDir
from mgexp.train.result import Outcome

RUN = RunOptions(Path("x.yaml"))
QUICKSTART = Path("experiments/quickstart/baseline.yaml")


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Stand-ins: sbatch keeps its script, srun writes its arguments, a line each. Their folder."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, line in (
        ("sbatch", f'cp "$1" {folder}/script; echo Submitted batch job 42'),
        ("srun", f'printf "%s\\n" "$@" >> {folder}/arguments'),
    ):
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return folder


def submission(folder, **changes):
    return Submission(
        launch=LaunchDir(folder / "launch"),
        code=REPOSITORY,
        working_directory=folder,
        resources=Resources(cpus_per_task=3, **changes),
        name="main/x",
        num_parallel=2,
    )


def options_of(slurm):
    lines = (slurm / "script").read_text().splitlines()
    return {line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")}


def test_resources_become_options_of_sbatch(slurm, tmp_path):
    changes = {"nodes": 2, "tasks_per_node": 8, "gpus_per_node": 8, "minutes": 90}
    (job,) = to_slurm(submission(tmp_path, **changes, warning_seconds=60), [RUN])
    assert job.job_id == "42"
    wanted = {
        *("--nodes=2", "--ntasks-per-node=8", "--gpus-per-node=8", "--cpus-per-task=3"),
        *("--time=90", "--signal=USR2@60", "--requeue", "--open-mode=append", "--job-name=main/x"),
    }
    assert wanted <= options_of(slurm)


def test_several_runs_are_an_array(slurm, tmp_path):
    jobs = to_slurm(submission(tmp_path), [RUN] * 4)
    assert [job.job_id for job in jobs] == ["42_0", "42_1", "42_2", "42_3"]
    assert "--array=0-3%2" in options_of(slurm)
    assert not [option for option in options_of(slurm) if "gpus" in option]


def test_a_yaml_that_changes_while_the_job_waits_does_not_change_the_run(
    slurm, tmp_path, monkeypatch
):
    yaml = tmp_path / "mine.yaml"
    yaml.write_text("SOLVER: {BASE_LR: 0.5}\n")
    sent = []
    monkeypatch.setattr(submit, "check_submission", lambda *_: RunDir(tmp_path / "run"))
    monkeypatch.setattr(submit, "freeze_code", lambda code: code.mkdir(parents=True))
    submitted = to_slurm
    monkeypatch.setattr(
        submit, "to_slurm", lambda *given: (sent.append(given), submitted(*given))[1]
    )
    run = RunOptions(yaml, overrides=("SOLVER.MOMENTUM", "0.7"))
    assert submit.to_queue(run, Resources(cpus_per_task=1), (), str) is Outcome.OK
    yaml.write_text("SOLVER: {BASE_LR: 0.1}\n")
    ((_, (frozen,)),) = sent
    found = load_config(frozen.config, frozen.overrides).SOLVER
    assert (found.BASE_LR, found.MOMENTUM) == (0.5, 0.7)
    assert (frozen.experiment, frozen.given) == ("mine", run.overrides)


def test_nothing_of_the_options_is_run_by_the_shell(slurm, tmp_path):
    mark = tmp_path / "mark"
    evil = f"x'; touch {mark}; $(touch {mark}) `touch {mark}` #"
    to_slurm(submission(tmp_path, sbatch=(("comment", evil), ("partition", evil))), [RUN])
    subprocess.run(["bash", slurm / "script"], check=True)
    assert not mark.exists()
    words = (slurm / "arguments").read_text().splitlines()
    assert words[-4:] == ["-u", "-m", "submitit.core._submit", str(tmp_path / "launch")]
    assert words[-5].endswith("mgexp/launch/hold_signals.py")
    assert {"--kill-on-bad-exit=1", "--cpus-per-task=3"} <= set(words)
    # An option without a value is a flag.
    to_slurm(submission(tmp_path, sbatch=(("exclusive", True), ("gres", "scratch:10G"))), [RUN])
    assert {"--exclusive", "--gres=scratch:10G"} <= options_of(slurm)


def test_code_that_is_imported_through_a_link_is_found(slurm, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(REPOSITORY)
    there = tmp_path / "link" / Path(hold_signals.__file__).relative_to(REPOSITORY)
    monkeypatch.setattr(hold_signals, "__file__", str(there))
    to_slurm(submission(tmp_path), [RUN])
    assert str(REPOSITORY / "mgexp/launch/hold_signals.py") in (slurm / "script").read_text()


def test_what_sbatch_says_is_the_message(slurm, tmp_path):
    (slurm / "sbatch").write_text("#!/bin/sh\necho 'no such partition' >&2; exit 1\n")
    with pytest.raises(InputError, match="no such partition"):
        to_slurm(submission(tmp_path), [RUN])


@pytest.mark.parametrize(("is_trained", "told"), [("True", "complete"), ("False", "job 42")])
def test_a_complete_run_is_submitted_to_be_evaluated_and_not_to_be_trained(
    is_trained, told, tmp_path, monkeypatch
):
    run = RunOptions(QUICKSTART, overrides=("TRAIN.ENABLE", is_trained))
    folder = RunDir(tmp_path)
    folder.result_json.write_text("{}")
    monkeypatch.setattr(submit, "check_submission", lambda *_: folder)
    monkeypatch.setattr(submit, "to_slurm", lambda *_: [SimpleNamespace(job_id="42")])
    said = []
    assert submit.to_queue(run, Resources(cpus_per_task=1), (), said.append) is Outcome.OK
    assert told in said[0]


@pytest.mark.parametrize(
    ("asked", "wanted"), [(True, Outcome.INTERRUPTED), (False, Outcome.FAILED)]
)
def test_a_run_without_an_outcome_was_killed_or_stopped_before_it_began(
    asked, wanted, tmp_path, monkeypatch, capsys
):
    job = SimpleNamespace(job_id="0", done=Mock(side_effect=[KeyboardInterrupt, True][not asked :]))
    assert submit.LocalRun(job, LaunchDir(tmp_path)).wait() is wanted
    assert ("without a message" in capsys.readouterr().err) == (not asked)


@pytest.mark.parametrize(
    ("visible", "slot", "wanted"), [(None, 0, (0, 1)), (None, 1, (2, 3)), ("4,6,7,5", 1, (7, 5))]
)
def test_runs_at_a_time_have_gpus_of_their_own(visible, slot, wanted, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert _gpus(2, slot) == wanted
