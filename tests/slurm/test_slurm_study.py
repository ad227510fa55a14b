"""tools/study.py on a real Slurm: a first call submits, a second one does not, and one after the end collects."""

import pytest
import yaml
from jobs import SHORT, SWEEP_TOOL, assert_same, call, wait_for
from run_files import read_lines
from tiny import data_keys, write_config

from mgexp.run.folder import RunDir

pytestmark = pytest.mark.slurm
STUDY_TOOL = SWEEP_TOOL.with_name("study.py")
ALONE = {"MULTIGRID.LONG_CYCLE": False, "MULTIGRID.SHORT_CYCLE": False, "ROW": "baseline"}


def test_a_study_of_two_rows(cluster, tiny_data, tmp_path, monkeypatch, short_run):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "experiments" / "group"
    folder.mkdir(parents=True)
    write_config(folder / "short.yaml", {**data_keys(tiny_data), **SHORT})
    write_config(folder / "baseline.yaml", {**data_keys(tiny_data), **SHORT, **ALONE})
    study = {"rows": ["baseline", "short"], "seeds": 1, "margin": 5.0}
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    options = (folder, "--launcher", "slurm", "--partition", "low")
    assert "2 runs are submitted" in call(STUDY_TOOL, options, cluster)
    call(STUDY_TOOL, options, cluster)
    runs = folder / "runs/sweeps/runs/all"
    results = [RunDir(runs / row / "seed0").result_json for row in ("baseline", "short")]
    wait_for(lambda: all(path.exists() for path in results), "end of both")
    call(STUDY_TOOL, options, cluster)
    assert len(read_lines(folder / "runs/sweeps/submissions.jsonl")) == 2
    assert "missing" not in (folder / "README.md").read_text()
    assert_same(runs / "short" / "seed0", short_run)
