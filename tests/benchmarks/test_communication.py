"""All-reduce in the α–β model: values by hand."""

import pytest
from communication import (
    BUCKET_BYTES,
    Communication,
    Link,
    Network,
    flat_ring_seconds,
    hierarchical_seconds,
    tree_seconds,
)

INSIDE, BETWEEN = Link(1e-6, 100.0), Link(1e-3, 10.0)
NETWORK = Network(INSIDE, BETWEEN, gpus_per_node=2)
SLOW = Network(Link(1.0, 2.0**20), Link(1.0, 2.0**20), gpus_per_node=1)


def test_a_ring_through_two_nodes_of_two_crosses_nodes_twice_at_the_slower_rate():
    # 6 hops: 2 across, 4 inside; each GPU passes on 6/4 of the bytes.
    expected = 4 * 1e-6 + 2 * 1e-3 + 1.5 * 40 / 10
    assert flat_ring_seconds(40, 4, NETWORK) == pytest.approx(expected)


def test_a_tree_pays_its_depth_twice_and_twice_the_bytes():
    # 8 GPUs: 1 hop in the node, log2 4 = 2 across; a message smaller than a chunk travels whole.
    depth = (1e-6 + 40 / 100) + 2 * (1e-3 + 40 / 10)
    assert tree_seconds(40, 8, NETWORK) == pytest.approx(2 * depth + 2 * 40 / 10)


def test_a_hierarchical_all_reduce_is_a_ring_inside_and_one_across():
    expected = (2 * 1e-6 + 40 / 100) + (2 * 1e-3 + 40 / 10)
    assert hierarchical_seconds(40, 4, NETWORK) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("compute", "exposed"),
    [
        (1000.0, 3.0),  # the backward pass hides all but the last bucket: 2 s + 1 MiB
        (30.0, 10.0),  # 20 of 30 s are hidden
    ],
)
def test_the_backward_pass_hides_all_but_the_last_bucket(compute, exposed):
    found = Communication(BUCKET_BYTES + 2**20, SLOW, "ring")
    assert found.exposed_seconds(2, compute) == pytest.approx(exposed)
