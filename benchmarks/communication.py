"""Predict the seconds of an all-reduce of gradients, by the α–β model of rings and trees inside and across nodes.

A message of n bytes over a link takes α + n/β seconds. Sources: R. Thakur, R. Rabenseifner and W.
Gropp, "Optimization of Collective Communication Operations in MPICH" (2005), for the ring; P.
Sanders, J. Speck and J. L. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and
scan" (2009), for the double binary tree that NCCL has since 2.4; NCCL, src/graph/tuning.cc, for the
number of hops that cross nodes. The model leaves out the additions on the GPUs, because the
GPUs add while bytes travel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

BUCKET_BYTES = 25 * 2**20
"""Size of one message of gradients. Source: torch's DistributedDataParallel, the default of bucket_cap_mb."""

CHUNK_BYTES = 256 * 2**10
"""Size of one message in a tree. Source: NCCL, src/graph/tuning.cc ("the latency of a 256kB chunk")."""

BACKWARD_SHARE = 2 / 3
"""Share of the backward pass in a step. Assumption, as in ``mgexp.models.cost``: twice the forward pass."""


@dataclass(frozen=True)
class Link:
    """A connection: the latency of a message (α), and the bandwidth in one direction (β)."""

    latency_seconds: float
    bytes_per_second: float

    def seconds(self, num_bytes: float) -> float:
        """Predict one message: α + n/β."""
        return self.latency_seconds + num_bytes / self.bytes_per_second


@dataclass(frozen=True)
class Network:
    """Nodes of ``gpus_per_node`` GPUs: ``inside`` joins the GPUs of a node, ``between`` joins the nodes.

    The bandwidth of ``between`` is that of a whole node, not of one GPU."""

    inside: Link
    between: Link
    gpus_per_node: int

    def split(self, num_gpus: int) -> tuple[int, int]:
        """Return the number of nodes, and of GPUs in each. Raises ValueError if the GPUs do not fill the nodes."""
        local = min(num_gpus, self.gpus_per_node)
        if num_gpus % local:
            problem = f"{num_gpus} GPUs do not fill nodes of {self.gpus_per_node}"
            raise ValueError(f"{problem}: give another number, or nodes of another size")
        return num_gpus // local, local

    def slowest(self, num_nodes: int) -> float:
        """Return the bytes per second of the slowest link in use."""
        inside, between = self.inside.bytes_per_second, self.between.bytes_per_second
        return min(inside, between) if num_nodes > 1 else inside


def ring_seconds(num_bytes: float, num_ranks: int, link: Link) -> float:
    """Predict reduce-scatter and all-gather on a ring of p ranks: 2(p−1) messages of n/p bytes.

    This takes 2(p−1)·α + 2(p−1)/p · n/β seconds. Source: Thakur et al.
    """
    hops = 2 * (num_ranks - 1)
    return hops * link.seconds(num_bytes / num_ranks)


def flat_ring_seconds(num_bytes: float, num_gpus: int, network: Network) -> float:
    """Predict NCCL's ring, which visits all GPUs, node after node: 2(nodes−1) of its 2(p−1) hops cross nodes."""
    nodes, _ = network.split(num_gpus)
    hops, crossing = 2 * (num_gpus - 1), 2 * (nodes - 1)
    latency = (hops - crossing) * network.inside.latency_seconds
    latency += crossing * network.between.latency_seconds
    return latency + hops / num_gpus * num_bytes / network.slowest(nodes)


def tree_seconds(num_bytes: float, num_gpus: int, network: Network) -> float:
    """Predict NCCL's tree: a chain in each node and double binary trees over the nodes, chunk after chunk.

    A chunk passes (g−1) hops inside a node of g GPUs and ⌈log2 nodes⌉ hops across nodes, up and
    down again. All bytes then take 2 · n/β seconds.
    """
    if num_gpus == 1:
        return 0.0
    nodes, local = network.split(num_gpus)
    # A rank passes a chunk on while the next one arrives, so only the first chunk pays for the depth of the tree.
    chunk = min(CHUNK_BYTES, num_bytes)
    depth = (local - 1) * network.inside.seconds(chunk)
    depth += math.ceil(math.log2(nodes)) * network.between.seconds(chunk)
    return 2 * depth + 2 * num_bytes / network.slowest(nodes)


def hierarchical_seconds(num_bytes: float, num_gpus: int, network: Network) -> float:
    """Predict a reduce-scatter in each node, a ring across nodes for each GPU's share, an all-gather in each node.

    All shares cross at the same time over the link of a node, together 2(nodes−1)/nodes · n bytes.
    """
    nodes, local = network.split(num_gpus)
    within = ring_seconds(num_bytes, local, network.inside)
    # Every GPU sends 1/local of the bytes, but all GPUs of a node share its link to the others.
    return within + ring_seconds(num_bytes, nodes, network.between)


def best_seconds(num_bytes: float, num_gpus: int, network: Network) -> float:
    """Predict the faster of flat ring and tree. NCCL chooses one of them by its own model."""
    return min(
        flat_ring_seconds(num_bytes, num_gpus, network), tree_seconds(num_bytes, num_gpus, network)
    )


AllReduce = Callable[[float, int, Network], float]
ALGORITHMS: dict[str, AllReduce] = {
    "best": best_seconds,
    "ring": flat_ring_seconds,
    "hierarchical": hierarchical_seconds,
}


@dataclass(frozen=True)
class Communication:
    """The all-reduce of ``gradient_bytes`` in buckets of ``BUCKET_BYTES``, once in each step.

    It may overlap the backward pass.
    """

    gradient_bytes: int
    network: Network
    algorithm: str = "best"
    overlaps: bool = True

    def exposed_seconds(self, num_gpus: int, compute_seconds: float) -> float:
        """Predict by how many seconds the all-reduce lengthens a step.

        Source of the overlap: S. Li et al., "PyTorch Distributed" (VLDB 2020).
        """
        buckets = self._bucket_seconds(num_gpus)
        total = sum(buckets)
        if not self.overlaps or not total:
            return total
        # The last bucket is ready when the backward pass ends, so the backward pass never hides it.
        return max(buckets[-1], total - BACKWARD_SHARE * compute_seconds)

    def _bucket_seconds(self, num_gpus: int) -> list[float]:
        """Predict each bucket. Only the last one may be smaller than the others."""
        whole, rest = divmod(self.gradient_bytes, BUCKET_BYTES)
        # Each bucket is a message of its own, so every one of them pays for latency.
        sizes = [BUCKET_BYTES] * whole + [rest] * (rest > 0)
        reduce = ALGORITHMS[self.algorithm]
        return [reduce(size, num_gpus, self.network) for size in sizes]
