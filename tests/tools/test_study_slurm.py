"""tools/study.py with Slurm: which code and YAMLs its runs get. A list takes the place of Slurm's queue."""

from types import SimpleNamespace

import yaml
from fake_runs import CONFIG
from tiny import load_tool

from mgexp.errors import raise_problems
from mgexp.launch import sweep, sweep_state
from mgexp.run.environment import REPOSITORY, git_commit


def test_a_changed_yaml_is_used_once_no_run_of_the_old_one_waits(tmp_path, monkeypatch, capsys):
    """A run of the first call is queued, and then it is cancelled."""
    row = tmp_path / "baseline.yaml"
    row.write_text(yaml.safe_dump({**CONFIG, "ROW": "baseline"}))
    (tmp_path / "study.yaml").write_text("{rows: [baseline], seeds: 2, margin: 1}")
    queue, jobs = {"7_0": ("PENDING", "")}, [SimpleNamespace(job_id=f"7_{n}") for n in range(2)]
    monkeypatch.setattr(sweep_state, "slurm_queue", lambda: queue)
    monkeypatch.setattr(sweep, "check_submission", lambda *given: raise_problems(given[-1]))
    monkeypatch.setattr(sweep, "to_slurm", lambda _, runs: jobs[: len(runs)])
    tool, call = load_tool("study"), (str(tmp_path), "--launcher", "slurm", "--cpus-per-task", "1")
    assert tool.main(call) == 0
    frozen = tmp_path / "runs" / "sweeps"
    (frozen / "code" / "commit.txt").write_text("old\n")
    capsys.readouterr()
    assert tool.main(call) == 0
    assert "uses the code of its first call, commit old. For the" in capsys.readouterr().err
    row.write_text(yaml.safe_dump({**CONFIG, "ROW": "baseline", "SOLVER": {"STEPS": [0, 5, 8]}}))
    assert tool.main(call) == 2
    assert "in a study, wait until no run is queued or running" in capsys.readouterr().err
    queue.clear()
    assert tool.main(call) == 0
    assert "2 runs are submitted" in capsys.readouterr().err
    (text,) = (path.read_text() for path in (frozen / "configs").rglob("baseline.yaml"))
    assert yaml.safe_load(text)["SOLVER"]["STEPS"] == [0, 5, 8]
    assert git_commit(frozen / "code") == git_commit(REPOSITORY)
