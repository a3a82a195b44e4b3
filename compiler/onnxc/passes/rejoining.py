"""Values whose readers all lead to one node, element by element, as in x * sigmoid(x)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import onnx_ir as ir

from onnxc.ops.elementwise import BINARY, UNARY
from onnxc.values import static_shape

ELEMENTWISE: Final = frozenset({*UNARY, *BINARY, "Clip", "Max", "Min", "Sum"})
MOST_NODES: Final = 6
"""Between the value and where all meet; what they compute stays one expression."""


def rejoins(value: ir.Value, position: Callable[[ir.Node], int]) -> bool:
    """Whether one node's element needs all that becomes of the value's element.

    That node then computes the value once, with what lies between. `position` orders the nodes.
    """
    shape = static_shape(value)
    ahead = {use.node for use in value.uses()}
    for _ in range(MOST_NODES):
        if not ahead:  # nobody reads what becomes of it
            return True
        first = min(ahead, key=position)
        ahead.discard(first)
        (made,) = first.outputs[:1]
        if not _is_elementwise(first) or static_shape(made) != shape:
            return False
        if not ahead:
            return True
        if made.is_graph_output():
            return False
        ahead |= {use.node for use in made.uses()}
    return False


def _is_elementwise(node: ir.Node) -> bool:
    return not node.domain and node.op_type in ELEMENTWISE and len(node.outputs) == 1
