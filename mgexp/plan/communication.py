"""Predict the seconds of an all-reduce of gradients: the α–β model of rings and trees, in nodes and across them.

A message of n bytes over a link takes α + n/β seconds. Sources: R. Thakur, R. Rabenseifner and W. Gropp,
"Optimization of Collective Communication Operations in MPICH" (2005), for the ring; P. Sanders, J. Speck and
J. L. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan" (2009), for the double binary
tree that NCCL has since 2.4; NCCL, src/graph/tuning.cc, for the hops of each that cross nodes. The model leaves
out the additions on the GPUs, which are done while bytes travel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

BUCKET_BYTES = 25 * 2**20
"""Gradients that are reduced at a time: torch's DistributedDataParallel, bucket_cap_mb (its default)."""

CHUNK_BYTES = 256 * 2**10
"""What a tree passes on at a time. Source: NCCL, src/graph/tuning.cc ("the latency of a 256kB chunk")."""

BACKWARD_SHARE = 2 / 3
"""The part of a step in which gradients appear one after the other: as in ``mgexp.models.cost`` (assumption)."""


@dataclass(frozen=True)
class Link:
    """A connection: ``latency_seconds`` of a message (α), and ``bytes_per_second`` in one direction (β)."""

    latency_seconds: float
    bytes_per_second: float

    def __post_init__(self) -> None:
        if self.latency_seconds < 0 or not self.bytes_per_second > 0:
            raise ValueError(
                f"a link needs a latency of 0 or more and a bandwidth above 0, not {self.latency_seconds:g} s "
                f"and {self.bytes_per_second:g} bytes/s"
            )

    def seconds(self, num_bytes: float) -> float:
        """Predict one message: α + n/β."""
        return self.latency_seconds + num_bytes / self.bytes_per_second


@dataclass(frozen=True)
class Network:
    """``gpus_per_node`` GPUs joined by ``inside``; nodes joined by ``between``, whose bandwidth is a node's."""

    inside: Link
    between: Link
    gpus_per_node: int

    def __post_init__(self) -> None:
        if self.gpus_per_node < 1:
            raise ValueError(f"a node has 1 GPU or more, not {self.gpus_per_node}")

    def split(self, num_gpus: int) -> tuple[int, int]:
        """Return the number of nodes, and of GPUs in each. Raises ValueError where the nodes are not full."""
        local = min(num_gpus, self.gpus_per_node)
        if num_gpus < 1 or num_gpus % local:
            raise ValueError(f"{num_gpus} GPUs do not fill nodes of {self.gpus_per_node}")
        return num_gpus // local, local

    def slowest(self, num_nodes: int) -> float:
        """Return the bytes per second of the slowest link in use."""
        inside, between = self.inside.bytes_per_second, self.between.bytes_per_second
        return min(inside, between) if num_nodes > 1 else inside


def ring_seconds(num_bytes: float, num_ranks: int, link: Link) -> float:
    """Predict reduce-scatter and all-gather on a ring: 2(p−1) messages of n/p bytes. Source: Thakur et al.

    2(p−1)·α + 2(p−1)/p · n/β.
    """
    hops = 2 * (num_ranks - 1)
    return hops * link.seconds(num_bytes / num_ranks)


def flat_ring_seconds(num_bytes: float, num_gpus: int, network: Network) -> float:
    """Predict NCCL's ring: through all GPUs, node after node; 2(nodes−1) of its 2(p−1) hops cross nodes."""
    nodes, _ = network.split(num_gpus)
    hops, crossing = 2 * (num_gpus - 1), 2 * (nodes - 1)
    latency = (hops - crossing) * network.inside.latency_seconds
    latency += crossing * network.between.latency_seconds
    return latency + hops / num_gpus * num_bytes / network.slowest(nodes)


def tree_seconds(num_bytes: float, num_gpus: int, network: Network) -> float:
    """Predict NCCL's tree: a chain in each node and double binary trees over the nodes, chunk after chunk.

    Up and down: 2 · ((g−1) hops inside + ⌈log2 nodes⌉ hops across) of a chunk each, then 2 · n/β.
    """
    if num_gpus == 1:
        return 0.0
    nodes, local = network.split(num_gpus)
    chunk = min(CHUNK_BYTES, num_bytes)
    depth = (local - 1) * network.inside.seconds(chunk)
    depth += math.ceil(math.log2(nodes)) * network.between.seconds(chunk)
    return 2 * depth + 2 * num_bytes / network.slowest(nodes)


def hierarchical_seconds(num_bytes: float, num_gpus: int, network: Network) -> float:
    """Predict a reduce-scatter in each node, a ring across nodes for each GPU's share, an all-gather in each node.

    The shares cross at the same time, over the links of the node: 2(nodes−1)/nodes · n bytes in all.
    """
    nodes, local = network.split(num_gpus)
    return ring_seconds(num_bytes, local, network.inside) + ring_seconds(
        num_bytes, nodes, network.between
    )


def best_seconds(num_bytes: float, num_gpus: int, network: Network) -> float:
    """Predict the faster of flat ring and tree, which NCCL chooses by its own model."""
    return min(
        flat_ring_seconds(num_bytes, num_gpus, network), tree_seconds(num_bytes, num_gpus, network)
    )


AllReduce = Callable[[float, int, Network], float]
ALGORITHMS: dict[str, AllReduce] = {
    "best": best_seconds,
    "ring": flat_ring_seconds,
    "tree": tree_seconds,
    "hierarchical": hierarchical_seconds,
}


@dataclass(frozen=True)
class Communication:
    """The all-reduce of ``gradient_bytes`` in buckets, once a step; it may overlap the backward pass."""

    gradient_bytes: int
    network: Network
    algorithm: str = "best"
    overlaps: bool = True

    def seconds(self, num_gpus: int) -> float:
        """Predict all buckets of a step, one after the other."""
        return sum(self._seconds_of(size, num_gpus) for size in self._buckets())

    def exposed_seconds(self, num_gpus: int, compute_seconds: float) -> float:
        """Predict how much longer a step takes by it.

        The last bucket is ready when the backward pass ends, so the backward pass never hides it.
        Source: S. Li et al., "PyTorch Distributed" (VLDB 2020).
        """
        total = self.seconds(num_gpus)
        if not self.overlaps or not total:
            return total
        last = self._seconds_of(self._buckets()[-1], num_gpus)
        return max(last, total - BACKWARD_SHARE * compute_seconds)

    def _seconds_of(self, num_bytes: int, num_gpus: int) -> float:
        return ALGORITHMS[self.algorithm](num_bytes, num_gpus, self.network)

    def _buckets(self) -> list[int]:
        whole, rest = divmod(self.gradient_bytes, BUCKET_BYTES)
        return [BUCKET_BYTES] * whole + [rest] * (rest > 0)
