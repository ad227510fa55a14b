"""BN groups one after the other and at once: what the tool counts."""

import json

import bn_groups
from tiny import write_config


def test_at_once_the_step_has_as_many_operators_for_any_number_of_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(bn_groups, "num_nodes", lambda model, step: 7)
    cfg = write_config(tmp_path / "tiny.yaml", {"SOLVER.BASE_LR": 0.1})
    options = ["--cfg", str(cfg), "--frames", "4", "--crop", "16", "--steps", "1"]
    output = tmp_path / "found.json"
    assert bn_groups.main([*options, "--groups", "2", "4", "8", "--output", str(output)]) == 0
    lines = json.loads(output.read_text())["lines"]
    found = {(line["groups"], line["way"]): line["operators"] for line in lines}
    assert len({found[groups, "at once"] for groups in (2, 4, 8)}) == 1
    one_by_one = [found[groups, "one by one"] for groups in (2, 4, 8)]
    # Equally many for each further group.
    assert one_by_one[2] - one_by_one[1] == 2 * (one_by_one[1] - one_by_one[0]) > 0
