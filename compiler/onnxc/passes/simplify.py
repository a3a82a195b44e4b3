"""simplify: drop what no output needs."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass


def simplify(model: ir.Model) -> None:
    """Removes nodes whose results nothing reads; graph.meta["unused"] keeps them for the notes."""
    before = list(model.graph)
    RemoveUnusedNodesPass()(model)
    kept = set(model.graph)
    model.graph.meta["unused"] = [node for node in before if node not in kept]
