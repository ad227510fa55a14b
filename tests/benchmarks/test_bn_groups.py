"""BN groups one after the other and at once: what the tool counts."""

import json

import bn_groups
import torch
from tiny import write_config

from mgexp.multigrid.batchnorm import GroupedBatchNorm3d

CPU = torch.device("cpu")


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


def test_at_once_the_graph_has_as_many_nodes_for_any_number_of_groups():
    def nodes(groups, at_once):
        norm = GroupedBatchNorm3d(2)
        norm.num_groups = groups
        clips = torch.randn(8, 2, 2, 2, 2, requires_grad=True)
        with bn_groups.normalising(at_once):
            return bn_groups.num_nodes(norm, lambda: norm(clips).square().sum().backward())

    assert nodes(2, at_once=True) == nodes(8, at_once=True) > 10
    few, more, many = (nodes(groups, at_once=False) for groups in (2, 4, 8))
    assert many - more == 2 * (more - few) > 0
