"""The plain loop: short, with mgexp.multigrid alone, and it learns."""

import ast
from pathlib import Path

import plain_pytorch
import pytest
import torch
from bars import small_network

EXAMPLES = Path(__file__).parents[2] / "examples"


def lines_of(path, name):
    """Lines of code of a class or function: no empty ones, no docstrings."""
    source = path.read_text().splitlines()
    (node,) = (n for n in ast.parse(path.read_text()).body if getattr(n, "name", "") == name)
    found = source[node.lineno - 1 : node.end_lineno]
    return len([line for line in found if line.strip() and not line.strip().startswith('"""')])


def test_it_learns_along_the_schedule():
    torch.manual_seed(0)
    done = list(plain_pytorch.train(small_network()))
    assert [plan.step for plan, _ in done] == list(range(48))
    plan = done[0][0]
    assert (plan.clips, plan.frames, plan.crop, plan.num_bn_groups) == (128, 2, 16, 8)
    plan = done[-1][0]
    assert (plan.clips, plan.frames, plan.crop, plan.num_bn_groups) == (16, 8, 23, 1)
    assert done[0][1] > 0.6
    assert sum(loss for _, loss in done[-5:]) / 5 < 0.1


@pytest.mark.parametrize(
    ("file", "name"), [("plain_pytorch.py", "train"), ("lightning_module.py", "MultigridModule")]
)
def test_the_core_is_of_twenty_lines(file, name):
    assert lines_of(EXAMPLES / file, name) <= 20


# The other example is a network for run_net.py, and no loop.
@pytest.mark.parametrize("name", ["bars.py", "lightning_module.py", "plain_pytorch.py"])
def test_of_mgexp_they_import_multigrid_alone(name):
    nodes = list(ast.walk(ast.parse((EXAMPLES / name).read_text())))
    modules = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    modules |= {one.name for node in nodes if isinstance(node, ast.Import) for one in node.names}
    assert {module for module in modules if module.startswith("mgexp")} == {"mgexp.multigrid"}
