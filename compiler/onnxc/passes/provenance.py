"""Which node of the model as loaded each node of the graph comes from, whatever passes make of it.

Nodes have numbers from 0, in the order of the file once functions are expanded, each before those
of the graphs inside it. A node that takes the place of another has its number.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import onnx_ir as ir

KEY: Final = "number as loaded"
UNKNOWN: Final = -1


def number_nodes(model: ir.Model) -> None:
    for number, node in enumerate(model.graph.all_nodes()):
        node.meta[KEY] = number


def inherit(node: ir.Node, nodes: Iterable[ir.Node]) -> None:
    """Gives the number of `node` to those of `nodes` that have none."""
    for new in nodes:
        new.meta.setdefault(KEY, number_of(node))


def number_of(node: ir.Node) -> int:
    """UNKNOWN of a node that no model had."""
    return int(node.meta.get(KEY, UNKNOWN))
