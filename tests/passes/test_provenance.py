"""provenance: the numbers of nodes, and whose number new ones have."""

from __future__ import annotations

import onnx_ir as ir

from onnxc.passes.provenance import UNKNOWN, inherit, number_nodes, number_of
from tests.malformed import parse


def test_nodes_are_numbered_as_in_the_file_each_before_those_inside() -> None:
    model = ir.from_proto(
        parse("""
        g (float[2] x, bool c) => (float[2] y) {
          a = Neg(x)
          b = If (c) <
            then_branch = then () => (float[2] t) { t = Abs(x) },
            else_branch = other () => (float[2] t) { t = Exp(x) }
          >
          y = Add(a, b)
        }""")
    )
    number_nodes(model)
    numbers = {node.op_type: number_of(node) for node in model.graph.all_nodes()}
    assert [*numbers.items()][:2] == [("Neg", 0), ("If", 1)]
    assert {numbers["Abs"], numbers["Exp"]} == {2, 3}
    assert numbers["Add"] == 4


def test_new_nodes_inherit_a_number_unless_they_have_one() -> None:
    old, new, other = (ir.Node("", "Neg", []) for _ in range(3))
    assert number_of(old) == UNKNOWN == -1
    number_nodes(ir.Model(ir.Graph([], [], nodes=[other, old]), ir_version=10))
    inherit(old, [new, other])
    assert [number_of(node) for node in (old, new, other)] == [1, 1, 0]
