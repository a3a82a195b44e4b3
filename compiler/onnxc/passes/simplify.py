"""simplify: normalisations become part of weights, products of dequantised integers products of
integers; what no output needs is dropped.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from onnxc.passes.fold_batch_normalization import fold_batch_normalization
from onnxc.passes.multiply_integers import multiply_integers
from onnxc.passes.notes import NOT_NEEDED


def simplify(model: ir.Model) -> None:
    """Leaves fewer nodes.

    graph.meta["gone"] has the others, each with what became of it, for the notes.
    """
    gone = fold_batch_normalization(model.graph)
    gone += multiply_integers(model.graph)
    before = list(model.graph)
    RemoveUnusedNodesPass()(model)
    kept = set(model.graph)
    gone += [(node, NOT_NEEDED) for node in before if node not in kept]
    model.graph.meta["gone"] = gone
