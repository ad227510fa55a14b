"""The table of known networks: what it says of a check, and that the page has every network."""

from pathlib import Path

import pytest
from known_networks import NETWORKS

from mgexp.multigrid import check_shapes

PAGE = (Path(__file__).parents[2] / "docs/own_model.md").read_text(encoding="utf-8")


def test_the_page_has_a_line_for_every_network():
    lines = [text.replace("`", "") for text in PAGE.splitlines() if text.startswith("| ")]
    assert len(NETWORKS) == len([text for text in lines if "right |" in text])
    assert [name for name in NETWORKS if not any(name in text for text in lines)] == []


@pytest.mark.parametrize(
    ("name", "shapes", "found"),
    [
        # The page has these two shapes with twice as many frames at the full one.
        (
            "torchvision swin3d_t",
            [(4, 112), (8, 224)],
            "has wrong positions: distance does not explain",
        ),
        ("torchvision mvit_v2_s", [(4, 112), (16, 224)], "it does not run"),
        ("torchvision s3d", [(4, 112), (16, 224)], "it does not run"),
        ("pytorchvideo X3D-S", [(4, 112), (16, 224)], "it does not run"),
        ("torchvision r3d_18", [(4, 112), (16, 224)], ""),
    ],
)
def test_what_the_page_says_of_networks_of_other_libraries(name, shapes, found):
    coarse, full = check_shapes(NETWORKS[name](), shapes)
    assert found in coarse.problem
    assert bool(found) == bool(coarse.problem)
    assert not full.problem
