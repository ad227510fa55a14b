"""What a second training costs, from made-up seconds and from a tiny row."""

import pytest
import simplejson
import two_at_once
from tiny import write_config
from two_at_once import Setting

from mgexp.multigrid.schedule import StepShape

COARSE, FINE = StepShape(8, 16, 8, 2), StepShape(32, 32, 2, 1)
SECONDS = {
    Setting(1000, 2): {
        COARSE: {1: [0.2, 0.1, 0.3], 2: [0.5, 0.6, 0.4]},
        FINE: {1: [1.0], 2: [2.0, 4.0]},
    },
    Setting(300, 1): {COARSE: {1: [0.25], 2: [0.375]}, FINE: {1: [1.5], 2: [1.75]}},
}


def test_the_report_has_medians_alone_and_together():
    head, spin, single = two_at_once.report(SECONDS).splitlines()
    assert "8x8x16², alone / two at once" in head
    assert spin.split() == ["1000", "2", "0.200", "/", "0.500", "1.000", "/", "3.000"]
    assert single.split() == ["300", "1", "0.250", "/", "0.375", "1.500", "/", "1.750"]


@pytest.mark.slow
def test_it_measures_a_tiny_row(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("GOMP_SPINCOUNT", "5")
    cfg, output = write_config(tmp_path / "tiny.yaml", {}), tmp_path / "two.json"
    options = ["--spins", "1000", "--rounds", "2", "--steps", "1", "--warmup", "1"]
    assert two_at_once.main(["--cfg", str(cfg), *options, "--output", str(output)]) == 0
    assert "32x2x23²" in capsys.readouterr().out
    lines = simplejson.loads(output.read_text())["steps"]
    assert {(line["num_threads"], line["trainings"]) for line in lines} >= {(1, 1), (1, 2)}
    assert all(len(line["seconds"]) == 2 for line in lines)
