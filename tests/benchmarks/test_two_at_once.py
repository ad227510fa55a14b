"""What a second training of a tiny row costs."""

import simplejson
import two_at_once
from tiny import write_config


def test_it_measures_a_tiny_row(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("GOMP_SPINCOUNT", "5")
    cfg, output = write_config(tmp_path / "tiny.yaml", {}), tmp_path / "two.json"
    options = ["--spins", "1000", "--rounds", "2", "--steps", "1", "--warmup", "1"]
    assert two_at_once.main(["--cfg", str(cfg), *options, "--output", str(output)]) == 0
    assert "32x2x23²" in capsys.readouterr().out
    lines = simplejson.loads(output.read_text())["steps"]
    assert {(line["num_threads"], line["trainings"]) for line in lines} >= {(1, 1), (1, 2)}
    assert all(len(line["seconds"]) == 2 for line in lines)
