"""The table of a sweep: a line for each value, with the mean over its seeds and the interval."""

import pytest
import yaml
from fake_runs import CONFIG, fake_run
from markdown_tables import tables

from mgexp.results.report import write_value_report
from mgexp.run.files import read_json, write_json


@pytest.fixture
def sweep(tmp_path):
    """Two learning rates of one row, which sort as numbers, and two seeds of the first."""
    for rate, seed, top1 in ((0.05, 0, 90.0), (0.05, 1, 92.0), (0.4, 0, 80.0)):
        folder = tmp_path / "runs" / f"SOLVER.BASE_LR={rate}" / "quickstart"
        run = fake_run(folder, "baseline", seed, top1=top1, train_seconds=100.0 + seed)
        values = {**CONFIG, "SOLVER": {**CONFIG["SOLVER"], "BASE_LR": rate}, "RNG_SEED": seed}
        run.config_yaml.write_text(yaml.safe_dump(values))
    return tmp_path / "runs"


def test_each_value_has_a_line_with_mean_and_interval(sweep):
    place = write_value_report(sweep)
    (table,) = tables(place.report_md.read_text(), "## Values")
    # 90 and 92: deviation 1.414, error 1, times 12.706 for one degree of freedom.
    assert [[*line.values()] for line in table] == [
        ["quickstart/baseline", "0.05", "0, 1", "91.00 ± 12.71", "1,000", "100 (100–101)"],
        ["quickstart/baseline", "0.4", "seed 0", "80.00, one seed", "1,000", "100"],
    ]
    assert "SOLVER.BASE_LR" in table[0]
    assert "0.05" in place.report_html.read_text()


def test_equal_names_in_two_projects_are_no_values(sweep):
    """A YAML outside experiments/ is named by its file alone."""
    for number, place in enumerate(sorted(sweep.glob("*/quickstart/baseline/*"))):
        write_json(
            place / "result.json", {**read_json(place / "result.json"), "experiment": "baseline"}
        )
        values = yaml.safe_load((place / "config.yaml").read_text())
        values["DATA"] = {"TRAIN_LIST": f"project{number // 2}/train.csv"}
        (place / "config.yaml").write_text(yaml.safe_dump(values))
    assert write_value_report(sweep) is None
