"""Tells unsorted nodes from cycles."""

from __future__ import annotations

from collections.abc import Sequence


def components(successors: Sequence[Sequence[int]]) -> list[int]:
    """The strongly connected component of each node: two nodes share one iff each reaches the
    other. Linear in nodes and edges (Kosaraju's two walks), without recursion."""
    predecessors: list[list[int]] = [[] for _ in successors]
    for node, following in enumerate(successors):
        for successor in following:
            predecessors[successor].append(node)
    component = [-1] * len(successors)
    for root in reversed(_post_order(successors)):
        pending = [root] if component[root] < 0 else []
        while pending:
            node = pending.pop()
            if component[node] < 0:
                component[node] = root
                pending.extend(predecessors[node])
    return component


def _post_order(successors: Sequence[Sequence[int]]) -> list[int]:
    """Every node, after all that a depth-first walk reaches from it."""
    order: list[int] = []
    entered = [False] * len(successors)
    for root in range(len(successors)):
        pending = [(root, False)]
        while pending:
            node, left = pending.pop()
            if left:
                order.append(node)
            elif not entered[node]:
                entered[node] = True
                pending.append((node, True))
                pending.extend((successor, False) for successor in successors[node])
    return order
